"""A small results folder, and what its status says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.monitor.book import Document
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.storage.formats import CATALOG, MANIFEST
from penstock.spark.storage.layout import Layout
from publishing import listed

BATCH = {
    "stream": "orders",
    "batch": 0,
    "tuples": 10,
    "matched": 4,
    "pairs": 5,
    "view_pairs": {"large": 5},
    "newest_event_time_us": 60_000_000,
}
NEXT = {
    "stream": "orders",
    "batch": 1,
    "tuples": 5,
    "matched": 1,
    "pairs": 1,
    "view_pairs": {"large": 1},
    "quarantined": {"malformed": 2},
}


def results_folder(tmp_path: Path) -> Layout:
    """A results folder with two published batches of one stream, the second with records set aside."""
    layout = Layout(tmp_path / "out", tmp_path / "out" / "_penstock" / "checkpoint")
    ledger = layout.open()
    views = {
        "large": {"stream": "orders", "projection": None},
        "silent": {"stream": "orders", "projection": None},
        "hours": {"stream": "orders", "id": "hours:1", "groups": []},
    }
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    layout.quarantine("orders").mkdir(parents=True)
    records = pa.table(
        {
            "record": [b"4,Oslo,much", b"\xff,\n"],
            "origin": ["1.csv"] * 2,
            "reason": ["malformed", "not UTF-8"],
        }
    )
    path = layout.quarantine("orders") / "0000000001-0-00000.parquet"
    pq.write_table(records, path)
    for figures, files in ((BATCH, []), (NEXT, [listed("quarantine", path, 2)])):
        batch = figures["batch"]
        MANIFEST.replace(
            layout.manifests("orders")[batch],
            {"first": batch, "last": batch, "files": files, "batches": [figures]},
        )
    ledger.close()
    return layout


def lines(layout: Layout) -> str:
    """What `penstock status -v` prints."""
    return "\n".join(status_lines(folder_status(layout.output), verbose=True))


def screen(layout: Layout) -> list[str]:
    """What `penstock status` prints, a line each."""
    return list(status_lines(folder_status(layout.output)))


#: a join order of which nothing was measured
_ORDER: Document = {
    **dict.fromkeys(("inputs", "selectivities", "steps", "predicates"), ()),
    **dict.fromkeys(("predicted_rate", "runner_up", "best_predicates")),
}


def large_document() -> Document:
    """The status of a live run with 250 views on three streams, some of which have problems."""
    now = datetime.now(UTC)
    recent = (now - timedelta(seconds=2)).isoformat(timespec="milliseconds")
    bound = {"epsilon": 0.05, "delta": 0.05, "absolute": False}

    def stream(number: int, rules: int, **fields: Any) -> Document:
        selections = {f"rule_{number}_{rule:03d}": 40_000 // (rule + 1) for rule in range(rules)}
        return {
            "state": "running",
            "batches": 812,
            "tuples": 4_812_377,
            "matched": 190_448,
            "tuples_per_second": 12_430.0,
            "recent": [[12_000, 0.9], [9_600, 0.8]],
            "lag": {"backlog": 0, "unit": "records"},
            "last_batch": recent,
            "newest_event_time_us": int((now - timedelta(seconds=1.4)).timestamp() * 1e6),
            "selections": dict(sorted(selections.items(), key=lambda each: -each[1])),
            **fields,
        }

    streams = {
        "payments": stream(
            1,
            120,
            quarantined={"malformed json record: amount is no DOUBLE": 17},
            errors={"rule_1_007": 212, "rule_1_090": 3},
        ),
        "devices": stream(
            2,
            80,
            state="source unreachable",
            outage={
                "since": recent,
                "source": "topic devices at kafka:9092",
                "told": "the broker does not answer",
            },
            newest_event_time_us=1_381_564_800_000_000,
            lag={"backlog": 38_400, "unit": "records"},
            failed_views={"rule_2_079": "a division by zero in `amount / 0`"},
        ),
        "logins": stream(3, 0, tuples=1, batches=1, matched=0, lag={"backlog": 1, "unit": "files"}),
    }
    views: dict[str, Document] = {}
    for number in range(40):
        standing = {"promised": number > 3, "bound": bound, "horizon": 90_000_000, "slack": 12_000_000}
        standing["coverage"] = 0.98 if number > 3 else None
        counts = {"early": 800, "corrected": 31, "final": 4 * number, "rows": 900 + number}
        views[f"hourly_{number:02d}"] = {
            **counts,
            "stream": "payments",
            "standing": standing,
            "slack_us": 12_000_000,
            "behind_seconds": 1.1,
        }
    views["hourly_07"]["not_answered"] = [800, 811]
    for number in range(6):
        views[f"in_time_{number}"] = {
            "stream": "logins",
            "created": 500,
            "released": 493,
            "missed": 7,
            "standing": {
                "constraint": {"k": 1, "m": 6},
                "violations": 2 if number == 5 else 0,
                "waiting": 0,
                "overloaded": False,
                "failing": False,
            },
        }
    for number in range(4):
        views[f"j_dev_{number}"] = {
            "streams": ["payments", "devices"],
            "rows": 12_430,
            "backlog": {"payments": 0, "devices": 0},
            "behind_seconds": 0.8,
            "standing": {**_ORDER, "measured_rate": 48.2},
        }
    trouble = {
        **{"state": "retrying", "stream": "payments", "views": ["j_dev_3"], "told": "the disk is full"},
        **{"since": recent, "attempt": 3, "tried_until": now.timestamp() + 60},
    }
    return {
        "output": "out",
        "state": "running",
        "pid": 4711,
        "started": (now - timedelta(hours=26)).isoformat(timespec="milliseconds"),
        "time": recent,
        "reason": None,
        "streams": streams,
        "views": views,
        "lanes": {"joins.3": {"trouble": trouble}},
        "news": [],
    }
