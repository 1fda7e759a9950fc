"""A results folder without Spark, published batch by batch, and followers of its views."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from penstock.settings import Settings
from penstock.spark.analysis.schemas import spark_schema, spark_type
from penstock.spark.log.appended import Appended
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.retention import FOREVER, Retention
from penstock.spark.results.window_schemas import MARKS, ROW
from penstock.spark.sinks.declared import Sink, SinkView, table_sink
from penstock.spark.sinks.follower import FollowerContext
from penstock.spark.sinks.followers import Followers
from penstock.spark.sinks.marks import Marks
from penstock.spark.sinks.published import Publications
from penstock.spark.sources.outside_values import filled
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import CATALOG, RESULT_VIEWS
from penstock.spark.storage.layout import Layout
from penstock.sql.script.statements import CreateTable
from publishing import stored

STREAM, SELECTION, WINDOWS = "orders", "large", "by_city"
MOMENT = pa.timestamp("us", "UTC")
TUPLES = pa.schema([("id", pa.int64()), ("city", pa.string()), ("amount", pa.float64())])
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
OWN = pa.schema([("city", pa.string()), ("w", WINDOW), ("n", pa.int64())])
_ROW = pa.struct([("start", MOMENT), ("end", MOMENT), ("k0", pa.string())])
_OPERATOR = 3
#: (city, start of the window in seconds, n, whether it is final, whether it is withdrawn)
Revision = tuple[str | None, int, int, bool, bool]
CUTS: list[list[Revision]] = [
    [("a", 0, 1, False, False), ("b", 0, 7, False, False), (None, 0, 3, False, False)],
    [("a", 0, 2, True, False), ("a", 60, 1, False, False), ("b", 0, 0, False, True)],
    [("a", 0, 9, False, False), ("b", 0, 8, True, False), (None, 0, 4, True, False)],
    [
        ("a", 60, 5, False, False),
        ("a", 60, 6, True, False),
        ("c", 0, 1, False, False),
        ("c", 0, 0, False, True),
    ],
    [("a", 0, 0, False, True), ("a", 60, 0, True, True)],
]


class Folder:
    """The results of one selection and one window view.

    Args:
        output: the results folder.
        compact_every: so many batches are merged; 0: none are.
        spark: the session that sinks are declared in; most need none.
        retention: how long rows are kept.
    """

    def __init__(
        self, output: Path, compact_every: int = 0, retention: Retention = FOREVER, spark: Any = None
    ) -> None:
        self._spark = spark or SimpleNamespace()
        self.layout = Layout.of(output, None)
        self.ledger = self.layout.open()
        self.events = EventLog(self.layout.events)
        self.published = Appended()
        self._every = compact_every
        owner = results_of(STREAM)
        self._matches = Publisher(self.layout, STREAM, grace_seconds=0, retention=retention)
        self._results = Publisher(self.layout, owner, (), owner=owner, grace_seconds=0, retention=retention)
        self._next = 1 + Publications(self.layout).last(STREAM)
        self._next_result = 1 + Publications(self.layout).last(results_of(STREAM))
        selection = {"name": SELECTION, "id": "a", "sql": "", "condition": "TRUE", "projection": None}
        window = {"name": WINDOWS, "id": "b", "sql": ""}
        views = {
            SELECTION: {**selection, "stream": STREAM, "number": 1},
            WINDOWS: {**window, "stream": STREAM, "number": 1},
        }
        streams = {STREAM: spark_schema(TUPLES).jsonValue()}
        CATALOG.replace(self.layout.catalog, {"streams": streams, "views": views})
        described = {
            "columns": spark_schema(OWN).jsonValue(),
            "row": spark_type(_ROW).jsonValue(),
            "definition": "b",
            "floor": None,
        }
        RESULT_VIEWS.put(self.layout.result_views(STREAM)[_OPERATOR], {"views": {WINDOWS: described}})

    def redefine(self) -> None:
        """Gives the selection a second definition."""
        catalog = CATALOG.read(self.layout.catalog)
        assert catalog is not None, "put at the beginning"
        before = catalog["views"][SELECTION]
        after = {**before, "id": "c", "condition": "id > 1", "number": 2, "others": [before]}
        views = {**catalog["views"], SELECTION: after}
        CATALOG.replace(self.layout.catalog, {**catalog, "views": views})

    def match(self, *batches: Sequence[int], bytes_a_row: int = 0, definition: int = 1) -> None:
        """Publishes batches of matches, of tuples with these ids; negative ones are rows of another view."""
        for ids in batches:
            cities = [f"city {abs(each) % 3}{'x' * bytes_a_row}" for each in ids]
            table = pa.table(
                [pa.array(ids, pa.int64()), pa.array(cities), pa.array([each / 2 for each in ids])],
                schema=TUPLES,
            )
            queries = pa.array([[SELECTION if each >= 0 else "other"] for each in ids], pa.list_(pa.string()))
            table = table.append_column("queries", queries)
            numbers = [None if definition == 1 else [definition]] * len(ids)
            table = table.append_column("__penstock_definitions", pa.array(numbers, pa.list_(pa.int32())))
            number, self._next = self._next, self._next + 1
            self._matches.begin(number)
            files = [stored(self.layout, STREAM, number, "matches", table)] if ids else []
            self._matches.publish(number, files, {"batch": number, "plan": 0})
            self._matches.compact_if_due(number, self._every, self.events)
            self.published.tell()

    def answer(self, *cuts: Sequence[Revision]) -> None:
        """Publishes cuts of revisions of windows."""
        for revisions in cuts:
            number, self._next_result = self._next_result, self._next_result + 1
            owner, kind = results_of(STREAM), view_kind(_OPERATOR, WINDOWS)
            self._results.begin(number)
            files = [stored(self.layout, owner, number, kind, _revised(revisions, number), owner=owner)]
            self._results.publish(number, files, {"batch": number, "whole": []})
            self._results.compact_if_due(number, self._every, self.events)
            self.published.tell()

    def remove_old(self, now: float) -> None:
        """Lets rows leave that are too old at a time, seconds since the epoch."""
        for each in (self._matches, self._results):
            # waits for files that are being written
            each.compact(-1)
            each.remove_old(self.events, now)

    def view(self, name: str) -> SinkView:
        """A view as a sink's declaration needs it."""
        if name == SELECTION:
            return SinkView(name, TUPLES, None, has_windows=False, changes=False)
        return SinkView(name, OWN, ("city", "w"), has_windows=True, changes=True)

    def sink(self, kind: str, view: str = SELECTION, name: str = "target", **options: str) -> Sink:
        """A sink as INSERT INTO declares it."""
        table = CreateTable(name, (), kind, options, 0, 1, f"CREATE TABLE {name}")
        return table_sink(self._spark, filled(table), self.view(view), "SELECT")

    def sink_of(self, table: CreateTable) -> Sink:
        """A sink of the selection as a statement declares it."""
        return table_sink(self._spark, filled(table), self.view(SELECTION), "SELECT")

    def followers(
        self, is_over: Callable[[], bool], is_bounded: bool = True, **settings: Any
    ) -> tuple[Followers, dict[str, dict[str, Any]]]:
        """Followers of a run, and where they tell how far they have come."""
        told: dict[str, dict[str, Any]] = {}

        def tell(name: str, figures: Mapping[str, Any]) -> None:
            told.setdefault(name, {}).update(figures)

        context = FollowerContext(
            SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None)),  # type: ignore[arg-type]
            self.layout,
            self.events,
            Settings(**{"retry_seconds": 0.01, **settings}),
            is_bounded,
            is_over,
            Publications(self.layout),
            Marks(),
            self.published,
            Appended(),
            tell,
        )
        return Followers(context), told

    def deliver(self, *sinks: Sink, **settings: Any) -> None:
        """Lets sinks deliver what is published now.

        Raises:
            AssertionError: one could not.
        """
        followers, _ = self.followers(lambda: True, **settings)
        followers.set(sinks)
        followers.start()
        assert followers.join(time.monotonic() + 120)
        assert followers.failed == [], followers.failed

    @contextmanager
    def following(self, *sinks: Sink) -> Iterator[dict[str, dict[str, Any]]]:
        """Sinks of a run that lasts as long as the block; gives what they tell."""
        followers, told = self.followers(lambda: False, is_bounded=False)
        followers.set(sinks)
        followers.start()
        try:
            yield told
        finally:
            followers.stop()

    def close(self) -> None:
        """Ends the run."""
        self._matches.close()
        self._results.close()
        self.events.close()
        self.ledger.close()


def _revised(revisions: Sequence[Revision], number: int) -> pa.Table:
    rows = []
    for city, start, n, is_final, is_gone in revisions:
        window = {"start": start * 1_000_000, "end": (start + 60) * 1_000_000}
        rows.append(
            {
                "city": city,
                "w": window,
                "n": None if is_gone else n,
                "revision": number,
                "coverage": 1.0,
                "slack": 0.0,
                "is_final": is_final,
                "op": "delete" if is_gone else "upsert",
                ROW: {**window, "k0": city},
            }
        )
    return pa.Table.from_pylist(rows, pa.schema([*OWN, *MARKS, (ROW, _ROW)]))


def newest(revisions: Sequence[Sequence[Revision]]) -> dict[tuple[str | None, int], tuple[int, bool]]:
    """What `results` gives of revisions: (n, is_final) by city and start of the window."""
    found: dict[tuple[str | None, int], tuple[int, bool, bool]] = {}
    for cut in revisions:
        for city, start, n, is_final, is_gone in cut:
            known = found.get((city, start))
            if known is None or is_final or not known[1]:
                found[city, start] = n, is_final, is_gone
    return {key: (n, is_final) for key, (n, is_final, is_gone) in found.items() if not is_gone}


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
