"""Arrival steps: a batch that is larger than a window, cut into what would have been batches of its own.

All tuples of a batch have come by one moment of the stream, so that nothing shows how late they are among themselves. Where the
source knows an order of arrival (offsets of Kafka's records, times of files), the tuples of a large batch have the number of a
step, and an operator takes the batch in step by step, each with an arrival of its own (docs/decisions/0038).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: column of a row's step among partials and values
STEP = "step"

Ints = npt.NDArray[np.int64]
#: int8[rows], the steps of some tuples
Steps = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class ArrivalStep:
    """What an entry of the log says of one step of its batch.

    Attributes:
        number: the step; they are taken in ascending order.
        newest: largest event time seen up to its end, microseconds, or None.
        delays: of some of its tuples, microseconds, by what was seen before it; the largest among them.
    """

    number: int
    newest: int | None
    delays: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Event times of a step's tuples that are believed, microseconds.

    Attributes:
        oldest, newest: the smallest and the largest.
        recent: the smallest that is not too late to matter for slack, or None.
    """

    oldest: int
    newest: int
    recent: int | None

    def merged(self, other: StepTimes) -> StepTimes:
        """Of the tuples of both."""
        recent = [each for each in (self.recent, other.recent) if each is not None]
        return StepTimes(
            min(self.oldest, other.oldest), max(self.newest, other.newest), min(recent, default=None)
        )


def times_by_step(times: Ints, steps: Steps, floor: int) -> dict[int, StepTimes]:
    """Event times by step.

    Args:
        times: int64[tuples], those that are believed.
        steps: int8[tuples], theirs.
        floor: tuples that are older are too late to matter for slack.
    """
    found = {}
    for step in np.flatnonzero(np.bincount(steps)).tolist():
        own = times[steps == step]
        recent = own[own >= floor]
        found[step] = StepTimes(int(own.min()), int(own.max()), int(recent.min()) if len(recent) else None)
    return found


def merged_by_step(one: Mapping[int, StepTimes], other: Mapping[int, StepTimes]) -> dict[int, StepTimes]:
    """The event times by step of two parts of a batch."""
    both = {step: one[step].merged(other[step]) for step in one.keys() & other.keys()}
    return {**one, **other, **both}


def steps_told(times: Mapping[int, StepTimes], before: int | None) -> tuple[ArrivalStep, ...]:
    """What an entry says of the steps of a batch; nothing where there is but one.

    Args:
        times: by step.
        before: largest event time seen before the batch, or None.
    """
    if len(times) < 2:
        return ()
    told = []
    for number in sorted(times):
        own = times[number]
        moments = dict.fromkeys(each for each in (own.oldest, own.recent) if each is not None)
        delays = tuple(0 if before is None else max(0, before - each) for each in moments)
        before = own.newest if before is None else max(before, own.newest)
        told.append(ArrivalStep(number, before, delays))
    return tuple(told)


def without_steps(table: pa.Table) -> pa.Table:
    """Partials or values as they are where a batch has no steps."""
    return table.drop_columns([STEP]) if STEP in table.column_names else table


def by_step(table: pa.Table, numbers: Sequence[int]) -> list[pa.Table]:
    """The rows of each step, without its number.

    Rows of a step that an entry does not tell of (of its tuples no event time is believed) come with the next one that it
    tells of, those behind the last one with that, and so do rows that have no step.

    Args:
        table: partials or values.
        numbers: the steps that the entry tells of, ascending.
    """
    last = len(numbers) - 1
    if STEP not in table.column_names:
        return [*[table.slice(0, 0)] * last, table]
    places = np.minimum(np.searchsorted(numbers, table.column(STEP).to_numpy()), last)
    rows = without_steps(table)
    return [rows.filter(pa.array(places == place)) for place in range(len(numbers))]


@dataclass(frozen=True, slots=True)
class OffsetSteps:
    """The steps of a batch of Kafka's records: equal parts of the offsets of each partition.

    They are the batches that Spark would have made of the same records with a smaller `maxOffsetsPerTrigger`.

    Attributes:
        ranges: the first offset and the one after the last, by topic (None where there is but one) and partition.
        number: of steps.
    """

    ranges: Mapping[tuple[str | None, int], tuple[int, int]]
    number: int

    def of(self, topics: pa.Array | None, partitions: Ints, offsets: Ints) -> Steps:
        """The steps of some records; those of partitions that are not known are of the last one.

        Args:
            topics: their topics, None where there is but one.
            partitions, offsets: int64[records], where they lie.
        """
        found = np.full(len(offsets), self.number - 1, np.int8)
        present = set(np.flatnonzero(np.bincount(partitions)).tolist())
        for (topic, partition), (first, until) in self.ranges.items():
            if partition not in present:
                continue
            own = partitions == partition
            if topic is not None and topics is not None:
                own &= pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            if until > first:
                steps = (2 * (offsets[own] - first) + 1) * self.number // (2 * (until - first))
                found[own] = np.clip(steps, 0, self.number - 1)
        return found


def file_steps(files: Sequence[tuple[int, int]], number: int) -> list[int]:
    """The steps of files: about equal numbers of rows in order of time; files of one time are of one step.

    Args:
        files: time of the last modification and rows of each.
        number: of steps at the most.

    >>> file_steps([(30, 10), (10, 10), (20, 10), (20, 10)], 2)
    [1, 0, 0, 0]
    """
    rows: dict[int, int] = {}
    for time, own in files:
        rows[time] = rows.get(time, 0) + own
    total, before = max(1, sum(rows.values())), 0
    steps = {}
    for time in sorted(rows):
        steps[time] = min(number - 1, (2 * before + rows[time]) * number // (2 * total))
        before += rows[time]
    return [steps[time] for time, _ in files]
