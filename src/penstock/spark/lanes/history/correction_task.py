"""One job of corrections in a worker, and which entries of the log it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import CheckpointError
from penstock.operators.windows.history import Beyond, FinalWindows
from penstock.operators.windows.shard import Shard, pane_batch
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.lanes.windows.programs import SentProgram
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.stream_log import SEGMENT, LogReader
from penstock.spark.results.window_staging import ResultStage, StagedResults
from penstock.spark.sessions.priority import give_way
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath


@dataclass(frozen=True, slots=True)
class CorrectionCell:
    """The windows of one shard that are answered again.

    Attributes:
        shard: which.
        windows: its windows.
        reached: by view the event time that the stream has come to, microseconds; None before any.
    """

    shard: int
    windows: Sequence[Beyond]
    reached: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class CorrectionTask:
    """Answers final windows again.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        entries: those that may hold tuples of the windows, in order, see `history_entries`.
        program: the views.
        revision: of the corrections.
        scratch: where the results are left.
    """

    layout: Layout
    stream: str
    entries: Sequence[Entry]
    program: SentProgram
    revision: int
    scratch: StorePath

    def __call__(self, cell: CorrectionCell) -> list[StagedResults]:
        """Answers the windows of one shard; those that do not differ are left out."""
        give_way()
        program = self.program.value
        shard = Shard.of(program.program)
        reader = EnvelopeReader(LogReader(self.layout.log(self.stream)), cell.shard)
        stage = ResultStage(None, self.scratch, cell.shard, program.views.__getitem__)
        final = shard.final_windows(cell.windows)
        self._read(reader, final)
        for windows in final.values():
            for window, answer in windows.answers(self.revision):
                reached = cell.reached.get(window.view)
                slack = 0 if reached is None else reached - answer.end
                stage.add(window.operator, replace(answer, slack=slack))
        return stage.close()

    def _read(self, reader: EnvelopeReader, final: Mapping[int, FinalWindows]) -> None:
        """Gives each operator its rows of each entry."""
        whole: set[int] = set()
        for entry in self.entries:
            envelopes = reader.of(entry)
            # an operator takes in what makes it whole once
            twice = whole.intersection(entry.whole)
            whole.update(entry.whole)
            for operator in final.keys() - twice:
                own = [envelope for envelope in envelopes if envelope.operator == operator]
                if own:
                    final[operator].add(entry.number, pane_batch(own, None, np.zeros(0, np.int64)))


class History:
    """Finds the entries of a log that windows are answered again from; threads may share it.

    Args:
        log: the stream's log.
    """

    def __init__(self, log: LogReader) -> None:
        self._log = log
        #: of each whole segment that was read: no tuple of its entries is older, and `newest` of the last one
        self._segments: dict[int, tuple[int, int | None]] = {}

    def entries(self, oldest: int, latest: int, until: int) -> Iterator[Entry]:
        """Give the entries that may hold tuples between two event times, in order.

        Args:
            oldest, latest: event times, microseconds.
            until: number of the last entry.

        Raises:
            CheckpointError: an entry is gone.
        """
        number, newest = self.first(oldest, until), None
        while number <= until:
            segment = number // SEGMENT
            end = self._log.segment_end(segment)
            known = self._segments.get(segment)
            if known is not None and end <= until and known[0] > latest:
                number, newest = end + 1, known[1]
                continue
            is_whole, reach = number == SEGMENT * segment and end <= until, AFTER_ALL
            for entry in self._log.between(number - 1, min(until, end)):
                own, newest = _oldest(entry, newest), entry.newest
                reach = min(reach, own)
                if own <= latest:
                    yield entry
            if is_whole:
                self._segments[segment] = reach, newest
            number = end + 1

    def first(self, moment: int, until: int) -> int:
        """Return the first entry that may hold tuples from an event time on, microseconds; `until` if no earlier one may."""
        while True:
            kept = self._log.first
            try:
                return self._log.first_reaching(moment, kept - 1, until - 1)
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
