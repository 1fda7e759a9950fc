"""The order in which the batches of a stream call users' functions, by what batches before measured."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import numpy as np

from penstock.control.policies.call_order import CallMeasure, CallOrderPolicy, CallsStanding, standing_of
from penstock.control.policies.output_rate import SwitchSettings
from penstock.errors import CheckpointError
from penstock.monitor.figures import counted
from penstock.operators.functions.judging import CallsProgram
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import CALL_STATISTICS
from penstock.spark.storage.ledger_documents import StoredDocument

_log = logging.getLogger(__name__)

#: least time between two documents
_EVERY_SECONDS = 1.0
#: calls that `explain` and an event show
_SHOWN = 50


class CallOrders:
    """Keeps the order of one stream; any thread may ask.

    Args:
        stream: the stream's name.
        events: the event log.
        settings: thresholds, dwell time and half-life.
        document: where what is measured outlasts the run.
    """

    def __init__(
        self, stream: str, events: EventLog, settings: SwitchSettings, document: StoredDocument
    ) -> None:
        self._stream = stream
        self._events = events
        self._lock = threading.Lock()
        self._policy = CallOrderPolicy(settings, time.monotonic)
        self._document = document
        self._put: float | None = None
        #: the order that was put last
        self._order: tuple[str, ...] = ()
        try:
            found = CALL_STATISTICS.read(document)
            if found is not None:
                self._policy.restore(found)
        except (CheckpointError, KeyError, ValueError, TypeError) as error:
            _log.warning("%s cannot be used: %s. Planning starts without it.", document, error)

    @property
    def standing(self) -> CallsStanding:
        """How the running order stands."""
        with self._lock:
            return self._policy.standing

    def due(self, program: CallsProgram | None) -> dict[StoredDocument, dict[str, Any]]:
        """What the commit of the batch at hand puts; nothing where that was done a short time ago by the same order."""
        now, order = time.monotonic(), self.standing.order
        is_fresh = self._put is not None and now - self._put < _EVERY_SECONDS
        if program is None or (is_fresh and order == self._order):
            return {}
        self._put, self._order = now, order
        with self._lock:
            return {self._document: CALL_STATISTICS.stamped(self._policy.document())}

    def order(self, program: CallsProgram | None) -> tuple[int, ...]:
        """The numbers of a program's calls as the next batch runs them."""
        if program is None:
            return ()
        with self._lock:
            return self._policy.order_of([call.text for call in program.calls])

    def measured(self, program: CallsProgram | None, batch: int, counts: StageCounts, seconds: float) -> None:
        """Takes in a batch.

        Args:
            program: its calls.
            batch: its number.
            counts: the sums over its tasks.
            seconds: it took.
        """
        if program is None:
            return
        texts = [call.text for call in program.calls]
        branches: dict[frozenset[str], int] = {}
        for place, pairs in enumerate(counts.branch_pairs.tolist()):
            own = frozenset(texts[number] for number in np.flatnonzero(program.tested[:, place] >= 0))
            branches[own] = branches.get(own, 0) + pairs
        measures = [CallMeasure(*row) for row in counts.calls.tolist()]
        try:
            with self._lock:
                found = self._policy.measured(texts, measures, branches, counts.tuples, seconds)
        except Exception as error:
            # costs adaptivity, never results
            _log.exception("cannot plan the order of functions of stream %s", self._stream)
            self._events.record("controller_failed", stream=self._stream, batch=batch, error=repr(error))
            return
        if found is not None:
            self._events.record(
                "functions_reordered",
                stream=self._stream,
                batch=batch,
                order=list(found.order[:_SHOWN]),
                told=f"a tuple is predicted to take {_time(found.seconds)} instead of {_time(found.seconds_before)}",
            )

    def explain(self, program: CallsProgram | None) -> list[str]:
        """The calls in their order, in lines, with what was measured."""
        if program is None:
            return []
        order = self.order(program)
        standing = self.standing
        return explain_calls([program.calls[number].text for number in order], standing)


def stored_standing(document: StoredDocument) -> CallsStanding | None:
    """How a run's order of calls stood when it last stored that; None where it never did."""
    found = CALL_STATISTICS.read(document)
    return None if found is None else standing_of(found)


def explain_calls(calls: list[str], standing: CallsStanding | None = None) -> list[str]:
    """Calls in their order, in lines.

    Args:
        calls: the calls; those of which the order is known are shown in it.
        standing: what was measured of them; None: nothing was.
    """
    if not calls:
        return []
    if standing is not None:
        places = {call: place for place, call in enumerate(standing.order)}
        calls = sorted(calls, key=lambda call: places.get(call, len(places)))
    measured = standing is not None and standing.tuples > 0
    lines = [
        "  your functions, in this order, for rows that satisfy everything else of a condition"
        + ("" if measured else " (nothing measured yet)")
    ]
    for number, call in enumerate(calls[:_SHOWN], 1):
        told = _told(call, standing) if standing is not None and measured else ""
        lines.append(f"    {number}. {call}{told}")
    if len(calls) > _SHOWN:
        lines.append(f"    ... {len(calls)} calls in total")
    if standing is not None and measured and standing.best != standing.order:
        lines.append(
            f"    best order by these figures: {', '.join(standing.best[:_SHOWN])}; it saves too little, or the last change is too recent"
        )
    return lines


def _told(call: str, standing: CallsStanding) -> str:
    done = standing.totals.get(call, CallMeasure())
    if not done.called:
        return ": not called yet"
    share = done.called / max(standing.tuples, 1)
    parts: list[Any] = [
        f"called for {counted(int(done.called), 'row')} of {standing.tuples:,} ({share:.3%})",
        f"{_time(done.seconds / done.called)} a row",
    ]
    if done.pairs:
        parts.append(f"{done.passed / done.pairs:.1%} pass")
    if done.raised:
        parts.append(f"raised for {counted(int(done.raised), 'row')}")
    return f": {', '.join(parts)}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.3g} µs"
