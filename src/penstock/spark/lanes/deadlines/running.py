"""Orders that are being worked on, each by a small Spark job in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pyspark.sql import SparkSession

from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.deadlines.orders import OrderReport
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.storage.store_paths import StorePath

#: an order that has not come back so long after its time was over never returns to Python: its job is cancelled, seconds
_GRACE = 0.5
#: of the workers of orders: where both want more than there is, the ingest gets four times the processor time that an order gets
_NICENESS = 6


@dataclass(frozen=True, slots=True)
class Worked:
    """What an order has come to.

    Attributes:
        report: of its task.
        staging: its folder, which goes when the instance is dealt with.
        files: in its folder, with the view's own columns; none where it is not done, or no row was left.
    """

    report: OrderReport
    staging: StorePath
    files: tuple[WrittenFile, ...]


Work = Callable[[CellJobs], Worked]


@dataclass(slots=True, eq=False)
class RunningOrder:
    """An order that runs.

    Attributes:
        instance: it works out.
        decided: what the policy began it by.
        began: seconds since the epoch.
        until: it is abandoned then, seconds since the epoch.
        jobs: its job.
        is_cancelled: whether that was cancelled.
    """

    instance: Instance
    decided: Mapping[str, float | int | str]
    began: float
    until: float
    jobs: CellJobs
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EndedOrder:
    """An order that has come back.

    Attributes:
        order: which.
        worked: what it has come to; None: it had to be cancelled.
        error: what its job raised otherwise.
        ended: when, seconds since the epoch.
    """

    order: RunningOrder
    worked: Worked | None
    error: BaseException | None
    ended: float


class RunningOrders:
    """Runs orders; the lane's thread owns it.

    Args:
        spark: the session.
        name: the lane's, for pool and descriptions.
        most: orders that run at once.
        woken: is called whenever an order has come back, by any thread.
    """

    def __init__(self, spark: SparkSession, name: str, most: int, woken: Callable[[], None]) -> None:
        self._spark = spark
        self._name = name
        self._most = most
        self._woken = woken
        self._threads = ThreadPoolExecutor(most, f"penstock-{name}")
        self._running: set[RunningOrder] = set()
        self._ended: SimpleQueue[EndedOrder] = SimpleQueue()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def idle(self) -> int:
        """How many more may run at once."""
        return self._most - len(self._running)

    @property
    def next_end(self) -> float | None:
        """When the first one is to be cancelled, seconds since the epoch; None where none runs."""
        return min((each.until + _GRACE for each in self._running), default=None)

    def start(
        self, instance: Instance, decided: Mapping[str, float | int | str], until: float, work: Work
    ) -> RunningOrder:
        """Begins an order.

        Args:
            instance: is worked out.
            decided: what the policy begins it by.
            until: its time is over then, seconds since the epoch.
            work: gives its report, in a thread of its own.
        """
        order = RunningOrder(
            instance, decided, time.time(), until, CellJobs(self._spark, self._name, niceness=_NICENESS)
        )
        self._threads.submit(self._work, order, work)
        self._running.add(order)
        return order

    def ended(self) -> list[EndedOrder]:
        """Those that have come back since the last call; what will not by itself is cancelled."""
        now = time.time()
        for order in self._running:
            if now > order.until + _GRACE:
                order.is_cancelled = True
                order.jobs.cancel()
        found: list[EndedOrder] = []
        while True:
            try:
                found.append(self._ended.get_nowait())
            except Empty:
                self._running.difference_update(each.order for each in found)
                return found

    def cancel(self) -> None:
        """Cancels all; any thread may."""
        for order in list(self._running):
            order.jobs.cancel()

    def close(self) -> None:
        """Cancels all, and waits for their threads."""
        while self._running:
            self.cancel()
            self.ended()
            time.sleep(0.01)
        self._threads.shutdown()

    def _work(self, order: RunningOrder, work: Work) -> None:
        worked: Worked | None = None
        error: BaseException | None = None
        try:
            worked = work(order.jobs)
        except BaseException as raised:
            error = None if order.is_cancelled else raised
        self._ended.put(EndedOrder(order, worked, error, time.time()))
        self._woken()
