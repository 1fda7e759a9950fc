"""A keyed query that gets killed: `python keyed_victim.py OUTPUT CHECKPOINT STREAM BATCH MARK` follows a log once."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.spark.events import EventLog
from penstock.spark.keyed_query import KeyedQuery
from penstock.spark.layout import Layout
from penstock.spark.session import build_session


def main(output: str, checkpoint: str, stream: str, batch: str, mark: str) -> None:
    conf = {"spark.python.daemon.module": "pyspark.daemon", "spark.sql.session.timeZone": "UTC"}
    spark = build_session("local[2]", conf, "victim")
    layout = Layout(Path(output), Path(checkpoint))
    query = KeyedQuery(spark, stream, layout, EventLog(layout.events), entries_per_batch=1)
    query.start()
    query.finish(int(batch), int(mark))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
