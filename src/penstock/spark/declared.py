"""What has been declared to an engine: tables, streams, views and sinks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.errors import InputError, SqlError, UnknownNameError, UnsupportedError
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.derived.views import DerivedView
from penstock.spark.sinks import Sink
from penstock.spark.sources.probes import Probe
from penstock.spark.sources.rule_files import RuleFiles
from penstock.spark.sources.source import Source
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.sql.joins.inputs import Relation
from penstock.sql.script.rules import RefusedRule, Rule
from penstock.sql.script.script import CreateTable, CreateViews, Query, Script, sources_of
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import WindowQuery


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A declared stream; `probe` looks at its source from beside the batches, where that can be done."""

    source: Source
    host: SparkExpressionHost
    probe: Probe | None = None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A declared view.

    Attributes:
        stream: its stream, the first one of a join; of a window view over another view, the rows of that.
        query: its query as written.
        definition: its definition over the stream.
        derived: what is known of it besides where it is a window view over another view.
    """

    stream: str
    query: Query
    definition: ViewDefinition | WindowDefinition | JoinDefinition | DeadlineDefinition
    derived: DerivedView | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """The views of a CREATE VIEWS statement.

    Attributes:
        files: the files; they may have changed since.
        views: the rules in force, by the name of their view.
        refused: what was not declared, and why.
    """

    files: RuleFiles
    views: Mapping[str, Rule] = field(default_factory=dict)
    refused: tuple[RefusedRule, ...] = ()


@dataclass(slots=True, eq=False)
class Declared:
    """Everything declared so far; names keep their case and are found without it."""

    tables: dict[str, CreateTable] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    statics: dict[str, StaticTable] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    #: by the path of their CREATE VIEWS statement
    rules: dict[str, RuleSet] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)
    #: by the view, table or stream they are about
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def copy(self) -> Declared:
        """A copy to change; a mistake half way then leaves nothing behind."""
        return Declared(
            dict(self.tables),
            dict(self.streams),
            dict(self.statics),
            dict(self.views),
            dict(self.rules),
            list(self.sinks),
            dict(self.warnings),
        )

    @property
    def names(self) -> dict[str, str]:
        """All names that are taken, each with what has it: `table`, `stream` or `view`."""
        return {
            **dict.fromkeys(self.views, "view"),
            **dict.fromkeys(self.streams, "stream"),
            **dict.fromkeys(self.tables, "table"),
        }

    @property
    def texts(self) -> dict[str, str]:
        """The text of every view."""
        return {name: view.definition.sql for name, view in self.views.items()}

    def on(self, stream: str) -> dict[str, ViewDefinition | WindowDefinition]:
        """The selection and window views on a stream, those with a deadline apart."""
        return {
            name: view.definition
            for name, view in self.views.items()
            if view.stream == stream and isinstance(view.definition, ViewDefinition | WindowDefinition)
        }

    @property
    def joins(self) -> dict[str, JoinDefinition]:
        """The join views."""
        return {
            name: view.definition
            for name, view in self.views.items()
            if isinstance(view.definition, JoinDefinition)
        }

    @property
    def relations(self) -> list[Relation]:
        """The streams and static tables, as join views see them."""
        streams = (
            Relation(name, tuple(stream.source.schema.fieldNames()), stream.source.event_time)
            for name, stream in self.streams.items()
        )
        tables = (
            Relation(name, tuple(table.schema.fieldNames()), None, True)
            for name, table in self.statics.items()
        )
        return [*streams, *tables]

    @property
    def deadlines(self) -> dict[str, tuple[str, DeadlineDefinition]]:
        """The views with a deadline, each with the stream it is on."""
        return {
            name: (view.stream, view.definition)
            for name, view in self.views.items()
            if isinstance(view.definition, DeadlineDefinition)
        }

    def reading(self, stream: str) -> list[str]:
        """The names of all views that read a stream: those on it, joins of it and those with a deadline."""
        return [
            *self.on(stream),
            *(view for view, each in self.joins.items() if stream in each.streams),
            *(view for view, (on, _) in self.deadlines.items() if on == stream),
        ]

    @property
    def mapped(self) -> set[str]:
        """The streams whose tuples are read from their logs: by join views and views with a deadline."""
        joined = {stream for definition in self.joins.values() for stream in definition.streams}
        return joined.union(stream for stream, _ in self.deadlines.values())

    @property
    def derived(self) -> dict[tuple[str, str], dict[str, DerivedView]]:
        """The window views over other views, by the stream and the name of that one; that of a join view is `JOINS_NAME`."""
        found: dict[tuple[str, str], dict[str, DerivedView]] = {}
        for name, view in self.views.items():
            if (derived := view.derived) is not None:
                found.setdefault((derived.stream, derived.view), {})[name] = derived
        return found

    def sinks_by_stream(self) -> dict[str, list[Sink]]:
        """The sinks whose view exists."""
        found: dict[str, list[Sink]] = {}
        for sink in self.sinks:
            if sink.view in self.views:
                found.setdefault(self.views[sink.view].stream, []).append(sink)
        return found

    def view_name(self, name: str) -> str:
        """A view's name as declared.

        Raises:
            UnknownNameError: there is no such view.
        """
        found = next((known for known in self.views if known.upper() == name.upper()), None)
        if found is None:
            shown = sorted(self.views)
            more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
            raise UnknownNameError(
                f"View {name} does not exist. Existing views: {', '.join(shown[:20]) or 'none'}{more}"
            )
        return found

    def stream_name(self, query: SelectQuery | WindowQuery) -> str:
        """The name of a flattened query's stream as declared.

        Raises:
            UnknownNameError: there is no such stream.
            UnsupportedError: it is a static table.
        """
        found = next((known for known in self.streams if known.upper() == query.source.upper()), None)
        if found is None:
            self._refuse_no_stream(query)
            names = ", ".join([*self.streams, *self.views][:20]) or "none"
            place = query.source_clause
            message = f"Stream or view {query.source} does not exist. Existing ones: {names}"
            raise place.error(UnknownNameError, message, 0, len(place.text))
        return found

    def _refuse_no_stream(self, query: SelectQuery | WindowQuery) -> None:
        place, name = query.source_clause, query.source.upper()
        if name in {each.upper() for each in self.statics}:
            message = f"Table {query.source} is static; a view needs a stream. Join a stream with it."
            raise place.error(UnsupportedError, message, 0, len(place.text))

    def has_rules(self, statement: CreateViews) -> bool:
        """Whether the views of a CREATE VIEWS statement are declared, as it is."""
        known = self.rules.get(statement.path)
        return known is not None and known.files.statement == statement

    def refuse_loose_ends(self) -> None:
        """Makes sure that every view still has what it selects from.

        Raises:
            InputError: one has not.
        """
        sources = {name.upper() for name in (*self.streams, *self.statics, *self.views)}
        for name, view in self.views.items():
            for source, _ in sources_of(view.query):
                if source.upper() not in sources:
                    raise InputError(f"View {name} selects from {source}. Drop {name} too.")

    def refuse_other_tables(self, script: Script) -> None:
        """Makes sure that a changed script still declares the tables as they were.

        Raises:
            InputError: it does not: a stream that runs cannot be opened anew.
        """
        written = {table.name.upper(): table for table in script.tables}
        for name, table in self.tables.items():
            now = written.get(name.upper())
            if now is None:
                raise InputError(
                    f"The script no longer declares table {name}, which a running stream reads. Restore the table, or restart "
                    "the run."
                )
            parts = [
                part
                for part, before, after in (
                    ("columns", table.columns, now.columns),
                    ("source", table.source, now.source),
                    ("options", table.options, now.options),
                )
                if before != after
            ]
            if parts:
                raise SqlError(
                    f"Table {name} has other {' and '.join(parts)} than the running stream. Restore them, or restart the run.",
                    *now.at(),
                )

    def dependents(self, names: Collection[str]) -> list[str]:
        """The views that select from one of these, directly or through others."""
        found = {name.upper() for name in names}
        order = []
        grown = True
        while grown:
            grown = False
            for name, view in self.views.items():
                below = {source.upper() for source, _ in sources_of(view.query)}
                if name.upper() not in found and not found.isdisjoint(below):
                    found.add(name.upper())
                    order.append(name)
                    grown = True
        return order
