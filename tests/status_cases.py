"""A small results folder, and what its status says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.storage.formats import CATALOG, MANIFEST
from penstock.spark.storage.layout import Layout

BATCH = {
    "stream": "orders",
    "batch": 0,
    "tuples": 10,
    "matched": 4,
    "pairs": 5,
    "newest_event_time_us": 60_000_000,
}
NEXT = {
    "stream": "orders",
    "batch": 1,
    "tuples": 5,
    "matched": 1,
    "pairs": 1,
    "quarantined": {"malformed": 2},
}


def results_folder(tmp_path: Path) -> Layout:
    """A results folder with two published batches of one stream, the second with records set aside."""
    layout = Layout(tmp_path / "out", tmp_path / "out" / "_penstock" / "checkpoint")
    layout.open()
    views = {
        "large": {"stream": "orders", "projection": None},
        "silent": {"stream": "orders", "projection": None},
        "hours": {"stream": "orders", "id": "hours:1", "groups": []},
    }
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    aside = {"kind": "quarantine", "name": "0000000001-0-00000.parquet", "rows": 2}
    for figures, files in ((BATCH, []), (NEXT, [aside])):
        batch = figures["batch"]
        MANIFEST.replace(
            layout.manifests("orders") / f"{batch}.json",
            {"first": batch, "last": batch, "files": files, "batches": [figures]},
        )
    layout.quarantine("orders").mkdir(parents=True)
    records = pa.table(
        {
            "record": [b"4,Oslo,much", b"\xff,\n"],
            "origin": ["1.csv"] * 2,
            "reason": ["malformed", "not UTF-8"],
        }
    )
    pq.write_table(records, layout.quarantine("orders") / str(aside["name"]))
    return layout


def lines(layout: Layout) -> str:
    """What `penstock status` prints."""
    return "\n".join(status_lines(folder_status(layout.output)))
