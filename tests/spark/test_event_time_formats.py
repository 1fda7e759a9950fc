"""Event times that are stored as numbers or as text: every source answers as Spark does over the same moments."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from engine_cases import rows
from penstock.errors import InputError, SqlError, UnknownNameError
from penstock.operators.ingest.event_times import EpochTimes
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.spark.sources.event_times import stored_times
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: what people click, in milliseconds; the last two have no usable time
CLICKS = [
    {"who": "a", "ts": 1714557600000, "page": "/0"},
    {"who": "b", "ts": 1714557659999, "page": "/1"},
    {"who": "a", "ts": 1714557660000, "page": "/2"},
    {"who": "c", "ts": 1714557690250, "page": "/3"},
    {"who": "b", "ts": 1714557900001, "page": "/4"},
    {"who": "d", "ts": None, "page": "/5"},
    {"who": "e", "ts": 9223372036854775807, "page": "/6"},
]
VIEWS = {
    "timed": "SELECT who, page, ts AS at FROM clicks WHERE ts >= TIMESTAMP '2024-05-01T10:01:00Z'",
    "everything": "SELECT * FROM clicks WHERE who IS NOT NULL",
    "odd_minute": "SELECT who FROM clicks WHERE minute(ts) % 2 = 1",
    "per_minute": "SELECT window(ts, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY w",
}
PAIRS = """SELECT c.who, v.page, v.ts AS at FROM clicks c JOIN views v
ON c.who = v.who AND v.ts BETWEEN c.ts - INTERVAL 1 MINUTE AND c.ts"""
#: of each format: the stored type, the unit's part of a millisecond or the text of one
FORMATS = {
    "seconds": ("BIGINT", lambda ms: ms // 1000),
    "millis": ("BIGINT", lambda ms: ms),
    "micros": ("BIGINT", lambda ms: ms * 1000 if ms < 1 << 50 else ms),
    "nanos": ("BIGINT", lambda ms: ms * 1_000_000 + 999 if ms < 1 << 40 else ms),
    "dd.MM.yyyy HH:mm:ss.SSS": (
        "STRING",
        lambda ms: (
            "soon" if ms >= 1 << 50 else f"01.05.2024 1{_clock(ms // 1000 - 1714557600)}.{ms % 1000:03d}"
        ),
    ),
}


def _clock(seconds: int) -> str:
    return f"0:{seconds // 60:02d}:{seconds % 60:02d}"


def _stored(form: str) -> list[dict[str, object]]:
    store = FORMATS[form][1]
    return [{**each, "ts": None if each["ts"] is None else store(each["ts"])} for each in CLICKS]


def _write(folder: Path, kind: str, form: str) -> None:
    folder.mkdir(parents=True)
    tuples = _stored(form)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(tuples), folder / "1.parquet", row_group_size=3)
    elif kind == "json":
        (folder / "1.json").write_text("".join(json.dumps(each) + "\n" for each in tuples))
    else:
        lines = (",".join("" if each is None else str(each) for each in row.values()) for row in tuples)
        (folder / "1.csv").write_text("\n".join(lines))


def _table(folder: Path, kind: str, form: str, name: str = "clicks", more: str = "") -> str:
    return (
        f"CREATE TABLE {name} (who STRING, ts {FORMATS[form][0]}, page STRING) USING {kind} "
        f"OPTIONS (path '{folder}', event_time 'ts', event_time_format '{form}'{more});"
    )


def _static(spark: SparkSession, folder: Path, kind: str, form: str) -> DataFrame:
    """The same tuples at rest: as Spark reads them, the event time made a moment by Spark's own functions."""
    frame = (
        spark.read.schema(f"who STRING, ts {FORMATS[form][0]}, page STRING").format(kind).load(str(folder))
    )
    least = F.abs("ts") < 1 << 53 if form == "millis" else F.abs("ts") < 1 << 43
    moments = {
        "seconds": F.when(least, F.timestamp_seconds("ts")),
        "millis": F.when(least, F.timestamp_millis("ts")),
        "micros": F.timestamp_micros("ts"),
        "nanos": F.timestamp_micros(F.floor(F.col("ts").cast("decimal(38,3)") / 1000).cast("bigint")),
    }
    return frame.withColumn("ts", moments.get(form, F.try_to_timestamp("ts", F.lit(form))))


def _ended(engine: Engine, out: Path) -> Run:
    return run_to_end(engine, out, ended=True, seconds=600)


def _usable(text: str) -> str:
    """A query as the engine answers it: tuples without a usable event time are in no window, as they are in none of Spark's."""
    return text.replace("FROM clicks GROUP", "FROM clicks WHERE ts < TIMESTAMP '2100-01-01' GROUP")


@pytest.mark.parametrize(
    ("kind", "form", "place"),
    [
        ("json", "millis", "fast path"),
        ("csv", "dd.MM.yyyy HH:mm:ss.SSS", "Spark decodes csv"),
        pytest.param("parquet", "millis", "fast path", marks=pytest.mark.long),
        ("parquet", "nanos", "fast path"),
        pytest.param(
            "parquet",
            "dd.MM.yyyy HH:mm:ss.SSS",
            "only Spark reads the format of the event time",
            marks=pytest.mark.long,
        ),
    ],
)
def test_views_over_stored_times_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, kind: str, form: str, place: str
) -> None:
    _write(tmp_path / "clicks", kind, form)
    views = {name: text for name, text in VIEWS.items() if name != "odd_minute" or kind == "csv"}
    engine = Engine(spark, shards=2).execute(_table(tmp_path / "clicks", kind, form))
    engine.add_views(views)
    assert place in engine.explain()
    run = _ended(engine, tmp_path / "out")
    _static(spark, tmp_path / "clicks", kind, form).createOrReplaceTempView("clicks")
    for name, text in views.items():
        assert rows(run.results(name)) == rows(spark.sql(_usable(text))), name
    assert run.results("everything").schema["ts"].dataType.simpleString() == "timestamp"
    assert run.status().streams["clicks"].tuples == len(CLICKS)


@pytest.mark.long
def test_streams_join_over_times_of_different_formats(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "clicks", "json", "millis")
    with (tmp_path / "clicks" / "1.json").open("a") as file:
        file.write('{"who": "x", "ts": "10 o\'clock"}\n')
    _write(tmp_path / "views", "parquet", "seconds")
    engine = Engine(spark, shards=2).execute(
        _table(tmp_path / "clicks", "json", "millis")
        + _table(tmp_path / "views", "parquet", "seconds", "views")
    )
    engine.view("pairs", PAIRS)
    run = _ended(engine, tmp_path / "out")
    _static(spark, tmp_path / "clicks", "json", "millis").createOrReplaceTempView("clicks")
    _static(spark, tmp_path / "views", "parquet", "seconds").createOrReplaceTempView("views")
    found = rows(run.results("pairs"))
    assert found == rows(spark.sql(PAIRS + " WHERE c.ts < TIMESTAMP '2100-01-01'"))
    assert found
    (aside,) = (tmp_path / "out" / "quarantine" / "clicks").glob("*.parquet")
    assert pq.read_table(aside).column("reason").to_pylist() == ["malformed json record: ts is no BIGINT"]


def test_a_replay_and_a_frame_have_such_times_too(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "clicks", "json", "micros")
    _write(tmp_path / "stored", "parquet", "micros")
    tuples = spark.readStream.schema("who STRING, ts BIGINT, page STRING").json(str(tmp_path / "clicks"))
    engine = Engine(spark, shards=2).stream("clicks", tuples, event_time="ts", event_time_format="Micros")
    played = spark.read.parquet(str(tmp_path / "stored")).where("ts < 1L << 52")
    played.write.parquet(str(tmp_path / "played"))
    engine.execute(
        _table(tmp_path / "played", "replay", "micros", "again", ", rows_per_trigger 2, speed 'max'")
    )
    engine.add_views({"per_minute": VIEWS["per_minute"], "again_all": "SELECT * FROM again WHERE who > ''"})
    run = _ended(engine, tmp_path / "out")
    static = _static(spark, tmp_path / "clicks", "json", "micros")
    static.createOrReplaceTempView("clicks")
    assert rows(run.results("per_minute")) == rows(spark.sql(_usable(VIEWS["per_minute"])))
    assert rows(run.results("again_all")) == rows(static.where("ts < TIMESTAMP '2100-01-01'"))


@pytest.mark.kafka
def test_a_topic_has_such_times_decoded_in_the_worker(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"clicks-{tmp_path.name}".replace("_", "-")
    kafka.create_topic(topic)
    # the last one is refused by the worker's decoder and read by Spark's
    lines = [*(json.dumps(each) for each in _stored("millis")), "{'who': 'f', 'ts': 1714557600000}"]
    values = spark.createDataFrame([(line,) for line in lines], "value STRING").coalesce(1)
    values.write.format("kafka").option("kafka.bootstrap.servers", kafka.address).option(
        "topic", topic
    ).save()
    engine = Engine(spark, shards=2).execute(
        "CREATE TABLE clicks (who STRING, ts BIGINT, page STRING) USING kafka OPTIONS "
        f"(kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', "
        "event_time 'ts', event_time_format 'millis');"
    )
    views = {name: text for name, text in VIEWS.items() if name != "odd_minute"}
    engine.add_views(views)
    assert "Python workers decode JSON" in engine.explain()
    run = _ended(engine, tmp_path / "out")
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "1.json").write_text("\n".join(lines))
    _static(spark, tmp_path / "clicks", "json", "millis").createOrReplaceTempView("clicks")
    for name, text in views.items():
        assert rows(run.results(name)) == rows(spark.sql(_usable(text))), name


def test_the_worker_reads_numbers_as_spark_does(spark: SparkSession) -> None:
    least, most = -(2**63), 2**63 - 1
    integers = [
        *(None, 0, 1, -1, 999, -999, 1000, -1000, 1714557600000, least, least + 1, most, most - 1),
        *(
            sign * (most // unit + more)
            for sign in (1, -1)
            for unit in (1000, 1_000_000)
            for more in (-1, 0, 1)
        ),
    ]
    numbers = [
        *(None, 0.0, -0.0, 1.25, -1.25, 1e-7, -1e-7, 1714557600.123456, math.nan, math.inf, -math.inf, 1e300),
        *(sign * (most // 1_000_000 + more) for sign in (1.0, -1.0) for more in (-1.0, 0.0, 1.0, 0.5)),
    ]
    cases = [("bigint", unit, integers) for unit in ("seconds", "millis", "micros", "nanos")]
    cases += [("int", unit, [None, 7, -7, 2**31 - 1, -(2**31)]) for unit in ("seconds", "nanos")]
    for kind, unit, values in [*cases, ("double", "seconds", numbers)]:
        frame = spark.createDataFrame([(value,) for value in values], f"ts {kind}")
        times = stored_times(spark, "t", frame.schema, "ts", unit)
        assert times.epoch == EpochTimes("ts", unit)
        expected = [row.us for row in times.of(frame).selectExpr("unix_micros(ts) AS us").collect()]
        (batch,) = frame.coalesce(1).toArrow().to_batches()
        own = times.epoch.of(batch).column(0)
        assert own.cast(pa.int64()).to_pylist() == expected, (kind, unit)
        assert None in expected
        assert len({value for value in expected if value is not None}) > 3


@pytest.mark.parametrize(
    ("columns", "options", "kind", "told"),
    [
        ("ts BIGINT", "event_time 'ts'", SqlError, "is bigint; it must be a timestamp. Set the unit .* 'millis'"),
        ("ts STRING", "event_time 'ts'", SqlError, "must be a timestamp. Declare it TIMESTAMP, or set the format of its text"),
        ("ts BOOLEAN", "event_time 'ts'", SqlError, "is boolean; it must be a timestamp\n"),
        ("ts STRING", "event_time 'ts', event_time_format 'millis'", SqlError, "is for whole numbers .* is string\\. For text use"),
        ("ts DOUBLE", "event_time 'ts', event_time_format 'millis'", SqlError, "is for whole numbers"),
        ("ts BIGINT", "event_time 'ts', event_time_format 'yyyy'", SqlError, "a pattern for text, but column ts is bigint"),
        ("ts TIMESTAMP", "event_time 'ts', event_time_format 'millis'", SqlError, "Declare ts BIGINT"),
        ("ts TIMESTAMP", "event_time 'ts', event_time_format 'yyyy'", SqlError, "Declare ts STRING"),
        ("ts STRING", "event_time 'ts', event_time_format 'bbb'", SqlError, "event_time_format 'bbb' has the letter b at position 1; allowed letters: G y M L .*; text needs quotes, in SQL doubled: ''T''\n"),
        ("ts STRING", "event_time 'ts', event_time_format 'yyyy-MM-ddTHH:mm'", SqlError, "has the letter T at position 11; allowed letters"),
        ("ts STRING", "event_time 'ts', event_time_format 'MMMMM yyyy'", SqlError, "'MMMMM yyyy' is not a format that Spark reads; allowed: 'seconds', [^\n]* HH:mm:ss'\n"),
        ("ts BIGINT", "event_time 'ts', event_time_format 'milliseconds'", SqlError, "did you mean 'millis'"),
        ("ts STRING", "event_time 'ts', event_time_format 'EEEE'", SqlError, "event_time_format 'EEEE'"),
        ("ts BIGINT", "event_time_format 'millis'", SqlError, "needs the option event_time 'column'"),
        ("ts BIGINT", "event_time 'at', event_time_format 'millis'", UnknownNameError, "existing columns: ts"),
        ("ts BIGINT", "static true, event_time_format 'millis'", SqlError, "event_time_format"),
    ],
)  # fmt: skip
def test_a_format_that_does_not_fit_is_refused_in_words(
    spark: SparkSession, tmp_path: Path, columns: str, options: str, kind: type[InputError], told: str
) -> None:
    with pytest.raises(kind, match=f"(?s){told}") as refused:
        Engine(spark).execute(
            f"CREATE TABLE t ({columns}) USING json\nOPTIONS (path '{tmp_path}',\n  {options});"
        )
    assert "^^^" in str(refused.value)


def test_a_pattern_that_fits_no_value_is_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,2024-05-01 10:00\n2,\n3,2024-05-01 11:00\n")
    told = {}
    for written in ("dd.MM.yyyy HH:mm", "yyyy-MM-dd HH:mm"):
        engine = Engine(spark).execute(
            f"CREATE TABLE t (id INT, ts STRING) USING csv OPTIONS (path '{tmp_path}', event_time 'ts', event_time_format '{written}');"
        )
        told[written] = engine.warnings
    assert told == {
        "dd.MM.yyyy HH:mm": [
            f"t: event_time_format 'dd.MM.yyyy HH:mm' fits none of the first 2 values of ts in {tmp_path}/1.csv, for example "
            "'2024-05-01 10:00'. Windows and joins leave out tuples without an event time. Set the format of these values"
        ],
        "yyyy-MM-dd HH:mm": [],
    }


def test_a_frame_without_its_event_time_is_refused(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="event_time_format needs event_time"):
        Engine(spark).stream("t", frame, event_time_format="millis")
    with pytest.raises(InputError, match="'seconds', 'millis'"):
        Engine(spark).stream("t", frame, event_time="value")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "orc"])
def test_an_undeclared_table_over_an_empty_folder_is_refused_in_words(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    with pytest.raises(InputError, match="declare the columns in CREATE TABLE, or add a file"):
        Engine(spark).execute(f"CREATE TABLE t USING {kind} OPTIONS (path '{tmp_path}')")


def test_undeclared_nanoseconds_are_refused_with_a_remedy(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns", "UTC"))}), tmp_path / "x.parquet"
    )
    with pytest.raises(InputError, match=r"at of its Parquet files is timestamp.ns.*coerce_timestamps"):
        Engine(spark).execute(f"CREATE TABLE t USING parquet OPTIONS (path '{tmp_path}', event_time 'at')")


@pytest.mark.long
def test_nanoseconds_of_pandas_are_answered_as_the_remedy_says(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    moments = pa.array([1767225601000000001, 1767226201000000999], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"id": [1, 2], "at": moments}), tmp_path / "in" / "x.parquet")
    engine = Engine(spark, shards=2).execute(
        f"CREATE TABLE t (id BIGINT, at BIGINT) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'at', "
        "event_time_format 'nanos'); CREATE VIEW v AS SELECT * FROM t WHERE id > 0;"
        "CREATE VIEW w AS SELECT window(at, '10 minutes').start AS begun, count(*) AS n FROM t "
        "GROUP BY window(at, '10 minutes');"
    )
    assert engine.warnings == []
    run = _ended(engine, tmp_path / "out")
    assert Counter(str(row.at) for row in run.results("v").collect()) == {
        "2026-01-01 00:00:01": 1,
        "2026-01-01 00:10:01": 1,
    }
    assert run.results("w").count() == 2
    assert isinstance(run.results("v").schema, StructType)
