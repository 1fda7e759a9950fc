"""The metrics of a results folder: values, types, bounded numbers of series, and counters that never go down."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from penstock.monitor.book import Document
from penstock.monitor.folder import folder_status
from penstock.page.metrics import MOST, MOST_REASONS, OTHER, Exposition
from penstock.spark.publication.kinds import results_of
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from status_cases import BATCH, large_document, results_folder

pytestmark = pytest.mark.usefixtures("own_commits")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
_HOSTILE = '<script>alert("x")</script>\\\n' + "x" * 10_000 + "\ud800"


@dataclass(frozen=True)
class _Known:
    document: Document
    error: str | None = None


def _text(document: Document, accepted: str = "") -> str:
    return (
        Exposition(lambda: _Known(document), lambda views: dict.fromkeys(views, 0.97))
        .answer(accepted)[0]
        .decode()
    )


def _families(document: Document) -> dict[str, Metric]:
    return {family.name: family for family in parsed(_text(document))}


def _series(document: Document) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in _families(document).values()
        for sample in family.samples
    }


def _value(document: Document, name: str, **labels: str) -> float:
    return _series(document)[name, frozenset(labels.items())]


def _counters(document: Document) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in _families(document).values()
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def _record_batch(log: EventLog, number: int, **fields: object) -> None:
    parts = {"bind_seconds": 0.1, "run_seconds": 0.3, "publish_seconds": 0.0}
    log.record("batch", **{**BATCH, "batch": number, **parts, **fields})


def test_a_stream_has_its_counts_and_durations(layout: Layout) -> None:
    log = EventLog(layout.events)
    _record_batch(log, 2, quarantined={"malformed": 1}, errors={"large": 3}, null_event_times=2)
    document = folder_status(layout.output)
    assert _value(document, "penstock_tuples_total", stream="orders") == 25
    assert _value(document, "penstock_matched_tuples_total", stream="orders") == 9
    assert _value(document, "penstock_matches_total", stream="orders") == 11
    assert _value(document, "penstock_batches_total", stream="orders") == 3
    assert _value(document, "penstock_quarantined_records_total", stream="orders", reason="malformed") == 3
    assert _value(document, "penstock_expression_errors_total", stream="orders") == 3
    assert _value(document, "penstock_unusable_event_times_total", stream="orders", cause="null") == 2
    assert _value(document, "penstock_newest_event_timestamp_seconds", stream="orders") == 60
    assert _value(document, "penstock_batch_duration_seconds_bucket", stream="orders", le="0.25") == 0
    assert _value(document, "penstock_batch_duration_seconds_bucket", stream="orders", le="0.5") == 1
    assert _value(document, "penstock_batch_duration_seconds_bucket", stream="orders", le="+Inf") == 1
    assert _value(document, "penstock_batch_duration_seconds_count", stream="orders") == 1
    assert _value(document, "penstock_batch_duration_seconds_sum", stream="orders") == pytest.approx(0.4)
    assert _value(document, "penstock_run_state", state="never started") == 1
    assert _value(document, "penstock_views", kind="selection") == 2


def test_views_have_the_metrics_of_their_kind() -> None:
    document = large_document()
    assert _value(document, "penstock_window_answers_total", view="hourly_03", answer="final") == 12
    assert _value(document, "penstock_window_slack_seconds", view="hourly_03") == 12
    assert _value(document, "penstock_window_promise_active", view="hourly_03") == 0
    assert _value(document, "penstock_window_promise_active", view="hourly_04") == 1
    assert _value(document, "penstock_window_max_error_probability", view="hourly_04") == 0.05
    assert _value(document, "penstock_window_within_bound_ratio", view="hourly_04") == 0.97
    assert _value(document, "penstock_window_coverage_ratio", view="hourly_04") == 0.98
    assert ("penstock_window_coverage_ratio", frozenset({("view", "hourly_03")})) not in _series(document)
    assert _value(document, "penstock_view_batches_behind", view="hourly_07") == 12
    assert _value(document, "penstock_deadline_windows_total", view="in_time_5", outcome="missed") == 7
    assert _value(document, "penstock_broken_loss_promises_total", view="in_time_5") == 2
    assert _value(document, "penstock_loss_allowance", view="in_time_5") == 1
    assert _value(document, "penstock_result_rows_total", view="j_dev_1") == 12_430
    assert _value(document, "penstock_join_rows_per_second", view="j_dev_1", source="measured") == 48.2
    assert _value(document, "penstock_lane_up", lane="joins.3") == 0
    assert _value(document, "penstock_stream_up", stream="devices") == 0
    assert _value(document, "penstock_backlog", stream="devices", unit="records") == 38_400
    assert ("penstock_window_answers_total", "j_dev_1") not in {
        (name, dict(labels).get("view")) for name, labels in _series(document)
    }


def test_late_tuples_are_counted_once_whoever_tells_of_them(layout: Layout) -> None:
    """The batches of windows 0 and 1 are told by their manifests, the later ones by events, the newest by both."""
    for batch in (0, 1, 2):
        figures = {"batch": batch, "views": {}, "late_tuples": 5, "late_beyond": 2}
        document = {"first": batch, "last": batch, "files": [], "batches": [figures]}
        MANIFEST.replace(layout.manifests(results_of("orders"))[batch], document)
    log = EventLog(layout.events)
    for batch in (2, 3):
        log.record("windows", stream="orders", batch=batch, views={}, late_tuples=5, late_beyond=2)
    document = folder_status(layout.output)
    late = {
        final: _value(document, "penstock_late_tuples_total", stream="orders", is_final=final)
        for final in ("no", "yes")
    }
    assert late == {"no": 12, "yes": 8}


def test_neither_a_new_run_nor_a_killed_one_makes_a_counter_go_down(layout: Layout) -> None:
    seen: list[Series] = []
    for run in range(3):
        status = StatusFile(layout, dict, every_seconds=60)
        log = EventLog(layout.events, told=status.book.note)
        log.record("run_started")
        seen.append(_counters(folder_status(layout.output)))
        status.begin_stream("orders")
        _record_batch(log, 2 + 2 * run, quarantined={f"reason {run}: of a file": 2})
        log.record("decision", stream="orders", action="SwapSequence", reason="faster")
        status.close()
        # of a run that is killed the document lacks the newest
        _record_batch(log, 3 + 2 * run)
        log.record("stream_retried", stream="orders")
        log.record("lane_retried", lane="joins.0", stream="orders")
        seen.append(_counters(folder_status(layout.output)))
    for before, after in pairwise(seen):
        assert [name for name, value in before.items() if after.get(name, -1.0) < value] == []
    assert seen[-1]["penstock_stream_retries_total", frozenset({("stream", "orders")})] == 3
    assert seen[-1]["penstock_batch_duration_seconds_count", frozenset({("stream", "orders")})] == 6


def test_the_number_of_series_does_not_grow_with_views_reasons_and_names() -> None:
    window = {
        "stream": "s",
        "early": 3,
        "final": 2,
        "rows": 9,
        "slack_us": 1_000_000,
        "standing": {"open": 1},
    }
    document: Document = {
        "output": "out",
        "state": "running",
        "news": [],
        "streams": {
            "s": {
                "state": "running",
                "selections": dict.fromkeys((f"rule_{number}" for number in range(100_000)), 1),
                "errors": {f"rule_{number}": 1 for number in range(100_000)},
                "quarantined": {f"reason {number}: of a file": 2 for number in range(60)},
            }
        },
        "views": {f"view_{number}": dict(window) for number in range(500)},
        "lanes": {f"joins.{number}": {"behind_seconds": 1.0} for number in range(500)},
    }
    series = _series(document)
    assert len(series) < 6_000
    assert len({dict(labels).get("view") for _, labels in series} - {None}) == MOST + 1
    assert _value(document, "penstock_window_answers_total", view=OTHER, answer="early") == 3 * (500 - MOST)
    assert ("penstock_window_slack_seconds", frozenset({("view", OTHER)})) not in series
    assert _value(document, "penstock_views", kind="selection") == 100_000
    assert _value(document, "penstock_expression_errors_total", stream="s") == 100_000
    reasons = {
        dict(labels)["reason"] for name, labels in series if name == "penstock_quarantined_records_total"
    }
    assert reasons == {*(f"reason {number}" for number in range(MOST_REASONS)), OTHER}
    other = _value(document, "penstock_quarantined_records_total", stream="s", reason=OTHER)
    assert other == 2 * (60 - MOST_REASONS)


def test_a_view_more_or_a_dropped_one_moves_no_other_view() -> None:
    document = large_document()
    document["views"] = {
        f"view_{number:03d}": {"stream": "payments", "early": 1, "standing": {"open": 1}}
        for number in range(MOST + 5)
    }
    before = _counters(document)
    document["views"]["a_new_one"] = {"stream": "payments", "early": 0}
    document["views"]["view_000"]["dropped"] = datetime.now(UTC).isoformat()
    assert _counters(document) == before
    assert ("penstock_open_windows", frozenset({("view", "view_000")})) not in _series(document)


def test_hostile_names_are_labels_of_bounded_length() -> None:
    document = large_document()
    document["streams"][_HOSTILE] = {"state": "running", "tuples": 7, "quarantined": {_HOSTILE: 1}}
    document["views"][_HOSTILE] = {"stream": "payments", "early": 1}
    labels = [label for _, each in _series(document) for _, label in each]
    assert [label for label in labels if label.startswith("<script>")]
    assert max(map(len, labels)) <= 300


@pytest.mark.parametrize("state", ["ended", "dead"])
def test_of_a_run_that_is_over_the_counters_remain(state: str) -> None:
    document = {**large_document(), "state": state}
    names = set(_families(document))
    assert {"penstock_tuples", "penstock_window_answers", "penstock_deadline_windows"} <= names
    assert _value(document, "penstock_run_state", state=state) == 1
    samples = {name for name, _ in _series(document)}
    assert not samples & {"penstock_stream_up", "penstock_stream_lag_seconds", "penstock_lane_behind_seconds"}


def test_both_formats_can_be_read_and_say_what_each_metric_is() -> None:
    document = large_document()
    accepted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    assert (
        Exposition(lambda: _Known(document), lambda views: dict.fromkeys(views, 0.97))
        .answer(accepted)[1]
        .startswith("application/openmetrics-text")
    )
    told = {family.name: family for family in open_metrics(_text(document, accepted))}
    assert set(told) >= {"penstock_tuples", "penstock_batch_duration_seconds", "penstock_run"}
    assert all(family.documentation for family in told.values())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_no_fault_with_names_and_units(layout: Layout) -> None:
    _record_batch(EventLog(layout.events), 2, quarantined={"malformed": 1})
    for document in (large_document(), folder_status(layout.output)):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=_text(document),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
