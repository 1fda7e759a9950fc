"""Join views: what the engine publishes equals what Spark says of the same tuples, as multisets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, answered, multiset, wait
from penstock.cli.status import quarantine
from penstock.errors import InputError, SqlError, StreamFailedError, UnknownNameError
from penstock.monitor.folder import folder_layout, folder_status, quarantined_records
from penstock.monitor.report import status_lines
from penstock.monitor.snapshot import take_lanes
from penstock.settings import Settings
from penstock.spark.engine import Engine
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.log.stream_log import SINCE, LogReader
from penstock.spark.results.read_plain import plain_batches, plain_rows
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

NEAR = "{0}.ts BETWEEN {1}.ts - INTERVAL 5 SECONDS AND {1}.ts + INTERVAL 5 SECONDS"
PAIRS = f"SELECT f.k, f.ts, w.x FROM flights f JOIN weather w ON f.k = w.k AND {NEAR.format('w', 'f')}"


def test_a_join_is_read_everywhere_and_handed_to_sinks(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(5))
    inputs.feed(3)
    computed = PAIRS.replace("w.x", "concat(f.name, w.name) AS both, 10 / f.n AS share").replace(
        " ON ", " ON 12 / (w.n * f.k) < 9 AND "
    )
    taken: list[pa.Table] = []
    dividing = PAIRS.replace(" ON ", " ON 1 / f.n > 0.3 AND ")
    by_spark = computed.replace("concat(f.name, w.name)", "soundex(concat(f.name, w.name))")
    views = {"pairs": PAIRS, "computed": computed, "dividing": dividing, "by_spark": by_spark}
    engine = Engine(spark).execute(inputs.script()).add_views(views)
    declared = engine.explain()
    assert "stream flights: 4 views, fast path" in declared
    assert declared.count("computed by the workers: (12") == declared.count("computed by Spark: (12") == 1
    assert "0 queries" not in declared
    assert "new tuples of f meet w (merge by key 0)" in declared
    engine.sink("pairs", lambda rows, _: taken.append(rows.toArrow()))
    run = answered(engine, tmp_path / "out")
    inputs.register(spark)
    told = spark.sql(PAIRS)
    copied = pa.concat_tables(taken).select(["k", "ts", "x"])
    assert Counter(map(repr, copied.to_pylist())) == multiset(told)
    lenient = computed.replace("12 / (w.n * f.k)", "try_divide(12, w.n * f.k)").replace(
        "10 / f.n", "try_divide(10, f.n)"
    )
    assert multiset(run.results("computed")) == multiset(spark.sql(lenient))
    sounds = lenient.replace("concat(f.name, w.name)", "soundex(concat(f.name, w.name))")
    assert multiset(run.results("by_spark")) == multiset(spark.sql(sounds))

    told_of = run.explain()
    assert "stream flights: 0 selections, 0 window views, fast path" in told_of
    assert "measured: f" in told_of
    assert "no prediction yet, Penstock still measures how fast event time passes; measured " in told_of
    progress = {each.name: each.line() for each in take_lanes(run.status().to_dict()["streams"])}
    assert progress["pairs"].startswith(f"view pairs: {told.count():,} rows, ")

    layout = Layout.of(run.output, None)
    found = plain_rows(layout, "PAIRS", 7)
    assert found is not None
    assert (found.rows.num_rows, found.count) == (7, told.count())
    streamed = plain_batches(layout, "pairs")
    assert streamed is not None
    assert sum(batch.num_rows for batch in streamed[1]) == told.count()
    with pytest.raises(
        UnknownNameError, match=r"View pairs is a join view\. Its rows never change, so it has no revisions"
    ):
        run.changes("pairs")

    raised = sum(cut["figures"]["views"].get("computed", {}).get("raised", 0) for cut in run.events("cut"))
    by_zero = PAIRS.replace(" ON ", " ON w.n * f.k = 0 AND ")
    assert raised == spark.sql(by_zero).count() > 0
    document = folder_status(tmp_path / "out")
    assert document["views"]["pairs"]["rows"] == told.count()
    assert document["views"]["pairs"]["backlog"] == {"flights": 0, "weather": 0}
    lines = "\n".join(status_lines(document, verbose=True))
    assert f"join view pairs of flights, weather: {told.count():,} rows" in lines
    standing = document["views"]["pairs"]["standing"]
    assert {step["first"] for step in standing["steps"]} == {"f", "w"}
    if not document["views"]["pairs"]["switched"]:
        searched = sum(step["measured"]["rows"] for step in standing["steps"])
        assert searched > 0 < standing["measured_rate"]
    assert f"a condition failed: {raised:,} joined rows left out" in lines

    lost = sum(tuples.column("n").to_pylist().count(0) for tuples in inputs.tuples["flights"])
    assert run.status().streams["flights"].errors == {"dividing": lost}
    assert sum(event["counts"]["dividing"] for event in run.events("expression_raised")) == lost > 0
    assert f"these tuples match nothing of the view: dividing {lost:,}" in lines
    run.stop()


def test_a_hot_key_is_told(spark: SparkSession, tmp_path: Path) -> None:
    rows = 3_300
    moments = pa.array(np.arange(rows)).cast(pa.timestamp("us", "UTC"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        keys = pa.array(np.r_[np.arange(100), np.full(rows - 100, 7)])
        pq.write_table(pa.table({"ts": moments, "k": keys}), tmp_path / name / "0.parquet")
    engine = Engine(spark).execute(
        "\n".join(
            f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', event_time 'ts');"
            for name in "ab"
        )
    )
    engine.view("pairs", f"SELECT a.k FROM a JOIN b ON a.k = b.k AND {NEAR.format('b', 'a')}")
    run = answered(engine, tmp_path / "out")
    put_out = sum(cut["figures"]["views"]["pairs"]["rows"] for cut in run.events("cut"))
    assert put_out == (rows - 99) ** 2 + 99
    (told,) = run.events("join_exploded")
    assert (told["view"], told["rows"]) == ("pairs", put_out)
    assert {
        (hot["input"], *hot["columns"], *hot["values"], hot["tuples"], hot["of"]) for hot in told["hot"]
    } == {(alias, "`k`", "7", rows - 99, rows) for alias in "ab"}
    run.stop()


@pytest.mark.long
def test_a_static_table_is_read_anew_and_stays_when_it_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    text = "SELECT f.ts, f.k, a.name FROM flights f JOIN airports a ON f.k = a.k"
    inputs = Inputs(tmp_path / "in", np.random.default_rng(6))
    wanted: Counter[str] = Counter()
    file = tmp_path / "in" / "airports" / "all.parquet"
    # without columns of their own, tables have those of their files
    script = inputs.script().replace("CREATE TABLE airports", "CREATE TABLE airports (k BIGINT, name STRING)")
    for step in ("first", "changed", "gone", "back"):
        if step == "changed":
            pq.write_table(pa.table({"k": pa.array([1, 2, None]), "name": ["one", "two", "none"]}), file)
        elif step == "gone":
            file.rename(tmp_path / "aside")
        elif step == "back":
            (tmp_path / "aside").rename(file)
        before = len(inputs.tuples.get("flights", ()))
        inputs.feed(1)
        run = answered(Engine(spark).execute(script).view("named", text), tmp_path / "out")
        tuples = pa.concat_tables(inputs.tuples["flights"][before:])
        spark.createDataFrame(tuples).createOrReplaceTempView("flights")
        aside = tmp_path / "aside"
        spark.read.parquet(str(aside if aside.exists() else file)).createOrReplaceTempView("airports")
        wanted += multiset(spark.sql(text))
        assert multiset(run.results("named")) == wanted, step
        kinds = [event["kind"] for event in run.events() if event["kind"].startswith("static_table")]
        assert (
            kinds
            == {
                "first": ["static_table_read"],
                "changed": ["static_table_read"],
                "gone": ["static_table_lost"],
                "back": [],
            }[step]
        )
        run.stop()


@pytest.mark.long
def test_a_static_table_that_is_away_before_it_is_read_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(16))
    inputs.feed(1)
    file, aside = tmp_path / "in" / "airports" / "all.parquet", tmp_path / "aside"
    script = inputs.script().replace("CREATE TABLE airports", "CREATE TABLE airports (k BIGINT, name STRING)")
    engine = Engine(spark).execute(script).view("pairs", PAIRS)
    run = engine.start(tmp_path / "out")
    file.rename(aside)
    engine.view("named", "SELECT f.k, a.name FROM flights f JOIN airports a ON f.k = a.k")
    inputs.feed(1)
    wait(lambda: run.events("lane_retried"), run)
    aside.rename(file)
    wait(lambda: run.events("static_table_read"), run)
    wait(lambda: any(event["lane"] == "joins.1" for event in run.events("cut")), run)
    retried = run.events("lane_retried")
    assert {event["cause"] for event in retried} == {"file_missing"}
    assert "static table airports: No such file or directory" in retried[0]["told"]
    assert not run.events("run_failed")
    assert run.results("named").count() > 0
    run.stop()


def test_a_static_table_that_stays_away_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(17))
    inputs.feed(1)
    script = inputs.script().replace("CREATE TABLE airports", "CREATE TABLE airports (k BIGINT, name STRING)")
    settings = Settings(retry_attempts=1, retry_seconds=0.1)
    engine = Engine(spark, settings=settings).execute(script)
    engine.view("named", "SELECT f.k, a.name FROM flights f JOIN airports a ON f.k = a.k")
    (tmp_path / "in" / "airports" / "all.parquet").unlink()
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(StreamFailedError, match=r"static table airports: No such file .*retried once"):
        run.await_termination()
    assert [event["cause"] for event in run.events("run_failed")] == ["file_missing"]
    run.stop()


def test_records_of_static_tables_that_do_not_fit_are_set_aside(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(18))
    inputs.feed(1)
    texts = {
        "csv": "k,tier,name\n1,10,a\n2,oops,b\n3,30,c,more\n0,50\n-1,60,e\n",
        "json": '{"k": 1, "tier": 10, "name": "a"}\n{"k": 2, "tier": "oops", "name": "b"}\n{"k": 3, "ti\n',
    }
    script = inputs.script()
    for kind, text in texts.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"custs.{kind}").write_text(text)
        script += (
            f";\nCREATE TABLE by_{kind} (k BIGINT, tier INT, name STRING) USING {kind} "
            f"OPTIONS (path '{tmp_path / kind}', static 'true', header 'true')"
        )
    engine = Engine(spark).execute(script)
    joined = "SELECT f.k, c.name FROM flights f JOIN by_{0} c ON f.k = c.k{1}"
    engine.view("tiers", joined.format("csv", " AND c.tier > 5").replace("c.name", "c.tier, c.name"))
    engine.view("more_tiers", joined.format("csv", " AND c.tier > 10"))
    engine.view("names", joined.format("json", ""))
    run = answered(engine, tmp_path / "out")
    inputs.register(spark)
    flights = Counter(row.k for row in spark.table("flights").select("k").toLocalIterator())
    for view, fitting in (("tiers", {1: "a", -1: "e"}), ("more_tiers", {-1: "e"}), ("names", {1: "a"})):
        found = Counter((row.k, row.name) for row in run.results(view).select("k", "name").collect())
        assert found == {(k, name): flights[k] for k, name in fitting.items() if flights[k]}, view
    assert flights[1] > 0 < flights[2]

    reasons = {
        "by_csv": {
            "malformed csv record: tier is no INT": 1,
            "malformed csv record: 4 fields, 3 columns": 1,
            "malformed csv record: 2 fields, 3 columns": 1,
        },
        "by_json": {
            "malformed json record: tier is no INT": 1,
            "malformed json record: not a JSON value": 1,
        },
    }
    read = run.events("static_table_read")
    assert {event["table"]: event["malformed"] for event in read} == reasons
    assert {event["lane"]: event["rows"] for event in read} == {"joins.0": 2, "joins.1": 1, "joins.2": 1}
    run.stop()
    told = "\n".join(status_lines(folder_status(tmp_path / "out"), verbose=True))
    assert "  static table by_csv, set aside: 1 record: malformed csv record: tier is no INT\n" in told
    assert "  static table by_json: 1 row, read " in told

    layout = folder_layout(tmp_path / "out")
    (version,) = {event["version"] for event in read if event["table"] == "by_csv"}
    records = list(quarantined_records(layout, "by_csv", 0))
    assert {(each["batch"], each["record"], each["origin"]) for each in records} == {
        (version, record, f"file:{tmp_path}/csv/custs.csv:{line}")
        for line, record in ((3, "2,oops,b"), (4, "3,30,c,more"), (5, "0,50"))
    }
    quarantine(tmp_path / "out", "by_json", limit=20)
    assert "version " in (printed := capsys.readouterr().out)
    assert "tier is no INT" in printed
    with pytest.raises(UnknownNameError, match="; static tables: by_csv, by_json"):
        list(quarantined_records(layout, "airports", 1))


def test_joins_come_and_go_on_a_running_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(8))
    inputs.feed(2)
    engine = Engine(spark).execute(inputs.script()).view("all_pairs", PAIRS)
    run = engine.start(tmp_path / "out")
    inputs.register(spark)
    every = spark.sql(PAIRS).count()
    wait(lambda: run.results("all_pairs").count() == every, run)

    later = {name: len(tuples) for name, tuples in inputs.tuples.items()}
    with monkeypatch.context() as patched:
        patched.setattr(JoinLane, "start", lambda _: None)
        engine.view("later", PAIRS)
    logs = [LogReader(Layout.of(run.output, None).log(name)) for name in ("flights", "weather")]
    assert all(SINCE in log.readers()["joins.1"] for log in logs), "nothing goes before its lane takes it"
    run._execution.lanes.running["joins.1"].start()
    wait(lambda: any("later" in event["added"] for event in run.events("joins_changed")), run)
    inputs.feed(2)
    inputs.register(spark)
    every = spark.sql(PAIRS).count()
    wait(lambda: run.results("all_pairs").count() == every, run)
    assert multiset(run.results("all_pairs")) == multiset(spark.sql(PAIRS))
    for name, number in later.items():
        tuples = pa.concat_tables(inputs.tuples[name][number:])
        spark.createDataFrame(tuples).createOrReplaceTempView(name)
    new = multiset(spark.sql(PAIRS))
    wait(lambda: run.results("later").count() == new.total(), run)
    assert multiset(run.results("later")) == new

    before = multiset(run.results("all_pairs"))
    engine.drop("all_pairs")
    names = {"joins.0", "joins.1"} & run._execution.lanes.running.keys()
    assert names == {"joins.1"}
    layout = Layout.of(run.output, None)
    assert set(LogReader(layout.log("flights")).marks()) == {"joins.1"}
    assert not layout.lanes["joins.0"].exists()
    assert run.results("all_pairs").count() == every
    assert run.active
    run.stop()

    inputs.feed(1)
    engine.view("all_pairs", PAIRS)
    run = answered(engine, tmp_path / "out")
    for name, fed in inputs.tuples.items():
        spark.createDataFrame(fed[-1]).createOrReplaceTempView(name)
    since = multiset(spark.sql(PAIRS))
    assert since.total() > 0
    assert multiset(run.results("all_pairs")) == before + since
    assert len(run._execution.queries["flights"].plans.demands) == 1
    run.stop()


def test_mistakes_are_told_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(9))
    inputs.feed(1)
    engine = Engine(spark).execute(inputs.script()).view("pairs", PAIRS)
    for text, told in (
        ("SELECT f.k FROM flights f JOIN weather w ON f.k = w.k", "bound"),
        ("SELECT * FROM airports WHERE k = 1", "Table airports is static"),
        (PAIRS.replace("w.x", "w.x AS _row"), "the column name _row is reserved"),
        (
            PAIRS.replace(" JOIN", " LEFT JOIN").replace("f.k = w.k", "f.k + w.k = 1"),
            "only Spark can compute it",
        ),
    ):
        with pytest.raises(InputError, match=told):
            engine.view("wrong", text)
    for options, told in (
        ("static 'yes'", "static is 'yes'. Write 'true' or 'false'"),
        ("static 'true', event_time 'ts'", "has no event time"),
        ("static 'true', max_files_per_trigger '1'", "is an option of streams"),
    ):
        with pytest.raises(SqlError, match=told):
            engine.execute(
                f"CREATE TABLE wrong USING parquet OPTIONS (path '{tmp_path / 'in' / 'airports'}', {options})"
            )
    with pytest.raises(InputError, match="Use parquet, csv"):
        engine.execute("CREATE TABLE wrong USING rate OPTIONS (static 'true')")
