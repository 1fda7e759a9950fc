"""/metrics as Prometheus asks for it: beside the page, alone, with a token, and of a process that a command starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed
from typer.testing import CliRunner

from page_cases import page_folder, served
from penstock.cli.main import app
from penstock.page import child
from penstock.page.child import page_address, page_beside
from penstock.page.listening import Place, Rules, listen
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")

#: how Prometheus asks
_PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return page_folder(tmp_path / "out").output


def test_the_page_serves_metrics_in_the_format_that_is_asked_for(folder: Path) -> None:
    with served(folder) as page:
        plain, openly = page.get("/metrics"), page.get("/metrics", Accept=_PROMETHEUS)
        assert page.get("/").status == 200
    assert (plain.status, openly.status) == (200, 200)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert openly.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    tuples = [each for each in parsed(plain.body.decode()) if each.name == "penstock_tuples"]
    assert [(sample.labels, sample.value) for sample in tuples[0].samples] == [({"stream": "orders"}, 20)]
    assert "penstock_tuples" in {each.name for each in open_metrics(openly.body.decode())}


def test_metrics_are_served_without_the_page(folder: Path) -> None:
    with served(folder, metrics_alone=True) as page:
        assert page.get("/metrics").status == page.get("/healthz").status == 200
        assert {page.get(path).status for path in ("/", "/api/overview", "/rows/large")} == {404}


def test_where_a_token_is_needed_prometheus_sends_it_as_bearer(folder: Path) -> None:
    with served(folder, "sesame", is_loopback=False, metrics_alone=True) as page:
        assert page.get("/metrics").status == 401
        assert page.get("/metrics", Authorization="Bearer wrong").status == 401
        assert page.get("/metrics", Authorization="Bearer sesame").status == 200


def test_a_run_serves_metrics_alone_before_its_folder_exists(tmp_path: Path) -> None:
    place = Place.taken(*page_address("0"), None, metrics_alone=True)
    address = place.address
    with page_beside(tmp_path / "new", place):
        assert address.endswith("/metrics")
        with urllib.request.urlopen(address, timeout=60) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.removesuffix("metrics"), timeout=60)
    assert 'penstock_run_state{state="starting"} 1.0' in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)


def test_one_process_serves_the_page_and_the_metrics_each_by_its_own_rules(folder: Path) -> None:
    page = Place.taken("127.0.0.1", 0, "sesame")
    metrics = Place(listen("127.0.0.1", 0), Rules(None, is_loopback=True), metrics_alone=True)
    shown, scraped = page.address, metrics.address
    with page_beside(folder, page, metrics):
        with urllib.request.urlopen(scraped, timeout=60) as answer:
            assert b"penstock_tuples_total" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(scraped.replace("metrics", "api/overview"), timeout=60)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(shown.partition("?")[0], timeout=60)
        asked = urllib.request.Request(
            f"{shown.partition('?')[0]}api/overview", headers={"Authorization": "Bearer sesame"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert b'"orders"' in answer.read()
    for address in (shown, scraped):
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(address, timeout=5)


def test_a_page_that_hangs_does_not_keep_the_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 20\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(child.sys, "executable", str(hanging))
    monkeypatch.setattr(child, "_ENDING_SECONDS", 0.2, raising=False)
    began = time.monotonic()
    with page_beside(tmp_path / "out", Place.taken("127.0.0.1", 0, None)):
        pass
    assert time.monotonic() - began < 10


def test_the_command_prints_where_the_metrics_are(folder: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "page", str(folder), "--metrics", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        told = process.stdout.readline().split()
        try:
            assert told[0] == "Metrics:"
            with urllib.request.urlopen(told[1], timeout=60) as answer:
                assert b"penstock_tuples_total" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("given", ["nine", "127.0.0.1:", "1:99999"])
def test_an_address_of_another_form_is_refused_by_the_name_of_its_option(folder: Path, given: str) -> None:
    done = CliRunner().invoke(app, ["page", str(folder), "--metrics", given])
    assert done.exit_code != 0
    assert f"--metrics {given}: write --metrics PORT or --metrics HOST:PORT" in str(done.exception)


def test_a_folder_that_cannot_be_read_keeps_its_metrics_and_says_so(folder: Path) -> None:
    with served(folder, metrics_alone=True) as page:
        before = page.get("/metrics").body
        Layout.of(folder, None).catalog.replace(b"{")
        until = time.monotonic() + 30
        while b"penstock_folder_up 0.0" not in (after := page.get("/metrics").body):
            assert time.monotonic() < until
            time.sleep(0.5)
    assert b"penstock_folder_up 1.0" in before
    assert b'penstock_tuples_total{stream="orders"} 20.0' in after
