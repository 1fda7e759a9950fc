"""Writing the catalog: what readers of a results folder are told of its streams and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StructType

from penstock.operators.selection.matches import queries_name
from penstock.spark.publication.kinds import rows_of
from penstock.spark.reporting.catalog import PARTS, catalog_bases, known_catalog
from penstock.spark.reporting.definitions import IS_RUNNING, numbered
from penstock.spark.results.joined_rows import LANES
from penstock.spark.storage.bindings import RunningDefinition, ViewDefinition, WindowDefinition, members
from penstock.spark.storage.documents import encoded_member
from penstock.spark.storage.formats import EITHER_CATALOG
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.shared_maps import SharedMap
from penstock.spark.storage.unions import UNIONS

Definition = ViewDefinition | WindowDefinition


class CatalogWriter:
    """Writes the catalog of a results folder that nobody else writes; entries that do not change are encoded once.

    Args:
        layout: the folder.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[str, Any] | None = None
        self._bases = catalog_bases(layout)
        #: of the catalog that is stored next
        self._number = 1 + max(layout.catalog_bases.numbers(), default=-1)
        #: each view's entry as a member of the document
        self._texts: SharedMap[str] = SharedMap()
        #: views that are answered, by stream, with the definition that their entry has; None: it was written by an earlier run
        self._answered: dict[str, SharedMap[Definition | None]] = {}
        #: views that have a lane each
        self._of_lanes: set[str] = set()
        self._is_changed = False

    def number(
        self, stream: str, schema: StructType, definitions: Mapping[str, Definition]
    ) -> dict[str, Definition]:
        """Views of a stream, selections with the numbers of their definitions, which the catalog has, durable on return.

        To be called before any batch is bound to them.
        """
        known = self._read()
        found: dict[str, Definition] = {}
        for name, definition in definitions.items():
            found[name] = definition
            if isinstance(definition, ViewDefinition):
                before = known["views"].get(name)
                entry = numbered({**members(definition), "stream": stream}, before)
                columns = entry["columns"]
                stored = None if columns is None else tuple(columns)
                if (entry["number"], stored) != (definition.number, definition.columns):
                    found[name] = replace(definition, number=entry["number"], columns=stored)
                if before is None or _stored_as(before) != _stored_as(entry):
                    self._set(name, entry)
        if self._is_changed:
            known["streams"].setdefault(stream, schema.jsonValue())
            self._store()
        return found

    def set_rules(self, files: Mapping[str, Sequence[str]]) -> bool:
        """Takes in which views files of rules declare, names by file; returns whether the next `write` has something new."""
        known = self._read()
        is_new = files != known.get("rules")
        known["rules"] = files
        self._is_changed |= is_new
        return is_new

    def write(
        self,
        streams: Mapping[str, StructType],
        views: Mapping[str, Mapping[str, Definition]],
        of_lanes: Sequence[dict[str, Any]] = (),
        parts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Tells readers of the folder which streams and views there are; dropped views stay readable.

        Args:
            streams: their columns, by name.
            views: those on each stream, and on the rows of each view.
            of_lanes: the entries of the views that have a lane each.
            parts: by stream the folder or the topics that it reads, see `Probe`.
        """
        known = self._read()
        for name, own in (parts or {}).items():
            if known.setdefault(PARTS, {}).get(name) != [*own]:
                known[PARTS][name] = [*own]
                self._is_changed = True
        queries = known.setdefault("queries", {})
        for name, schema in streams.items():
            said = schema.jsonValue(), queries_name(schema.fieldNames())
            if said != (known["streams"].get(name), queries.get(name)):
                known["streams"][name], queries[name] = said
                self._is_changed = True
        # views over window views, joins and UNION ALL, all of which are gone
        over = tuple(rows_of(stream, "") for stream in (*streams, JOINS.name, UNIONS.name))
        for stream in self._answered:
            if stream.startswith(over) and stream not in views:
                self._answer(stream, {})
        for stream, definitions in views.items():
            self._answer(stream, definitions)
        answered = {entry["name"]: entry for entry in of_lanes}
        for name in self._of_lanes - answered.keys():
            if LANES in known["views"][name]:
                self._drop(name)
        for name, entry in answered.items():
            self._set(name, numbered(entry, known["views"].get(name)))
        self._of_lanes = set(answered)
        if self._is_changed:
            self._store()

    def _answer(self, stream: str, definitions: Mapping[str, Definition]) -> None:
        """Brings the entries of a stream's views to what these are now."""
        views, before = self._read()["views"], self._answered.get(stream, SharedMap())
        now: SharedMap[Definition | None] = SharedMap.of(definitions)
        changes = now.changes_since(before)
        for name in changes.gone:
            if views[name].get("stream") == stream:
                self._drop(name)
        for name in changes.others:
            definition = definitions[name]
            kind = {IS_RUNNING: True} if isinstance(definition, RunningDefinition) else {}
            entry = {**members(definition), "stream": stream, **kind}
            self._set(name, numbered(entry, views.get(name)))
        self._answered[stream] = now

    def _set(self, name: str, entry: dict[str, Any]) -> None:
        text = encoded_member(name, entry)
        if self._texts.get(name) != text:
            self._read()["views"][name] = entry
            self._texts[name] = text
            self._is_changed = True

    def _drop(self, name: str) -> None:
        entry = self._read()["views"][name]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._set(name, {**entry, "dropped": now})

    def _store(self) -> None:
        others = {name: value for name, value in self._read().items() if name != "views"}
        document = {**others, **self._bases.members(self._number, self._texts)}
        EITHER_CATALOG.of(document).replace(self._layout.catalog, document)
        self._bases.forget([self._number])
        self._number += 1
        self._is_changed = False

    def _read(self) -> dict[str, Any]:
        """The catalog as it was written last."""
        if self._known is None:
            found = known_catalog(self._layout)
            self._is_changed = found is None
            self._known = found or {"streams": {}, "views": {}}
            for name, entry in self._known["views"].items():
                self._texts[name] = encoded_member(name, entry)
                if "dropped" in entry:
                    continue
                if LANES in entry:
                    self._of_lanes.add(name)
                else:
                    self._answered.setdefault(entry.get("stream", ""), SharedMap())[name] = None
        return self._known


def _stored_as(entry: Mapping[str, Any]) -> tuple[Any, Any]:
    """The number and the columns that matches of a selection have."""
    columns = entry.get("columns")
    return entry.get("number"), columns if columns is None else list(columns)
