"""The evaluation sequences of a run's streams: what batches report goes to the controller, and what it decides to their plans."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.control.actions import SampleTuples, SwapSequence
from penstock.control.controller import Controller
from penstock.control.events import SelectionsBound, StatisticsReported
from penstock.control.policies.rearrangement import RearrangementPolicy, RearrangementSettings
from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.settings import Settings
from penstock.spark.ingest.answering import BatchDone
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.storage.events import EventLog

_log = logging.getLogger(__name__)
#: batches that may wait for the controller; the samples of more are passed over, their tuples counted
_MOST_WAITING = 8


@dataclass(frozen=True, slots=True)
class RunningSequence:
    """What is said of a stream's evaluation sequence.

    Attributes:
        text: the macro-sequence by column, and how many micro-arrows go beside it; None before anything was measured.
        evaluations: a tuple, on the newest sample.
    """

    text: str | None = None
    evaluations: float | None = None


class Rearranging:
    """Follows batches with a controller of its own thread: they do not wait for it, as its kernels compile on first use.

    Args:
        settings: frozen settings.
        events: the event log.
        plans: gives the plans of a stream.
    """

    def __init__(self, settings: Settings, events: EventLog, plans: Callable[[str], StreamPlans]) -> None:
        self._events = events
        self._plans = plans
        self._controller = Controller([RearrangementPolicy(_rearrangement(settings))])
        #: touched by the controller's thread alone
        self._watched: dict[str, _Watched] = {}
        self._thread = ThreadPoolExecutor(1, "penstock-control")
        self._places = threading.Semaphore(_MOST_WAITING)
        #: guards what the threads of batches, the controller's and the user's count and read: the next two
        self._counting = threading.Lock()
        self._passed_over: Counter[str] = Counter()
        self._sequences: dict[str, RunningSequence] = {}

    def report(self, done: BatchDone) -> None:
        """Takes in a batch; returns at once."""
        if done.sample is None:
            return
        if not self._places.acquire(blocking=False):
            with self._counting:
                self._passed_over[done.stream] += done.counts.tuples
            return
        self._thread.submit(self._follow_safely, done, done.sample)

    def running(self, stream: str) -> RunningSequence:
        """The sequence that a stream's batches follow."""
        with self._counting:
            return self._sequences.get(stream, RunningSequence())

    def settle(self) -> None:
        """Waits until all that was reported is taken in."""
        self._thread.submit(int).result()

    def close(self) -> None:
        """Likewise; takes nothing in any more."""
        self._thread.shutdown()

    def _follow_safely(self, done: BatchDone, sample: Codes) -> None:
        """A controller that fails costs adaptivity, never results; it is said once a batch."""
        try:
            self._follow(done, sample)
        except Exception as error:
            _log.exception("the controller failed on batch %s of %s", done.batch, done.stream)
            self._events.record("controller_failed", stream=done.stream, batch=done.batch, error=repr(error))
        finally:
            self._places.release()

    def _follow(self, done: BatchDone, sample: Codes) -> None:
        plans = self._plans(done.stream)
        actions = []
        watched = self._watched.get(done.stream)
        if watched is not None and watched.version > done.plan:
            return
        if watched is not None and not self._decides(watched, done):
            # where the index answers, and no order is looked for, what the sample says decides nothing
            with self._counting:
                self._passed_over[done.stream] += done.counts.tuples
            return
        if watched is None or watched.version != done.plan:
            plan = plans.compiled(done.plan)
            index = AscIndex(plan.program.plan.coded)
            first = plans.begin_sequence(done.plan)
            watched = self._watched[done.stream] = _Watched(done.plan, index, first, plan.bound.shown)
            actions += self._controller.handle(SelectionsBound(done.stream, done.plan, index, first))
        sampled = watched.index.evaluate(sample, watched.running)
        watched.evaluations = sampled.evaluations / max(1, sample.shape[1])
        self._events.record(
            "sequence_sampled",
            stream=done.stream,
            batch=done.batch,
            plan=done.plan,
            sampled_tuples=sample.shape[1],
            evaluations_per_tuple=round(watched.evaluations, 4),
            dropping_ratio=round(sampled.dropped / max(1, sample.shape[1]), 4),
        )
        counts = done.counts
        with self._counting:
            tuples = counts.tuples + self._passed_over.pop(done.stream, 0)
        actions += self._controller.handle(
            StatisticsReported(done.stream, done.plan, tuples, sample, counts.coding_costs)
        )
        for action in actions:
            watched.is_measuring = isinstance(action, SampleTuples)
            if isinstance(action, SwapSequence):
                watched.running = action.arrangement
                plans.swap_sequence(done.plan, action.arrangement)
            self._events.record("decision", batch=done.batch, **action.fields())
        running = watched.snapshot()
        with self._counting:
            self._sequences[done.stream] = running

    def _decides(self, watched: _Watched, done: BatchDone) -> bool:
        """Whether a batch's sample may lead to another order.

        A later plan version is followed once it has answered two batches, or its ASCs were tried: what is built to follow it takes
        time in proportion to all of its conditions.
        """
        is_new, watched.newest = watched.newest != done.plan, done.plan
        return done.counts.asc_tried > 0 or (watched.is_measuring and not is_new)


@dataclass(slots=True, eq=False)
class _Watched:
    """The evaluation sequence of a stream's plan as the driver follows it on samples."""

    version: int
    index: AscIndex
    running: Arrangement
    #: of each attribute what a reader sees
    shown: tuple[str, ...]
    evaluations: float = 0.0
    #: whether a new order is looked for
    is_measuring: bool = False
    #: the version of the newest batch
    newest: int = -1

    def __post_init__(self) -> None:
        self.newest = self.version

    def snapshot(self) -> RunningSequence:
        names = [self.shown[attribute] for attribute in self.running.order]
        arrows = self.running.micro_arrows
        text = " > ".join(names) + (f" ({arrows} shortcuts)" if arrows else "")
        return RunningSequence(text, self.evaluations)


def _rearrangement(settings: Settings) -> RearrangementSettings:
    return RearrangementSettings(
        kind=ArrangementKind(settings.sequence),
        recomputation_tuples=settings.recomputation_period_tuples,
        period_tuples=settings.monitoring_period_tuples,
        threshold=settings.rearrangement_threshold,
    )
