"""What a join view's plan goes by, kept over restarts: the commit of a cut puts it every few seconds, and when the order changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import CheckpointError
from penstock.plan.joins import JoinOrder
from penstock.spark.lanes.joins.planning import JoinPlanner
from penstock.spark.lanes.joins.predicates import PredicatePlanner
from penstock.spark.storage.formats import PLAN_STATISTICS
from penstock.spark.storage.ledger_documents import StoredDocument

_log = logging.getLogger(__name__)
#: least time between two documents
_EVERY_SECONDS = 10.0


class PlanStatistics:
    """Keeps what two planners of a lane know.

    Args:
        document: where.
        clock: seconds.
    """

    def __init__(self, document: StoredDocument, clock: Callable[[], float] = time.monotonic) -> None:
        self._document = document
        self._clock = clock
        self._put: float | None = None
        #: the orders that were put last
        self._orders: tuple[JoinOrder, tuple[int, ...]] | None = None

    def restore(self, joins: JoinPlanner, predicates: PredicatePlanner) -> None:
        """Lets the planners go on; where that fails they begin anew, which costs adaptivity, never results."""
        try:
            found = PLAN_STATISTICS.read(self._document)
            if found is not None:
                joins.restore(found["join"])
                predicates.restore(found["predicates"])
        except (CheckpointError, KeyError, ValueError, TypeError) as error:
            _log.warning("%s cannot be used: %s. Planning starts without it.", self._document, error)

    def due(
        self, joins: JoinPlanner, predicates: PredicatePlanner
    ) -> Mapping[StoredDocument, Mapping[str, Any]]:
        """What the commit of the cut at hand puts; nothing where that was done a short time ago by the same orders, or nothing is
        known."""
        now, orders = self._clock(), (joins.order, predicates.order)
        is_fresh = self._put is not None and now - self._put < _EVERY_SECONDS
        if joins.standing is None or (is_fresh and orders == self._orders):
            return {}
        self._put, self._orders = now, orders
        found = {"join": joins.document(), "predicates": predicates.document()}
        return {self._document: PLAN_STATISTICS.stamped(found)}
