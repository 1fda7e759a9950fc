"""A results folder for the page, made without Spark, and the page's server in a thread."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StringType, StructType

from penstock.page.asking import Script
from penstock.page.listening import Place, Rules, listen
from penstock.page.server import PageServer
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.formats import CATALOG, MANIFEST
from penstock.spark.storage.layout import Layout
from publishing import listed

#: names that a page must show as text
SCRIPT, QUOTED, LONG = "<script>alert(1)</script>", "a\"b'c/../d?e#f&g", "n" * 10_000
SLOW_SECONDS = 60.0


def event(second: int, kind: str, **fields: Any) -> bytes:
    """A line of `events.jsonl`."""
    return (
        json.dumps({"time": f"2026-01-01T00:00:{second:02}.000+00:00", "kind": kind, **fields}).encode()
        + b"\n"
    )


def batch(number: int, **fields: Any) -> bytes:
    """The line of a batch of 10 tuples."""
    counts = {"tuples": 10, "matched": 4, "pairs": 5, "newest_event_time_us": number * 60_000_000}
    return event(number + 1, "batch", stream="orders", batch=number, run_seconds=0.5, **{**counts, **fields})


def page_folder(folder: Path, views: Mapping[str, Mapping[str, Any]] | None = None) -> Layout:
    """A results folder of a stream `orders` with two batches: selections with hostile names, rows, and records set aside."""
    layout = Layout(folder, folder / "_penstock" / "checkpoint")
    ledger = layout.open()
    stream = StructType().add("id", LongType()).add("note", StringType())
    names = ["large", "silent", SCRIPT, QUOTED, LONG]
    plain = {
        name: {
            "stream": "orders",
            "projection": None,
            "condition": "id > 1 AND note = '<b>'",
            "sql": f"SELECT * FROM orders WHERE id > 1 AND note = '<b>' -- {name}",
        }
        for name in names
    }
    CATALOG.replace(
        layout.catalog, {"streams": {"orders": json.loads(stream.json())}, "views": views or plain}
    )
    matches, aside = layout.matches("orders"), layout.quarantine("orders")
    matches.mkdir(parents=True)
    aside.mkdir(parents=True)
    for number in (0, 1):
        rows = {
            "id": np.arange(5) + 5 * number,
            "note": ["<script>", LONG, None, "plain", '"quoted"'],
            "queries": [["large"], ["large", SCRIPT], ["large", QUOTED], ["large"], ["large", LONG]],
        }
        pq.write_table(pa.table(rows), matches / f"{number}.parquet")
        records = {
            "record": [b"<script>\xff" * (1 + 2000 * number)],
            "origin": ["1.csv"],
            "reason": ["malformed"],
        }
        pq.write_table(pa.table(records), aside / f"{number}.parquet")
        files = [
            listed("matches", matches / f"{number}.parquet", 5),
            listed("quarantine", aside / f"{number}.parquet", 1),
        ]
        figures = {"batch": number, "tuples": 10, "matched": 4, "pairs": 5, "quarantined": {"malformed": 1}}
        figures["view_pairs"] = {"large": 5, SCRIPT: 1, QUOTED: 1, LONG: 1}
        MANIFEST.replace(
            layout.manifests("orders")[number],
            {"first": number, "last": number, "files": files, "batches": [figures]},
        )
    ledger.close()
    replace_json(layout.status, {"version": 1, "state": "running"})
    layout.events.write_bytes(
        event(0, "run_started")
        + batch(0, quarantined={"malformed": 1})
        + batch(1, quarantined={"malformed": 1})
    )
    return layout


@dataclass(frozen=True)
class Answered:
    """An answer of the page."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """What it says."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Page:
    """A page that is served in this process.

    Attributes:
        port: on loopback.
        address: as it is printed.
    """

    port: int
    address: str

    def connection(self) -> http.client.HTTPConnection:
        """A new connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SLOW_SECONDS)

    def get(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answered:
        """The answer to one request; `_` in names of headers is `-`."""
        connection = self.connection()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answered(response.status, found, response.read())
        finally:
            connection.close()

    def of(self, kind: str, name: str) -> Answered:
        """The answer to an address with a name."""
        return self.get(f"/api/{kind}/{quote(name, safe='')}")


@contextmanager
def served(
    folder: Path,
    token: str | None = None,
    *,
    is_loopback: bool = True,
    awaits: bool = False,
    metrics_alone: bool = False,
    script: Script | None = None,
) -> Iterator[Page]:
    """The page of a folder, served by uvicorn in a thread."""
    with listen("127.0.0.1", 0) as listening:
        place = Place(listening, Rules(token, is_loopback), metrics_alone)
        server = PageServer(folder, [place], awaits=awaits, script=script)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Page(listening.getsockname()[1], place.address)
        finally:
            server.should_exit = True
            thread.join(SLOW_SECONDS)
            assert not thread.is_alive()
