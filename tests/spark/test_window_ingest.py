"""The ingest side of window views: partials of all tasks, merged, equal spark.sql over the same tuples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from engine_cases import put_file
from penstock.errors import InputError
from penstock.operators.windows.aggregates import ROWS as ROWS_OF_GROUP
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.rows import window_rows
from penstock.operators.windows.shard import Envelope, OperatorPlan, pane_batch
from penstock.settings import Settings
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.log.entries import Entry
from penstock.spark.log.programs import stored_program
from penstock.spark.log.shards import fixed_shards
from penstock.spark.log.stream_log import FINAL, PLAN, Kept, LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.sources.kafka_source import KafkaJsonSource
from penstock.spark.sources.source import DataFrameSource, Source
from penstock.spark.sources.tables import open_table
from penstock.spark.storage.bindings import PlanLog, ViewDefinition, WindowDefinition
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import LOG_KEPT
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.worker import TOO_LATE
from penstock.sql.script.script import parse_script
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_commits")]

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
COLUMNS = "ts TIMESTAMP, origin STRING, level DOUBLE, amount INT, flag BOOLEAN"
FILES, ROWS = 3, 4_000

SLIDING = (
    "SELECT origin, window(ts, '10 minutes', '5 minutes') AS w, count(*) AS n, sum(amount) AS total, avg(level) AS mean,"
    " min(level) AS low, max(amount) AS high, stddev(level) AS sd, count(DISTINCT amount) AS kinds"
    " FROM readings GROUP BY origin, w"
)
TUMBLING = "SELECT level, window(ts, '1 hour', '1 hour', '7 minutes') AS w, count(amount) AS n FROM readings WHERE amount > 50 GROUP BY level, w"
OVERALL = (
    "SELECT window(ts, '20 minutes') AS w, sum(level) AS total FROM readings WHERE amount > 50 GROUP BY w"
)
COMPUTED = (
    "SELECT upper(origin) AS o, flag, window(ts, '10 minutes') AS w, sum(amount / (amount - 5)) AS s, count(*) AS n"
    " FROM readings WHERE level * 2 > 1 GROUP BY upper(origin), flag, w"
)


def readings(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    level = rng.choice([0.0, -0.0, 0.25, 0.5, 1.5, math.nan], ROWS)
    times = [NOON + timedelta(seconds=int(s)) for s in rng.integers(0, 7_200, ROWS)]
    times[:3] = [None, datetime(2200, 1, 1, tzinfo=UTC), None]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "origin": pa.array(rng.choice(["JFK", "LGA", None], ROWS), pa.string()),
            "level": pa.array(level, mask=rng.random(ROWS) < 0.05),
            "amount": pa.array(rng.integers(0, 100, ROWS), pa.int32()),
            "flag": pa.array(rng.choice([True, False, None], ROWS), pa.bool_()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        table = readings(number)
        put_file(tmp_path / "in" / f"{number}.parquet", partial(pq.write_table, table, row_group_size=1_500))
    return tmp_path


def definitions(views: Mapping[str, str]) -> dict[str, ViewDefinition | WindowDefinition]:
    return {name: WindowDefinition(name, f"{name}:1", text) for name, text in views.items()}


def parquet(spark: SparkSession, folder: Path) -> Source:
    text = f"CREATE TABLE readings ({COLUMNS}) USING parquet OPTIONS (path '{folder / 'in'}', event_time 'ts', maxFilesPerTrigger '1')"
    (table,) = parse_script(text).tables
    return open_table(spark, table, Settings())


class Ingest:
    """One IngestQuery over a folder."""

    def __init__(
        self, spark: SparkSession, folder: Path, source: Source, views: Mapping[str, Any], shards: int = 3
    ) -> None:
        self.layout = Layout(folder / "out", folder / "out/_penstock/checkpoint")
        self.layout.open()
        self.events = EventLog(self.layout.events)
        source.prepare(self.layout, "readings", self.events)
        self.query = IngestQuery(
            spark,
            "readings",
            source,
            self.layout,
            self.events,
            Settings(shards=shards),
            lambda *_: None,
            lambda _: None,
        )
        self.query.plans.change(views)

    def run(self) -> None:
        self.query.start(Trigger.available_now())
        self.query.await_termination()

    @property
    def entries(self) -> list[Entry]:
        log = LogReader(self.layout.log("readings"))
        last = log.newest()
        return [] if last is None else log.between(-1, last.number)

    def partials(self, operator: int, shards: Sequence[int] = (0, 1, 2)) -> list[Envelope]:
        found = []
        for entry in self.entries:
            for kind, name in ((kind, name) for kind, names in entry.files.items() for name in names):
                table = pq.read_table(self.layout.log_files("readings", kind) / name)
                assert table.schema.names == ["shard", "operator", "kind", "payload"]
                found += [
                    Envelope(row["operator"], row["kind"], row["payload"])
                    for row in table.to_pylist()
                    if row["operator"] == operator and row["shard"] in shards
                ]
        return found

    def operator(self, view: str) -> OperatorPlan:
        program = stored_program(self.layout, "readings", self.entries[-1].plan)
        assert program is not None
        return next(plan for plan in program.operators if view in [each.name for each in plan.views])


def answers(ingest: Ingest, view: str) -> list[tuple[Any, ...]]:
    """The view's windows from all partials of the log: start, keys, aggregates."""
    operator = ingest.operator(view)
    plan = next(each for each in operator.views if each.name == view)
    keys = [name for name, _ in plan.keys]
    parts = Parts.of(aggregate for each in operator.views for aggregate in each.aggregates)
    batch = pane_batch(ingest.partials(operator.id), None, np.zeros(0, np.int64))
    assert batch.partials is not None
    windows = plan.windows
    starts = batch.partials.column(PANE).to_numpy()
    own: set[int] = set()
    for pane in np.unique(starts).tolist():
        last = (pane - windows.start) // windows.slide * windows.slide + windows.start
        own.update(range(last, pane - windows.size, -windows.slide))
    found = []
    for start in sorted(own):
        inside = {
            name: table.filter(
                pa.array(
                    (table.column(PANE).to_numpy() >= start)
                    & (table.column(PANE).to_numpy() < start + windows.size)
                )
            ).drop_columns([PANE])
            for name, table in {"": batch.partials, **batch.values}.items()
        }
        rows = window_rows(plan, parts, Content(inside.pop(""), inside))
        columns = [*keys, *(f"_a{number}" for number in range(len(plan.aggregates)))]
        found += [(start, *(row[name] for name in columns)) for row in rows.to_pylist()]
    return found


def expected(spark: SparkSession, text: str, columns: str) -> list[tuple[Any, ...]]:
    rows = spark.sql(f"SELECT unix_micros(w.start) AS start, {columns} FROM ({text})").collect()
    return [tuple(row) for row in rows]


def same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(sorted(found, key=_order), sorted(wanted, key=_order), strict=True):
        assert all(_close(*pair) for pair in zip(one, other, strict=True)), (one, other)


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(
            one, other, rel_tol=1e-9, abs_tol=1e-12
        )
    return bool(one == other)


def _order(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{value + 0.0:.6f}" if isinstance(value, float) else str(value) for value in row)


def tuples(spark: SparkSession, folder: Path) -> None:
    """The tuples that windows believe, as a static table."""
    frame = spark.read.schema(COLUMNS).parquet(str(folder / "in"))
    frame.where("ts < '2100-01-01'").createOrReplaceTempView("readings")


def test_in_the_scan(spark: SparkSession, folder: Path) -> None:
    views = definitions({"sliding": SLIDING, "tumbling": TUMBLING, "overall": OVERALL})
    views["large"] = ViewDefinition("large", "large:1", "", "amount > 90", None)
    ingest = Ingest(spark, folder, parquet(spark, folder), views)
    ingest.run()
    assert "fast path" in ingest.query.plans.explain()
    tuples(spark, folder)
    same(answers(ingest, "sliding"), expected(spark, SLIDING, "origin, n, total, mean, low, high, sd, kinds"))
    same(answers(ingest, "tumbling"), expected(spark, TUMBLING, "level, n"))
    same(answers(ingest, "overall"), expected(spark, OVERALL, "total"))
    assert [(entry.number, entry.batch) for entry in ingest.entries] == [(0, 0), (1, 1), (2, 2)]
    newest = None
    for number, entry in enumerate(ingest.entries):
        times = np.asarray(
            pq.read_table(folder / "in" / f"{number}.parquet").column("ts").drop_null().cast(pa.int64())
        )
        times = np.sort(times)[:-1]
        assert entry.delays == (0 if newest is None else max(0, newest - int(times.min())),)
        newest = int(times.max()) if newest is None else max(newest, int(times.max()))
        assert entry.newest == newest
    assert ingest.query.totals.null_event_times == 2 * FILES
    assert ingest.query.totals.future_event_times == FILES
    files = read_published(ingest.layout, "readings").files
    large = sum(int(np.sum(readings(number).column("amount").to_numpy() > 90)) for number in range(FILES))
    assert sum(file.rows for file in files if file.kind == "matches") == large
    assert fixed_shards(ingest.layout, "readings", 7, None) == 3
    with pytest.raises(InputError, match="shards is 4, but the checkpoint of stream readings has 3"):
        fixed_shards(ingest.layout, "readings", 7, 4)
    shards = [pane_batch(ingest.partials(0, [shard]), None, np.zeros(0, np.int64)) for shard in range(3)]
    keys = [set(shard.partials.column("_k0").to_pylist()) for shard in shards if shard.partials is not None]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 3


def test_behind_a_dataframe(spark: SparkSession, folder: Path) -> None:
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "2").parquet(str(folder / "in"))
    source = DataFrameSource(stream.schema, None, lambda _: stream, "a test")
    ingest = Ingest(spark, folder, source, definitions({"computed": COMPUTED, "sliding": SLIDING}))
    ingest.run()
    tuples(spark, folder)
    spark.sql("SELECT * FROM readings WHERE amount <> 5").createOrReplaceTempView("readings")
    same(answers(ingest, "computed"), expected(spark, COMPUTED, "o, flag, s, n"))
    tuples(spark, folder)
    same(answers(ingest, "sliding"), expected(spark, SLIDING, "origin, n, total, mean, low, high, sd, kinds"))
    every = spark.read.schema(COLUMNS).parquet(str(folder / "in"))
    lost = every.where("amount = 5 AND level * 2 > 1").count()
    assert ingest.query.totals.view_errors == {"computed": lost}


def test_on_raw_json(spark: SparkSession, folder: Path) -> None:
    records = folder / "json"
    records.mkdir()
    for number in range(FILES):
        table = readings(number).append_column("at", pa.array(range(ROWS), pa.int64()))
        lines = [_json(row) for row in table.to_pylist()]
        lines[5] = b"{broken"
        topic = {"value": pa.array(lines, pa.binary()), "offset": table.column("at")}
        pq.write_table(pa.table(topic), records / f"{number}.parquet")
    columns = StructType.fromDDL("ts TIMESTAMP, origin STRING, level DOUBLE, amount INT")

    def load(session: SparkSession) -> DataFrame:
        raw = session.readStream.schema("value BINARY, offset BIGINT").parquet(str(records))
        return raw.selectExpr(
            "value", "'t' AS topic", "0 AS partition", "offset", "TIMESTAMP '2024-01-01' AS timestamp"
        )

    source = KafkaJsonSource(columns, "ts", load, Settings(), one_topic=True)
    ingest = Ingest(spark, folder, source, definitions({"overall": OVERALL}))
    ingest.run()
    assert "fast path" in ingest.query.plans.explain()
    assert sum(ingest.query.totals.quarantined.values()) == FILES
    decoded = spark.read.schema("value BINARY, offset BIGINT").parquet(str(records))
    parsed = decoded.selectExpr(f"from_json(CAST(value AS STRING), '{columns.toDDL()}') AS t").select("t.*")
    parsed.where("ts < '2100-01-01'").createOrReplaceTempView("readings")
    same(answers(ingest, "overall"), expected(spark, OVERALL, "total"))


@pytest.mark.long
def test_a_matched_record_of_kafka_that_only_spark_reads(spark: SparkSession, folder: Path) -> None:
    """Columns of texts that nothing compares are decoded of matched records: one of them, in one file, holds a number."""
    records = folder / "records"
    records.mkdir()
    for number in range(FILES):
        rows = readings(number).to_pylist()
        first = next(place for place, row in enumerate(rows) if row["amount"] > 90)
        rows[first]["origin"] = "JFK" if number else 12
        offsets = pa.array(range(number * ROWS, number * ROWS + ROWS), pa.int64())
        topic = {"value": pa.array([_json(row) for row in rows], pa.binary()), "offset": offsets}
        pq.write_table(pa.table(topic), records / f"{number}.parquet")
    columns = StructType.fromDDL("ts TIMESTAMP, origin STRING, level DOUBLE, amount INT")

    def load(session: SparkSession) -> DataFrame:
        raw = session.readStream.schema("value BINARY, offset BIGINT").parquet(str(records))
        return raw.selectExpr(
            "value", "'t' AS topic", "0 AS partition", "offset", "TIMESTAMP '2024-01-01' AS timestamp"
        )

    views = definitions({"overall": OVERALL})
    views["large"] = ViewDefinition("large", "large:1", "", "amount > 90", None)
    ingest = Ingest(spark, folder, KafkaJsonSource(columns, "ts", load, Settings(), one_topic=True), views)
    ingest.run()
    kept = spark.read.schema("value BINARY, offset BIGINT").parquet(str(records))
    parsed = kept.selectExpr(f"from_json(CAST(value AS STRING), '{columns.toDDL()}') AS t").select("t.*")
    matched = [
        row
        for path in (folder / "out" / "matches" / "readings").glob("*.parquet")
        for row in pq.read_table(path, columns=["origin", "amount"]).to_pylist()
    ]
    wanted = [row.asDict() for row in parsed.where("amount > 90").select("origin", "amount").collect()]
    assert sorted(map(str, matched)) == sorted(map(str, wanted))
    assert "12" in [row["origin"] for row in matched]
    parsed.where("ts < '2100-01-01'").createOrReplaceTempView("readings")
    same(answers(ingest, "overall"), expected(spark, OVERALL, "total"))
    assert ingest.query.totals.null_event_times == 2 * FILES


def _json(row: dict[str, Any]) -> bytes:
    level = None if row["level"] is None or math.isnan(row["level"]) else row["level"]
    time = None if row["ts"] is None else row["ts"].strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"ts": time, "origin": row["origin"], "level": level, "amount": row["amount"]}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def _without_attempt(entry: Entry) -> Entry:
    """An entry without its time, and without the digits of an attempt in names of files."""
    files = {kind: tuple(name.rpartition("-")[0] for name in names) for kind, names in entry.files.items()}
    return replace(entry, clock=0, files=files)


def test_a_repeated_batch_has_the_entry_it_had(spark: SparkSession, folder: Path) -> None:
    views = definitions({"overall": OVERALL})
    first = Ingest(spark, folder, parquet(spark, folder), views)
    first.run()
    before = first.entries
    first.query.log.put_idle(before[-1].newest or 0)
    assert first.entries == before, "nothing new to say"
    commits = first.layout.spark("readings") / "commits"
    for published in (True, False):
        _uncommit(commits, 2)
        if not published:
            first.layout.log("readings").entries[before[-1].number].remove()
            first.layout.manifests("readings")[2].remove()
        again = Ingest(spark, folder, parquet(spark, folder), views)
        again.run()
        assert list(map(_without_attempt, again.entries)) == list(map(_without_attempt, before))
        assert (again.entries == before) == published
    newest = before[-1].newest or 0
    assert again.query.log.put_idle(newest + 5)
    assert not again.query.log.put_idle(newest + 5)
    assert again.query.log.put_all()
    assert not again.query.log.put_all()
    assert again.query.log.put_end()
    assert not again.query.log.put_end()
    *_, idle, everything, end = again.entries
    assert [each.newest for each in (idle, everything, end)] == [newest] * 3, "seen, not taken to have come"
    assert (idle.batch, idle.number, idle.reached, idle.ended) == (2, 3, newest + 5, False)
    assert (everything.number, everything.answer_all, everything.ended) == (4, True, False)
    assert (end.number, end.answer_all, end.ended) == (5, False, True)


def _uncommit(commits: Path, batch: int) -> None:
    """Spark forgets that it has done with a batch."""
    for name in (str(batch), f".{batch}.crc"):
        (commits / name).unlink(missing_ok=True)


@pytest.mark.long
def test_a_tuple_beyond_the_history_goes_to_the_quarantine(spark: SparkSession, folder: Path) -> None:
    """The log says that its history does not go back to noon, and the windows that all of them are final."""
    views = definitions({"overall": OVERALL, "sliding": SLIDING})
    views["large"] = ViewDefinition("large", "large:1", "", "amount > 90", None)
    first = Ingest(spark, folder, parquet(spark, folder), views)
    first.run()
    noon = int(NOON.timestamp() * 1e6)
    log = LogReader(first.layout.log("readings"))
    told = {FINAL: noon + 1_000_000, PLAN: first.entries[-1].plan}
    late = readings(9).slice(10, 40)
    moments = [NOON - timedelta(minutes=place) for place in range(-20, 20)]
    late = late.set_column(0, "ts", pa.array(moments, pa.timestamp("us", "UTC")))

    def batch(number: int) -> tuple[Ingest, int]:
        """The batch of `late`, and how many of its tuples the windows took in."""
        pq.write_table(late, folder / "in" / f"{number}.parquet")
        ingest = Ingest(spark, folder, parquet(spark, folder), views)
        ingest.run()
        plan = ingest.entries[-1]
        assert plan.batch == number
        taken = 0
        for kind, names in plan.files.items():
            for name in names if kind == "partials" else ():
                rows = pq.read_table(ingest.layout.log_files("readings", kind) / name)
                for row in rows.filter(rows.column("operator").to_numpy() == 1).to_pylist():
                    partials = pa.ipc.open_stream(row["payload"]).read_all()
                    taken += sum(partials.column(ROWS_OF_GROUP).to_pylist())
        return ingest, taken

    assert batch(FILES)[1] == 40
    LOG_KEPT.replace(log.log.kept, Kept(before=noon).document())
    log.put_mark("windows", 0, **{**told, PLAN: -1})
    assert batch(FILES + 1)[1] == 40, "some view of the plan may need them"
    log.put_mark("windows", 0, **{**told, FINAL: noon - 600_000_000})
    assert batch(FILES + 2)[1] == 31, "nine are older than all that is not final"
    log.put_mark("windows", 0, **told)
    last, taken = batch(FILES + 3)
    assert taken == 21
    assert last.query.totals.quarantined == {TOO_LATE: 19}
    quarantined = [
        row
        for path in sorted(last.layout.quarantine("readings").glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(quarantined) == 9 + 19
    assert {row["reason"] for row in quarantined} == {TOO_LATE}
    assert json.loads(quarantined[-1]["record"])["ts"] == f"{moments[-1]:%Y-%m-%d %H:%M:%S.%f}Z"
    matched = int(np.sum(late.column("amount").to_numpy() > 90))
    assert last.query.totals.matched == matched, "they satisfy selections all the same"
    assert last.entries[-1].kept_before == noon


def test_a_stream_that_never_had_a_window_view_has_no_log(spark: SparkSession, folder: Path) -> None:
    large = ViewDefinition("large", "large:1", "", "amount > 90", None)
    ingest = Ingest(spark, folder, parquet(spark, folder), {"large": large})
    ingest.run()
    assert not ingest.layout.log("readings").exists()
    assert not ingest.layout.programs("readings").exists()
    assert not ingest.query.log.put_end()
    ingest.query.plans.change(definitions({"overall": OVERALL}), frozenset(["large"]))
    pq.write_table(readings(FILES), folder / "in" / f"{FILES}.parquet")
    ingest.run()
    assert [entry.batch for entry in ingest.entries] == [FILES]
    ingest.query.plans.change({"large": large}, frozenset(["overall"]))
    pq.write_table(readings(FILES + 1), folder / "in" / f"{FILES + 1}.parquet")
    ingest.run()
    assert [entry.files == {} for entry in ingest.entries] == [False, True]
    program = stored_program(ingest.layout, "readings", ingest.entries[-1].plan)
    assert program is not None
    assert program.operators == ()


@pytest.mark.long
def test_one_window_over_every_tuple(spark: SparkSession, folder: Path) -> None:
    ingest = Ingest(spark, folder, parquet(spark, folder), definitions({"sliding": SLIDING}))
    ingest.run()
    tuples(spark, folder)
    same(answers(ingest, "sliding"), expected(spark, SLIDING, "origin, n, total, mean, low, high, sd, kinds"))
    assert ingest.query.totals.tuples == FILES * ROWS


def test_row_groups_that_no_selection_wants_are_read_for_windows(spark: SparkSession, folder: Path) -> None:
    nothing = ViewDefinition("nothing", "nothing:1", "", "amount > 1000", None)
    for views in (
        {"overall": OVERALL.replace("> 50", "> 500")},
        {"all": OVERALL.replace("WHERE amount > 50", "")},
    ):
        ingest = Ingest(
            spark,
            folder / "-".join(views),
            parquet(spark, folder),
            {**definitions(views), "nothing": nothing},
        )
        ingest.run()
        assert [e["skipped"] for e in ingest.events.recent if e["kind"] == "batch"] == [ROWS] * FILES
        assert ingest.query.totals.null_event_times == 2 * FILES
        assert ingest.entries[0].newest is not None
        assert [bool(entry.files) for entry in ingest.entries] == ["all" in views] * FILES
    tuples(spark, folder)
    same(answers(ingest, "all"), expected(spark, views["all"], "total"))


def test_operators_are_shared_and_outlive_views(spark: SparkSession, folder: Path) -> None:
    query = "SELECT origin, window(ts, {}) AS w, {} FROM readings WHERE amount > 5 GROUP BY origin, w"
    texts = {
        "counted": query.format("'10 minutes', '5 minutes'", "count(*) AS n"),
        "summed": query.format("'20 minutes'", "sum(level) AS s"),
        "shifted": query.format("'20 minutes', '20 minutes', '1 minute'", "count(*) AS n"),
        "uneven": query.format("'7 minutes'", "count(*) AS n"),
        "raising": query.format("'20 minutes'", "sum(1 / amount) AS s"),
    }
    ingest = Ingest(spark, folder, parquet(spark, folder), definitions(texts))
    plans = ingest.query.plans

    def operators() -> dict[str, int]:
        register = PlanLog(ingest.layout, "readings").load_windows(plans.bind(number).program.version)
        return {each.definition.name: each.operator for each in register.windows}

    number = 0
    found = operators()
    assert found["counted"] == found["summed"]
    assert sorted(found.values()) == [0, 0, 1, 2, 3]
    parts = plans.bind(number).program.windows.operators[0].parts
    number += 1
    plans.change({"later": WindowDefinition("later", "later:1", texts["summed"])}, frozenset(["summed"]))
    assert operators() == {**found, "later": 4}
    bound = plans.bind(number)
    assert bound.windows.members[0] == ("counted",)
    assert bound.program.windows.operators[0].parts == parts
    number += 1
    plans.change({"later": WindowDefinition("later", "later:2", texts["counted"])}, frozenset(["counted"]))
    assert {name: id_ for name, id_ in operators().items() if id_ in (0, 4, 5)} == {"later": 5}
