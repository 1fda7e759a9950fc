"""Views by their queries: resolved, defined and bound, of whatever kind they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import DuplicateNameError, InputError, UnsupportedError
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.optimizer.paper_orders import lacking_formula
from penstock.plan.notes import Note
from penstock.settings import Settings
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declaring.beneath import columns_beneath
from penstock.spark.declaring.change_events import change_note
from penstock.spark.declaring.composing import composed_view, set_apart
from penstock.spark.declaring.declared import Declared, Stream, View
from penstock.spark.declaring.definitions import (
    check_projections,
    define_deadline,
    define_join,
    define_selection,
    define_window,
)
from penstock.spark.declaring.deriving import define_derived
from penstock.spark.declaring.insertions import refuse_reserved
from penstock.spark.declaring.refreshing import refreshed_view
from penstock.spark.declaring.retaining import retain_views
from penstock.spark.declaring.uniting import Uniter
from penstock.spark.ingest.conditions import DeclaredConditions
from penstock.spark.ingest.explaining import (
    state_note,
    window_note,
)
from penstock.spark.ingest.window_views import CompiledWindows, compile_windows, sharing
from penstock.spark.lanes.deadlines.estimates import deadline_warnings
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.joins.views import check_demands
from penstock.spark.publication.kinds import rows_of
from penstock.spark.sessions.build import require_meaning
from penstock.spark.storage.bindings import (
    RunningDefinition,
    ViewDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.names import check_length, check_name
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.shared_maps import SharedMap
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.conditions.bind import BoundSelections, SelectionBinder
from penstock.sql.joins.query import JoinQuery
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.queries import parse_query, recomposed
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.script.statements import (
    CreateView,
    Query,
    sources_of,
)
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery
from penstock.sql.windows.query import WindowQuery

#: what is worth knowing of a view, by the kind of its definition
_NOTES: Mapping[type, Callable[[Query], str | None]] = {
    WindowDefinition: window_note,
    RunningDefinition: state_note,
}


@dataclass(frozen=True, slots=True)
class _Written:
    """A view as it is written.

    Attributes:
        name: the view's name.
        query, text: its query, and the text of that.
        below: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    query: Query
    text: str
    below: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Fresh:
    """Queries whose conditions are bound together, by stream and view.

    Attributes:
        new: the selections, also those that windows are made of.
        selections: those that are views themselves.
    """

    new: dict[str, dict[str, SelectQuery]] = field(default_factory=dict)
    selections: dict[str, dict[str, SelectQuery]] = field(default_factory=dict)


class ViewBinding:
    """Adds views to what is declared, with what their binding tells.

    Args:
        spark: the session.
        settings: frozen settings.
        aggregates: the user's aggregates, by name in upper case; they may be added to.
        on_arrays: the user's functions that take arrays and return one, by name; likewise.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        aggregates: Mapping[str, UserAggregate],
        on_arrays: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._aggregates = aggregates
        self._on_arrays = on_arrays

    def declare(self, staged: Declared, views: Mapping[str, CreateView | str]) -> None:
        """Adds views and binds them, and what selects from them anew.

        Args:
            staged: what is declared; it is changed.
            views: by name; as texts they are parsed.

        Raises:
            InputError: a view has a mistake.
        """
        written = self._written(staged, views)
        for name in staged.dependents([name for name in written if name in staged.views]):
            view_ = staged.views[name]
            written.setdefault(name, (view_.query, view_.definition.sql))
        fresh = _Fresh()
        apart = [name for name in written if name not in views and name not in staged.views]
        for name, (query, text) in _beneath_first(written).items():
            try:
                self._define(staged, fresh, name, query, text)
            except UnsupportedError as error:
                apart += self._define_over_rows(staged, fresh, name, query, text, error)
        self._drop_unread(staged, fresh, apart)
        new, selections = fresh.new, fresh.selections
        for stream, selected in selections.items():
            columns = staged.streams[stream].source.schema.fieldNames()
            check_projections([*selected.values()], columns, staged.streams[stream].host)
        staged.drop_unread()
        staged.refuse_loose_ends()
        for stream, queries in new.items():
            source, host = staged.streams[stream].source, staged.streams[stream].host
            binder = self._binder(source.schema, host, declaring=True)
            bound = binder.bind(queries)
            self._warn(staged, bound, queries)
            self._keep_bound(staged, stream, binder, bound)
        for name in [each for each in dict.fromkeys((*written, *apart)) if each in staged.views]:
            note = _NOTES.get(type(staged.views[name].definition))
            if note is None:
                continue
            flat = flatten(staged.views[name].query, staged.queries)
            tables = {each.upper(): table for each, table in staged.tables.items()}
            table = tables.get(flat.source.upper()) if isinstance(flat, WindowQuery) else None
            found = [told for told in (note(flat), change_note(table, flat)) if told is not None]
            staged.warnings.setdefault(name, []).extend(map(Note, found))
        self._warn_of_deadlines(staged, written)
        for sink in staged.sinks:
            if sink.view in written:
                refuse_reserved(staged, sink)
        retain_views(staged, (view for view in views.values() if isinstance(view, CreateView)))

    def _define(self, staged: Declared, fresh: _Fresh, name: str, query: Query, text: str) -> None:
        """Adds one view, those beneath it being there.

        Args:
            staged: what is declared; it is changed.
            fresh: takes what is bound with others.
            name: the view's name.
            query, text: its query, and the text of that.
        """
        known = staged.queries
        _refuse_circle(name, query, known)
        if isinstance(query, RefreshedQuery):
            define = refreshed_view if query.rest is None else composed_view
            staged.put(name, define(self._spark, staged, name, query, text))
            return
        flat = flatten(query, known)
        below = staged.beneath(query)
        if not isinstance(flat, SelectQuery):
            check_length("view", name)
        if isinstance(flat, JoinQuery | UnionQuery) or (isinstance(flat, WindowQuery) and flat.over):
            staged.put(name, self._with_lane(staged, _Written(name, query, text, below), flat))
            return
        stream = staged.stream_name(flat)
        source, host = staged.streams[stream].source, staged.streams[stream].host
        definition: ViewDefinition | WindowDefinition | DeadlineDefinition
        if isinstance(flat, WindowQuery):
            if flat.hints.deadline_seconds is None:
                definition = define_window(name, text, flat, below, source, host)
            else:
                users = {each: aggregate.signature for each, aggregate in self._aggregates.items()}
                definition = define_deadline(name, text, flat, below, source, host, users)
            fresh.new.setdefault(stream, {})[name] = flat.selection
        else:
            definition = define_selection(name, text, flat, source)
            fresh.new.setdefault(stream, {})[name] = flat
            fresh.selections.setdefault(stream, {})[name] = flat
        staged.put(name, View(stream, query, definition))

    def _define_over_rows(
        self,
        staged: Declared,
        fresh: _Fresh,
        name: str,
        query: Query,
        text: str,
        refused: UnsupportedError,
    ) -> list[str]:
        """Adds a view that lanes have refused over the rows of its inner queries; see `_define`.

        Returns:
            The views that these are.

        Raises:
            UnsupportedError: lanes answer no inner query; why they do not answer the query.
            SqlError: a mistake in it.
        """
        if isinstance(query, RefreshedQuery) and (query.rest is None or query.by_names):
            raise refused
        _, clause = sources_of(query)[0]
        start = clause.script.find(text)
        place = (clause.script, start) if start >= 0 else (text, 0)
        # of others lanes know better what is wrong with a query that has one view in FROM
        is_of_several = isinstance(query, JoinQuery | UnionQuery | RefreshedQuery)
        own_rows = {
            name
            for name, known in staged.spelled.items()
            if not isinstance(staged.views[known].definition, ViewDefinition)
        }
        views = {
            name
            for name, known in staged.spelled.items()
            if is_of_several or isinstance(staged.views[known].definition, RefreshedDefinition)
        }
        composed = recomposed(*place, text, self._aggregates, refused, views, own_rows)
        if composed is None or (isinstance(query, RefreshedQuery) and composed.rest == query.rest):
            raise refused
        inner: dict[str, tuple[Query, str]] = {}
        outer = set_apart(staged, composed, inner)
        for each, (own, own_text) in inner.items():
            if each not in staged.views:
                self._define(staged, fresh, each, own, own_text)
        self._define(staged, fresh, name, outer, text)
        return list(inner)

    def _drop_unread(self, staged: Declared, fresh: _Fresh, names: Iterable[str]) -> None:
        """Removes inner queries that nothing reads: those of a way to answer a view that was refused."""
        for name in dict.fromkeys(names):
            if name in staged.views and staged.views[name].is_inner and not staged.above.get(name.upper()):
                staged.drop(name)
        for views in (*fresh.new.values(), *fresh.selections.values()):
            for name in [each for each in views if each not in staged.views]:
                del views[name]

    def selections(self, stream: Stream, conditions: Mapping[str, str]) -> BoundSelections:
        """Bind conditions of views on a stream."""
        return self._binder(stream.source.schema, stream.host).bind(conditions)

    def windows(self, stream: Stream, windows: Sequence[WindowDefinition]) -> CompiledWindows:
        """Compile window and running views on a stream."""
        schema = arrow_schema(stream.source.schema)
        register = WindowRegister(slack=self._settings.slack).changed(
            sharing(windows, schema, stream.host), ()
        )
        event_time = stream.source.event_time
        return compile_windows(0, register, schema, stream.host, self._settings, 1, event_time)

    def _written(
        self, staged: Declared, views: Mapping[str, CreateView | str]
    ) -> dict[str, tuple[Query, str]]:
        """The query and the text of each view by the name that it is known as, those of queries in FROM that aggregate before them."""
        fresh: dict[str, str] = {}
        shapes = SelectionShapes()
        taken = {name.upper() for name in (*staged.tables, *staged.streams)}
        written: dict[str, tuple[Query, str]] = {}
        inner: dict[str, tuple[Query, str]] = {}
        for name, view in views.items():
            check_name("view", name)
            if name.upper() in taken:
                raise DuplicateNameError(f"{name} is a table or stream; choose another name for the view.")
            if isinstance(view, str):
                query, text = parse_query(view, self._aggregates, shapes), view
            else:
                query, text = view.query, view.text
            known_as = staged.spelled.get(name.upper()) or fresh.setdefault(name.upper(), name)
            if known_as in written:
                raise DuplicateNameError(
                    f"{name} and {known_as} are the same name: names are case-insensitive. Rename one view."
                )
            written[known_as] = (set_apart(staged, query, inner), text)
        return {name: each for name, each in inner.items() if name not in staged.views} | written

    def _warn_of_deadlines(self, staged: Declared, declared: Iterable[str]) -> None:
        """Warns of deadlines that no window can meet, and of promises that cannot be kept."""
        views = {name: each.bound.view for name, (_, each) in staged.deadlines.items()}
        new = [name for name in declared if name in views]
        for name, warning in deadline_warnings(self._spark, views, new):
            staged.warnings.setdefault(name, []).append(warning)

    def _with_lane(
        self, staged: Declared, view: _Written, flat: JoinQuery | UnionQuery | WindowQuery
    ) -> View:
        """A view that batches of a stream do not answer, bound.

        Args:
            staged: what is declared; warnings are added.
            view: the view.
            flat: its query over streams and static tables, or over the view beneath.
        """
        if isinstance(flat, JoinQuery):
            return self._joined(staged, view, flat)
        return (
            self._united(staged, view, flat)
            if isinstance(flat, UnionQuery)
            else self._derived(staged, view, flat)
        )

    def _derived(self, staged: Declared, view: _Written, flat: WindowQuery) -> View:
        """A window view over a window or join view or a UNION ALL, bound to the columns of that."""
        source = staged.view_name(flat.source)
        definition = staged.views[source].definition
        assert isinstance(definition, WindowDefinition | JoinDefinition | UnionDefinition), (
            "selections are replaced by what they are over, and nothing is over windows with a deadline"
        )
        place, columns = columns_beneath(staged, source)
        check_length(f"view {view.name} over", rows_of(place, source))
        host = SparkExpressionHost(self._spark, columns, declaring=True)
        derived = define_derived(view.name, view.text, flat, view.below, (place, definition), columns, host)
        selection = {view.name: flat.selection}
        self._warn(staged, self._binder(columns, host, declaring=True).bind(selection), selection)
        return View(rows_of(place, source), view.query, derived.definition, derived)

    def _warn(self, staged: Declared, bound: BoundSelections, queries: Iterable[str]) -> None:
        staged.warnings.update((name, []) for name in queries)
        for name, warning in bound.warnings:
            staged.warnings[name].append(warning)

    def _joined(self, staged: Declared, view: _Written, flat: JoinQuery) -> View:
        """A join view, with what it asks of its streams checked."""
        schemas = {each: stream.source.schema for each, stream in staged.streams.items()}
        schemas |= {each: table.schema for each, table in staged.statics.items()}
        definition, staged.warnings[view.name] = define_join(
            view.name, view.text, flat, view.below, schemas, staged.relations, self._spark, self._on_arrays
        )
        lacking = lacking_formula(definition.plan) if self._settings.join_policy == "paper" else None
        if lacking is not None:
            raise InputError(
                f"view {view.name}: join_policy paper has no formula for {lacking}. Choose output-rate, cardinality or fixed."
            )
        for stream in definition.streams:
            source, host = staged.streams[stream].source, staged.streams[stream].host
            check_demands(definition.plan, stream, source, host)
        return View(definition.streams[0], view.query, definition)

    def _united(self, staged: Declared, view: _Written, flat: UnionQuery) -> View:
        """A UNION ALL view, with the conditions of its branches bound."""
        definition, selections = Uniter(self._spark, staged).define(view.name, view.text, flat, view.below)
        found: dict[str, None] = {}
        for stream, selection in selections:
            source, host = staged.streams[stream].source, staged.streams[stream].host
            bound = self._binder(source.schema, host, declaring=True).bind({view.name: selection})
            found.update((warning, None) for _, warning in bound.warnings)
        staged.warnings[view.name] = list(found)
        return View(definition.streams[0], view.query, definition)

    def _binder(
        self, columns: StructType, host: SparkExpressionHost, *, declaring: bool = False
    ) -> SelectionBinder:
        require_meaning(self._spark)
        return SelectionBinder(
            arrow_schema(columns), host, self._timezone, declaring=declaring, functions=self._on_arrays
        )

    def _keep_bound(
        self, staged: Declared, stream: str, binder: SelectionBinder, bound: BoundSelections
    ) -> None:
        """Keeps bound conditions for the first plan version of a run: the most that were bound at once, as far as Spark computes nothing."""
        known = staged.bound.get(stream)
        definitions = (staged.views[query.name].definition for query in bound.selections.queries)
        # conditions of window views have other names in a plan version
        texts = {
            each.name: each.condition if isinstance(each, ViewDefinition) else "" for each in definitions
        }
        if not bound.computed and (known is None or len(known.views) <= len(texts)):
            staged.bound[stream] = DeclaredConditions(SharedMap(texts), bound, binder, self._timezone)

    @property
    def _timezone(self) -> str:
        return self._spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _beneath_first(written: Mapping[str, tuple[Query, str]]) -> dict[str, tuple[Query, str]]:
    """Views with their queries and texts, each behind those of them that it selects from; the others stay in order."""
    spelled = {name.upper(): name for name in written}
    seen: set[str] = set()
    found: dict[str, tuple[Query, str]] = {}

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for source, _ in sources_of(written[name][0]):
            if (below := spelled.get(source.upper())) is not None:
                visit(below)
        found[name] = written[name]

    for name in written:
        visit(name)
    return found


def _refuse_circle(name: str, query: Query, views: Mapping[str, Query]) -> None:
    passed: set[str] = set()
    reached = [query]
    while reached:
        for source, _ in sources_of(reached.pop()):
            if source.upper() == name.upper():
                raise InputError(f"View {name} selects from itself. Change its FROM.")
            if source.upper() in views and source.upper() not in passed:
                passed.add(source.upper())
                reached.append(views[source.upper()])
