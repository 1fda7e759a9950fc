"""What the status says of window views: their counts, how far they have come, and what they wait for."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.errors import CheckpointError
from penstock.monitor.book import StatusBook
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.operators.windows.answers import Answer
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import MERGED, Merged
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.results.window_staging import SaidWindows, ViewCounts
from penstock.spark.storage.bindings import ViewDefinition
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import Layout
from status_cases import lines, results_folder

pytestmark = pytest.mark.usefixtures("own_commits")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def test_windows_add_up_over_batches_and_keep_the_newest_of_the_rest(layout: Layout) -> None:
    def figures(batch: int, early: int) -> dict[str, Any]:
        counts = {
            "early": early,
            "corrected": 1,
            "final": 2,
            "rows": 9,
            "slack": early * 90_000_000,
            "horizon": batch,
        }
        return {"batch": batch, "answered": batch, "views": {"hours": counts}}

    MERGED_MANIFEST.replace(
        layout.manifests(results_of("orders"))[MERGED],
        Merged(1, batches=(figures(0, 3), figures(1, 0))).document(),
    )
    standing = {
        "slack": 90_000_000,
        "promised": False,
        "horizon": 7_200_000_000,
        "newest": 7_260_000_000,
        "reached": 0,
    }
    standing |= {"open": 3, "oldest": 3_600_000_000}
    standing |= {"bound": {"epsilon": 0.05, "delta": 0.05, "absolute": False}}
    log = EventLog(layout.events)
    log.record("windows", stream="orders", batch=2, views={}, standing={"hours": standing})
    log.record("lag", stream="orders", backlog=1_200, unit="records", newest_event_time_us=5, age_seconds=1)
    log.close()
    view = folder_status(layout.output)["views"]["hours"]
    assert (view["early"], view["corrected"], view["final"], view["horizon"]) == (3, 2, 4, 1)
    told = lines(layout)
    assert (
        "window view hours of orders: 3 early, 2 corrected, 4 final | slack 1 min 30 s | horizon 2 h" in told
    )
    assert (
        "not final: 3 windows, the oldest ends 1970-01-01 01:00:00 UTC; final once the stream's time passes "
        "1970-01-01 03:00:00 UTC (its end + horizon): needs a tuple that is 59 min newer"
    ) in told
    assert "MAX_ERROR promise: not yet known (4 of 20 final windows)" in told
    view["standing"]["final_from"] = 14_400_000_000
    young = {**folder_status(layout.output), "views": {"hours": view}}
    assert (
        "final once the stream's time passes 1970-01-01 04:00:00 UTC (the stream was observed too briefly before): "
        "needs a tuple that is 1 h 59 min newer"
    ) in "\n".join(status_lines(young, verbose=True))
    view["standing"]["newest"] = 20_000_000_000
    told = "\n".join(status_lines({**folder_status(layout.output), "views": {"hours": view}}, verbose=True))
    assert (
        "the oldest ends 1970-01-01 01:00:00 UTC; final with the next batch (a new view: after its backfill)"
        in told
    )
    assert "backlog 1,200 records" in told


def test_a_window_counts_once_whatever_its_shards_and_a_corrected_final_one_apart(layout: Layout) -> None:
    def answer(
        end: int, revision: int, *, final: bool = False, slack: int = 5, promised: bool = True
    ) -> Answer:
        rows = pa.table({"n": [1]})
        before = rows if revision else rows.slice(0, 0)
        return Answer("hours", end - 10, end, revision, final, slack, None, promised, rows, before)

    said = SaidWindows()
    for shard in (
        [answer(10, 0), answer(20, 0, final=True), answer(5, FIRST_REVISION + 3, final=True)],
        [answer(10, 0, slack=7, promised=False), answer(20, 1, final=True), answer(10, 1)],
        [answer(10, 1), answer(5, FIRST_REVISION + 3, final=True)],
    ):
        one = SaidWindows()
        for each in shard:
            one.note(each)
        said.add(one)
    counts = {"final_corrected": 1, "final_corrected_rows": 2, "revised_rows": 5}
    assert said.counts() == ViewCounts(2, corrected=1, final=1, slack=12, promised=1, **counts)
    log = EventLog(layout.events)
    for batch in range(2):
        views = {"hours": asdict(said.counts())}
        log.record("windows", stream="orders", batch=batch, views=views, standing={})
    log.close()
    assert folder_status(layout.output)["views"]["hours"]["final_corrected"] == 2
    told = (
        "window view hours of orders: 4 early, 2 corrected, 2 final, 2 corrected after being final (4 rows)"
    )
    assert told in lines(layout)


def test_sums_that_do_not_fit_their_type_are_told(layout: Layout) -> None:
    log = EventLog(layout.events)
    for batch in range(2):
        views = {
            "hours": {"early": 1, "corrected": 0, "final": 0, "rows": 9, "slack": 0, "overflowed": batch}
        }
        log.record("windows", stream="orders", batch=batch, views=views)
    log.close()
    assert "\n  1 row with NULL for a SUM or AVG that does not fit its type; each revision counts\n" in lines(
        layout
    )


def test_windows_that_have_answered_no_batch_say_so(layout: Layout) -> None:
    assert "not answered yet: batches 0 to 1 of the stream" in lines(layout)


def test_windows_that_lag_behind_say_so_and_a_dropped_view_waits_for_nothing(layout: Layout) -> None:
    standing = {
        "slack": 1,
        "promised": True,
        "horizon": 5,
        "newest": 99,
        "reached": 0,
        "open": 3,
        "oldest": 7,
    }
    replace_json(layout.status, StatusBook().document())
    log = EventLog(layout.events)
    log.record(
        "windows",
        stream="orders",
        batch=0,
        entry=2,
        answered=0,
        views={},
        standing={"hours": standing},
    )
    log.close()
    told = lines(layout)
    assert "not answered yet: batch 1 of the stream\n  not final: 3 windows" in told
    published = layout.manifests("orders")[1]
    MANIFEST.replace(published, {**(MANIFEST.read(published) or {}), "published": time.time() - 60})
    assert folder_status(layout.output)["views"]["hours"]["waiting_seconds"] == pytest.approx(60, abs=30)
    assert "the view has to answer these batches first" in told
    assert "final with the next batch" not in told
    assert folder_status(layout.output)["streams"]["orders"]["selections"] == {"large": 6, "silent": 0}
    schema = StructType()
    CatalogWriter(layout).write(
        {"orders": schema}, {"orders": {"silent": ViewDefinition("silent", "1", "", "TRUE", None)}}
    )
    told = lines(layout)
    assert "window view hours of orders: 0 early, 0 corrected, 0 final" in told
    assert "  dropped at 20" in told
    assert "not final" not in told
    assert folder_status(layout.output)["streams"]["orders"]["selections"] == {"silent": 0}
    CatalogWriter(layout).write(
        {"orders": schema},
        {"orders": {name: ViewDefinition(name, "1", "", "TRUE", None) for name in ("silent", "large")}},
    )
    assert set(folder_status(layout.output)["streams"]["orders"]["selections"]) == {"large", "silent"}


def test_window_results_of_an_older_version_are_refused_in_words(layout: Layout) -> None:
    empty = StructType().jsonValue()
    replace_json(layout.result_views("orders")[0], {"hours": {"columns": empty, "row": empty}})
    with pytest.raises(
        CheckpointError,
        match=r"result_views/orders/0 in .* an older version .* no format version, .* reads format 1",
    ):
        plain_rows(layout, "hours", 10)
