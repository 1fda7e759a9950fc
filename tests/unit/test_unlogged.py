"""PySpark's logger is off while any thread wants that, and on again afterwards."""

from __future__ import annotations

from pyspark.logger import PySparkLogger

from penstock.spark.analysis.catalyst import unlogged


def test_the_logger_is_on_again_behind_two_that_overlap() -> None:
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    first, second = unlogged(), unlogged()
    assert not logger.disabled
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert logger.disabled
    second.__exit__(None, None, None)
    assert not logger.disabled
