"""What the page answers about a results folder, hostile names and records among it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from page_cases import LONG, QUOTED, SCRIPT, Page, page_folder, served
from penstock.page import rows
from penstock.page.answers import LISTED, short_name

pytestmark = pytest.mark.usefixtures("own_commits")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    layout = page_folder(tmp_path_factory.mktemp("page") / "out")
    with served(layout.output) as served_page:
        yield served_page


def test_the_overview_is_that_of_the_status(page: Page) -> None:
    found = page.get("/api/overview").json()
    # the process of the folder is none: the run was killed
    assert found["run"]["state"] == "dead"
    assert found["problems"][0].startswith("dead: process")
    assert found["totals"] == {
        **{"streams": 1, "views": 5, "tuples": 20, "matched": 8, "pairs": 10},
        **{"quarantined": 2, "errors": 0},
    }
    (stream,) = found["streams"]
    assert stream["selections"] == 5
    assert stream["history"]["rate"] == [20.0, 20.0]
    # two batches of 10 tuples from second 0.5 to second 2
    assert (stream["answered"], stream["arrives"]) == (pytest.approx(20 / 1.5), None)
    assert stream["history"]["newest_event"] == [0.0, 60.0]
    assert [(each["kind"], each["text"], each["count"]) for each in found["news"]] == [
        ("run_started", "run started", 1)
    ]


def test_views_are_sorted_searched_and_paged(page: Page) -> None:
    found = page.get("/api/views?limit=2").json()
    assert (found["total"], found["found"], found["views"][0]["name"]) == (5, 5, "large")
    assert len(found["views"]) == 2
    never = page.get("/api/views?only=never").json()
    assert [each["name"] for each in never["views"]] == ["silent"]
    by_name = page.get("/api/views?sort=name&order=asc&search=orders").json()
    assert [each["name"][:5] for each in by_name["views"]] == ["<scri", "a\"b'c", "large", "nnnnn", "silen"]
    assert page.get("/api/views?search=SCRIPT").json()["found"] == 1
    assert page.get("/api/views?kind=join").json()["found"] == 0
    assert page.get("/api/views?offset=4").json()["views"][0]["name"] == "silent"


@pytest.mark.parametrize(
    "asked", ["sort=x", "order=up", "kind=x", "only=x", "limit=501", "offset=-1", "limit=x"]
)
def test_a_wrong_parameter_is_one_sentence(page: Page, asked: str) -> None:
    answer = page.get(f"/api/views?{asked}")
    assert answer.status == 400
    assert list(answer.json()) == ["error"]
    assert "allowed" in answer.json()["error"]


@pytest.mark.parametrize("name", ["large", SCRIPT, QUOTED, LONG])
def test_a_view_has_a_page_whatever_its_name(page: Page, name: str) -> None:
    found = page.of("views", name).json()
    assert found["name"] == name
    assert found["clause"] == ["id > 1", "note = '<b>'"]
    assert found["columns"] == ["id", "note"]
    assert page.of("rows", name).json()["count"] == (10 if name == "large" else 2)


def test_a_rule_of_a_run_that_nobody_watched_has_the_history_that_the_events_have(page: Page) -> None:
    history = page.of("views", "large").json()["history"]
    assert (history["of"], history["rows"]) == ("orders", [5.0, 10.0])


def test_a_long_name_is_cut_in_lists_and_found_by_the_cut_one(page: Page) -> None:
    names = [each["name"] for each in page.get("/api/views").json()["views"]]
    assert LONG not in names
    assert short_name(LONG) in names
    assert max(map(len, names)) == LISTED
    assert page.of("views", short_name(LONG)).json()["name"] == LONG


def test_an_unknown_name_is_one_sentence(page: Page) -> None:
    for kind in ("views", "rows", "windows", "quarantine"):
        answer = page.of(kind, "<img src=x>")
        assert answer.status == 404
        assert "does not exist" in answer.json()["error"]
        assert answer.headers["content-type"] == "application/json"


def test_rows_are_paged_newest_first_and_searched(page: Page) -> None:
    found = page.get("/api/rows/large?limit=3").json()
    assert [row[0] for row in found["rows"]] == [9, 8, 7]
    assert (found["count"], found["columns"][1]) == (10, {"name": "note", "type": "string"})
    assert (found["stored"], found["begin"], found["end"]) == (10, 10, 7)
    oldest = page.get("/api/rows/large?limit=2&order=oldest").json()
    assert oldest["rows"][0] == [0, "<script>"]
    assert len(oldest["rows"][1][1]) == 2_000
    searched = page.get("/api/rows/large?search=PLAIN").json()
    assert (searched["end"], searched["rows"]) == (0, [[8, "plain"], [3, "plain"]])
    for wrong in ("limit=1001", "at=-1", "at=x", "back=2"):
        assert page.get(f"/api/rows/large?{wrong}").status == 400


def _pages(page: Page, view: str, query: str, limit: int) -> list[list[int]]:
    """The ids on each page of a view, going on to the end; makes sure that going back gives the same pages."""
    asked = f"/api/rows/{quote(view, safe='')}?limit={limit}&{query}"
    found = [page.get(asked).json()]
    last = 0 if found[0]["end"] < found[0]["begin"] else found[0]["stored"]
    while found[-1]["end"] != last:
        found.append(page.get(f"{asked}&at={found[-1]['end']}").json())
    for before, each in pairwise(found):
        assert before["end"] == each["begin"]
        again = page.get(f"{asked}&at={each['begin']}&back=1").json()
        assert (again["rows"], again["end"]) == (before["rows"], before["end"])
    return [[row[0] for row in each["rows"]] for each in found]


def test_each_page_of_rows_is_reached_in_both_directions(page: Page) -> None:
    assert _pages(page, "large", "", 4) == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    assert _pages(page, "large", "order=oldest", 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    # rows between those of other views
    assert _pages(page, SCRIPT, "", 1) == [[6], [1], []]
    assert _pages(page, SCRIPT, "order=oldest", 1) == [[1], [6], []]
    assert _pages(page, "large", "search=quoted", 1) == [[9], [4], []]
    # a page that is reached from behind is full, or the first one
    back = page.get("/api/rows/large?limit=4&at=8&back=1").json()
    assert ([row[0] for row in back["rows"]], back["begin"], back["end"]) == ([9, 8, 7, 6], 10, 6)
    last = page.get("/api/rows/large?limit=4&at=0&back=1").json()
    assert ([row[0] for row in last["rows"]], last["begin"], last["end"]) == ([3, 2, 1, 0], 4, 0)
    beyond = page.get("/api/rows/large?limit=4&at=99").json()
    assert [row[0] for row in beyond["rows"]] == [9, 8, 7, 6]


def test_a_search_looks_at_so_many_stored_rows_and_goes_on(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_MOST_LOOKED", 5)
    assert _pages(page, "large", "search=PLAIN", 9) == [[8], [3]]
    assert _pages(page, "silent", "", 9) == [[], []]
    assert _pages(page, "large", "", 9) == [[9, 8, 7, 6, 5], [4, 3, 2, 1, 0]]


def test_rows_are_downloaded_whole(page: Page, tmp_path: Path) -> None:
    answer = page.get("/api/rows/large/download?format=csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="large.csv"'
    lines = list(csv.reader(io.StringIO(answer.body.decode())))
    assert lines[0] == ["id", "note"]
    assert lines[4][1] == LONG
    text = page.get("/api/rows/large/download?format=json&search=quoted").body.decode()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"id": each, "note": '"quoted"'} for each in (9, 4)
    ]
    (tmp_path / "rows.parquet").write_bytes(page.get("/api/rows/large/download?format=parquet").body)
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 10
    assert page.get("/api/rows/large/download?format=xml").status == 400
    named = page.get(f"/api/rows/{short_name(LONG)[:0]}%3Cscript%3Ealert(1)%3C%2Fscript%3E/download").headers
    assert named["content-disposition"] == 'attachment; filename="_script_alert_1_script_.csv"'


def test_records_set_aside_are_shown_as_text(page: Page) -> None:
    assert page.get("/api/quarantine").json() == {
        "streams": [{"name": "orders", "records": 2, "reasons": [{"reason": "malformed", "count": 2}]}]
    }
    found = page.get("/api/quarantine/orders").json()["records"]
    assert [len(each["record"]) for each in found] == [4_000, 9]
    assert datetime.fromisoformat(found[1].pop("time"))
    assert found[1] == {
        "number": 2,
        "batch": "0",
        "reason": "malformed",
        "origin": "1.csv",
        "record": "<script>\N{REPLACEMENT CHARACTER}",
    }
    assert len(page.get("/api/quarantine/orders?limit=1").json()["records"]) == 1
    assert page.get("/api/quarantine/orders?reason=other").json()["records"] == []


@pytest.mark.parametrize(
    "path",
    ["/", "/queries", "/queries/a%2Fb", "/windows/x", "/plans", "/deadlines", "/rows/x", "/quarantine/x"],
)
def test_each_page_has_an_address(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


def test_a_view_without_a_batch_has_no_rows(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    layout.manifests("orders").remove(layout.manifests("orders").numbers())
    layout.events.unlink()
    with served(layout.output) as empty:
        for query in ("", "order=oldest", "at=5&back=1", "search=x"):
            found = empty.get(f"/api/rows/large?{query}").json()
            assert [found[name] for name in ("rows", "stored", "begin", "end")] == [[], 0, 0, 0]
        assert empty.get("/api/rows/large/download").status == 200


def test_what_a_folder_lacks_is_an_empty_list(page: Page) -> None:
    assert page.get("/api/windows").json() == {"views": []}
    assert page.get("/api/deadlines").json() == {"views": [], "windows": []}
    plans = page.get("/api/plans").json()
    assert (plans["joins"], plans["switches"], plans["streams"][0]["name"]) == ([], [], "orders")
