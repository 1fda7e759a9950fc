"""Runs queries on PyFlink: one process in an environment of its own, which reads requests and writes answers as lines of JSON.

    .cache/flink/bin/python benchmarks/nexmark_flink.py < requests

A request `{"sources": folder, "sink": folder, "query": text}` declares the streams of Nexmark in a new table environment and is
answered by `{}`. The request `{"run": true}` runs the query to the end of the files and is answered by `{"seconds": ..., "way": ...}`, or by
`{"error": ...}`. The way is `append`, or `changes` where the query changes rows: these are written as records of changes, as Flink writes no
other form of them to files.

The settings are those that the Nexmark project publishes for Flink (small batches, distinct aggregates that are split, objects used
again), two tasks at a time, state on the heap, a checkpoint every 10 s. Flink hands out the files of a folder in any order, so its watermark
stays behind until they end: with one of ten seconds it left out most rows of some windows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.util.exceptions import TableException

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "execution.checkpointing.interval": "10 s",
    # a run ends when its input does, and does not wait for one more checkpoint
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
}
TIME = (
    "event_time AS CAST(date_time AS TIMESTAMP(3)), WATERMARK FOR event_time AS event_time - INTERVAL '1' DAY"
)
COLUMNS = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    f"date_time TIMESTAMP(6), extra STRING, {TIME}",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP(6), "
    f"expires TIMESTAMP(6), seller BIGINT, category BIGINT, extra STRING, {TIME}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(6), extra STRING, "
    f"{TIME}",
    "side_input": "key BIGINT, `value` STRING",
}


def declared(sources: Path) -> TableEnvironment:
    """A table environment with the streams over the Parquet files of a folder."""
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        made.get_config().set(name, value)
    for stream, columns in COLUMNS.items():
        files = f"'connector' = 'filesystem', 'path' = 'file://{sources / stream}', 'format' = 'parquet'"
        made.execute_sql(f"CREATE TABLE {stream} ({columns}) WITH ({files}, 'parquet.utc-timezone' = 'true')")
    return made


def run(environment: TableEnvironment, query: str, sink: Path) -> dict[str, object]:
    """Runs a query to the end and writes its rows, or its changes if it has any."""
    reason = ""
    for way, form in (("append", "parquet"), ("changes", "debezium-json")):
        place = f"'connector' = 'filesystem', 'path' = 'file://{sink / way}', 'format' = '{form}'"
        began = time.perf_counter()
        try:
            environment.execute_sql(f"CREATE TABLE out_{way} WITH ({place}) AS {query}").wait()
            return {"seconds": time.perf_counter() - began, "way": way}
        except (TableException, Py4JJavaError) as error:
            causes = [line for line in str(error).splitlines() if "Exception: " in line]
            reason = (causes[-1] if causes else str(error)).strip()[:300]
            environment.execute_sql(f"DROP TABLE IF EXISTS out_{way}")
    return {"error": reason}


def main() -> None:
    """Answers requests until there are none."""
    # Flink logs to the standard output too
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked: dict[str, str] = {}
    environment = None
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("run"):
            answer = run(environment, asked["query"], Path(asked["sink"]))
        else:
            asked, environment, answer = request, declared(Path(request["sources"])), {}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
