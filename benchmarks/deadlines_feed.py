"""The work of `deadlines_spark.py`: a stream in real time, and three views of it with a deadline whose aggregate is dear."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, time

import numpy as np
import pyarrow as pa

from latency import due_files, event_times, put_file

STREAM, COLUMNS = "readings", "ts TIMESTAMP, x BIGINT"
#: tuples a second, and how often some of them are written
RATE, FILE_SECONDS = 100, 0.2
VALUES = 1_000
SIZE_SECONDS, HOP_SECONDS = 5, 1
WINDOW = f"window(ts, '{SIZE_SECONDS} seconds', '{HOP_SECONDS} second')"
MICROS = 1_000_000

#: by view and end of a window, microseconds
Windowed = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class View:
    """A view with a deadline.

    Attributes:
        deadline: seconds.
        share: its instances take so much beside those of the others.
    """

    deadline: int
    share: int

    @property
    def name(self) -> str:
        """The view's name."""
        return f"within_{self.deadline}s"

    @property
    def aggregate(self) -> str:
        """The name of its aggregate."""
        return f"work_{self.deadline}s"

    def text(self, seconds: float, loss: tuple[int, int] | None = None) -> str:
        """As Penstock is given it, with a deadline of so many seconds, and a loss of k in m windows where there is one."""
        hints = f"DEADLINE('{seconds} seconds')" + (f", LOSS({loss[0]}, {loss[1]})" if loss else "")
        return f"SELECT /*+ {hints} */ {WINDOW} AS w, {self.aggregate}(x) AS s FROM {STREAM} GROUP BY w"


VIEWS = (View(1, 1), View(2, 2), View(5, 3))
SHARES = sum(view.share for view in VIEWS)


def laborious(turns: int) -> Callable[[pa.Array], int]:
    """An aggregate: the sum, and beside it a loop in plain Python that goes round so often a tuple."""

    def work(x: pa.Array) -> int:
        values = x.to_pylist()
        for value in values:
            number = value
            for _ in range(turns):
                number = number * 1_103_515_245 + 12_345 & 0x7FFF_FFFF
        return sum(values)

    return work


def turn_seconds() -> float:
    """Seconds that a turn takes in this process, roughly."""
    began = perf_counter()
    laborious(20_000)(pa.array([1] * 100))
    return (perf_counter() - began) / 2_000_000


@dataclass(frozen=True, slots=True)
class Fed:
    """What was written of the stream: of each file its newest event time, microseconds, and when it could be read, seconds since the epoch."""

    newest: Sequence[int]
    written: Sequence[float]

    def created(self, end: int) -> float:
        """When the first tuple was there that lies beyond the end of a window; infinite where none was."""
        place = bisect_left(self.newest, end)
        return self.written[place] if place < len(self.written) else float("inf")

    def ends(
        self,
        warm: float,
        rest: float,
        hop_seconds: float = HOP_SECONDS,
        size_seconds: float = SIZE_SECONDS,
    ) -> list[int]:
        """The ends of the windows that are counted, microseconds: the stream was fed for so many seconds before and after."""
        first, last = self.written[0] + warm, self.written[-1] - rest
        hop, size = round(hop_seconds * MICROS), round(size_seconds * MICROS)
        begin = -int(-(first * MICROS - size) // hop) * hop
        return list(range(begin + size, int(last * MICROS), hop))


def feed(
    folder: Path, seconds: float, told: Connection, rate: int = RATE, groups: int = 0, values: int = VALUES
) -> None:
    """Writes files until the time is over, and says when.

    Args:
        folder: of the stream.
        seconds: how long.
        told: where to.
        rate: tuples a second.
        groups: values of a column `k`; 0: there is none.
        values: of the column `x`.
    """
    rows = int(rate * FILE_SECONDS)
    rng = np.random.default_rng(1)
    newest, written = [], []
    for number, due in due_files(FILE_SECONDS, seconds):
        times = event_times(due - FILE_SECONDS + np.arange(1, rows + 1) / rate)
        keys = {"k": rng.integers(0, groups, rows)} if groups else {}
        put_file(folder, number, pa.table({"ts": times, **keys, "x": rng.integers(0, values, rows)}))
        newest.append(times[-1].cast(pa.int64()).as_py())
        written.append(time())
    told.send(Fed(newest, written))
