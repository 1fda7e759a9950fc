"""Columns from inside JSON records and the change events of Debezium: decoded by workers and by Spark, the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import SqlError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

COLUMNS = (
    "id INT PATH '$.after.id', City STRING PATH '$.after.place.city', price DOUBLE PATH '$.after[''unit price'']', "
    "op STRING, at BIGINT PATH '$.source.ts_ms', note STRING"
)
VIEWS = {
    "all_rows": "SELECT * FROM t WHERE id IS NOT NULL OR op IS NOT NULL OR note IS NULL",
    "in_bern": "SELECT id, City, at FROM t WHERE City = 'Bern' AND price > 1",
    "per_minute": "SELECT window(at, '1 minute') AS w, count(*) AS n, sum(price) AS total FROM t GROUP BY w",
}
STATIC = "after STRUCT<id: INT, place: STRUCT<city: STRING>, `unit price`: DOUBLE>, op STRING, source STRUCT<ts_ms: BIGINT>, note STRING"
FLAT = "after.id AS id, after.place.city AS City, after.`unit price` AS price, op, timestamp_millis(source.ts_ms) AS at, note"
ENVELOPES = [
    {"before": None, "after": {"id": 1, "status": "new"}, "op": "r", "ts_ms": 1714557600000},
    {"before": None, "after": {"id": 2, "status": "new"}, "op": "c", "ts_ms": 1714557601000},
    {
        "before": {"id": 2, "status": "new"},
        "after": {"id": 2, "status": "paid"},
        "op": "u",
        "ts_ms": 1714557602000,
    },
    {"before": {"id": 1, "status": "new"}, "after": None, "op": "d", "ts_ms": 1714557663000},
    {"before": None, "after": None, "op": "t", "ts_ms": 1714557664000},
]
CHANGES = [
    (1, "new", "r", None),
    (2, "new", "c", None),
    (2, "paid", "u", "new"),
    (1, "new", "d", "new"),
    (None, None, "t", None),
]


def rows(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def ended(engine: Engine, out: Path) -> Run:
    return run_to_end(engine, out, ended=True, seconds=600)


def _records(seed: int, number: int) -> list[str]:
    drawn = random.Random(seed)
    odd = [
        '{"after":5}',
        '{"after":{"id":"x"},"op":"odd"}',
        '{"after":{"id":1,"id":2}}',
        '{"after":{"place":[]}}',
        "{'op': 'quotes'}",
        '{"op":7,"note":{"a":1}}',
    ]
    made = []
    for number_of in range(number):
        after = {
            "id": number_of,
            "place": drawn.choice([None, {"city": drawn.choice(["Bern", "Thun", None, "Zürich"])}, {}]),
            "unit price": drawn.choice([None, 1.5, 2, 0.25]),
            "more": [1, {"id": 3}],
        }
        record = {
            "after": drawn.choice([after, after, after, None]),
            "op": "c",
            "source": {"ts_ms": 1714557600000 + 700 * number_of},
        }
        if drawn.random() < 0.3:
            record["note"] = "n"
        made.append(json.dumps(record, ensure_ascii=False))
        if drawn.random() < 0.05:
            made.append(drawn.choice(odd))
    return made


def _table(source: str, more: str = "") -> str:
    return f"CREATE TABLE t ({COLUMNS}) USING {source}, event_time 'at', event_time_format 'millis'{more});"


@pytest.mark.long
def test_workers_and_spark_take_the_same_columns_out_of_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(_records(1, 400)))
    found = {}
    for in_worker in (True, False):
        engine = Engine(spark, shards=2, decode_in_worker=in_worker)
        engine.execute(_table(f"json OPTIONS (path '{tmp_path / 'in'}'"))
        engine.add_views(VIEWS)
        assert ("read and decode the JSON files" in engine.explain()) == in_worker
        out = tmp_path / str(in_worker)
        run = ended(engine, out)
        aside = Counter(
            (row["record"], row["reason"])
            for path in (out / "quarantine" / "t").glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
        )
        found[in_worker] = {name: rows(run.results(name)) for name in VIEWS} | {"aside": aside}
    assert found[True] == found[False]
    reasons = {reason for _, reason in found[True]["aside"]}
    assert {
        "malformed json record: after.id is no INT",
        "malformed json record: after.place is no STRUCT",
    } <= {str(each).partition("<")[0] for each in reasons}
    static = spark.read.schema(STATIC).json(str(tmp_path / "in"), mode="DROPMALFORMED").cache()
    static.selectExpr(*_split(FLAT)).createOrReplaceTempView("t")
    for name, text in VIEWS.items():
        usable = text.replace("FROM t GROUP", "FROM t WHERE at IS NOT NULL GROUP")
        assert found[True][name] == rows(spark.sql(usable)), name


def _split(columns: str) -> list[str]:
    depth, parts = 0, [""]
    for sign in columns:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


@pytest.mark.kafka
def test_a_topic_of_change_events(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = "changes-" + tmp_path.name.replace("_", "-")
    kafka.create_topic(topic)
    with_schema = [json.dumps({"schema": {"type": "struct"}, "payload": each}) for each in ENVELOPES]
    values = [
        (each,) for each in [*with_schema[:4], None, *with_schema[4:], '{"payload":{"after":{"id":"x"}}}']
    ]
    spark.createDataFrame(values, "value STRING").coalesce(1).write.format("kafka").option(
        "kafka.bootstrap.servers", kafka.address
    ).option("topic", topic).save()
    found = []
    for in_worker in (True, False):
        engine = Engine(spark, shards=2, decode_in_worker=in_worker).execute(
            "CREATE TABLE orders (id INT, status STRING, op STRING PATH '$.op', at BIGINT PATH '$.ts_ms', "
            "old STRING PATH '$.before.status') USING kafka OPTIONS "
            f"(kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', "
            "format 'debezium-json', schema_include 'true', event_time 'at', event_time_format 'millis');"
            "CREATE VIEW every AS SELECT id, status, op, old FROM orders WHERE op IS NOT NULL;"
            "CREATE VIEW deleted AS SELECT id, at FROM orders WHERE op = 'd';"
            "CREATE VIEW busy AS SELECT window(at, '1 minute') AS w, op, count(*) AS n FROM orders GROUP BY w, op;"
        )
        out = tmp_path / str(in_worker)
        run = ended(engine, out)
        assert rows(run.results("every")) == Counter(CHANGES)
        assert [row.id for row in run.results("deleted").collect()] == [1]
        assert sum(row.n for row in run.results("busy").collect()) == len(CHANGES)
        (aside,) = (out / "quarantine" / "orders").glob("*.parquet")
        found.append(pq.read_table(aside).column("reason").to_pylist())
    assert found[0] == found[1] == [found[0][0]], (
        "a record without a value says nothing, and is no malformed one"
    )


def test_change_events_in_files_and_columns_that_meet_ours(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, ENVELOPES)))
    engine = Engine(spark, shards=2).execute(
        "CREATE TABLE orders (id INT, status STRING, op STRING PATH '$.op', queries STRING PATH '$.before.status', "
        "revision BIGINT PATH '$.ts_ms', coverage TIMESTAMP PATH '$.none') "
        f"USING json OPTIONS (path '{tmp_path / 'in'}', format 'debezium-json');"
        "CREATE VIEW every AS SELECT id, status, op, queries FROM orders WHERE revision > 0;"
    )
    assert "fast path" in engine.explain()
    assert rows(ended(engine, tmp_path / "out").results("every")) == Counter(CHANGES)


def test_replays_static_tables_and_single_rows_have_such_columns(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("in", "cities"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(_records(2, 30)[:30]))
    (tmp_path / "cities" / "1.json").write_text(
        '{"city":{"name":"Bern","country":"CH"}}\n{"city":{"name":"Thun","country":"CH"}}\n{"city":{"name":[]}}\n'.replace(
            "[]", "[1]"
        ).replace('{"city":{"name":[1]}}', '{"city":5}')
    )
    replay = _table(f"replay OPTIONS (path '{tmp_path / 'in'}', format 'json', speed 'max'").replace(
        "TABLE t", "TABLE played"
    )
    engine = Engine(spark, shards=2).execute(
        _table(f"json OPTIONS (path '{tmp_path / 'in'}'")
        + "CREATE TABLE cities (name STRING PATH '$.city.name', country STRING PATH '$.city.country') "
        f"USING json OPTIONS (path '{tmp_path / 'cities'}', static 'true');"
        + replay
        + "CREATE VIEW joined AS SELECT t.id, c.country FROM t JOIN cities c ON t.City = c.name;"
        "CREATE VIEW seen AS SELECT id, City FROM played WHERE City = 'Bern';"
        "CREATE VIEW bern AS SELECT id, City FROM t WHERE City = 'Bern';"
    )
    run = ended(engine, tmp_path / "out")
    assert rows(run.results("seen")) == rows(run.results("bern"))
    joined = rows(run.results("joined"))
    assert joined
    assert {row[1] for row in joined} == {"CH"}
    for city, verdict in (("Bern", "true"), ("Thun", "false")):
        found = engine.why("bern", json.dumps({"after": {"id": 3, "place": {"city": city}}}))
        assert found.verdict == verdict
        assert found.values["City"] == city


@pytest.mark.parametrize(
    ("columns", "source", "kind", "told"),
    [
        ("a STRING PATH '$.x', b INT PATH '$.x.y'", "json OPTIONS (path '{}')", SqlError, r"columns a and b need the field \$\.x in two"),
        ("a STRING PATH '$.x.y', b INT PATH '$.x.y'", "json OPTIONS (path '{}')", SqlError, r"need the field \$\.x\.y in two"),
        ("a STRING PATH '$.x.y'", "csv OPTIONS (path '{}')", UnsupportedError, "PATH names a field within JSON, Avro or Protobuf, and csv is read by columns"),
        ("a STRING", "json OPTIONS (path '{}', schema_include 'true')", SqlError, "schema_include is for format 'debezium-json' alone"),
        ("a STRING", "json OPTIONS (path '{}', format 'debezium-json', schema_include 'maybe')", SqlError, "schema_include is 'maybe'"),
        ("a STRING", "json OPTIONS (path '{}', format 'debezium')", SqlError, "format is 'debezium'; allowed: 'json', 'debezium-json'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(
    spark: SparkSession, tmp_path: Path, columns: str, source: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        Engine(spark).execute(f"CREATE TABLE t ({columns}) USING {source.format(tmp_path)};")


def test_debezium_needs_columns(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="needs the columns of the row"):
        Engine(spark).execute(
            f"CREATE TABLE t USING json OPTIONS (path '{tmp_path}', format 'debezium-json');"
        )


def test_fields_of_reserved_names_are_read_under_other_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"penstock_batch": 3, "_corrupt_record": "{", "op": "d"}\n')
    with pytest.raises(
        SqlError, match=r"rename it, in JSON, Avro and Protobuf with PATH '\$\.penstock_batch'"
    ):
        Engine(spark).execute(
            f"CREATE TABLE t (penstock_batch INT) USING json OPTIONS (path '{tmp_path / 'in'}');"
        )
    engine = Engine(spark).execute(
        "CREATE TABLE t (batch INT PATH '$.penstock_batch', bad STRING PATH '$._corrupt_record', op STRING) "
        f"USING json OPTIONS (path '{tmp_path / 'in'}');"
        "CREATE VIEW every AS SELECT batch, bad, op FROM t WHERE op = 'd';"
    )
    handed: list[tuple[object, ...]] = []
    engine.sink(
        "every", lambda frame, _: handed.extend(map(tuple, frame.select("batch", "bad", "op").collect()))
    )
    assert rows(ended(engine, tmp_path / "out").results("every")) == Counter([(3, "{", "d")])
    assert handed == [(3, "{", "d")]
