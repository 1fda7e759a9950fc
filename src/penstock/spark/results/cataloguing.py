"""Writing the catalog: what readers of a results folder are told of its streams and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StructType

from penstock.operators.selection.matches import queries_name
from penstock.spark.publication.kinds import rows_of
from penstock.spark.reporting.catalog import known_catalog
from penstock.spark.reporting.definitions import numbered
from penstock.spark.results.joined_rows import LANES, catalog_entry
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.joins import JOINS_NAME, RegisteredJoin
from penstock.spark.storage.layout import Layout

Definition = ViewDefinition | WindowDefinition


def number_definitions(
    layout: Layout, stream: str, schema: StructType, definitions: Mapping[str, Definition]
) -> dict[str, Definition]:
    """Views of a stream, selections with the numbers of their definitions, which the catalog has, durable on return.

    To be called before any batch is bound to them.
    """
    known = _read(layout)
    found: dict[str, Definition] = {}
    is_new = False
    for name, definition in definitions.items():
        found[name] = definition
        if isinstance(definition, ViewDefinition):
            before = known["views"].get(name)
            entry = numbered({**asdict(definition), "stream": stream}, before)
            found[name] = replace(definition, number=entry["number"])
            if before is None or before.get("number") != entry["number"]:
                known["views"][name], is_new = entry, True
    if is_new:
        known["streams"].setdefault(stream, schema.jsonValue())
        CATALOG.replace(layout.catalog, known)
    return found


def write_catalog(
    layout: Layout,
    streams: Mapping[str, StructType],
    views: Mapping[str, Mapping[str, Definition]],
    joins: Sequence[RegisteredJoin] = (),
) -> None:
    """Tells readers of the folder which streams and views there are; dropped views stay readable."""
    known = _read(layout)
    for name, schema in streams.items():
        known["streams"][name] = schema.jsonValue()
        known.setdefault("queries", {})[name] = queries_name(schema.fieldNames())
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # views over window views and joins, all of which are gone
    over = tuple(rows_of(stream, "") for stream in (*streams, JOINS_NAME))
    for entry in known["views"].values():
        stream = entry.get("stream", "")
        if stream.startswith(over) and stream not in views:
            entry.setdefault("dropped", now)
    for stream, definitions in views.items():
        for name, entry in known["views"].items():
            if entry.get("stream") == stream and name not in definitions:
                entry.setdefault("dropped", now)
        for name, definition in definitions.items():
            entry = {**asdict(definition), "stream": stream}
            known["views"][name] = numbered(entry, known["views"].get(name))
    answered = {
        each.definition.name: numbered(catalog_entry(each), known["views"].get(each.definition.name))
        for each in joins
    }
    for name, entry in known["views"].items():
        if LANES in entry and name not in answered:
            entry.setdefault("dropped", now)
    known["views"].update(answered)
    CATALOG.replace(layout.catalog, known)


def _read(layout: Layout) -> dict[str, Any]:
    return known_catalog(layout) or {"streams": {}, "views": {}}
