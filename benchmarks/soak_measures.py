"""What the soak costs, seen from outside: processor time and memory of its processes, files and bytes of its folder."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
#: who spends processor time and holds memory; workers are all Python processes but the driver
PARTS = ("driver", "jvm", "workers")
#: what grows with the definitions of views there ever were, and not with time: told, not judged
#: what users own; no row of it is ever removed
RESULTS = "results"
#: kinds of files that are to stay bounded
BOUNDED = ("log", "checkpoint", "events")


@dataclass(frozen=True, slots=True)
class Spent:
    """What the processes of one session have used.

    Attributes:
        processor: seconds by part, children that have ended included.
        memory: bytes by part, shared pages divided among those who share them.
    """

    processor: dict[str, float]
    memory: dict[str, int]


def processes_of(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(ProcessLookupError, FileNotFoundError):
            if folder.name.isdigit() and os.getsid(int(folder.name)) == leader:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found += [] if state == "Z" else [int(folder.name)]
    return found


def spent(leader: int, *, with_memory: bool = True) -> Spent:
    """What the processes of a session have used up to now."""
    processor = dict.fromkeys(PARTS, 0.0)
    memory = dict.fromkeys(PARTS, 0)
    for number in processes_of(leader):
        folder = Path("/proc", str(number))
        try:
            times = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
            command = (folder / "cmdline").read_bytes().partition(b"\0")[0]
            rollup = (folder / "smaps_rollup").read_text() if with_memory else "\nPss: 0 kB"
        except (OSError, ProcessLookupError):
            continue
        part = "jvm" if b"java" in command else "driver" if number == leader else "workers"
        # children that have ended count with the one that waited for them
        processor[part] += sum(map(int, times)) / _TICK
        memory[part] += int(rollup.partition("\nPss:")[2].split()[0]) << 10
    return Spent(processor, memory)


def kept(output: Path) -> dict[str, tuple[int, int]]:
    """Files and bytes below a results folder, by kind."""
    found = {kind: [0, 0] for kind in (*BOUNDED, RESULTS)}
    folders = [(output, "events")]
    while folders:
        folder, kind = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append((Path(entry.path), _kind(Path(entry.path).relative_to(output), kind)))
                continue
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
            found[kind][0] += 1
            found[kind][1] += size
    return {kind: (files, size) for kind, (files, size) in found.items()}


def _kind(folder: Path, above: str) -> str:
    """The kind of the files of a folder, by its path below the output and the kind of the folder above."""
    match folder.parts:
        case ("matches" | "results" | "misses" | "quarantine",):
            return RESULTS
        case ("_penstock",) | ("_penstock", "checkpoint") | ("_penstock", "staging"):
            return "checkpoint"
        case ("_penstock", "checkpoint", _, "log"):
            return "log"
        case _:
            return above
