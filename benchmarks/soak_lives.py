"""The processes of the soak, one after the other, and what was seen of them from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soak_measures import PARTS, Spent, kept, processes_of, spent
from soak_stream import Pace

STRETCHES = range(1, 11)
#: batches of a process that are left out of what a batch costs
WARM = 100
#: a process has so long for its first batch, a run for its next one, a process to end
_MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Life:
    """A process: its stretches, and whether it is killed at their end."""

    stretches: tuple[int, ...]
    is_killed: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How a soak goes.

    Attributes:
        pace: how fast it ages.
        lives: its processes.
        begins_again: stretches before which the run is ended and begun again in its process.
        look_seconds: time between two looks from outside.
        starts: how often a start is measured after the first stretch and after the last; 0: not.
    """

    pace: Pace
    lives: tuple[Life, ...]
    begins_again: tuple[int, ...]
    look_seconds: float
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A process that began after a stretch: seconds to its first batch by the clock, and of a processor."""

    after: int
    seconds: float
    processor: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: seconds since the beginning, the newest batch, what was spent and what is kept."""

    stretch: int
    at: float
    batch: int
    spent: Spent
    kept: dict[str, tuple[int, int]]


class Soak:
    """Runs a plan.

    Args:
        work: emptied; holds `out`, `series.jsonl` and what the processes print.
        plan: what to run.
        batches, seconds: a stretch ends after a tenth of either.
    """

    def __init__(self, work: Path, plan: Plan, batches: int, seconds: float) -> None:
        self.out = work / "out"
        self.samples: list[Sample] = []
        self.starts: list[Start] = []
        self.kills = 0
        #: the newest batch that was told
        self.newest = -1
        self._work = work
        self._plan = plan
        self._batches = -(-batches // len(STRETCHES))
        self._seconds = seconds / len(STRETCHES)
        self._began = time.monotonic()
        self._stretch = 0
        self._read = 0
        #: by kind and stretch the lines of the processes
        self._lines: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)

    def run(self) -> None:
        """Runs it.

        Raises:
            RuntimeError: a process failed, was stuck, or left others behind.
        """
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._began = time.monotonic()
        for life in self._plan.lives:
            if self._stretch == 1:
                self._only_start(self._plan.starts - 1)
            process = self._begin()
            for stretch in life.stretches:
                self._stretch = stretch
                if stretch in self._plan.begins_again:
                    process.send_signal(signal.SIGUSR1)
                self._pass(process)
            self._end(process, life.is_killed)
        self._only_start(self._plan.starts)

    @property
    def minutes(self) -> float:
        """How long it took, up to the last look."""
        return self.samples[-1].at / 60

    def batches(self, stretch: int) -> int:
        """How many batches it had."""
        return len(self._lines["batch", stretch])

    def seconds(self, kind: str) -> tuple[list[int], list[float]]:
        """The batches of a query and the seconds of each."""
        lines = [line for stretch in STRETCHES for line in self._lines[kind, stretch]]
        return [line["batch"] for line in lines], [line["seconds"] for line in lines]

    def median_seconds(self, kind: str, stretch: int) -> float:
        """The median of a query's batches in a stretch."""
        return _median([line["seconds"] for line in self._lines[kind, stretch]])

    def heap(self, stretch: int) -> float:
        """Median of the bytes that were alive in the JVM's heap."""
        return _median([line["bytes"] for line in self._lines["heap", stretch]])

    def held(self, stretch: int, part: str) -> float:
        """Median of the bytes of memory that a part had."""
        return _median([each.spent.memory[part] for each in self.samples if each.stretch == stretch])

    def kept(self, stretch: int, kind: str) -> tuple[float, float]:
        """Medians of the files of a kind and of their bytes."""
        found = [each.kept[kind] for each in self.samples if each.stretch == stretch]
        return _median([files for files, _ in found]), _median([size for _, size in found])

    def cost(self, stretch: int) -> dict[str, float]:
        """Seconds a batch: by the clock, and of a processor by part."""
        own = [each for each in self.samples if each.stretch == stretch]
        own = [each for each in own if each.batch >= own[0].batch + WARM]
        if len(own) < 2 or own[-1].batch == own[0].batch:
            return dict.fromkeys(("clock", *PARTS), float("nan"))
        first, last = own[0], own[-1]
        count = last.batch - first.batch
        used = {part: last.spent.processor[part] - first.spent.processor[part] for part in PARTS}
        return {"clock": (last.at - first.at) / count, **{part: used[part] / count for part in PARTS}}

    def starts_after(self, stretch: int) -> list[Start]:
        """The starts after a stretch."""
        return [each for each in self.starts if each.after == stretch]

    def _only_start(self, times: int) -> None:
        for _ in range(times):
            self._end(self._begin(), is_killed=True)

    def _begin(self) -> subprocess.Popen[bytes]:
        """Starts a process and waits for its first batch."""
        program = Path(__file__).with_name("soak_stream.py")
        words = [str(self.out), str(self._work / "series.jsonl"), *self._plan.pace.words()]
        began = time.time()
        with (self._work / "process.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(program), *words], stdout=log, stderr=log, start_new_session=True
            )
        limit = time.monotonic() + _MOST_SECONDS
        while not (started := [line for line in self._look() if line["kind"] == "start"]):
            self._refuse_failed(process, limit)
            time.sleep(0.1)
        self.starts.append(Start(self._stretch, started[0]["at"] - began, started[0]["processor"]))
        return process

    def _pass(self, process: subprocess.Popen[bytes]) -> None:
        """Looks at the process until the stretch is over."""
        began, first = time.monotonic(), self.newest
        limit = time.monotonic() + _MOST_SECONDS
        while self.newest < first + self._batches and time.monotonic() < began + self._seconds:
            time.sleep(min(self._plan.look_seconds, self._seconds))
            before = self.newest
            self._look()
            if self.newest > before:
                limit = time.monotonic() + _MOST_SECONDS
            self._refuse_failed(process, limit)
            at = time.monotonic() - self._began
            self.samples.append(Sample(self._stretch, at, self.newest, spent(process.pid), kept(self.out)))
            with (self._work / "samples.jsonl").open("a") as file:
                file.write(json.dumps(asdict(self.samples[-1])) + "\n")

    def _end(self, process: subprocess.Popen[bytes], is_killed: bool) -> None:
        """Kills the process and all it has started, or tells it to end and waits for it."""
        if is_killed:
            self.kills += 1
            for number in processes_of(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()
        else:
            process.terminate()
            if process.wait(_MOST_SECONDS):
                self._refuse_failed(process, time.monotonic())
        limit = time.monotonic() + _MOST_SECONDS
        while left := processes_of(process.pid):
            if time.monotonic() > limit:
                raise RuntimeError(f"processes are left behind: {left}")
            time.sleep(0.1)
        self._look()

    def _look(self) -> list[dict[str, Any]]:
        """The lines since the last look."""
        path = self._work / "series.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        end = content.rfind(b"\n") + 1
        self._read += end
        lines = [json.loads(line) for line in content[:end].splitlines()]
        for line in lines:
            kind = line["kind"]
            self._lines[kind, self._stretch].append(line)
            if kind == "batch":
                self.newest = max(self.newest, line["batch"])
        return lines

    @property
    def failures(self) -> list[str]:
        """What the runs said that failed."""
        lines = [line for stretch in (0, *STRETCHES) for line in self._lines["failed", stretch]]
        return [json.dumps(line["event"]) for line in lines]

    def _refuse_failed(self, process: subprocess.Popen[bytes], limit: float) -> None:
        if process.poll() is None and time.monotonic() <= limit:
            return
        told = f"ended with {process.poll()}" if process.poll() is not None else "had no next batch in time"
        self._tell_where(process)
        for number in processes_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        tail = (self._work / "process.log").read_text(errors="replace")[-4_000:]
        raise RuntimeError(f"a process {told}, see {self._work / 'process.log'}:\n{tail}")

    def _tell_where(self, process: subprocess.Popen[bytes]) -> None:
        """Lets what is left of a process that is stuck say in its log where each thread is."""
        with (self._work / "process.log").open("a") as log:
            for number in processes_of(process.pid):
                folder = Path("/proc", str(number))
                with suppress(OSError, subprocess.TimeoutExpired):
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    words = (folder / "cmdline").read_text().split("\0")
                    log.write(f"process {number} is in state {state}: {' '.join(words)[:200]}\n")
                    if number == process.pid:
                        os.kill(number, signal.SIGUSR2)
                    elif "java" in words[0]:
                        stacks = subprocess.run(
                            ["jstack", str(number)], capture_output=True, text=True, check=False, timeout=60
                        )
                        log.write(stacks.stdout)
        time.sleep(1.0)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else float("nan")
