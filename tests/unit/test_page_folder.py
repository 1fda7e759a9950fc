"""What the page makes of a folder that another process writes, damages or removes meanwhile."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import alone
from page_cases import SLOW_SECONDS, Page, batch, event, page_folder, served
from penstock.errors import InputError
from penstock.page import folder, routes
from penstock.page.child import page_beside
from penstock.page.folder import FolderReader
from penstock.page.histories import MOST_POINTS, Histories, Ring
from penstock.page.listening import Place
from penstock.page.tail import EventTail
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SLOW_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_event_changes_the_overview_and_whoever_follows_hears_of_it(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    with served(layout.output) as page:
        client = page.connection()
        client.request("GET", "/api/changes")
        response = client.getresponse()

        def heard() -> dict[str, object]:
            while not (line := response.readline()).startswith(b"data: "):
                pass
            found: dict[str, object] = json.loads(line[6:])
            return found

        assert heard()["totals"]["tuples"] == 20  # type: ignore[index]
        with layout.events.open("ab") as log:
            log.write(batch(2))
        assert heard()["totals"]["tuples"] == 30  # type: ignore[index]
        assert page.get("/api/overview").json()["totals"]["tuples"] == 30
        client.close()


def test_whoever_follows_keeps_the_page_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_LOOKED_SECONDS", 2.0)
    # a page that falls asleep remains so
    monkeypatch.setattr(routes, "_ALIVE_SECONDS", 10 * SLOW_SECONDS)
    layout = page_folder(tmp_path / "out")
    with served(layout.output) as page:
        client = page.connection()
        client.request("GET", "/api/changes")
        response = client.getresponse()
        for number in range(2, 8):
            with layout.events.open("ab") as log:
                log.write(batch(number))
            while f'"tuples":{10 * (number + 1)}'.encode() not in response.readline():
                pass
        client.close()


def _problems(page: Page) -> list[str]:
    found: list[str] = page.get("/api/overview").json()["problems"]
    return found


def _stored(layout: Layout, name: str) -> tuple[Callable[[bytes], object], bytes]:
    """What stores a document, and its content."""
    if name == "status.json":
        return layout.status.write_bytes, layout.status.read_bytes()
    document = layout.catalog if name == "catalog" else layout.manifests("orders")[1]
    return document.replace, document.get() or b""


@pytest.mark.parametrize("name", ["catalog", "status.json", "batch/orders/1"])
def test_a_half_file_is_a_problem_and_the_page_continues(tmp_path: Path, name: str) -> None:
    layout = page_folder(tmp_path / "out")
    with served(layout.output) as page:
        assert page.get("/api/overview").json()["totals"]["views"] == 5
        write, whole = _stored(layout, name)
        write(whole[: len(whole) // 2])
        # any change has the folder read again
        with layout.events.open("ab") as log:
            log.write(event(9, "lag", stream="orders", backlog=7, unit="files"))
        if name != "status.json":  # readers do without it
            _until(lambda: any(name in line and "damaged" in line for line in _problems(page)))
        assert page.get("/api/views").json()["total"] == 5
        rows = page.get("/api/rows/large")
        if rows.status != 200:
            assert rows.status == 503
            assert name in rows.json()["error"]
        write(whole)
        with layout.events.open("ab") as log:
            log.write(event(10, "lag", stream="orders", backlog=8, unit="files"))
        _until(lambda: not any(name in line for line in _problems(page)))


def test_a_folder_that_vanishes_is_a_problem(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    with served(layout.output) as page:
        assert page.get("/api/overview").status == 200
        shutil.rmtree(layout.output)
        _until(lambda: any("does not exist" in line for line in _problems(page)))
        assert page.get("/api/rows/large").status == 400
        assert page.get("/api/quarantine/orders").status in (400, 404, 503)
        for path in ("/", "/api/views", "/api/plans", "/api/windows"):
            assert page.get(path).status == 200
        page_folder(tmp_path / "out")
        _until(lambda: not any("does not exist" in line for line in _problems(page)))


def test_a_file_of_rows_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    with served(layout.output) as page:
        (layout.matches("orders") / "0.parquet").write_bytes(b"PAR1 no")
        (layout.quarantine("orders") / "1.parquet").unlink()
        answer = page.get("/api/rows/large")
        assert answer.status == 503
        assert "0.parquet" in answer.json()["error"]
        assert page.get("/api/rows/large/download?format=parquet").status == 503
        assert page.get("/api/overview").status == 200


def test_what_nobody_foresaw_is_one_sentence(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out", {"odd": {"stream": 7}})
    with served(layout.output) as page:
        assert len(_problems(page)) >= 1
        for path in (
            "/api/views/odd",
            "/api/rows/odd",
            "/api/windows/odd",
            "/api/windows",
            "/api/plans",
            "/api/deadlines",
        ):
            answer = page.get(path)
            assert answer.status == 200 or list(answer.json()) == ["error"]


def test_a_folder_is_awaited_by_the_page_of_a_run_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        FolderReader(tmp_path / "out")
    with served(tmp_path / "out", awaits=True) as page:
        assert page.get("/api/overview").json()["run"]["state"] == "starting"
        page_folder(tmp_path / "out")
        _until(lambda: page.get("/api/overview").json()["totals"]["views"] == 5)


def test_the_status_is_read_only_while_somebody_looks(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    now = 0.0
    reader = FolderReader(layout.output, clock=lambda: now)
    reader.look()
    assert reader.newest is not None
    first = reader.newest.version
    reader.look()
    assert reader.newest.version == first, "nothing has changed"
    now = 11.0
    with layout.events.open("ab") as log:
        log.write(batch(2))
    reader.look()
    assert reader.newest.version == first, "nobody has looked"
    assert len(reader.newest.histories.stream("orders")["at"]) == 3, "events are always followed"
    reader.touch()
    reader.look()
    assert reader.newest.version == first + 1
    assert reader.newest.document["streams"]["orders"]["tuples"] == 30


def test_the_catalog_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = page_folder(tmp_path / "out")
    read: list[Layout] = []
    known = CATALOG.read
    monkeypatch.setattr(
        "penstock.page.folder.known_catalog", lambda own: read.append(own) or known(own.catalog)
    )
    now = 0.0
    reader = FolderReader(layout.output, clock=lambda: now)
    for second in range(3):
        now = 2.0 * second
        with layout.events.open("ab") as log:
            log.write(batch(2 + second))
        reader.touch()
        reader.look()
    assert reader.newest is not None
    assert (reader.newest.version, len(read)) == (3, 1)


def test_the_log_is_followed_across_its_files(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, most_bytes=400)
    tail = EventTail(path)
    assert tail.read() == []
    seen: list[int] = []
    for number in range(60):
        log.record("batch", batch=number)
        if number % 7 == 0:
            seen += [each["batch"] for each in tail.read()]
    seen += [each["batch"] for each in tail.read()]
    assert seen == list(range(60))
    whole = EventTail(path)
    assert [each["batch"] for each in whole.read()] == list(range(60))[-len(whole_events(path)) :]
    bounded = EventTail(path, most_bytes=150).read()
    assert 0 < len(bounded) <= 2
    with path.open("ab") as file:
        file.write(b'{"kind":"torn')
        file.flush()
        assert tail.read() == []
        file.write(b'","x":1}\nno json\n[]\n')
    assert [each["kind"] for each in tail.read()] == ["torn"]
    for each in tmp_path.glob("events*.jsonl"):
        each.unlink()
    assert tail.read() == []
    path.write_bytes(event(1, "again"))
    assert [each["kind"] for each in tail.read()] == ["again"]
    assert tail.is_new
    for each in (log, tail, whole):
        each.close()


def whole_events(path: Path) -> list[str]:
    """The lines of all files of a log."""
    return [line for each in path.parent.glob("events*.jsonl") for line in each.read_text().splitlines()]


def test_a_history_is_bounded_and_covers_all_time() -> None:
    histories = Histories()
    for number in range(5_000):
        time_text = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00"
        histories.take(
            {
                "time": time_text,
                "kind": "batch",
                "stream": "s",
                "batch": number,
                "tuples": 10,
                "run_seconds": 0.1,
            }
        )
    found = histories.stream("s")
    assert len(found["at"]) < MOST_POINTS
    assert found["at"][-1] - found["at"][0] > 4_900  # type: ignore[operator]
    assert found["rate"] == pytest.approx([100.0] * len(found["at"]))
    assert len(histories.stream("s", 50)["at"]) <= 50


def test_a_kept_order_is_shown_with_columns_that_the_event_does_not_name() -> None:
    histories = Histories()
    told = {"time": "2026-01-01T00:00:00+00:00", "stream": "s"}
    histories.take({**told, "kind": "plan_compiled", "attributes": ["a", "b"]})
    kept = {"action": "KeepSequence", "figures": {"evaluations_before": 3.0, "evaluations": 2.0}}
    orders = {"arrangement": {"order": [1, 2, 0]}, "runner_up": {"order": [0, 1, 2]}}
    histories.take({**told, "kind": "decision", **kept, **orders})
    assert histories.sequence("s") == ["b", "column 3", "a"]
    assert histories.runner_up("s") == ["a", "b", "column 3"]
    assert histories.found("s")["evaluations_before"] is None


def test_an_event_of_another_version_does_no_harm() -> None:
    histories = Histories()
    for odd in (
        *({"kind": kind} for kind in ("batch", "cut", "windows", "decision", "plan_compiled", "lag")),
        *(
            {"kind": kind, "time": "2026-01-01T00:00:00+00:00", "stream": "s", "views": 3, "figures": 4}
            for kind in ("batch", "cut", "windows", "plan_compiled")
        ),
        {
            "kind": "decision",
            "time": "2026-01-01T00:00:00+00:00",
            "stream": "s",
            "arrangement": {"order": [99, "x"]},
            "figures": {},
        },
        {"kind": 3, "time": None},
    ):
        histories.take(odd)
    assert histories.sequence("s") == []
    assert Ring().columns() == {"at": []}


def test_a_run_has_its_page_in_a_process_of_its_own(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    place = Place.taken("127.0.0.1", 0, "secret-token")
    port = place.listening.getsockname()[1]
    page = Page(port, place.address)
    with page_beside(layout.output, place):
        # it is asked before it is ready
        assert page.get("/api/overview", Authorization="Bearer secret-token").json()["totals"]["views"] == 5
        assert page.get("/api/overview").status == 401
        with pytest.raises(InputError, match="cannot use"):
            Place.taken("127.0.0.1", port, None)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1.0)


def test_the_page_ends_with_the_process_of_its_run(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom penstock.page.child import page_beside\n"
        "from penstock.page.listening import Place\nplace = Place.taken('127.0.0.1', 0, None)\n"
        "print(place.address, flush=True)\nwith page_beside(Path(sys.argv[1]), place):\n    time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", program, layout.output], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    address = run.stdout.readline().strip()
    page = Page(int(address.rpartition(":")[2].rstrip("/")), address)
    assert page.get("/healthz").status == 200
    run.kill()
    run.communicate()

    def is_gone() -> bool:
        try:
            page.get("/healthz")
        except OSError:
            return True
        return False

    _until(is_gone)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["page", "{none}"], "Results folder {none} does not exist. A run creates it when it starts."),
        (
            ["page", "{out}", "--port", "{taken}"],
            "The page cannot use 127.0.0.1:{taken}: Address already in use",
        ),
        (["demo", "--output", "{out}", "--page", "{taken}"], "The page cannot use 127.0.0.1:{taken}"),
        (["page", "{out}", "--script", "{none}"], "Cannot read script {none}: No such file or directory."),
        (["page", "{out}", "--host", "no.host.invalid"], "no.host.invalid is not a host name or address"),
        (
            ["run", "{script}", "--output", "{none}", "--page", "{taken}"],
            "The page cannot use 127.0.0.1:{taken}",
        ),
        (
            ["run", "{script}", "--output", "{none}", "--page", "x"],
            "--page x: write --page PORT or --page HOST:PORT",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path, given: list[str], told: str) -> None:
    layout = page_folder(tmp_path / "out")
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE t (id INT) USING parquet OPTIONS (path 'nowhere');")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {
            "none": tmp_path / "none",
            "out": layout.output,
            "script": script,
            "taken": taken.getsockname()[1],
        }
        arguments = [each.format(**names) for each in given]
        ended = alone(*arguments, COLUMNS="200")
    assert ended.returncode == 2
    assert told.format(**names) in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert not (tmp_path / "none").exists()
    assert layout.events.exists()


def test_the_page_writes_nothing(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    # SQLite has files of its own beside a ledger that is open
    assert layout.catalog.exists()
    before = {path: path.stat().st_mtime_ns for path in layout.output.rglob("*")}
    with served(layout.output) as page:
        for path in (
            "/api/overview",
            "/api/views",
            "/api/rows/large",
            "/api/rows/large/download",
            "/api/quarantine/orders",
        ):
            assert page.get(path).status == 200
    assert {path: path.stat().st_mtime_ns for path in layout.output.rglob("*")} == before


def test_the_largest_delay_of_a_batch_is_behind_what_had_come_before() -> None:
    histories = Histories()
    for number, fields in enumerate(
        (
            {"oldest_recent_event_time_us": 0, "newest_event_time_us": 60_000_000},
            {"oldest_recent_event_time_us": 20_000_000, "newest_event_time_us": 30_000_000},
            {"oldest_recent_event_time_us": None, "newest_event_time_us": 90_000_000},
            # number, oldest, newest and oldest recent of each step: the second is behind the first
            {"arrival_steps": [[0, 95_000_000, 99_000_000, 95_000_000], [1, 0, 97_000_000, 94_000_000]]},
        )
    ):
        when = f"2026-01-01T00:00:0{number}+00:00"
        histories.take({"time": when, "kind": "batch", "stream": "s", "batch": number, **fields})
    assert histories.delays("s")["delay"] == [None, 40.0, None, 5.0]
    assert "delay" not in histories.stream("s")
