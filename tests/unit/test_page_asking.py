"""Questions that the page hands on to `penstock why` and `penstock try`; a stand-in takes Spark's place."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from page_cases import LONG, QUOTED, SCRIPT, SLOW_SECONDS, Answered, Page, page_folder, served
from penstock.page import asking, child
from penstock.page.asking import Script
from penstock.page.child import page_beside
from penstock.page.listening import Place

#: prints its arguments; what the text that is tried names, it does
STAND_IN = """#!{python}
import json, os, subprocess, sys, tempfile, time
given = " ".join(sys.argv)
if "sleeps" in given:
    child = subprocess.Popen(["sleep", "600"])
    made = [tempfile.mkdtemp(), tempfile.mkdtemp(dir=os.environ.get("SPARK_LOCAL_DIRS"))]
    with open({report!r} + ".new", "w") as file:
        json.dump({{"processes": [os.getpid(), child.pid], "folders": made}}, file)
    os.rename({report!r} + ".new", {report!r})
    time.sleep(600)
if "refused" in given:
    sys.stderr.write("penstock: warning: one\\npenstock: Column x does not exist.\\n  SELECT x\\n         ^\\n")
    sys.exit(2)
if "fails" in given:
    sys.exit(1)
if "endless" in given:
    print("x" * 5_000_000)
tokens = [name for name in os.environ if name.endswith("_TOKEN") and name.startswith("PENSTOCK_")]
java = os.environ.get("SPARK_SUBMIT_OPTS")
print(json.dumps({{"arguments": sys.argv[1:], "tokens": tokens, "java": java, "folder": tempfile.gettempdir()}}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_folder(tmp_path_factory.mktemp("asking") / "out").output


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(STAND_IN.format(python=sys.executable, report=str(tmp_path / "report")))
    stand_in.chmod(0o755)
    return stand_in


@pytest.fixture
def report(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in says of itself while it sleeps."""
    monkeypatch.setattr(asking, "_PENSTOCK", (str(stand_in), "-m", "penstock.cli.main"))
    monkeypatch.setenv("PENSTOCK_PAGE_TOKEN", "secret")
    monkeypatch.setenv("PENSTOCK_METRICS_TOKEN", "secret")
    return stand_in.with_name("report")


@pytest.fixture
def page(folder: Path, report: Path) -> Iterator[Page]:
    assert not report.exists()
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
        assert (found["arguments"], found["tokens"]) == ([*start, f"--row={row}", *end, view], [])
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


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + SLOW_SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_there(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # whoever adopts a process that has ended may be late to ask for its code
    return state != "Z"


def asleep(report: Path) -> dict[str, Any]:
    """The processes and folders of the question that sleeps."""
    until(report.exists)
    found: dict[str, Any] = json.loads(report.read_text())
    assert all(map(is_there, found["processes"]))
    assert all(map(os.path.isdir, found["folders"]))
    return found


def nothing_remains(found: dict[str, Any]) -> bool:
    return not any([*map(is_there, found["processes"]), *map(os.path.exists, found["folders"])])


@contextmanager
def asking_on(page: Page) -> Iterator[list[Answered]]:
    """A thread that asks what takes long; what it is answered, unless the page is gone."""
    found: list[Answered] = []

    def asks() -> None:
        with suppress(http.client.HTTPException, OSError):
            found.append(ask(page, "try", sql="sleeps"))

    asked = threading.Thread(target=asks)
    asked.start()
    yield found
    asked.join()


def test_one_question_at_a_time_and_not_for_long(
    page: Page, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_MOST_SECONDS", 5.0)
    with asking_on(page) as found:
        asked = asleep(report)
        assert ask(page, "try").status == 429
        assert page.get("/api/overview").status == 200
    assert found[0].status == 503
    assert found[0].json()["error"].startswith("Spark has not answered within 5 s.")
    until(lambda: nothing_remains(asked))
    assert ask(page, "try").status == 200


def test_a_question_ends_when_its_reader_leaves(page: Page, report: Path) -> None:
    reader = page.connection()
    reader.request("GET", "/api/views/large/try?sql=sleeps", headers={"penstock-ask": "1"})
    asked = asleep(report)
    assert ask(page, "try").status == 429
    reader.close()
    until(lambda: nothing_remains(asked))
    until(lambda: ask(page, "try").status == 200)


def test_a_question_ends_with_the_page(folder: Path, report: Path) -> None:
    with ExitStack() as ends:
        with served(folder, script=Script(Path("s.sql"))) as page:
            ends.enter_context(asking_on(page))
            asked = asleep(report)
        until(lambda: nothing_remains(asked))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGHUP])
def test_a_question_ends_with_a_page_that_is_killed(
    folder: Path, stand_in: Path, report: Path, sent: signal.Signals
) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom penstock.page import asking\n"
        "from penstock.page.listening import Place\nfrom penstock.page.server import serve\n"
        "asking._PENSTOCK = (sys.argv[2],)\nplace = Place.taken('127.0.0.1', 0, None)\n"
        "print(place.listening.getsockname()[1], flush=True)\n"
        "serve(Path(sys.argv[1]), [place], is_child=False, script=asking.Script(Path('s.sql')))"
    )
    command = [sys.executable, "-c", program, str(folder), str(stand_in)]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with asking_on(Page(port, "")):
            asked = asleep(report)
            process.send_signal(sent)
            assert process.wait() == -sent
    until(lambda: nothing_remains(asked))


def test_what_spark_writes_for_a_question_is_removed(page: Page) -> None:
    found = ask(page, "try").json()
    assert found["java"] == f'"-Djava.io.tmpdir={found["folder"]}"'
    assert Path(found["folder"]).name.startswith("penstock-question-")
    assert not Path(found["folder"]).exists()


def test_a_question_and_the_page_of_a_run_step_back(
    page: Page, folder: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = max(5, os.getpriority(os.PRIO_PROCESS, 0))
    reader = page.connection()
    reader.request("GET", "/api/views/large/try?sql=sleeps", headers={"penstock-ask": "1"})
    asked = asleep(report)
    assert [os.getpriority(os.PRIO_PROCESS, process) for process in asked["processes"]] == [low, low]
    reader.close()
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def recorded(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*given, **options))
        return started[-1]

    monkeypatch.setattr(child.subprocess, "Popen", recorded)
    place = Place.taken("127.0.0.1", 0, None)
    beside = Page(place.listening.getsockname()[1], place.address)
    with page_beside(folder, place):
        assert beside.get("/healthz").status == 200
        assert os.getpriority(os.PRIO_PROCESS, started[0].pid) == low


def test_a_page_without_a_script_says_what_to_type(folder: Path, page: Page) -> None:
    shown = page.of("views", "large").json()
    assert (shown["script"], shown["output"]) == ("'/rules/a b.sql' --functions=/f.py", str(folder))
    assert shown["tuple"] == ["id", "note"]
    with served(folder) as other:
        assert other.of("views", "large").json()["script"] is None
        answer = ask(other, "try")
    assert (answer.status, json.loads(answer.body)["error"][:28]) == (400, "The page knows no script. St")
