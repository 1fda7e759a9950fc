"""The page of a folder with 100,000 views."""

from __future__ import annotations

import json
import random

import pytest

from page_cases import page_folder
from penstock.page.folder import FolderReader
from penstock.spark.storage.formats import MANIFEST

MANY = 100_000


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> FolderReader:
    text = "amount > {0} AND city = 'Oslo' AND kind IN ('a', 'b', 'c') AND note LIKE '%{0}%' AND hour BETWEEN 1 AND 5"
    views = {}
    for number in range(MANY):
        condition = text.format(number)
        views[f"rule_{number:06}"] = {
            **{"stream": "orders", "projection": None, "condition": condition, "number": 1},
            "sql": f"SELECT * FROM orders WHERE {condition}",
        }
    layout = page_folder(tmp_path_factory.mktemp("many") / "out", views)
    counts = random.Random(7).choices(range(1000), k=MANY)
    pairs = {name: count for name, count in zip(views, counts, strict=True) if count}
    manifest = layout.manifests("orders")[1]
    document = MANIFEST.read(manifest)
    assert document is not None
    document["batches"][0]["view_pairs"] = pairs
    ledger = layout.ledger.open()
    MANIFEST.replace(manifest, document)
    ledger.close()
    found = FolderReader(layout.output)
    found.look()
    assert found.newest is not None
    # prepared once for each catalog
    found.newest.views.answer(1, search="x", sort="name", kind="join")
    return found


@pytest.mark.parametrize(
    "asked",
    [
        *(
            {},
            {"sort": "name", "order": "asc"},
            {"sort": "errors"},
            {"sort": "rate"},
            {"only": "never"},
        ),
        *(
            {"search": "RULE_09999"},
            {"search": "amount > 99999"},
            {"search": "nowhere"},
            {"limit": 500, "offset": 70_000},
        ),
    ],
    ids=str,
)
def test_a_page_of_them_has_what_was_asked_for(reader: FolderReader, asked: dict[str, object]) -> None:
    snapshot = reader.newest
    assert snapshot is not None
    answer = snapshot.views.answer(1, **asked)  # type: ignore[arg-type]
    found = json.loads(answer)
    assert found["total"] == MANY
    assert len(found["views"]) == min(int(asked.get("limit", 100)), found["found"])  # type: ignore[call-overload]


def test_the_order_is_that_of_the_figures(reader: FolderReader) -> None:
    snapshot = reader.newest
    assert snapshot is not None
    rows = [each["rows"] for each in json.loads(snapshot.views.answer(1, limit=500))["views"]]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] == 999


def test_the_overview_of_many_views_is_small(reader: FolderReader) -> None:
    snapshot = reader.newest
    assert snapshot is not None
    assert len(snapshot.overview) < 20_000
    assert json.loads(snapshot.overview)["streams"][0]["selections"] == MANY


def test_a_change_is_read(reader: FolderReader) -> None:
    before = reader.newest
    assert before is not None
    with reader.layout.events.open("ab") as log:
        log.write(
            b'{"time":"2026-01-01T00:01:00+00:00","kind":"lag","stream":"orders","backlog":1,"unit":"files"}\n'
        )
    reader._due = float("-inf")
    reader.touch()
    reader.look()
    assert reader.newest is not before
