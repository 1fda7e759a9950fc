"""A simulated network as a stream: its tuples and windows, restarts, what is told of lost packets, and what early answers promise."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from conftest import CONNECTOR_JARS
from engine_cases import rows
from forms import ALL
from installed import install_penstock
from killing import ended, started
from penstock.errors import CheckpointError, StartStoppedError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.cli import main
from penstock_lab.simulate.networks.readings import BEGINNING, arrived_readings, lost_readings
from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.simulate.networks.trace import simulate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: a run takes some 15 s, many times that on a machine that does other things too
_MOST_SECONDS = 1200
#: small, and so thin that routes break: one packet in ten never comes, others come by ten seconds late
NETWORK = {"nodes": "15", "load": "40", "seconds": "60", "seed": "7", "max_speed": "20", "sources": "5"}
#: nothing is final, and nothing promised, before the stream is six times as old as its largest delay
LONGER = {"seconds": "240"}
#: of a batch of it
ROWS = 150 if ALL else 400
SECONDS = 3
EPSILON = 0.05
VIEWS = {
    "every": "SELECT * FROM readings",
    "warm": "SELECT sensor, sequence, measured FROM readings WHERE value > 20 AND channel = 1",
    "by_sensor": "SELECT sensor, window(measured, '5 seconds') AS w, count(*) AS n, max(hops) AS hops, "
    "min(arrived) AS first FROM readings GROUP BY sensor, w",
    "counted": f"SELECT /*+ MAX_ERROR({EPSILON}, 0.2) */ window(measured, '{SECONDS} seconds') AS w, count(*) AS n "
    "FROM readings GROUP BY w",
}


@pytest.fixture(autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab registers its source."""
    install_penstock(monkeypatch, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def packets() -> pa.Table:
    """Every packet that the network creates."""
    return simulate(NetworkSettings.from_options(NETWORK)).packets


def _table(**options: str) -> str:
    said = ", ".join(f"{name} '{value}'" for name, value in {**NETWORK, **options}.items())
    return f"CREATE TABLE readings USING network OPTIONS ({said});"


def _engine(spark: SparkSession, **options: str) -> Engine:
    return _bare(spark).execute(_table(**options)).add_views(VIEWS)


def _bare(spark: SparkSession) -> Engine:
    # Spark gives a Python process 10 s to start: on a loaded machine that fails again and again
    return Engine(spark, shards=2, least_horizon_seconds=1, retry_attempts=40, retry_seconds=0.2)


def _answered(engine: Engine, out: Path) -> Run:
    run = engine.start(out, trigger=Trigger.available_now())
    assert run.await_termination(_MOST_SECONDS)
    run.stop()
    return run


def _assert_as_spark_answers(spark: SparkSession, run: Run, packets: pa.Table) -> None:
    spark.createDataFrame(arrived_readings(packets, BEGINNING)).createOrReplaceTempView("readings")
    for name, text in VIEWS.items():
        wanted = spark.sql(text)
        assert rows(run.results(name).select(*wanted.columns)) == rows(wanted), name


def _number(moment: datetime) -> int:
    """The window that a moment is in, counted from the beginning."""
    return int((moment.replace(tzinfo=UTC) - BEGINNING).total_seconds()) // SECONDS


def test_windows_are_those_of_the_packets_that_arrived_and_the_others_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    packets = simulate(NetworkSettings.from_options({**NETWORK, **LONGER})).packets
    options = {"speed": "max", "rows_per_trigger": str(ROWS), **LONGER}
    run = _answered(_engine(spark, **options), tmp_path / "out")
    _assert_as_spark_answers(spark, run, packets)
    arrived, never = arrived_readings(packets, BEGINNING), lost_readings(packets, BEGINNING)
    causes = Counter(fate.removeprefix("lost: ") for fate in never["fate"].to_pylist())
    in_flight = causes.pop("in flight", 0)
    told = run.status().streams["readings"].to_dict()["network"]
    assert told == {
        **{"seconds": 240.0, "of_seconds": 240.0, "created": packets.num_rows, "arrived": arrived.num_rows},
        **{"under_way": in_flight, "lost": dict(causes)},
    }
    assert sum(causes.values()) > 0
    assert folder_status(tmp_path / "out")["streams"]["readings"]["network"] == told
    line = next(
        line for line in status_lines(folder_status(tmp_path / "out"), verbose=True) if "network:" in line
    )
    assert f"{packets.num_rows:,} packets created | {arrived.num_rows:,} arrived" in line
    reached = run.events("network_reached")
    assert len(reached) == run.status().streams["readings"].batches
    for event in reached:
        assert event["created"] == event["arrived"] + event["under_way"] + sum(event["lost"].values())
    assert [event["arrived"] for event in reached] == [
        min(ROWS * number, arrived.num_rows) for number in range(1, len(reached) + 1)
    ]
    _assert_early_answers_promise_what_arrives(run, arrived, never)
    _forget_what_was_told(tmp_path / "out")
    assert folder_status(tmp_path / "out")["streams"]["readings"].get("network") is None
    run = _answered(_engine(spark, **options), tmp_path / "out")
    assert run.events("batch") == []
    assert run.status().streams["readings"].to_dict()["network"] == told
    assert folder_status(tmp_path / "out")["streams"]["readings"]["network"] == told


def _forget_what_was_told(out: Path) -> None:
    """Leaves the status as a process does that is killed once its last batch is published."""
    status, events = out / "_penstock" / "status.json", out / "events.jsonl"
    document = json.loads(status.read_text())
    del document["streams"]["readings"]["network"]
    status.write_text(json.dumps(document))
    events.unlink()


def _assert_early_answers_promise_what_arrives(run: Run, arrived: pa.Table, never: pa.Table) -> None:
    """The bound is on what an early answer lacks of the final one; what never arrives is missing to both."""
    final, lost = (Counter(map(_number, table["measured"].to_pylist())) for table in (arrived, never))
    assert {_number(row.w.start): row.n for row in run.results("counted").collect()} == final
    early = run.changes("counted").where("revision = 0 AND coverage IS NOT NULL AND NOT is_final")
    answers = {_number(row.w.start): row.n for row in early.collect()}
    assert len(answers) >= 5, "enough windows were final for the bound to be promised"
    beyond = [number for number, n in answers.items() if (final[number] - n) / final[number] >= EPSILON]
    assert len(beyond) <= len(answers) / 2
    thinned = [number for number in answers if lost[number] / (final[number] + lost[number]) >= EPSILON]
    assert thinned, "the answers over what arrives are themselves further from what was measured"


def test_what_the_command_writes_is_a_table_to_replay(
    spark: SparkSession, tmp_path: Path, packets: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.parquet"
    options = [
        f"--set={name}={value}" if name == "sources" else f"--{name.replace('_', '-')}={value}"
        for name, value in NETWORK.items()
    ]
    monkeypatch.setattr(sys, "argv", ["penstock-lab", "simulate", "network", f"--output={trace}", *options])
    with pytest.raises(SystemExit) as ended_with:
        main()
    assert not ended_with.value.code
    times = "event_time 'measured', arrival_time 'arrived'"
    engine = _bare(spark).execute(
        f"CREATE TABLE readings USING replay OPTIONS (path '{trace}', {times}, speed 'max')"
    )
    # windows are those of the test above
    engine.add_views({name: VIEWS[name] for name in ("every", "warm")})
    assert "fast path" in engine.explain()
    run = _answered(engine, tmp_path / "out")
    spark.read.parquet(str(trace)).createOrReplaceTempView("readings")
    wanted = spark.sql(VIEWS["every"])
    assert wanted.count() == arrived_readings(packets, BEGINNING).num_rows
    for name in ("every", "warm"):
        assert rows(run.results(name)) == rows(spark.sql(VIEWS[name])), name


@pytest.mark.long
def test_a_stream_stopped_in_the_middle_goes_on_there(
    spark: SparkSession, tmp_path: Path, packets: pa.Table
) -> None:
    out = tmp_path / "out"

    def stop(_: str) -> None:
        raise StartStoppedError

    with pytest.raises(StartStoppedError):
        _engine(spark, speed="6").start(out, progress=stop)
    assert folder_status(out)["state"] == "stopped"
    run = _engine(spark, speed="6").start(out)
    deadline = time.monotonic() + _MOST_SECONDS
    while run.status().streams["readings"].tuples < packets.num_rows // 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    run.stop()
    before = run.status().streams["readings"].to_dict()["network"]
    assert before["arrived"] < arrived_readings(packets, BEGINNING).num_rows
    assert before["seconds"] < 60
    with pytest.raises(
        CheckpointError, match="has protocol dual-channel, but the script has protocol multipath"
    ):
        _engine(spark, speed="6", protocol="multipath").start(out)
    run = _answered(_engine(spark, speed="6"), out)
    _assert_as_spark_answers(spark, run, packets)
    assert folder_status(out)["streams"]["readings"]["network"]["created"] == packets.num_rows


@pytest.mark.long
def test_a_stream_killed_in_the_middle_answers_each_packet_once(
    spark: SparkSession, tmp_path: Path, packets: pa.Table
) -> None:
    out, script, told = tmp_path / "out", tmp_path / "script.sql", tmp_path / "told"
    options = {"speed": "max", "rows_per_trigger": "500"}
    views = [f"CREATE VIEW {name} AS {text};" for name, text in VIEWS.items()]
    script.write_text("\n".join([_table(**options), *views]))
    jars = f"spark.jars={','.join(map(str, CONNECTOR_JARS))}"
    code = ended(started("victim.py", script, out, jars, log=told, failpoint="staged:2"))
    assert code == -signal.SIGKILL, told.read_text()[-3000:]
    run = _answered(_engine(spark, **options), out)
    _assert_as_spark_answers(spark, run, packets)
    assert (
        run.status().streams["readings"].to_dict()["network"]["arrived"]
        == arrived_readings(packets, BEGINNING).num_rows
    )
