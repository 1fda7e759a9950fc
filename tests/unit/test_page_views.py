"""What the page shows of windows, plans and deadlines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DoubleType, StringType, StructType, TimestampType

from page_cases import Page, batch, event, page_folder, served
from penstock.page import judgements, rows, windows
from penstock.page.deadlines import asked_of
from penstock.page.overview import standing_of_deadlines
from penstock.spark.publication.kinds import results_of
from penstock.spark.results.read_plain import window_revisions
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.formats import MANIFEST, RESULT_VIEWS
from penstock.spark.storage.layout import Layout
from publishing import listed

HOUR = 3_600_000_000
BOUND = {"epsilon": 0.1, "delta": 0.05, "absolute": False}
WINDOW = StructType().add("start", TimestampType()).add("end", TimestampType())
VIEWS = {
    "hours": {"stream": "orders", "id": "hours:1", "sql": "SELECT city, ...", "number": 1},
    "timely": {
        "stream": DEADLINES_NAME,
        "id": "timely:1",
        "sql": "SELECT /*+ DEADLINE('2 seconds'), LOSS(1, 8) */ window(at, '1 hour') AS w, count(*) AS n FROM orders GROUP BY w",
    },
    "pairs": {
        "streams": ["orders"],
        "lanes": [0],
        "columns": {"fields": []},
        "sql": "SELECT ...",
        "tables": [],
    },
}


def _revisions() -> pa.Table:
    """Hours of two cities: of Bern's three windows two were within 10 %, Oslo's second one is open."""
    rows = [
        *(("Bern", 0, 0, 100.0, False), ("Bern", 0, 1, 105.0, True)),
        *(("Bern", 1, 0, 100.0, False), ("Bern", 1, 1, 150.0, False), ("Bern", 1, 2, 200.0, True)),
        *(
            ("Bern", 2, 0, 7.0, False),
            ("Bern", 2, 1, 7.0, True),
            ("Oslo", 0, 0, 1.0, False),
            ("Oslo", 0, 1, 1.0, True),
        ),
        *(("Oslo", 1, 0, 3.0, False), ("Oslo", 1, 1, 4.0, False)),
    ]
    moment = pa.timestamp("us", "UTC")
    windows = [{"start": hour * HOUR, "end": (hour + 1) * HOUR} for _, hour, *_ in rows]
    own = [{**window, "k0": city} for window, (city, *_) in zip(windows, rows, strict=True)]
    span = [("start", moment), ("end", moment)]
    return pa.table(
        {
            "city": [city for city, *_ in rows],
            "w": pa.array(windows, pa.struct(span)),
            "total": [total for _, _, _, total, _ in rows],
            "revision": pa.array([revision for _, _, revision, _, _ in rows], pa.int32()),
            "coverage": [0.9] * len(rows),
            "slack": [60.0] * len(rows),
            "is_final": [is_final for *_, is_final in rows],
            "op": ["upsert"] * len(rows),
            "_row": pa.array(own, pa.struct([*span, ("k0", pa.string())])),
        }
    )


def _outcome(hour: int, outcome: str, **fields: Any) -> dict[str, Any]:
    told = {
        "view": "timely",
        "start": hour * HOUR,
        "end": (hour + 1) * HOUR,
        "arrived": 1e9 + hour,
        "deadline": 1e9 + hour + 2,
    }
    return {**told, "outcome": outcome, "predicted_seconds": 0.5, "seconds": None, "reason": None, **fields}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    found = page_folder(tmp_path_factory.mktemp("views") / "out", VIEWS)
    columns = StructType().add("city", StringType()).add("w", WINDOW).add("total", DoubleType())
    row = StructType([*WINDOW.fields]).add("k0", StringType())
    described = {
        "columns": columns.jsonValue(),
        "row": row.jsonValue(),
        "definition": "hours:1",
        "floor": None,
    }
    ledger = found.ledger.open()
    RESULT_VIEWS.put(found.result_views("orders")[0], {"views": {"hours": described}})
    kept = found.results("hours")
    kept.mkdir(parents=True)
    pq.write_table(_revisions(), kept / "0.parquet")
    standing = {
        "slack": 60_000_000,
        "promised": True,
        "bound": BOUND,
        "horizon": HOUR,
        "newest": HOUR,
        "reached": HOUR,
        "open": 1,
        "oldest": 2 * HOUR,
    }
    counts = {"early": 5, "corrected": 2, "final": 4, "rows": 11, "slack": 300_000_000}
    windows = {
        "batch": 0,
        "answered": 1,
        "views": {"hours": counts},
        "standing": {"hours": standing},
        "whole": [],
    }
    files = [listed("0/hours", kept / "0.parquet", 11)]
    manifests = found.manifests(results_of("orders"))
    MANIFEST.replace(
        manifests[0], {"first": 0, "last": 0, "files": files, "batches": [windows], "published": 0.0}
    )
    lane = results_of(DEADLINES_NAME)
    late = {"view": "timely", "given_up": None, "start": HOUR, "end": 2 * HOUR, "seconds": 0.7}
    outcomes = [
        _outcome(0, "released", seconds=0.4),
        _outcome(1, "shed", reason="<b>"),
        _outcome(2, "missed", seconds=2.5),
    ]
    cut = {
        "batch": 0,
        "views": {"timely": {"created": 3, "released": 1, "shed": 1, "missed": 1, "failed": 0, "rows": 1}},
    }
    MANIFEST.replace(
        found.manifests(lane)[0],
        {
            "first": 0,
            "last": 0,
            "files": [],
            "batches": [{**cut, "outcomes": outcomes, "late": [late]}],
            "published": 0.0,
        },
    )
    ledger.close()
    swap = {"evaluations_before": 3.0, "evaluations": 2.0, "runner_up_evaluations": 2.5}
    switched = {
        "order": ["new tuples of a meet b"],
        "reason": "<i>",
        "figures": {"seconds": 0.5, "search": "all", "odd": [1]},
    }
    with found.events.open("ab") as log:
        # the newest event time before it is minute 1
        log.write(batch(2, oldest_event_time_us=0, oldest_recent_event_time_us=30_000_000))
        log.write(event(10, "plan_compiled", stream="orders", views=1, attributes=["x", "y"]))
        log.write(
            event(
                11,
                "decision",
                stream="orders",
                action="SwapSequence",
                reason="faster",
                figures=swap,
                arrangement={"order": [1, 0]},
                runner_up={"order": [0, 1]},
                before={"order": [0, 1]},
            )
        )
        log.write(event(12, "sequence_sampled", stream="orders", evaluations_per_tuple=2.0))
        log.write(event(13, "windows", stream="orders", **windows))
        log.write(event(14, "join_switched", lane="joins.0", view="pairs", **switched))
        log.write(event(15, "cut", lane=lane, cut=0, streams={"orders": 1}, figures=cut))
    return found


@pytest.fixture(scope="module")
def page(layout: Layout) -> Iterator[Page]:
    with served(layout.output) as served_page:
        yield served_page


def test_a_window_view_says_what_it_promised_and_kept(page: Page) -> None:
    (found, timely) = page.get("/api/windows").json()["views"]
    assert found["bound"] == {"error": 0.1, "probability": 0.05, "absolute": False}
    # three of the four final rows; beside the one that was off, two have another value than before
    assert found["within"] == 0.75
    assert (found["kept"], found["kept_words"]) == ("unknown", "not yet known (4 of 20 final windows)")
    assert found["judged"] == {"first": 4, "first_off": 1, "early": 4, "off": 1, "corrected": 3}
    assert (found["slack"], found["horizon"], found["oldest_open"], found["reached"]) == (
        60.0,
        3_600.0,
        7_200.0,
        3_600.0,
    )
    assert found["history"]["final"] == [4.0]
    assert (timely["name"], timely["kind"], timely["stream"]) == ("timely", "deadline", "orders")


def test_the_windows_of_a_key_have_all_their_answers(page: Page) -> None:
    found = page.get("/api/windows/hours").json()
    assert (found["keys"], found["values"], found["value"]) == (["city"], ["total"], "total")
    assert found["groups"] == [{"city": "Bern"}, {"city": "Oslo"}]
    assert [(each["start"], each["state"]) for each in found["windows"]] == [
        (0, "final"),
        (3600, "final"),
        (7200, "final"),
    ]
    assert [each["value"] for each in found["windows"][1]["revisions"]] == [100.0, 150.0, 200.0]
    assert "the oldest ends 1970-01-01 02:00:00 UTC" in found["why_open"]
    assert (found["view"]["history"]["slack"], found["view"]["history"]["delay"]) == ([60.0], [30.0])
    oslo = page.get(f"/api/windows/hours?value=total&key={quote(json.dumps({'city': 'Oslo'}))}").json()
    assert [each["state"] for each in oslo["windows"]] == ["final", "corrected"]


def test_of_many_answers_the_newest_are_shown(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page.get("/api/windows/hours").json()["is_whole"] is True
    monkeypatch.setattr(windows, "_MOST_SHOWN", 3)
    found = page.get("/api/windows/hours").json()
    assert (found["is_whole"], found["groups"]) == (False, [{"city": "Oslo"}])
    assert [(each["start"], each["state"]) for each in found["windows"]] == [
        (0, "final"),
        (3600, "corrected"),
    ]
    # the first answer of the first window is not among them
    assert [[each["value"] for each in window["revisions"]] for window in found["windows"]] == [
        [None, 1.0],
        [3.0, 4.0],
    ]
    monkeypatch.setattr(windows, "_MOST_SHOWN", 1)
    (last,) = page.get("/api/windows/hours").json()["windows"]
    assert (last["state"], [each["value"] for each in last["revisions"]]) == ("corrected", [None, 4.0])


def test_of_many_rows_of_a_window_view_the_newest_are_shown(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert page.get("/api/rows/hours").json()["is_whole"] is True
    monkeypatch.setattr(rows, "_MOST_LOOKED", 3)
    found = page.get("/api/rows/hours").json()
    assert ([row[0] for row in found["rows"]], found["is_whole"]) == (["Oslo", "Oslo"], False)
    oldest_first = page.get("/api/rows/hours?order=oldest").json()
    assert (len(oldest_first["rows"]), oldest_first["is_whole"]) == (2, False)


def test_a_key_may_be_a_struct(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    table, marks, _ = window_revisions(layout, "hours", 100)
    key = pa.array([{"name": name} for name in table.column("city").to_pylist()])
    times = [pc.struct_field(table.column("_row"), part).combine_chunks() for part in ("start", "end")]
    row = pa.StructArray.from_arrays([*times, key], ["start", "end", "k0"])
    structs = table.set_column(0, "city", key).set_column(table.num_columns - 1, "_row", row)
    monkeypatch.setattr(judgements, "window_revisions", lambda *_: (structs, marks, True))
    found = judgements.read_revisions(layout, "hours", 100)
    assert list(found.keys) == ["city"]
    assert judgements.judge(found, BOUND) == judgements.Judgement(4, 1, 4, 1, 3)


@pytest.mark.parametrize(
    ("asked", "status"),
    [("key=[]", 400), ("key=%7B", 400), ("key=%7B%22city%22:%22x%22%7D", 404), ("value=city", 404)],
)
def test_a_wrong_key_or_value_is_one_sentence(page: Page, asked: str, status: int) -> None:
    answer = page.get(f"/api/windows/hours?{asked}")
    assert (answer.status, list(answer.json())) == (status, ["error"])


def test_a_view_without_answers_has_no_windows(page: Page) -> None:
    assert page.get("/api/windows/timely").json()["windows"] == []
    assert page.get("/api/windows/pairs").status == 404


def test_plans_say_what_changed_them(page: Page) -> None:
    found = page.get("/api/plans").json()
    (stream,) = found["streams"]
    assert (stream["sequence"], stream["before"], stream["evaluations"]) == (["y", "x"], 3.0, 2.0)
    assert (stream["runner_up"], stream["found"]) == ({"sequence": ["x", "y"], "evaluations": 2.5}, 2.0)
    assert (stream["decision"], stream["history"]["evaluations"]) == ("faster", [2.0])
    told = [(each["subject"], each["text"], each["before"], each["order"]) for each in found["switches"]]
    assert told == [
        ("pairs", "<i>", [], ["new tuples of a meet b"]),
        ("orders", "faster", ["x", "y"], ["y", "x"]),
    ]
    assert found["switches"][0]["figures"] == {"seconds": 0.5, "search": "all"}
    assert found["joins"][0]["switches"] == 1


def test_deadlines_say_what_became_of_each_window(page: Page) -> None:
    found = page.get("/api/deadlines").json()
    (view,) = found["views"]
    assert (view["deadline"], view["loss"]) == (2.0, [1, 8])
    assert (view["released"], view["shed"], view["missed"]) == (1, 1, 1)
    assert view["in_time"] == pytest.approx(1 / 3)
    assert [(each["start"], each["outcome"], each["real"]) for each in found["windows"]] == [
        (7200, "missed", 2.5),
        (3600, "late", 0.7),
        (0, "released", 0.4),
    ]
    assert found["windows"][1]["reason"] == "<b>"
    assert (view["overloaded"], view["broken"]) == (False, 0)
    assert page.get("/api/overview").json()["deadlines"] == {"views": 1, "overloaded": 0, "broken": 0}


def test_a_promise_that_is_broken_is_counted_for_the_first_page() -> None:
    """A bearable load does not hide it."""
    views = {
        "kept": {"released": 1, "standing": {"violations": 0}},
        "broken": {"released": 1, "standing": {"violations": 10, "overloaded": False}},
        "gone": {"released": 1, "dropped": "2026", "standing": {"violations": 5}},
        "hours": {"early": 3},
    }
    assert standing_of_deadlines(views) == {"views": 2, "overloaded": 0, "broken": 10}


def test_what_a_view_asks_for_is_its_predicted_cost_a_second() -> None:
    windows = [{"view": "v", "arrived": float(second), "predicted": 0.5} for second in range(5)]
    assert asked_of(windows, "v") == 0.5
    assert asked_of(windows, "w") is None
