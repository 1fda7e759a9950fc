"""Where a window view begins in a stream that had batches before: what it cannot have seen, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.ingest.window_views import window_query
from penstock.spark.log.programs import operators_of
from penstock.spark.publication.history import Stretch
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import PublishedBatches, read_published
from penstock.spark.results.revisions import last_final
from penstock.spark.results.window_schemas import earlier_operators, whole_operators
from penstock.spark.storage.bindings import FROM_THE_START, Beginning, RunningDefinition, WindowDefinition
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import read_offset


@dataclass(frozen=True)
class _Before:
    """What was published before a batch, read when it is asked for.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        batch: the batch.
    """

    layout: Layout
    stream: str
    batch: int

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The batches before, in order."""
        every = read_published(self.layout, self.stream).stretches
        return [stretch for stretch in every if stretch.last < self.batch]

    @cached_property
    def results(self) -> PublishedBatches:
        """The published results of the window views."""
        return read_published(self.layout, results_of(self.stream))


class Beginnings:
    """Says of the views of one stream where they begin.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        settings: frozen settings.
    """

    def __init__(self, layout: Layout, stream: str, settings: Settings) -> None:
        self._layout = layout
        self._stream = stream
        self._ahead = settings.max_clock_ahead_seconds

    def __call__(self, batch: int) -> Callable[[WindowDefinition], Beginning]:
        """Gives where new views begin; what was published before is read once for all of them.

        Args:
            batch: the first one they are answered by; all before are published.
        """
        return partial(self._where, _Before(self._layout, self._stream, batch))

    def _where(self, before: _Before, definition: WindowDefinition) -> Beginning:
        batch = before.batch
        if isinstance(definition, RunningDefinition):
            return self._running(before, definition)
        newest = self._largest([(each, each.newest) for each in before.stretches])
        known = (newest, self._largest([(each, each.furthest) for each in before.stretches]))
        furthest = max((each for each in known if each is not None), default=None)
        if furthest is None:
            return FROM_THE_START
        offset = read_offset(self._layout.spark(self._stream), batch - 1)
        if window_query(definition).hints.backfill:
            return Beginning(batch, furthest, BEFORE_ALL, offset)
        over = BEFORE_ALL if newest is None else min(newest, self._left_off(definition, before))
        return Beginning(batch, furthest, over, offset)

    def _running(self, before: _Before, definition: RunningDefinition) -> Beginning:
        """Where a running view begins: it lacks all tuples of the batches before, whatever their event times."""
        if not any(each.tuples for each in before.stretches):
            return FROM_THE_START
        newest = self._largest([(each, each.furthest) for each in before.stretches])
        offset = read_offset(self._layout.spark(self._stream), before.batch - 1)
        floor = BEFORE_ALL if window_query(definition).hints.backfill else None
        return Beginning(before.batch, 0 if newest is None else newest, floor, offset)

    def _largest(self, told: Iterable[tuple[Stretch, int | None]]) -> int | None:
        """Largest of the event times that are told of some stretches; None where there is none."""
        # where the stream had no event time: as late as any tuple can have been believed
        latest = int((time.time() + self._ahead) * 1e6)
        every = (each for stretch, known in told for each in (known, None if stretch.is_timed else latest))
        return max((each for each in every if each is not None), default=None)

    def _left_off(self, definition: WindowDefinition, before: _Before) -> int:
        """Up to where the view was answered for good when it was there before, and nothing has come since.

        The last window that was final then, or the oldest tuple that has come without the view; a time after all
        others where the view was never there.
        """
        earlier = earlier_operators(self._layout, self._stream, definition.name, definition.id)
        if not earlier:
            return AFTER_ALL
        operator, floor = earlier[-1]
        final = last_final(self._layout, self._stream, definition.name, operator, before.results)
        if final is None:
            final = BEFORE_ALL if floor is None else floor
        elif floor is not None and operator not in whole_operators(before.results):
            # windows behind its floor lacked tuples and were never final, though later ones were
            final = min(final, floor)
        return min(final, self._oldest_without(operator, before.stretches))

    def _oldest_without(self, operator: int, stretches: Sequence[Stretch]) -> int:
        """Smallest event time of the batches since the last one that an operator took part in, or a smaller one."""
        answered: dict[int, bool] = {}
        oldest = AFTER_ALL

        def is_answered(plan: int) -> bool:
            if plan not in answered:
                answered[plan] = operator in operators_of(self._layout, self._stream, plan)
            return answered[plan]

        for stretch in reversed(stretches):
            if is_answered(stretch.plan):
                break
            if stretch.oldest is not None:
                oldest = min(oldest, stretch.oldest)
            if is_answered(stretch.first_plan):
                break
        return oldest
