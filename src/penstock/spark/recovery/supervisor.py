"""Keeps a streaming query running: begins it, follows it, begins it again on its checkpoint where that helps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError, StoppedOutsideError
from penstock.spark.recovery.causes import SESSION_ENDED, cause_of
from penstock.spark.recovery.retried_thread import RetriedThread
from penstock.spark.recovery.retries import Retries

_LOOK_SECONDS = 0.2


class SessionEndedError(PenstockError):
    """The query's Spark session was stopped."""


class Supervisor(RetriedThread):
    """One streaming query and the thread that follows it.

    Args:
        name: of the thread.
        spark: the session.
        begin: starts the query; called again for each retry.
        look: called now and then while it runs.
        retries: what is tried again, and how often.
        error: what the query's own code raised, better than what Spark makes of it; or None.
        is_done: whether a query that has stopped without an error had come to its end.
    """

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        begin: Callable[[], StreamingQuery],
        look: Callable[[StreamingQuery], None],
        retries: Retries,
        error: Callable[[], BaseException | None],
        is_done: Callable[[], bool],
    ) -> None:
        super().__init__(name, retries)
        self._spark = spark
        self._begin = begin
        self._look = look
        self._error = error
        self._is_done = is_done
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None
        self._fresh = False

    def start(self) -> None:
        """Starts the query; what goes wrong with that is raised here."""
        self._renew()
        super().start()

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query of the newest attempt, or None before the first."""
        return self._query

    @property
    def ended_well(self) -> bool:
        """Whether the query has ended and nothing stopped it."""
        begun = self._thread.ident is not None
        return begun and not self.active and self._failure is None and not self._stopping.is_set()

    def stop(self) -> None:
        """Stops the query; that its session has ended before is no fault."""
        self._stopping.set()
        with self._lock:
            if self._query is not None:
                stop_query(self._query)
        if self._thread.ident is not None:
            self._thread.join()

    def _attempt(self) -> None:
        if not self._fresh:
            self._renew()
        self._fresh = False
        query = self._query
        if query is None:
            return
        try:
            while query.isActive:
                refuse_ended(self._spark)
                self._look(query)
                if self._stopping.is_set():
                    return
                # its end is noticed at once
                query.awaitTermination(_LOOK_SECONDS)  # type: ignore[arg-type]  # seconds may be a float
            refuse_ended(self._spark)
            query.awaitTermination()
            if not self._stopping.is_set() and not self._is_done():
                raise StoppedOutsideError("another program stopped Spark's query")
        except StoppedOutsideError:
            raise
        except Exception:
            refuse_ended(self._spark)
            # read before a batch that is stopped half way says so
            own = self._error()
            stop_query(query)
            if own is None:
                raise
            raise own  # noqa: B904 - it has a cause of its own

    def _renew(self) -> None:
        with self._lock:
            if not self._stopping.is_set():
                self._query = self._begin()
                self._fresh = True


def refuse_ended(spark: SparkSession) -> None:
    """Makes sure that the session is alive: its queries may seem to be after it has gone.

    Raises:
        SessionEndedError: it is not.
    """
    context = spark.sparkContext._jsc
    if context is None or context.sc().isStopped():
        raise SessionEndedError("the Spark session has ended")


def stop_query(query: StreamingQuery) -> None:
    """Stops a query; that its session has ended before is no fault."""
    try:
        query.stop()
    except Exception as error:
        if cause_of(error).kind != SESSION_ENDED:
            raise


def stop_all(stops: Iterable[Callable[[], None]]) -> None:
    """Stops several things, each whatever becomes of those before it; the first error is raised once all were tried."""
    errors = []
    for stop in stops:
        try:
            stop()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
