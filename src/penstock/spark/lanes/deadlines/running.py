"""Orders that are being worked on: those that are due together behind each other, in one Spark job and a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pyspark.sql import SparkSession

from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.deadlines.orders import OrderReport, OrderTask
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.sessions.priority import LOW_PRIORITY, give_way
from penstock.spark.storage.store_paths import StorePath

#: an order that has not come back so long after its time was over never returns to Python: its job is cancelled, seconds
_GRACE = 0.5
#: lots beyond wait for a thread
_THREADS = 4_096


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


#: works tasks out one after the other, in one job
Work = Callable[[CellJobs, Sequence[OrderTask]], list[Worked]]


@dataclass(slots=True, eq=False)
class RunningOrder:
    """An order that runs.

    Attributes:
        instance: it works out.
        decided: what the policy began it by.
        until: it is abandoned then, seconds since the epoch.
        task: works it out.
    """

    instance: Instance
    decided: Mapping[str, float | int | str]
    until: float
    task: OrderTask


@dataclass(slots=True, eq=False)
class Lot:
    """Orders that run behind each other, in one job.

    Attributes:
        orders: which.
        jobs: runs it.
        processors: that it takes.
        is_cancelled: whether it was cancelled.
    """

    orders: Sequence[RunningOrder]
    jobs: CellJobs
    processors: int = 1
    is_cancelled: bool = False

    @property
    def until(self) -> float:
        """The time of all its orders is over then, seconds since the epoch."""
        return max(each.until for each in self.orders)


@dataclass(frozen=True, slots=True, eq=False)
class EndedOrder:
    """An order that has come back.

    Attributes:
        order: which.
        worked: what it has come to; None: it had to be cancelled.
        error: what its job raised otherwise.
        ended: when, seconds since the epoch.
        seconds: of a processor that it took: its own, and its share of what its lot took beside that of its orders.
        together: orders in its lot.
    """

    order: RunningOrder
    worked: Worked | None
    error: BaseException | None
    ended: float
    seconds: float
    together: int


class RunningOrders:
    """Runs orders; the lane's thread owns it.

    Args:
        spark: the session.
        name: the lane's, for pool and descriptions.
        most: processors that lots take at once, one each unless its order is divided; asked for each time, as it may change.
        work: works orders out.
        woken: is called whenever a lot has come back, by any thread.
    """

    def __init__(
        self, spark: SparkSession, name: str, most: Callable[[], int], work: Work, woken: Callable[[], None]
    ) -> None:
        self._spark = spark
        self._name = name
        self._most = most
        self._work = work
        self._woken = woken
        # it begins a thread where none is idle
        self._threads = ThreadPoolExecutor(_THREADS, f"penstock-{name}")
        self._running: set[Lot] = set()
        self._ended: SimpleQueue[tuple[Lot, list[EndedOrder]]] = SimpleQueue()

    @property
    def count(self) -> int:
        """How many lots run."""
        return len(self._running)

    @property
    def most(self) -> int:
        """How many processors lots may take at once now."""
        return self._most()

    @property
    def idle(self) -> int:
        """How many more processors may be taken; none where lots take more than there are since executors have left."""
        return max(0, self.most - sum(each.processors for each in self._running))

    @property
    def next_end(self) -> float | None:
        """When the first one is to be cancelled, seconds since the epoch; None where none runs."""
        return min((each.until + _GRACE for each in self._running), default=None)

    def warm(self) -> None:
        """Starts the workers of orders, which are others than the ingest's: the first window does not wait for them."""
        CellJobs(self._spark, self._name, niceness=LOW_PRIORITY).run(_warm, range(self.most))

    def start(self, orders: Sequence[RunningOrder], processors: int = 1) -> Lot:
        """Begins a lot of orders, in a thread of its own.

        Args:
            orders: which, at least one.
            processors: it takes so many.
        """
        lot = Lot(orders, CellJobs(self._spark, self._name, niceness=LOW_PRIORITY), processors)
        self._running.add(lot)
        self._threads.submit(self._run, lot)
        return lot

    def ended(self) -> list[EndedOrder]:
        """Those that have come back since the last call; what will not by itself is cancelled."""
        now = time.time()
        for lot in self._running:
            if now > lot.until + _GRACE:
                lot.is_cancelled = True
                lot.jobs.cancel()
        found: list[EndedOrder] = []
        while True:
            try:
                lot, orders = self._ended.get_nowait()
            except Empty:
                return found
            self._running.discard(lot)
            found += orders

    def cancel(self) -> None:
        """Cancels all; any thread may."""
        for lot in list(self._running):
            lot.jobs.cancel()

    def close(self) -> None:
        """Cancels all, and waits for their threads."""
        while self._running:
            self.cancel()
            self.ended()
            time.sleep(0.01)
        self._threads.shutdown()

    def _run(self, lot: Lot) -> None:
        began = time.time()
        try:
            worked = self._work(lot.jobs, [each.task for each in lot.orders])
            found = _ended(lot.orders, worked, time.time() - began)
        except BaseException as error:
            if len(lot.orders) == 1 or lot.is_cancelled:
                raised = None if lot.is_cancelled else error
                found = [_failed(each, raised, time.time() - began) for each in lot.orders]
            else:
                found = self._alone(lot)
        self._ended.put((lot, found))
        self._woken()

    def _alone(self, lot: Lot) -> list[EndedOrder]:
        """Each order of a lot by itself: one of them has made the job fail."""
        found: list[EndedOrder] = []
        for order in lot.orders:
            began = time.time()
            try:
                found += _ended([order], self._work(lot.jobs, [order.task]), time.time() - began)
            except BaseException as error:
                found.append(_failed(order, None if lot.is_cancelled else error, time.time() - began))
        return found


def _warm(_: int) -> None:
    give_way()


def _ended(orders: Sequence[RunningOrder], worked: Sequence[Worked], took: float) -> list[EndedOrder]:
    now, number = time.time(), len(orders)
    beside = max(0.0, took - sum(each.report.seconds for each in worked)) / number
    return [
        EndedOrder(order, each, None, now, each.report.seconds + beside, number)
        for order, each in zip(orders, worked, strict=True)
    ]


def _failed(order: RunningOrder, error: BaseException | None, took: float) -> EndedOrder:
    return EndedOrder(order, None, error, time.time(), took, 1)
