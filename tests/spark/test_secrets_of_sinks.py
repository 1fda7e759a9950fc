"""A run whose sinks all have a secret, from the environment, a file or the script: no file, page or scrape has it, Spark's own among them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from test_secrets import MARKER, Echo

from forms import SOON_OVER
from killing import killed
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_200)]

_CONNECTOR = sorted((Path(__file__).parents[2] / ".cache" / "kafka-connector").glob("*.jar"))
_SECONDS = 600
_ENV, _FILE = "${env:THE_SECRET}", "${file:{outside}/secret}"
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{given}";'
_S3 = "'catalog.s3.endpoint' 'http://{echo}', 'catalog.s3.access-key-id' 'u', 'catalog.s3.secret-access-key' '{given}'"
_KAFKA = "kafka.bootstrap.servers '{broker}', topic '{topic}', kafka.sasl.jaas.config '" + _JAAS + "'"
#: the options of each sink, a secret in them; and whether it can be delivered to
_SINKS = {
    "alerts": ("http OPTIONS (url 'http://{echo}/x', headers '{{\"Authorization\": \"Bearer {given}\"}}')", True),
    "hook": ("http OPTIONS (url 'http://u:{given}@127.0.0.1:1/services/{given}')", False),
    "pager": ("http OPTIONS (preset 'pagerduty', url 'http://127.0.0.1:1', routing_key '{given}')", False),
    "pg": ("postgres OPTIONS (url 'postgresql://127.0.0.1:1/db', user 'u', password '{given}', dbtable 't')", False),
    "pg_url": ("postgres OPTIONS (url 'postgresql://u:{given}@127.0.0.1:1/db', dbtable 't')", False),
    "lake": ("iceberg OPTIONS (table 'db.t', catalog.uri 'sqlite:///{outside}/{name}.db', catalog.warehouse 's3://b/w', " + _S3 + ")", False),
    "rest": ("iceberg OPTIONS (table 'db.t', catalog.type 'rest', catalog.uri 'http://{echo}', catalog.token '{given}')", False),
    "topic": ("kafka OPTIONS (" + _KAFKA + ")", True),
    "once": ("kafka OPTIONS (" + _KAFKA + ", transactions 'true')", True),
    "avro": ("kafka OPTIONS (" + _KAFKA + ", format 'avro', schema.registry.url 'http://{echo}', schema.registry.basic.auth.user.info 'u:{given}')", False),
}  # fmt: skip
#: whose credentials are in the environment
_BUCKETS = {"tables": "delta OPTIONS (path 's3://b/t')", "files": "parquet OPTIONS (path 's3://b/f')"}


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that repeats what it is sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.long
def test_a_run_with_secrets_in_every_sink_shows_none(kafka: KafkaBroker, tmp_path: Path, echo: str) -> None:
    outside, out, ui = tmp_path / "outside", tmp_path / "out", free_port()
    for folder in (outside, tmp_path / "in", tmp_path / "spark"):
        folder.mkdir()
    (outside / "secret").write_text(MARKER + "\n")
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    statements = [
        f"CREATE TABLE s (id INT) USING json OPTIONS (path '{tmp_path}/in');",
        "CREATE VIEW v AS SELECT * FROM s WHERE id > 0;",
    ]
    delivering, failing = set(), {"tables", "files"}
    for way, given in (("env", _ENV), ("file", _FILE.replace("{outside}", str(outside))), ("script", MARKER)):
        for kind, (options, is_served) in _SINKS.items():
            name = f"{kind}_{way}"
            topic = name.replace("_", "-")
            kafka.create_missing([topic])
            places = {"echo": echo, "outside": outside, "broker": kafka.address, "topic": topic}
            statements.append(
                f"CREATE TABLE {name} USING {options.format(given=given, name=name, **places)};"
            )
            (delivering if is_served else failing).add(name)
    statements += [f"CREATE TABLE {name} USING {options};" for name, options in _BUCKETS.items()]
    statements += [f"INSERT INTO {name} SELECT * FROM v;" for name in (*delivering, *failing)]
    script = outside / "q.sql"
    script.write_text("\n".join(statements))
    conf = {
        "spark.jars": ",".join(map(str, _CONNECTOR)),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{tmp_path}/spark",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
    }
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run", str(script)]
    command += [
        "--output",
        str(out),
        "--page",
        "127.0.0.1:0",
        "--page-token",
        "a-token",
        "--set",
        "retry_seconds=0.1",
    ]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    known = {
        "THE_SECRET": MARKER,
        "AWS_ACCESS_KEY_ID": "u",
        "AWS_SECRET_ACCESS_KEY": MARKER,
        "AWS_REGION": "us-east-1",
    }
    known |= {"AWS_ENDPOINT_URL": f"http://{echo}", "AWS_ALLOW_HTTP": "true", **SOON_OVER}
    told = tmp_path / "told"
    with told.open("wb") as file:
        run = subprocess.Popen(
            command, env={**os.environ, **known}, stdout=file, stderr=file, start_new_session=True
        )
    try:
        _until(lambda: failing <= _sinks(out, "sink_retried"), told)
        page = re.search(r"http://127\.0\.0\.1:(\d+)", told.read_text())
        assert page is not None
        served = [f"http://127.0.0.1:{page[1]}{path}" for path in _PATHS]
        served += [
            f"http://127.0.0.1:{ui}{path}"
            for path in ("/environment/", "/jobs/", "/SQL/", "/StreamingQuery/")
        ]
        shown = {address: _got(address) for address in served}
    finally:
        killed(run)
    for address, content in shown.items():
        assert content, address
        assert MARKER not in content, address
    files = [each for each in tmp_path.rglob("*") if each.is_file() and outside not in each.parents]
    assert any(each.parent.name.startswith("eventlog") or each.parent.name == "spark" for each in files)
    assert [each for each in files if MARKER.encode() in each.read_bytes()] == []
    for command in ("status", "results"):
        more = ["-v"] if command == "status" else ["v"]
        ended = subprocess.run(
            [sys.executable, "-c", "from penstock.cli.main import main; main()", command, str(out), *more],
            capture_output=True, text=True, check=True, env={**os.environ, **known},
        )  # fmt: skip
        assert MARKER not in ended.stdout + ended.stderr


_PATHS = (
    "/",
    "/api/overview",
    "/api/views",
    "/api/views/v",
    "/api/rows/v",
    "/api/plans",
    "/api/quarantine",
    "/metrics",
)


def _got(address: str) -> str:
    request = urllib.request.Request(address, headers={"Authorization": "Bearer a-token"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{address}: {error.code} {error.read()[:500]!r}") from error


def _sinks(out: Path, kind: str) -> set[str]:
    """Tables of sinks that an event of a kind names."""
    events = out / "events.jsonl"
    lines = map(json.loads, events.read_text().splitlines()) if events.exists() else ()
    return {each["sink"].partition(".")[0] for each in lines if each["kind"] == kind}


def _until(holds, told: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < deadline, told.read_text()
        time.sleep(0.2)
