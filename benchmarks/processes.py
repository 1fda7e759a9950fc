"""Processor time of a process and all it has started."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int) -> float:
    """What a process, those below it and children of theirs that have ended have used, seconds.

    Args:
        root: its number.
    """
    below: defaultdict[int, list[int]] = defaultdict(list)
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(ProcessLookupError, FileNotFoundError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                below[int(fields[1])].append(int(folder.name))
                used[int(folder.name)] = sum(map(int, fields[11:15])) / _TICK
    total, waiting = 0.0, [root]
    while waiting:
        process = waiting.pop()
        total += used.get(process, 0.0)
        waiting += below[process]
    return total
