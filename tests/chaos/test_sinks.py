"""Sinks: one that blocks keeps no match from its folder; Kafka's topics have every match after kills, told apart by their headers."""

from __future__ import annotations

import json
import signal
import threading
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from conftest import JDBC_JARS
from disturbed_runs import VIEWS, Orders, until
from engine_cases import folder_bag
from killing import ended, started
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.failpoints import NAMES, SINK_NAMES
from penstock.spark.storage.layout import Layout
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.postgres import PostgresServer
from whole_runs import run_to_end

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
catalogs = pytest.importorskip("pyiceberg.catalog", reason="the package pyiceberg is not installed")
psycopg = pytest.importorskip("psycopg", reason="the package psycopg is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(3_600)]

CONNECTOR = sorted((Path(__file__).parents[2] / ".cache" / "kafka-connector").glob("*.jar"))
SELECTIONS = {name: VIEWS[name] for name in ("large", "north")}


def test_a_sink_that_blocks_holds_back_nothing_that_is_published(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in")
    orders.feed(2)
    blocked, released = threading.Event(), threading.Event()
    given: Counter[int] = Counter()

    def write(rows: DataFrame, batch: int) -> None:
        if batch == 1:
            blocked.set()
            assert released.wait(600)
        given.update(row.id for row in rows.select("id").collect())

    engine = Engine(spark).execute(orders.script(SELECTIONS)).sink("large", write)
    run = engine.start(tmp_path / "out")
    try:
        assert blocked.wait(150), run.events()
        # published before the sink is asked
        orders.assert_answered(tmp_path / "out", SELECTIONS)
        assert not set(given) & set(orders.tables[1].column("id").to_pylist())
        orders.feed(2)
        released.set()
        large = {
            row["id"] for table in orders.tables for row in table.to_pylist() if (row["amount"] or 0) > 900
        }
        until(lambda: given == Counter(large), run.events)
    finally:
        released.set()
        run.stop()
    orders.assert_answered(tmp_path / "out", SELECTIONS)


def test_a_stop_waits_for_a_sink_and_a_batch_that_it_did_not_take_is_handed_over_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = Orders(tmp_path / "in")
    orders.feed(1)
    blocked, released = threading.Event(), threading.Event()

    def block(rows: DataFrame, batch: int) -> None:  # noqa: ARG001
        blocked.set()
        assert released.wait(600)
        raise ConnectionError("gone")

    run = Engine(spark).execute(orders.script(SELECTIONS)).sink("large", block).start(tmp_path / "out")
    assert blocked.wait(150), run.events()
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    stopping.join(2)
    is_waiting = stopping.is_alive()
    released.set()
    stopping.join(150)
    assert is_waiting
    assert not stopping.is_alive()
    given: Counter[int] = Counter()
    engine = Engine(spark).execute(orders.script(SELECTIONS))
    engine.sink("large", lambda rows, _: given.update(row.id for row in rows.select("id").collect()))
    orders.feed(1)
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    orders.assert_answered(tmp_path / "out", SELECTIONS)
    large = {key for key, view in folder_bag(tmp_path / "out", "orders", by_manifest=True) if view == "large"}
    assert large & set(orders.tables[0].column("id").to_pylist())
    # the first file's were in the sink that blocked
    assert set(given) == large


@pytest.mark.long
@pytest.mark.kafka
def test_kafka_sinks_killed(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Windows with a deadline, their early answers and matches: every row of the folder is in its topic, once but for repeats."""
    orders = Orders(tmp_path / "in")
    for topic in ("killed-large", "killed-due"):
        kafka.create_topic(topic)
    due = "SELECT /*+ DEADLINE('1 hour') */ name, window(seen, '10 minutes') AS w, count(*) AS n FROM orders GROUP BY name, w"
    statements = [orders.script({"large": VIEWS["large"], "due": due})]
    for view in ("large", "due"):
        options = f"kafka.bootstrap.servers '{kafka.address}', topic 'killed-{view}'"
        statements += [
            f"CREATE TABLE copy_{view} USING kafka OPTIONS ({options});",
            f"INSERT INTO copy_{view} SELECT * FROM {view};",
        ]
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    script.write_text("\n".join(statements))
    conf = f"spark.jars={','.join(map(str, CONNECTOR))}", "spark.python.daemon.module=pyspark.daemon"
    for place in (*NAMES, ""):
        orders.feed(2)
        code = ended(started("victim.py", script, tmp_path / "out", *conf, log=log, failpoint=place))
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
    orders.assert_answered(tmp_path / "out", {"large": VIEWS["large"]})
    large = _once(kafka, "killed-large")
    matches = folder_bag(tmp_path / "out", "orders", by_manifest=True)
    assert Counter(row["id"] for row in large) == Counter(key for key, _ in matches.elements())
    answered = _once(kafka, "killed-due")
    assert answered
    told = plain_rows(Layout.of(tmp_path / "out", None), "due", 0, True)
    assert told is not None
    assert Counter(map(_window, answered)) == Counter(map(_window, told.rows.to_pylist()))
    first = Counter(
        (name, start, op) for name, start, op, revision, _ in map(_window, answered) if not revision
    )
    assert set(first.values()) == {1}


@pytest.mark.long
@pytest.mark.kafka
def test_transactions_of_kafka_killed(kafka: KafkaBroker, tmp_path: Path) -> None:
    """A selection and a window view in topics: readers of what is committed see each row once, whenever driver or broker is killed."""
    orders = Orders(tmp_path / "in")
    by_name = "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n FROM orders GROUP BY name, w"
    statements = [orders.script({"large": VIEWS["large"], "by_name": by_name})]
    for view in ("large", "by_name"):
        kafka.create_topic(f"once-{view}")
        options = f"kafka.bootstrap.servers '{kafka.address}', topic 'once-{view}', transactions 'true'"
        statements += [
            f"CREATE TABLE once_{view} USING kafka OPTIONS ({options});",
            f"INSERT INTO once_{view} SELECT * FROM {view};",
        ]
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    script.write_text("\n".join(statements))
    conf = f"spark.jars={','.join(map(str, CONNECTOR))}", "spark.python.daemon.module=pyspark.daemon"
    for place in (*SINK_NAMES, ""):
        orders.feed(2)
        code = ended(started("victim.py", script, tmp_path / "out", *conf, log=log, failpoint=place))
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
        if place:
            kafka.kill()
            kafka.start()
    layout = Layout.of(tmp_path / "out", None)
    for view, changes in (("large", False), ("by_name", True)):
        sent = [json.loads(value) for value, _ in _records(kafka, f"once-{view}", "read_committed")]
        wanted = plain_rows(layout, view, 0, changes)
        assert wanted is not None
        assert wanted.rows.num_rows
        if changes:
            assert Counter(map(_window, sent)) == Counter(map(_window, wanted.rows.to_pylist()))
        else:
            assert sorted(row["id"] for row in sent) == sorted(wanted.rows.column("id").to_pylist())


def _window(row: dict[str, Any]) -> tuple[object, ...]:
    """A row of `due` that tells it from all others, of the folder or of JSON, which leaves NULL out."""
    start = row["w"]["start"]
    begun = datetime.fromisoformat(start) if isinstance(start, str) else start
    return row.get("name"), begun, row["op"], row["revision"], row.get("n")


def _once(kafka: KafkaBroker, topic: str) -> list[dict[str, object]]:
    """The records of a topic, of those with the same headers one; repeated ones are the same."""
    found: dict[tuple[bytes, bytes], bytes] = {}
    for value, headers in _records(kafka, topic, "read_uncommitted"):
        key = headers["penstock-batch"], headers["penstock-ordinal"]
        assert found.setdefault(key, value) == value
    return [json.loads(value) for value in found.values()]


def _records(kafka: KafkaBroker, topic: str, isolation: str) -> list[tuple[bytes, dict[str, bytes]]]:
    """The values and headers of a topic of one partition that a reader sees."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=kafka.address, auto_offset_reset="earliest", isolation_level=isolation
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    found: list[tuple[bytes, dict[str, bytes]]] = []
    while consumer.position(place) < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [(each.value, dict(each.headers)) for each in records]
    consumer.close()
    return found


def _in_utc(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row whose moment has a zone, as every window has."""
    name, start, n = row
    return name, start if start.tzinfo else start.replace(tzinfo=UTC), n


@pytest.mark.long
def test_tables_equal_the_folder_after_kills_of_the_driver_and_of_the_server(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A selection and a window view in Delta, Iceberg and PostgreSQL: each row once, whenever the driver is killed."""
    orders, table = Orders(tmp_path / "in"), f"t_{uuid.uuid4().hex[:8]}"
    by_name = "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n FROM orders GROUP BY name, w"
    statements = [orders.script({"large": VIEWS["large"], "by_name": by_name})]
    server = f"url '{postgres.url}', user '{postgres.user}', password '{postgres.password}'"
    lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = ", ".join(f"catalog.{name} '{value}'" for name, value in lake.items())
    for view in ("large", "by_name"):
        statements += [
            f"CREATE TABLE delta_{view} USING delta OPTIONS (path '{tmp_path / view}');",
            f"INSERT INTO delta_{view} SELECT * FROM {view};",
            f"CREATE TABLE lake_{view} USING iceberg OPTIONS ({catalog}, table 'db.{view}');",
            f"INSERT INTO lake_{view} SELECT * FROM {view};",
            f"CREATE TABLE pg_{view} USING postgres OPTIONS ({server}, dbtable '{table}_{view}');",
            f"INSERT INTO pg_{view} SELECT * FROM {view};",
        ]
        if JDBC_JARS:
            jdbc = server.replace("postgresql:", "jdbc:postgresql:")
            statements += [
                f"CREATE TABLE jdbc_{view} USING jdbc OPTIONS ({jdbc}, dbtable '{table}_jdbc_{view}');",
                f"INSERT INTO jdbc_{view} SELECT * FROM {view};",
            ]
    written = [table, *([f"{table}_jdbc"] if JDBC_JARS else [])]
    conf = [f"spark.jars={','.join(map(str, JDBC_JARS))}"] if JDBC_JARS else []
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    script.write_text("\n".join(statements))
    for place in (*SINK_NAMES, "manifest_written", "cut_published", ""):
        orders.feed(2)
        code = ended(started("victim.py", script, tmp_path / "out", *conf, log=log, failpoint=place))
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
        if place == "manifest_written":
            postgres.kill()
            postgres.start()
    layout = Layout.of(tmp_path / "out", None)
    asked = psycopg.connect(postgres.url, user=postgres.user, password=postgres.password)
    tables = {
        each: catalogs.load_catalog("default", **lake).load_table(f"db.{each}")
        for each in ("large", "by_name")
    }
    wanted = plain_rows(layout, "large", 0)
    assert wanted is not None
    ids = sorted(wanted.rows.column("id").to_pylist())
    assert ids
    assert sorted(deltalake.DeltaTable(tmp_path / "large").to_pyarrow_table().column("id").to_pylist()) == ids
    assert sorted(tables["large"].scan().to_arrow().column("id").to_pylist()) == ids
    for each in written:
        found = asked.execute(f"SELECT id FROM {each}_large ORDER BY id").fetchall()
        assert [row[0] for row in found] == ids, each
    answered = plain_rows(layout, "by_name", 0)
    assert answered is not None
    windows = Counter((row["name"], row["w"]["start"], row["n"]) for row in answered.rows.to_pylist())
    assert windows
    upserted = deltalake.DeltaTable(tmp_path / "by_name").to_pyarrow_table().to_pylist()
    assert Counter((row["name"], row["w"]["start"], row["n"]) for row in upserted) == windows
    upserted = tables["by_name"].scan().to_arrow().to_pylist()
    assert Counter((row["name"], row["w"]["start"], row["n"]) for row in upserted) == windows
    for each in written:
        found = asked.execute(f"SELECT name, w_start, n FROM {each}_by_name").fetchall()
        assert Counter(map(_in_utc, found)) == windows, each
    asked.close()
    secret = postgres.password.encode()
    told = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert told == []
    assert secret not in log.read_bytes()
