"""From no broker to a script that reads a topic: topics, connector and messages, with a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commands import called
from forms import SOON_OVER
from penstock.errors import ConnectionFailedError
from penstock.spark.engine import Engine
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

CACHE = Path(__file__).parents[2] / ".cache"
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"


def _source(broker: KafkaBroker, topics: str) -> str:
    options = f"kafka.bootstrap.servers '{broker.address}', subscribe '{topics}', startingOffsets 'earliest'"
    return f"CREATE TABLE orders (id BIGINT) USING kafka OPTIONS ({options});"


def _called(
    module: str, *arguments: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **SOON_OVER, **environment},
    )


@pytest.mark.long
@pytest.mark.usefixtures("kafka")
def test_a_second_start_adds_topics_to_the_broker_that_runs(tmp_path: Path) -> None:
    place = ["--jars", str(CACHE / "kafka"), "--connector", str(CACHE / "kafka-connector")]
    place += ["--data", str(tmp_path / "data"), "--port", str(free_port())]
    try:
        first = _called(
            "penstock_lab.servers.kafka", "start", *place, "--topics", "payments, devices", folder=tmp_path
        )
        assert first.returncode == 0, first.stderr
        address = f"127.0.0.1:{place[-1]}"
        lines = first.stdout.splitlines()
        assert lines[:3] == [
            f"Kafka answers on {address}",
            "topic payments: created",
            "topic devices: created",
        ]
        assert any("spark-sql-kafka-0-10_2.13" in line for line in lines)
        assert "`penstock run SCRIPT`" in first.stdout
        assert (
            f"CREATE TABLE payments (id BIGINT, ...) USING kafka OPTIONS (kafka.bootstrap.servers '{address}', "
            in first.stdout
        )
        assert (
            f"CREATE TABLE payments USING kafka OPTIONS (kafka.bootstrap.servers '{address}', topic 'payments');"
            in lines[-1]
        )
        second = _called(
            "penstock_lab.servers.kafka", "start", *place, "--topics", "alerts,payments", folder=tmp_path
        )
        assert second.returncode == 0, second.stderr
        assert second.stdout.splitlines()[1:3] == ["topic alerts: created", "topic payments: exists"]
    finally:
        stopped = _called(
            "penstock_lab.servers.kafka", "stop", "--data", str(tmp_path / "data"), folder=tmp_path
        )
    assert stopped.stdout == "Kafka stopped\n"


def test_a_missing_topic_is_told_with_the_command_that_creates_it(
    spark: SparkSession, kafka: KafkaBroker
) -> None:
    kafka.create_topic("mile-there")
    for lost, meant in (("mile-lost", "."), ("mile-thre", "; did you mean mile-there?")):
        script = _source(kafka, f"mile-there,{lost}")
        with pytest.raises(ConnectionFailedError) as refused:
            Engine(spark).execute(script)
        assert refused.value.message == (
            f"table orders: topic {lost} does not exist on the broker {kafka.address}{meant} To create: "
            f"`make kafka TOPICS={lost} KAFKA_PORT={kafka.port}`, or, where another program started the broker, "
            f"`kafka-topics.sh --create --bootstrap-server {kafka.address} --topic {lost}`"
        )
        assert script[refused.value.start :].startswith("subscribe 'mile-there,")


def test_a_missing_topic_of_a_sink_is_told_before_anything_starts(
    spark: SparkSession, kafka: KafkaBroker
) -> None:
    kafka.create_topic("mile-source")
    script = (
        f"{_source(kafka, 'mile-source')} CREATE VIEW large AS SELECT * FROM orders WHERE id > 5;"
        f"CREATE TABLE alerts USING kafka OPTIONS (kafka.bootstrap.servers '{kafka.address}', topic 'mile-alerts');"
        "INSERT INTO alerts SELECT * FROM large;"
    )
    with pytest.raises(ConnectionFailedError, match="table alerts: topic mile-alerts does not exist"):
        Engine(spark).execute(script)
    kafka.create_topic("mile-alerts")
    assert Engine(spark).execute(script).declared == {"orders": ["large"]}


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_script_on_kafka_needs_no_options(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run has a session of its own; `check` asks for the connector wherever it runs."""
    monkeypatch.chdir(tmp_path)
    kafka.create_topic("mile-run")
    kafka.produce("mile-run", [f'{{"id": {number}}}' for number in range(10)])
    (tmp_path / "s.sql").write_text(
        f"{_source(kafka, 'mile-run')} CREATE VIEW v AS SELECT id FROM orders WHERE id > 6;"
    )
    code, checked = called("check", "s.sql"), capsys.readouterr()
    assert code == 0, checked.err
    assert checked.err.startswith(f"Kafka connector: {CACHE / 'kafka-connector'} (")
    assert checked.out == "stream orders: 1 view\ns.sql: no mistakes found\n"
    ended = _called(
        "penstock.cli.main", "run", "s.sql", "--output", "out", "--available-now", folder=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(f"Kafka connector: {CACHE / 'kafka-connector'} (")
    assert called("results", "out", "v", "--format", "json") == 0
    assert [line.count('"id"') for line in capsys.readouterr().out.splitlines()] == [1, 1, 1]


def test_build_session_fetches_the_connector_or_says_what_to_do(tmp_path: Path) -> None:
    """No repository has the package: one error, from Python as from the command line."""
    (tmp_path / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/none/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    program = (
        "import penstock.spark.sessions.libraries as c, pathlib\n"
        "c.FETCHED = pathlib.Path('nowhere')\n"
        "from penstock import build_session\n"
        "from penstock.errors import PenstockError\n"
        f"conf = {{'spark.jars.ivySettings': '{tmp_path}/ivysettings.xml', 'spark.jars.ivy': '{tmp_path}/ivy'}}\n"
        "try:\n    build_session('local[1]', conf, kafka=True)\n"
        "except PenstockError as error:\n    print(error.exit_code, error)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    # Spark's resolver prints a line before
    assert ended.stdout.splitlines()[-1] == (
        f"2 Spark could not fetch {PACKAGE}: no repository that answers has it. Run `make kafka-jars` in the project's "
        "folder, or set PENSTOCK_JARS to a folder with the jars of the Kafka connector."
    ), ended.stderr
    assert f"Kafka connector: Spark fetches {PACKAGE}" in ended.stderr
