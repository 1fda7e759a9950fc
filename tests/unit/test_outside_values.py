"""Secrets from the environment and from files: filled in, and in nothing that Penstock writes or says."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.errors import ConnectionFailedError, masked
from penstock.redaction import masked_known, remember
from penstock.spark.sources.option_paths import check_paths
from penstock.spark.sources.outside_values import filled
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import CreateTable
from sink_cases import SELECTION, Folder, until

MARKER = "SECRET_PW_777"
HEADERS = f'{{"Authorization": "Bearer {MARKER}"}}'


def _table(options: str) -> CreateTable:
    return parse_script(f"CREATE TABLE t USING kafka OPTIONS ({options})").tables[0]


def test_values_come_from_the_environment_and_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"  {MARKER}\n")
    monkeypatch.setenv("KAFKA_USER", "penstock")
    table = _table(
        f"topic '${{env:KAFKA_USER}}-in', kafka.sasl.jaas.config 'u=\"${{env:KAFKA_USER}}\" p=\"${{file:{tmp_path}/token}}\"', "
        "template '${view}: ${{env:X}'"
    )
    whole = filled(table)
    assert whole.options["topic"] == "penstock-in"
    assert whole.options["kafka.sasl.jaas.config"] == f'u="penstock" p="{MARKER}"'
    assert whole.options["template"] == "${view}: ${{env:X}"
    assert MARKER not in str(table.options), "the declaration has them as written"
    assert masked_known(f"server says {MARKER}, penstock") == "server says ***, penstock"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "password '${env:NOT_SET_AT_ALL}'",
            "option password needs the environment variable NOT_SET_AT_ALL, which is not set. Set it.",
        ),
        (
            "path '${file:/no/such}/x'",
            "option path needs the file /no/such, which cannot be read: No such file or directory.",
        ),
    ],
)
def test_what_is_missing_is_named_at_its_place(option: str, told: str) -> None:
    table = _table(option)
    with pytest.raises(ConnectionFailedError) as refused:
        filled(table)
    assert refused.value.message == f"table t: {told}"
    assert refused.value.text[refused.value.start : refused.value.end] == option.split()[0]


def test_a_path_is_looked_at_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CREATE TABLE t USING json OPTIONS (path '${env:ORDERS}/in')"
    mistakes = Mistakes()
    check_paths(parse_script(text).tables, mistakes)
    assert "ORDERS, which is not set" in str(mistakes.found[0])
    monkeypatch.setenv("ORDERS", str(tmp_path))
    mistakes = Mistakes()
    check_paths(parse_script(text).tables, mistakes)
    assert f"path {tmp_path}/in does not exist" in str(mistakes.found[0])
    (tmp_path / "in").mkdir()
    check_paths(parse_script(text).tables, mistakes := Mistakes())
    assert not mistakes.found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (f"Authorization: Bearer {MARKER}", f"bad token {MARKER}"),
        (f"A: b\nX-Key: {MARKER}", f"X-Key {MARKER}"),
        (f"reader:{MARKER}", f"user reader, password {MARKER}"),
        (f'org.Module required username="u" password="{MARKER}";', f"wrong {MARKER}"),
    ],
)
def test_parts_of_a_secret_are_masked(value: str, said: str) -> None:
    remember([value])
    assert MARKER not in masked_known(said)
    assert MARKER not in masked(said, ValueError())


@pytest.mark.parametrize(
    "options",
    [
        f"url 'postgresql://u:{MARKER}@h/db'",
        f"url 'postgresql://h/db?user=u&password={MARKER}'",
        f"url 'host=h password={MARKER}'",
        f"schema.registry.url 'http://u:{MARKER}@h'",
    ],
)
def test_secrets_within_addresses_are_known(options: str) -> None:
    filled(_table(options))
    assert MARKER not in masked_known(f"{MARKER} is wrong")


def test_what_each_record_has_is_no_secret() -> None:
    filled(_table("""record_key 'town', headers '{"origin": "penstock"}'"""))
    assert masked_known("penstock: town is wrong") == "penstock: town is wrong"


class _Echo(BaseHTTPRequestHandler):
    """Refuses requests, and says with what."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = f"bad {self.headers.get('Authorization')}"
        self.send_response(422 if self.path == "/refuse" else 500, said)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("way", ["env", "file", "literal"])
@pytest.mark.parametrize(
    ("kind", "option", "value", "others"),
    [
        ("http", "headers", HEADERS, {"url": "{echo}/retry"}),
        ("http", "headers", HEADERS, {"url": "{echo}/refuse"}),
        ("http", "url", f"http://127.0.0.1:1/hooks/{MARKER}", {}),
        ("postgres", "password", MARKER, {"url": "postgresql://127.0.0.1:1/db", "user": "u", "dbtable": "t"}),
        ("postgres", "url", f"postgresql://u:{MARKER}@127.0.0.1:1/db", {"dbtable": "t"}),
    ],
)
def test_a_sink_that_fails_says_no_secret(
    tmp_path: Path,
    echo: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
    kind: str,
    option: str,
    value: str,
    others: dict[str, str],
) -> None:
    if kind == "postgres":
        pytest.importorskip("psycopg")
    monkeypatch.setenv("THE_SECRET", value)
    (tmp_path / "secret").write_text(value)
    given = {
        "env": {option: "${env:THE_SECRET}"},
        "file": {option: f"${{file:{tmp_path}/secret}}"},
        "literal": {option: value},
    }[way]
    options = {**given, **{name: each.format(echo=echo) for name, each in others.items()}}
    text = ", ".join(f"{name} '{each}'" for name, each in options.items())
    folder = Folder(tmp_path / "out")
    folder.match([1, 2])
    with caplog.at_level(logging.DEBUG):
        sink = folder.sink_of(parse_script(f"CREATE TABLE target USING {kind} OPTIONS ({text})").tables[0])
        assert MARKER not in repr(sink)
        with folder.following(sink) as told:
            until(lambda: any(e["kind"] in ("sink_retried", "sink_rejected") for e in folder.events.recent))
    shown = json.dumps([*folder.events.recent, told], default=str)
    assert MARKER not in shown + caplog.text
    folder.close()
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert len(files) > 2
    assert [file for file in files if MARKER.encode() in file.read_bytes()] == []
    assert SELECTION in sink.view
