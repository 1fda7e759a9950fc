"""The time zone that a checkpoint's views were bound under: it stays the checkpoint's, whatever it is called."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import CheckpointError
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.storage.formats import SESSION
from penstock.spark.storage.layout import Layout

_ZONE = "time_zone"


def require_zone(spark: SparkSession, layout: Layout) -> None:
    """Refuses a session whose time zone is not that of the checkpoint; changes nothing.

    Raises:
        CheckpointError: the checkpoint's is another one.
    """
    now = _setting(spark)
    known = kept_zone(layout)
    if known is not None and not _zone(spark, known).getRules().equals(_zone(spark, now).getRules()):
        raise CheckpointError(
            f"Checkpoint {layout.checkpoint} uses the time zone {known}, this session uses {now}: days and hours would change "
            f"their meaning. Start with --conf spark.sql.session.timeZone={known} (in Python: set it in the session), or with a "
            f"new checkpoint and a new output folder for {now}."
        )


def keep_zone(spark: SparkSession, layout: Layout) -> None:
    """Makes a session's time zone that of a checkpoint which has none yet, durable on return.

    To be called before anything is stored of views, and once nothing is in the way of the first start: a start that fails
    before leaves the zone open.
    """
    SESSION.put(layout.session, {_ZONE: _setting(spark)})


def kept_zone(layout: Layout) -> str | None:
    """The name of a checkpoint's time zone: the one of its first start; None before that."""
    return (SESSION.read(layout.session) or {}).get(_ZONE)


def _setting(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _zone(spark: SparkSession, name: str) -> Any:
    return java_class(spark, "org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(name)
