"""A password in a table's options is on no screen and in no file but the script."""

from __future__ import annotations

import base64
import json
import logging
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commands import called
from conftest import JDBC_JARS
from penstock.errors import InputError
from penstock.spark.engine import Engine
from penstock_lab.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

MARKER = "SECRET_PW_777"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARKER}";'
SECRET = f"kafka.sasl.jaas.config '{JAAS}', kafka.ssl.key.password '{MARKER}'"


def _script(address: str, topic: str, more: str = "") -> str:
    return (
        f"CREATE TABLE k (id INT) USING kafka OPTIONS (kafka.bootstrap.servers '{address}', subscribe '{topic}', {SECRET}, "
        f"startingOffsets 'earliest'{more});\n"
        f"CREATE TABLE told USING kafka OPTIONS (kafka.bootstrap.servers '{address}', topic '{topic}-out', {SECRET});\n"
        "CREATE VIEW v AS SELECT * FROM k WHERE id > 1;\nINSERT INTO told SELECT * FROM v;\n"
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "no Kafka broker answers"),
        (", max_offsets_per_trigger 'x'", "Write a whole number"),
        (", event_time 'id'", "no Kafka broker answers"),
        (", startingofsets 'x'", "did you mean starting_offsets"),
        (", x", "Expected a value here"),
    ],
)
def test_a_refused_table_is_shown_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, told: str
) -> None:
    (tmp_path / "q.sql").write_text(_script("127.0.0.1:1", "t", more))
    for command in (("check",), ("explain",), ("run", "--output", str(tmp_path / "out"))):
        assert called(command[0], str(tmp_path / "q.sql"), *command[1:]) == 2
        shown = capsys.readouterr()
        assert MARKER not in shown.out + shown.err
        assert told in shown.err
        assert "kafka.sasl.jaas.config '***'" in shown.err
    assert not (tmp_path / "out").exists()


def test_a_traceback_shows_no_password(spark: SparkSession) -> None:
    with pytest.raises(InputError) as refused:
        Engine(spark).execute(_script("127.0.0.1:1", "t"))
    assert MARKER not in "".join(traceback.format_exception(refused.value))


def test_a_run_writes_its_password_nowhere(
    spark: SparkSession,
    kafka: KafkaBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"secret-{tmp_path.name}".replace("_", "-")
    kafka.create_topic(topic)
    kafka.create_topic(f"{topic}-out")
    values = spark.createDataFrame([(json.dumps({"id": number}),) for number in range(9)], "value STRING")
    values.write.format("kafka").option("kafka.bootstrap.servers", kafka.address).option(
        "topic", topic
    ).save()
    script, out = tmp_path / "q.sql", tmp_path / "out"
    script.write_text(_script(kafka.address, topic))
    with caplog.at_level(logging.DEBUG, "penstock"):
        for arguments in (
            ("check", str(script)),
            ("explain", str(script)),
            ("run", str(script), "--output", str(out), "--available-now"),
            ("status", str(out)),
            ("results", str(out), "v"),
        ):
            assert called(*arguments) == 0
    shown = capsys.readouterr()
    assert MARKER not in shown.out + shown.err + caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != script]
    assert len(files) > 10
    assert [file for file in files if MARKER.encode() in file.read_bytes()] == []


class Echo(BaseHTTPRequestHandler):
    """Refuses requests, and says with what."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(422, f"bad {self.headers.get('Authorization')}")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(401, f"bad {self.headers.get('Authorization')}")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that repeats what it is sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


#: the options of each sink with a secret, and one that cannot be reached
_SINKS = {
    "alerts": "http OPTIONS (url 'http://{echo}/x', headers '{{\"Authorization\": \"Bearer ${{env:THE_SECRET}}\"}}')",
    "hook": "http OPTIONS (url '${{file:{folder}/hook}}')",
    "rows": "postgres OPTIONS (url 'postgresql://u:{marker}@127.0.0.1:1/db', dbtable 't')",
    "more": "postgres OPTIONS (url 'postgresql://127.0.0.1:1/db', user 'u', password '${{env:THE_SECRET}}', dbtable 't')",
    "files": "parquet OPTIONS (path '{folder}/files')",
}
_FAILING = {"hook", "rows", "more"}
if JDBC_JARS:
    _SINKS |= {
        "base": "jdbc OPTIONS (url 'jdbc:h2:/dev/null/x;USER=u;PASSWORD={marker}', dbtable 't')",
        "other": "jdbc OPTIONS (url 'jdbc:postgresql://127.0.0.1:1/x', user 'u', password '${{env:THE_SECRET}}', dbtable 't')",
    }
    _FAILING |= {"base", "other"}


@pytest.mark.usefixtures("spark")
def test_sinks_that_fail_say_no_secret(
    tmp_path: Path,
    echo: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Through the environment, a file and the script: events, status, files, logs and messages of a run."""
    pytest.importorskip("psycopg")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "hook").write_text(f"http://127.0.0.1:1/services/{MARKER}\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    monkeypatch.setenv("THE_SECRET", MARKER)
    monkeypatch.setenv("THE_FOLDER", str(tmp_path / "in"))
    text = "CREATE TABLE s (id INT) USING json OPTIONS (path '${env:THE_FOLDER}');\nCREATE VIEW v AS SELECT * FROM s WHERE id > 1;\n"
    for name, using in _SINKS.items():
        options = using.format(echo=echo, folder=outside, marker=MARKER)
        text += f"CREATE TABLE {name} USING {options};\nINSERT INTO {name} SELECT * FROM v;\n"
    script, out = outside / "q.sql", tmp_path / "out"
    script.write_text(text)
    with caplog.at_level(logging.DEBUG, "penstock"):
        assert called("check", str(script)) == 0
        assert called("explain", str(script)) == 0
        few = ("--set", "retry_attempts=1", "--set", "retry_seconds=0.1")
        assert called("run", str(script), "--output", str(out), "--available-now", *few) == 1
        for arguments in (
            ("status", str(out), "-v"),
            ("status", str(out), "--format", "json"),
            ("results", str(out), "v"),
        ):
            assert called(*arguments) == 0
        why = called("why", str(script), "v", "--row", '{"id": 3}')
        assert why == 0
    shown = capsys.readouterr()
    for part in (shown.out, shown.err, caplog.text):
        assert MARKER not in part
    failed = {
        each["sink"]
        for each in map(json.loads, (out / "events.jsonl").read_text().splitlines())
        if each["kind"] == "sink_failed"
    }
    assert failed == {f"{name}.v" for name in _FAILING}
    files = [file for file in tmp_path.rglob("*") if file.is_file() and outside not in file.parents]
    assert len(files) > 10
    assert [file for file in files if MARKER.encode() in file.read_bytes()] == []


@pytest.mark.usefixtures("spark")
def test_a_registry_that_refuses_is_shown_without_its_password(
    tmp_path: Path,
    echo: str,
    kafka: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = f"registry-{tmp_path.name}".replace("_", "-")
    kafka.create_topic(topic)
    monkeypatch.setenv("THE_SECRET", MARKER)
    for user in ("reader:${env:THE_SECRET}", f"reader:{MARKER}"):
        (tmp_path / "q.sql").write_text(
            f"CREATE TABLE k USING kafka OPTIONS (kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', format 'avro', "
            f"schema.registry.url 'http://{echo}', schema.registry.basic.auth.user.info '{user}');\n"
            "CREATE VIEW v AS SELECT * FROM k WHERE id > 1;\n"
        )
        assert called("run", str(tmp_path / "q.sql"), "--output", str(tmp_path / "out")) == 2
        shown = capsys.readouterr()
        encoded = base64.b64encode(f"reader:{MARKER}".encode()).decode()
        assert MARKER not in shown.out + shown.err
        assert encoded not in shown.out + shown.err
