"""Questions that the page hands on to `penstock why` and `penstock try`; a stand-in takes Spark's place."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from page_cases import LONG, QUOTED, SCRIPT, SLOW_SECONDS, Answered, Page, page_folder, served
from penstock.page import asking
from penstock.page.asking import Script

#: prints its arguments; what the text that is tried names, it does
STAND_IN = """#!{python}
import json, os, sys, time
given = " ".join(sys.argv)
if "sleeps" in given:
    open({pid!r}, "w").write(str(os.getpid()))
    time.sleep(60)
if "refused" in given:
    sys.stderr.write("penstock: warning: one\\npenstock: Column x does not exist.\\n  SELECT x\\n         ^\\n")
    sys.exit(2)
if "fails" in given:
    sys.exit(1)
if "endless" in given:
    print("x" * 5_000_000)
print(json.dumps({{"arguments": sys.argv[1:], "token": os.environ.get("PENSTOCK_PAGE_TOKEN")}}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_folder(tmp_path_factory.mktemp("asking") / "out").output


@pytest.fixture
def pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in says which process it is while it sleeps."""
    stand_in, pid = tmp_path / "stand-in", tmp_path / "pid"
    stand_in.write_text(STAND_IN.format(python=sys.executable, pid=str(pid)))
    stand_in.chmod(0o755)
    monkeypatch.setattr(asking.sys, "executable", str(stand_in))
    monkeypatch.setenv("PENSTOCK_PAGE_TOKEN", "secret")
    return pid


@pytest.fixture
def page(folder: Path, pid: Path) -> Iterator[Page]:
    assert not pid.exists()
    with served(
        folder, script=Script(Path("/rules/a b.sql"), Path("/f.py"), ("--conf=k=password",))
    ) as found:
        yield found


def ask(page: Page, command: str, view: str = "large", **query: Any) -> Answered:
    return page.get(f"/api/views/{quote(view, safe='')}/{command}?{urlencode(query)}", penstock_ask="1")


def test_a_tuple_is_asked_about_on_the_command_line(page: Page, folder: Path) -> None:
    start = ["-m", "penstock.cli.main", "why", "--format=json"]
    end = [f"--output={folder}", "--functions=/f.py", "--conf=k=password", "--", "/rules/a b.sql"]
    row = '{"id": 1, "note": "@/etc/passwd"}'
    for view in ("large", SCRIPT, QUOTED, LONG):
        found = ask(page, "why", view, row=row).json()
        assert found == {"arguments": [*start, f"--row={row}", *end, view], "token": None}
    asked = ask(page, "why", quarantined=2, input="a").json()["arguments"]
    assert asked == [*start, "--quarantined=2", end[0], "--input=a", *end[1:], "large"]


def test_the_script_of_a_run_is_named_wherever_the_page_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script.of(Path("a.sql"), Path("f.py"), ["k=v"], ["shards=1"])
    assert script.path == tmp_path / "a.sql"
    assert script.options == [f"--functions={tmp_path / 'f.py'}", "--conf=k=v", "--set=shards=1"]
    assert Script.of(Path("a.sql"), None, (), ()).words == str(tmp_path / "a.sql")


def test_a_draft_is_tried(page: Page) -> None:
    end = ["--functions=/f.py", "--conf=k=password", "--", "/rules/a b.sql"]
    draft = ask(page, "try", sql="SELECT 1 --x", since="2026-01-01").json()["arguments"]
    assert draft[3:] == ["--format=json", "--sql=SELECT 1 --x", "--since=2026-01-01", *end]
    assert ask(page, "try").json()["arguments"][3:] == ["--format=json", *end, "large"]


@pytest.mark.parametrize("row", ["@/etc/passwd", "[]", "{", "", '"x"', "[" * 30_000])
def test_a_row_that_is_no_object_is_refused(page: Page, row: str) -> None:
    answer = ask(page, "why", row=row)
    assert (answer.status, answer.json()["error"]) == (
        400,
        'The row is no JSON object. Write one such as {"id": 1}.',
    )


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({}, "Give either a row or the number"),
        ({"row": "{}", "quarantined": 1}, "Give either a row or the number"),
        ({"quarantined": "-1"}, "quarantined=-1: a number"),
    ],
)
def test_a_question_without_a_tuple_is_refused(page: Page, query: dict[str, Any], told: str) -> None:
    answer = ask(page, "why", **query)
    assert answer.status == 400
    assert answer.json()["error"].startswith(told)


def test_a_page_of_another_origin_cannot_ask(page: Page) -> None:
    """A browser sends a request with an own header only after an OPTIONS request, which is refused."""
    assert page.get("/api/views/large/try").status == 400
    assert page.get("/api/views/large/try", "OPTIONS", penstock_ask="1").status == 405
    assert ask(page, "try", "nothing").status == 404


def test_a_refusal_of_spark_reaches_the_reader(page: Page) -> None:
    refused = ask(page, "try", sql="refused")
    assert (refused.status, refused.json()["error"]) == (
        400,
        "Column x does not exist.\n  SELECT x\n         ^",
    )
    failed, endless = ask(page, "try", sql="fails"), ask(page, "try", sql="endless")
    assert (failed.status, failed.json()["error"]) == (503, "Penstock has ended without a reason.")
    assert (endless.status, "4,000,000 bytes" in endless.json()["error"]) == (503, True)
    assert ask(page, "try", sql="x" * 50_001).status == ask(page, "try", sql="\0").status == 400


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_question_at_a_time_and_not_for_long(
    page: Page, pid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_MOST_SECONDS", 3.0)
    found: list[Answered] = []
    first = threading.Thread(target=lambda: found.append(ask(page, "try", sql="sleeps")))
    first.start()
    while not pid.exists() or not pid.read_text():
        time.sleep(0.05)
    assert ask(page, "try").status == 429
    assert page.get("/api/overview").status == 200
    first.join()
    assert found[0].status == 503
    assert found[0].json()["error"].startswith("Spark has not answered within 3 s.")
    assert not is_there(int(pid.read_text()))
    assert ask(page, "try").status == 200


def test_a_question_ends_with_the_page(folder: Path, pid: Path) -> None:
    with served(folder, script=Script(Path("s.sql"))) as page:

        def asks() -> None:
            with suppress(http.client.HTTPException, OSError):
                ask(page, "try", sql="sleeps")

        asked = threading.Thread(target=asks)
        asked.start()
        while not pid.exists() or not pid.read_text():
            time.sleep(0.05)
    asked.join()
    until = time.monotonic() + SLOW_SECONDS
    while is_there(int(pid.read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_page_without_a_script_says_what_to_type(folder: Path, page: Page) -> None:
    shown = page.of("views", "large").json()
    assert (shown["script"], shown["output"]) == ("'/rules/a b.sql' --functions=/f.py", str(folder))
    assert shown["tuple"] == ["id", "note"]
    with served(folder) as other:
        assert other.of("views", "large").json()["script"] is None
        answer = ask(other, "try")
    assert (answer.status, json.loads(answer.body)["error"][:28]) == (400, "The page knows no script. St")
