"""Streams for `windows_late.py`: tuples that are put into files when they arrive, and what a watermark of hindsight would be."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from latency import WARM_SECONDS, due_files, event_times, put_file
from penstock_lab.simulate.disorder import GAME_2, SECOND, Disorder, generated

COLUMNS = "ts TIMESTAMP, key BIGINT, value BIGINT"
RATE, KEYS = 10_000, 10
FILE_SECONDS = 0.1
#: windows that end so shortly before the last tuple do not count
TAIL_SECONDS = 5.0
#: 15 % of the tuples are late by 0.8 s in the median and by up to 15 s
TROUBLED = Disorder(0.02, 0.15, 0.8, 1.0, 15.0)
#: watermarks that are tried in hindsight, seconds
WATERMARKS = np.arange(0, 5, 0.05)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its windows.

    Attributes:
        name: what it is.
        disorder: delays.
        size, slide: of the windows, microseconds.
    """

    name: str
    disorder: Disorder
    size: int
    slide: int

    @property
    def window(self) -> str:
        """The window of a tuple in SQL."""
        return f"window(ts, '{self.size} microseconds', '{self.slide} microseconds')"


STREAMS = (
    Stream("game 2, 0.5 s by 0.1 s", GAME_2, SECOND // 2, SECOND // 10),
    Stream("troubled, 2 s by 0.5 s", TROUBLED, 2 * SECOND, SECOND // 2),
)


@dataclass(frozen=True, slots=True)
class Tuples:
    """Tuples in order of arrival.

    Attributes:
        event: event times, seconds since the first one.
        file: the file that each arrives with.
        key, value: its columns; values are whole, so that sums are exact.
    """

    event: npt.NDArray[np.float64]
    file: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]

    @classmethod
    def of(cls, stream: Stream, seconds: float) -> Tuples:
        """Those of a stream, the same ones at each call."""
        drawn = generated(stream.name, [stream.disorder], int(RATE * seconds), seconds, seed=5)
        return cls(
            drawn.event_time / SECOND,
            (drawn.arrival_time / SECOND / FILE_SECONDS).astype(np.int64),
            np.random.default_rng(6).integers(0, KEYS, len(drawn.event_time)),
            np.rint(drawn.columns.column("value").to_numpy() * 1000).astype(np.int64),
        )

    def between(self, first: int, last: int, begun: float) -> pa.Table:
        """Those of files first to last - 1, of a stream that begins at a moment."""
        own = slice(*np.searchsorted(self.file, [first, last]))
        return pa.table(
            {"ts": event_times(begun + self.event[own]), "key": self.key[own], "value": self.value[own]}
        )


def produce(folder: Path, stream: Stream, begun: float, seconds: float) -> None:
    """Puts each tuple into a file when it arrives, until the time is over."""
    tuples = Tuples.of(stream, seconds)
    for number, _ in due_files(FILE_SECONDS, seconds, begun):
        put_file(folder, number, tuples.between(number, number + 1, begun))


def play(folder: Path, stream: Stream, seconds: float) -> float:
    """Produces a stream in a process of its own; returns the moment of its beginning, a whole second."""
    begun = ceil(time.time()) + 4.0
    process = multiprocessing.get_context("spawn").Process(
        target=produce, args=(folder, stream, begun, seconds)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("the producer failed")
    return begun


def watermark(stream: Stream, seconds: float, epsilon: float, delta: float) -> float:
    """The least fixed watermark, seconds, that would have satisfied so many of the rows by key, file by file.

    Args:
        stream: its windows.
        seconds: how long it is.
        epsilon: a row is satisfied whose SUM and COUNT are both wrong by less.
        delta: share that may be violated.
    """
    tuples = Tuples.of(stream, seconds)
    files = int(tuples.file[-1]) + 1
    newest = np.zeros(files)
    np.maximum.at(newest, tuples.file, tuples.event)
    newest = np.maximum.accumulate(newest)
    order = np.argsort(tuples.event, kind="stable")
    event, file, key, value = (each[order] for each in (tuples.event, tuples.file, tuples.key, tuples.value))
    size, slide = stream.size / SECOND, stream.slide / SECOND
    good, rows = np.zeros(len(WATERMARKS)), 0
    for end in np.arange(WARM_SECONDS, seconds - TAIL_SECONDS, slide):
        own = slice(*np.searchsorted(event, [end - size, end]))
        closed = np.minimum(np.searchsorted(newest, end + WATERMARKS), files - 1)
        within = np.ones((KEYS, len(WATERMARKS)), bool)
        for weights in (value[own].astype(float), np.ones(own.stop - own.start)):
            by_file = np.bincount(key[own] * files + file[own], weights, KEYS * files).reshape(KEYS, files)
            arrived = by_file.cumsum(axis=1)
            within &= np.abs(arrived[:, closed] - arrived[:, -1:]) < epsilon * arrived[:, -1:]
        good += within.sum(axis=0)
        rows += KEYS
    return float(WATERMARKS[np.argmax(good >= (1 - delta) * rows)])


def largest_delay(stream: Stream, seconds: float) -> float:
    """The largest delay of a stream, seconds: what a watermark that loses no tuple has to be."""
    event = Tuples.of(stream, seconds).event
    return float((np.maximum.accumulate(event) - event).max())
