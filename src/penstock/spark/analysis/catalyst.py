"""The few places where Penstock reaches past PySpark's API into the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger
from threading import Lock
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the JVM by its full name.

    Of `spark._jvm.org.apache...` each package on the way is looked for as a class, in every jar, and the first one also in
    all packages that PySpark imports.
    """
    return getattr(spark._jvm, name)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows, made without Python workers, whose plan the optimiser does not see to be empty."""
    session: Any = spark._jsparkSession
    rows: Any = spark.sparkContext._jsc
    return DataFrame(session.createDataFrame(rows.emptyRDD(), session.parseDataType(schema.json())), spark)


class _Silence:
    """Keeps a logger off while anybody wants that, in whichever thread; afterwards it is as it was."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted = 0
        self._disabled = False

    @contextmanager
    def of(self, logger: Logger) -> Iterator[None]:
        """Within it, the logger is off."""
        with self._lock:
            if not self._wanted:
                self._disabled = logger.disabled
            self._wanted += 1
            logger.disabled = True
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    logger.disabled = self._disabled


_SILENCE = _Silence()


@contextmanager
def unlogged() -> Iterator[None]:
    """Keeps PySpark from logging a mistake, with its stack, that is reported as an `SqlError`; of several threads until the last is done."""
    with _SILENCE.of(PySparkLogger.getLogger("SQLQueryContextLogger")):
        yield
