"""Sinks: rows a second into Delta, Iceberg, databases and Kafka, and what the sinks of 80 views cost a batch.

The folder is published without Spark, so that only followers and targets are measured. Kafka's client needs Spark's JVM, and is measured beside
Spark's own writer of the same rows. Rates are of one sink that has a backlog. The share
is the processor time of 80 followers for a batch, of a stream that publishes a batch each second.

Exit code 1 where an expectation does not hold.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from penstock.errors import ConnectionFailedError
from penstock.spark.sinks.declared import Sink
from penstock_lab.servers.postgres import PostgresServer
from publishing import stored
from sink_cases import SELECTION, STREAM, TUPLES, Folder, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: rows a second that a sink is expected to take at least
DELTA_ROWS, ICEBERG_ROWS, POSTGRES_ROWS, KAFKA_ROWS = 1_000_000, 500_000, 100_000, 50_000
#: most of a second that 80 sinks are at work for a batch of a second
MOST_SHARE = 0.20
VIEWS = 80
CACHE = Path(__file__).parents[1] / ".cache"


def publish(folder: Folder, batches: int, rows: int) -> None:
    """Publishes batches all of whose rows are the view's."""
    rng = np.random.default_rng(7)
    queries = pa.array([[SELECTION]] * rows, pa.list_(pa.string()))
    for number in range(batches):
        ids = np.arange(number * rows, (number + 1) * rows)
        cities = pa.array([f"city {each}" for each in range(100)]).take(pa.array(rng.integers(0, 100, rows)))
        table = pa.table([pa.array(ids), cities, pa.array(rng.random(rows))], schema=TUPLES)
        table = table.append_column("queries", queries)
        table = table.append_column("__penstock_definitions", pa.nulls(rows, pa.list_(pa.int32())))
        folder._matches.begin(folder._next)
        folder._matches.publish(
            folder._next,
            [stored(folder.layout, STREAM, folder._next, "matches", table)],
            {"batch": folder._next, "plan": 0},
        )
        folder._next += 1
        folder.published.tell()


def delta_rates(folder: Folder, rows: int, scratch: Path) -> float:
    """Rows a second appended by the sink; printed beside deltalake's own write of the rows in memory, which reads no file."""
    ours, own = [], []
    files = sorted(folder.layout.matches(STREAM).glob("*.parquet"))
    whole = pa.concat_tables([pq.read_table(each, columns=TUPLES.names) for each in files])
    for turn in range(3):
        for measured in (ours, own):
            path = str(scratch / f"delta-{turn}-{measured is ours}")
            sink = folder.sink("delta", name=f"delta{turn}", path=path)
            began, used = time.perf_counter(), time.process_time()
            if measured is ours:
                folder.deliver(sink)
            else:
                deltalake.write_deltalake(path, whole)
            measured.append((time.perf_counter() - began, time.process_time() - used))
            assert deltalake.DeltaTable(path).count() == rows
    (seconds, used), (own_seconds, own_used) = min(ours), min(own)
    print(
        f"delta: {rows / seconds:,.0f} rows/s appended (expected: at least {DELTA_ROWS:,}), {rows / used:,.0f} a second of a processor; "
        f"deltalake's own write from memory {rows / own_seconds:,.0f}, {rows / own_used:,.0f}"
    )
    return rows / seconds


def rate(folder: Folder, sink: Sink, rows: int) -> float:
    """Rows a second of a sink that has a backlog."""
    began = time.perf_counter()
    folder.deliver(sink)
    return rows / (time.perf_counter() - began)


def postgres_rates(folder: Folder, rows: int, scratch: Path) -> tuple[float, float] | None:
    """Rows a second into PostgreSQL, and of psql's \\copy of the same rows; None where it is not installed."""
    import psycopg
    from pyarrow import csv

    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as data:
        Path(data).chmod(0o711)
        try:
            server = PostgresServer(Path(data)).start()
        except ConnectionFailedError as error:
            print(f"PostgreSQL is left out: {error}")
            return None
        try:
            table = f"t_{uuid.uuid4().hex[:8]}"
            own = {"url": server.url, "user": server.user, "password": server.password, "dbtable": table}
            ours = rate(folder, folder.sink("postgres", name="pg", **own), rows)
            files = sorted(folder.layout.matches(STREAM).glob("*.parquet"))
            whole = pa.concat_tables([pq.read_table(each, columns=TUPLES.names) for each in files])
            csv.write_csv(whole, scratch / "rows.csv", csv.WriteOptions(include_header=False))
            with psycopg.connect(server.url, user=server.user, password=server.password) as connection:
                connection.execute("CREATE TABLE plain (id bigint, city text, amount double precision)")
            copied = f"\\copy plain FROM '{scratch / 'rows.csv'}' (FORMAT csv)"
            began = time.perf_counter()
            subprocess.run(
                [
                    "psql",
                    "--quiet",
                    "--no-psqlrc",
                    "--username",
                    server.user,
                    "--command",
                    copied,
                    server.url,
                ],
                env={**os.environ, "PGPASSWORD": server.password},
                check=True,
            )
            return ours, rows / (time.perf_counter() - began)
        finally:
            server.kill()


def session() -> SparkSession:
    """A session whose JVM has Kafka's client and the JDBC drivers, as far as they are there."""
    from penstock.spark.sessions.build import build_session

    drivers = ",".join(map(str, sorted((CACHE / "jdbc").glob("*.jar"))))
    conf = {"spark.jars": drivers} if drivers else {}
    return build_session("local[2]", conf, "sinks", kafka=any((CACHE / "kafka").glob("kafka_*.jar")))


def jdbc_rates(spark: SparkSession, folder: Folder, rows: int, scratch: Path) -> dict[str, float]:
    """Rows a second by JDBC; {} where the drivers are not there."""
    if not any((CACHE / "jdbc").glob("*.jar")):
        print("JDBC is left out: `make jdbc-jars` fetches the drivers")
        return {}
    folder._spark = spark
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as data:
        Path(data).chmod(0o711)
        bases = {"H2": {"url": f"jdbc:h2:{scratch / 'h2'}"}}
        server = None
        try:
            server = PostgresServer(Path(data)).start()
            url = f"jdbc:{server.url}?reWriteBatchedInserts=true"
            bases["PostgreSQL"] = {"url": url, "user": server.user, "password": server.password}
        except ConnectionFailedError as error:
            print(f"PostgreSQL is left out: {error}")
        try:
            for base, own in bases.items():
                for mode, chosen in {"append": {}, "upsert": {"mode": "upsert", "key": "id"}}.items():
                    sink = folder.sink("jdbc", name=f"{base}-{mode}", dbtable=f"t_{mode}", **own, **chosen)
                    found[f"{base}, {mode}"] = rate(folder, sink, rows)
        finally:
            if server is not None:
                server.kill()
    return found


def kafka_rates(spark: SparkSession, folder: Folder, rows: int, scratch: Path) -> dict[str, float]:
    """Rows a second into Kafka by form, and of Spark's writer; {} where Kafka's jars are not there."""
    from pyspark.sql import functions as F

    from penstock_lab.servers.kafka import KafkaBroker
    from penstock_lab.servers.schema_registry import SchemaRegistryServer

    jars = CACHE / "kafka"
    if not any(jars.glob("kafka_*.jar")):
        print("Kafka is left out: `make kafka-jars` fetches its jars")
        return {}
    found: dict[str, float] = {}
    with KafkaBroker(jars, scratch / "kafka") as broker, SchemaRegistryServer() as registry:
        own = {"kafka.bootstrap.servers": broker.address}
        folder._spark = spark
        forms = {
            "JSON": {},
            "JSON, transactions": {"transactions": "true"},
            "Avro, transactions": {
                "transactions": "true",
                "format": "avro",
                "schema.registry.url": registry.url,
            },
        }
        for number, (form, chosen) in enumerate(forms.items()):
            topic = f"t{number}"
            broker.create_topic(topic)
            sink = folder.sink("kafka", name=topic, topic=topic, **own, **chosen)
            found[form] = rate(folder, sink, rows)
        broker.create_topic("spark")
        frame = spark.read.parquet(*map(str, folder.layout.matches(STREAM).glob("*.parquet")))
        written = frame.select(F.to_json(F.struct(*TUPLES.names)).alias("value")).write.format("kafka")
        began = time.perf_counter()
        written.options(**own, topic="spark").save()
        found["JSON by Spark's writer"] = rows / (time.perf_counter() - began)
    return found


def share(scratch: Path, batches: int, rows: int) -> float:
    """Processor time of 80 Delta sinks, as a share of the time of a stream that publishes a batch a second."""
    folder = Folder(scratch / "many")
    sinks = [folder.sink("delta", name=f"s{n}", path=str(scratch / f"many-{n}")) for n in range(VIEWS)]
    published = 0.0
    with folder.following(*sinks) as told:
        publish(folder, 1, rows)
        until(partial(_all_have, told))
        begun, began = time.process_time(), time.perf_counter()
        for number in range(batches):
            before = time.process_time()
            publish(folder, 1, rows)
            published += time.process_time() - before
            time.sleep(max(0.0, began + number + 1 - time.perf_counter()))
        used = time.process_time() - begun - published
    folder.deliver(*sinks)
    for n in range(VIEWS):
        assert deltalake.DeltaTable(scratch / f"many-{n}").count() == (batches + 1) * rows
    folder.close()
    return used / batches


def _all_have(told: dict[str, dict[str, Any]]) -> bool:
    return all(told[f"s{n}.{SELECTION}"].get("deliveries") for n in range(VIEWS))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the backlog")
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory(prefix="penstock-sinks-") as data:
        scratch = Path(data)
        folder = Folder(scratch / "out")
        publish(folder, 20, options.rows // 20)
        if delta_rates(folder, options.rows, scratch) < DELTA_ROWS:
            failed.append("delta")
        warehouse = {
            "table": "db.rows",
            "catalog.uri": f"sqlite:///{scratch}/catalog.db",
            "catalog.warehouse": f"file://{scratch}/lake",
        }
        appended = rate(folder, folder.sink("iceberg", name="lake", **warehouse), options.rows)
        print(f"iceberg: {appended:,.0f} rows/s appended (expected: at least {ICEBERG_ROWS:,})")
        if appended < ICEBERG_ROWS:
            failed.append("iceberg")
        spark = session()
        for form, figure in jdbc_rates(spark, folder, options.rows, scratch).items():
            print(f"jdbc, {form}: {figure:,.0f} rows/s")
        for form, figure in kafka_rates(spark, folder, options.rows, scratch).items():
            print(f"kafka, {form}: {figure:,.0f} rows/s (expected: at least {KAFKA_ROWS:,})")
            if figure < KAFKA_ROWS:
                failed.append(f"kafka, {form}")
        spark.stop()
        if (rates := postgres_rates(folder, options.rows, scratch)) is not None:
            ours, plain = rates
            print(
                f"postgres: {ours:,.0f} rows/s, psql's own \\copy {plain:,.0f} rows/s, {ours / plain:.2f} of it (expected: at least {POSTGRES_ROWS:,})"
            )
            if ours < POSTGRES_ROWS:
                failed.append("postgres")
        folder.close()
        used = share(scratch, 40, 1_000)
        print(
            f"{VIEWS} sinks: {used:.3f} s of a processor for a batch of a second (expected: at most {MOST_SHARE})"
        )
        if used > MOST_SHARE:
            failed.append("share")
    if failed:
        print(f"not as expected: {', '.join(failed)}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
