"""The history of window views: the log itself, read again for windows that were final too early.

The envelopes hold partials of every tuple that ever came, by pane, so a window is recomputed from them exactly and
without the tuples. A correction takes in what precedes an entry of the log and that entry, nothing else,
so that a repeated batch gives the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import CheckpointError
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.operator import PaneBatch
from penstock.operators.windows.shard import Shard, pane_batch
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.stream_log import LogReader
from penstock.spark.results.window_schemas import FIRST_REVISION

Beyond = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Entries up to the end of a segment, as they were read.

    Attributes:
        last: number of the last one.
        newest: see `Entry`; that one's.
        oldest: no tuple in their files has an event time before it, microseconds.
    """

    last: int
    newest: int | None
    oldest: int


class History:
    """The history of a shard's windows, as it is read again in one batch of the shard.

    Args:
        log: the stream's log.
        number: which shard it is.
    """

    def __init__(self, log: LogReader, number: int) -> None:
        self._log = log
        self._reader = EnvelopeReader(log, number)
        #: by their first entry
        self._stretches: dict[int, _Stretch] = {}

    def corrected(self, shard: Shard, entry: Entry, beyond: Sequence[Beyond]) -> list[tuple[int, Answer]]:
        """Corrects final windows that an entry brought tuples for.

        Args:
            shard: the shard that took the entry in.
            entry: the entry.
            beyond: (operator, view, start) of the windows.

        Returns:
            (operator, answer) of the windows that differ.
        """
        oldest = min(start for _, _, start in beyond)
        latest = max(start + shard.window_size(operator, view) for operator, view, start in beyond)
        batches: dict[int, list[tuple[bool, PaneBatch]]] = {operator: [] for operator, _, _ in beyond}
        whole: set[int] = set()
        for each in self._entries(entry, oldest, latest):
            envelopes = self._reader.of(each)
            # an operator takes in what makes it whole once
            twice = whole.intersection(each.whole)
            whole.update(each.whole)
            for operator in batches.keys() - twice:
                found = batches[operator]
                own = [envelope for envelope in envelopes if envelope.operator == operator]
                if own:
                    found.append((each.number == entry.number, pane_batch(own, None, np.zeros(0, np.int64))))
        answers = []
        for operator, view, start in beyond:
            answer = shard.answer_from_history(
                operator, view, start, batches[operator], FIRST_REVISION + entry.batch
            )
            if answer is not None:
                answers.append((operator, answer))
        return answers

    def _entries(self, entry: Entry, oldest: int, latest: int) -> Iterator[Entry]:
        """The entries up to one that may hold tuples between two event times, in order; no more than a segment is held."""
        number, newest = self._first(entry, oldest), None
        while number <= entry.number:
            known = self._stretches.get(number)
            if known is not None and known.last < entry.number and known.oldest > latest:
                number, newest = known.last + 1, known.newest
                continue
            first, reach = number, AFTER_ALL
            last = min(entry.number, self._log.segment_end(self._log.segment_number(number)))
            for each in self._log.between(number - 1, last):
                own, newest = _oldest(each, newest), each.newest
                reach = min(reach, own)
                if own <= latest:
                    yield each
                number += 1
            if number <= entry.number:
                self._stretches[first] = _Stretch(number - 1, newest, reach)

    def _first(self, entry: Entry, moment: int) -> int:
        """The first entry that may hold tuples from a moment on; at most the given one."""
        while True:
            kept = self._log.first
            try:
                return self._log.first_reaching(moment, kept - 1, entry.number - 1)
            except CheckpointError:
                # it was removed meanwhile: such ones hold nothing from that moment on
                if self._log.first == kept:
                    raise


def _oldest(entry: Entry, before: int | None) -> int:
    """No tuple in the files of an entry has an event time before it, microseconds.

    Args:
        entry: the entry.
        before: `newest` of the entry before; None where it is not known.
    """
    if not entry.files:
        return AFTER_ALL
    if entry.whole or before is None:
        return BEFORE_ALL
    return before - max(entry.delays, default=0)
