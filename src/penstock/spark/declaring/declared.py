"""What has been declared to an engine: tables, streams, views and sinks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import InputError, SqlError, UnknownNameError, UnsupportedError
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.ingest.conditions import DeclaredConditions
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.derived.views import DerivedView
from penstock.spark.sinks.declared import Sink
from penstock.spark.sources.probes import Probe
from penstock.spark.sources.rule_files import RuleFiles
from penstock.spark.sources.source import Source
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.lane_views import LaneDefinition
from penstock.spark.storage.refreshed import REFRESHED, RefreshedDefinition
from penstock.spark.storage.shared_maps import SharedMap
from penstock.spark.storage.unions import UNIONS, UnionDefinition
from penstock.sql.joins.inputs import Relation
from penstock.sql.joins.query import joined_name
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.rules import RefusedRule, Rule
from penstock.sql.script.statements import (
    CreateTable,
    CreateView,
    CreateViews,
    InsertInto,
    Query,
    Retain,
    Script,
    sources_of,
)
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import union_name
from penstock.sql.windows.query import WindowQuery, groups_name

#: the kinds of views that have lanes of their own
LANE_VIEWS: Mapping[type[LaneDefinition], str] = {
    JoinDefinition: JOINS.name,
    RefreshedDefinition: REFRESHED.name,
    UnionDefinition: UNIONS.name,
}


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
        stream: its stream, the first one of a join or UNION ALL; of a window view over another view, the rows of that.
        query: its query as written.
        definition: its definition over the stream.
        derived: what is known of it besides where it is a window view over another view.
    """

    stream: str
    query: Query
    definition: (
        ViewDefinition
        | WindowDefinition
        | JoinDefinition
        | DeadlineDefinition
        | RefreshedDefinition
        | UnionDefinition
    )
    derived: DerivedView | None = None

    @property
    def is_inner(self) -> bool:
        """Whether it is a UNION ALL or an aggregation in FROM of other views, and leaves with the last of them."""
        definition = self.definition
        if isinstance(definition, WindowDefinition | RefreshedDefinition):
            return definition.name == groups_name(definition.sql)
        if isinstance(definition, JoinDefinition):
            return definition.name == joined_name(definition.sql)
        return isinstance(definition, UnionDefinition) and definition.name == union_name(definition.sql)


@dataclass(frozen=True, slots=True, eq=False)
class Mistake:
    """Why a rule is not declared.

    Attributes:
        rule: the rule.
        refused: the reason.
        beside: what the rule was judged beside, see `Declared.beside`.
    """

    rule: Rule
    refused: RefusedRule
    beside: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """The views of a CREATE VIEWS statement.

    Attributes:
        files: the files; they may have changed since.
        views: the rules in force, by the name of their view.
        refused: what was not declared, and why.
        mistakes: of rules that were read and not declared, by the name of their view.
    """

    files: RuleFiles
    views: Mapping[str, Rule] = field(default_factory=dict)
    refused: tuple[RefusedRule, ...] = ()
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Declared:
    """Everything declared so far; names keep their case and are found without it.

    Views are added by `put` and removed by `drop` alone.
    """

    tables: dict[str, CreateTable] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    statics: dict[str, StaticTable] = field(default_factory=dict)
    views: SharedMap[View] = field(default_factory=SharedMap)
    #: by the path of their CREATE VIEWS statement
    rules: dict[str, RuleSet] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)
    #: of scripts: what selects from views whose rules have mistakes, until a start gives these their last good definitions
    waiting: list[CreateView | InsertInto] = field(default_factory=list)
    #: by the view, table or stream they are about
    warnings: SharedMap[list[str]] = field(default_factory=SharedMap)
    #: how long published rows of streams and views are kept, by name
    retained: dict[str, Retain] = field(default_factory=dict)
    #: by stream, conditions of its views that are bound already, until a run takes them
    bound: dict[str, DeclaredConditions] = field(default_factory=dict)
    #: the views' names as declared, by name in upper case
    spelled: SharedMap[str] = field(default_factory=SharedMap)
    #: the views that select from a view directly, by its name in upper case
    above: SharedMap[SharedMap[None]] = field(default_factory=SharedMap)
    #: the views that were added, redefined or dropped since the copy was made
    touched: dict[str, None] = field(default_factory=dict)
    #: names of `above` whose views no other copy has
    _own: set[str] = field(default_factory=set)
    #: what redefined views were before, until `drop_unread`
    _left: list[Query] = field(default_factory=list, init=False, repr=False)

    def copy(self) -> Declared:
        """A copy to change; a mistake half way then leaves nothing behind."""
        return Declared(
            dict(self.tables),
            dict(self.streams),
            dict(self.statics),
            self.views.copy(),
            dict(self.rules),
            list(self.sinks),
            list(self.waiting),
            self.warnings.copy(),
            dict(self.retained),
            dict(self.bound),
            self.spelled.copy(),
            self.above.copy(),
        )

    def adopt(self, changed: Declared) -> None:
        """Takes the views and warnings of a copy that was changed."""
        self.views, self.spelled = changed.views, changed.spelled
        self.above, self._own = changed.above, changed._own
        self.warnings, self.bound = changed.warnings, changed.bound
        self.retained = changed.retained
        self.touched.update(changed.touched)

    def put(self, name: str, view: View) -> None:
        """Adds a view, or redefines one."""
        before = self.views.get(name)
        if before is not None:
            self._unlink(name)
        self.views[name] = view
        self.spelled[name.upper()] = name
        self.touched[name] = None
        for source, _ in sources_of(view.query):
            if source.upper() in self.spelled:
                self._above(source.upper())[name] = None
        if before is not None:
            self._left.append(before.query)

    def drop_unread(self) -> None:
        """Removes what redefined views had in FROM, see `_drop_inner`: other views that are declared with them may read it now."""
        left, self._left = self._left, []
        for query in left:
            self._drop_inner(query)

    def drop(self, name: str) -> None:
        """Removes a view; see `refuse_loose_ends`."""
        self._unlink(name)
        query = self.views[name].query
        del self.views[name], self.spelled[name.upper()]
        self.retained.pop(name, None)
        self.touched[name] = None
        self._drop_inner(query)

    def _drop_inner(self, query: Query) -> None:
        """Removes the UNION ALL or aggregation that a query had in FROM, unless something else reads it."""
        for source, _ in sources_of(query):
            name = self.spelled.get(source.upper())
            if name is None or not self.views[name].is_inner or self.above.get(name.upper()):
                continue
            if all(sink.view != name for sink in self.sinks):
                self.drop(name)

    def _unlink(self, name: str) -> None:
        for source, _ in sources_of(self.views[name].query):
            if source.upper() in self.above:
                self._above(source.upper()).pop(name, None)

    def _above(self, name: str) -> SharedMap[None]:
        """The views that select from one directly, to be changed."""
        if name not in self._own:
            self._own.add(name)
            self.above[name] = self.above.get(name, SharedMap[None]()).copy()
        return self.above[name]

    @property
    def queries(self) -> Mapping[str, Query]:
        """The query of every view, by name in upper case."""
        return _Queries(self)

    def beneath(self, query: Query) -> tuple[tuple[str, str], ...]:
        """The name and the text of the views that a query selects from, directly or through others."""
        found: dict[str, tuple[str, str]] = {}
        reached = [query]
        while reached:
            for source, _ in sources_of(reached.pop()):
                name = self.spelled.get(source.upper())
                if name is not None and name not in found:
                    view = self.views[name]
                    found[name] = name, view.definition.sql
                    reached.append(view.query)
        return tuple(found.values())

    @property
    def names(self) -> KnownNames:
        """All names that are taken."""
        tables, streams = ({name.upper(): name for name in each} for each in (self.tables, self.streams))
        return KnownNames({"view": self.spelled, "stream": streams, "table": tables})

    @property
    def texts(self) -> dict[str, str]:
        """The text of every view."""
        return {name: view.definition.sql for name, view in self.views.items()}

    def on(self, stream: str) -> dict[str, ViewDefinition | WindowDefinition]:
        """The selection and window views on a stream, those with a deadline apart."""
        return {
            name: definition
            for name in self.views
            if (definition := self._defined_on(name, stream)) is not None
        }

    def versions(self, before: Declared, name: str) -> list[View]:
        """What a view was and what it is, where it was or is."""
        return [declared.views[name] for declared in (before, self) if name in declared.views]

    def touches(self, before: Declared, kind: type) -> bool:
        """Whether a view was added, redefined or dropped whose definition is or was of a kind."""
        return any(
            isinstance(view.definition, kind) for name in self.touched for view in self.versions(before, name)
        )

    def changes(
        self, before: Declared, stream: str
    ) -> tuple[dict[str, ViewDefinition | WindowDefinition], list[str]]:
        """What changed of the selection and window views on a stream: those that are new or others now, and those that left."""
        old, new = (
            {name: each for name in self.touched if (each := declared._defined_on(name, stream)) is not None}
            for declared in (before, self)
        )
        changed = {name: definition for name, definition in new.items() if old.get(name) != definition}
        return changed, [name for name in old if name not in new]

    def _defined_on(self, name: str, stream: str) -> ViewDefinition | WindowDefinition | None:
        view = self.views.get(name)
        if view is None or view.stream != stream:
            return None
        definition = view.definition
        return definition if isinstance(definition, ViewDefinition | WindowDefinition) else None

    @property
    def lane_views(self) -> dict[str, dict[str, LaneDefinition]]:
        """The views that have lanes of their own, by kind and name."""
        found: dict[str, dict[str, LaneDefinition]] = {kind: {} for kind in LANE_VIEWS.values()}
        for name, view in self.views.items():
            if isinstance(view.definition, JoinDefinition | RefreshedDefinition | UnionDefinition):
                found[LANE_VIEWS[type(view.definition)]][name] = view.definition
        return found

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

    @property
    def told(self) -> Iterator[tuple[str, str]]:
        """Warnings, and notes (`Note`), each with the name of the view or table."""
        for name, texts in self.warnings.items():
            if self.names.get(name.upper()) == name:
                yield from ((name, text) for text in texts)

    def reading(self, stream: str) -> list[str]:
        """The names of all views that read a stream: those on it, joins of it and those with a deadline."""
        return [
            *self.on(stream),
            *(view for view, (on, _) in self.deadlines.items() if on == stream),
            *(
                view
                for own in self.lane_views.values()
                for view, each in own.items()
                if stream in each.streams
            ),
        ]

    @property
    def mapped(self) -> set[str]:
        """The streams whose tuples are read from their logs: by join views, UNION ALL, views with a deadline and refreshed views."""
        read = {
            stream for own in self.lane_views.values() for each in own.values() for stream in each.streams
        }
        return read.union(stream for stream, _ in self.deadlines.values())

    @property
    def derived(self) -> dict[tuple[str, str], dict[str, DerivedView]]:
        """The window views over other views, by the stream and the name of that one; that of a join view is `JOINS.name`, of a UNION ALL `UNIONS.name`."""
        found: dict[tuple[str, str], dict[str, DerivedView]] = {}
        for name, view in self.views.items():
            if (derived := view.derived) is not None:
                found.setdefault((derived.stream, derived.view), {})[name] = derived
        return found

    def sinks_of_views(self) -> list[Sink]:
        """The sinks whose view exists."""
        return [sink for sink in self.sinks if sink.view in self.views]

    def view_name(self, name: str) -> str:
        """A view's name as declared.

        Raises:
            UnknownNameError: there is no such view.
        """
        found = self.spelled.get(name.upper())
        if found is None:
            raise UnknownNameError.among("View", name, sorted(self.outer_views), "Existing views", most=20)
        return found

    @property
    def outer_views(self) -> list[str]:
        """The names of the views, without the inner ones, which the user has not declared."""
        return [name for name, view in self.views.items() if not view.is_inner]

    def unknown(self, name: str) -> UnknownNameError:
        """The refusal of a name that is no stream, table or view, at no place yet."""
        known = (*self.streams, *self.statics, *self.outer_views)
        return UnknownNameError.among("Stream, table or view", name, known, "Existing ones", most=20)

    def stream_name(self, query: SelectQuery | WindowQuery) -> str:
        """The name of a flattened query's stream as declared.

        Raises:
            UnknownNameError: there is no such stream.
            UnsupportedError: it is a static table.
        """
        found = next((known for known in self.streams if known.upper() == query.source.upper()), None)
        if found is None:
            self._refuse_no_stream(query)
            known = (*self.streams, *self.outer_views)
            error = UnknownNameError.among("Stream or view", query.source, known, "Existing ones", most=20)
            raise query.source_clause.at(error)
        return found

    def _refuse_no_stream(self, query: SelectQuery | WindowQuery) -> None:
        place, name = query.source_clause, query.source.upper()
        if name in {each.upper() for each in self.statics}:
            message = f"Table {query.source} is static; a view needs a stream. Join a stream with it."
            raise place.error(UnsupportedError, message)

    @property
    def files_of_rules(self) -> dict[str, list[str]]:
        """The views that files of rules declare, by file."""
        files: dict[str, list[str]] = {}
        for rules in self.rules.values():
            for name, rule in rules.views.items():
                files.setdefault(rule.file, []).append(name)
        return files

    def has_rules(self, statement: CreateViews) -> bool:
        """Whether the views of a CREATE VIEWS statement are declared, as it is."""
        known = self.rules.get(statement.path)
        return known is not None and known.files.statement == statement

    def refuse_loose_ends(self) -> None:
        """Makes sure that no view selects from one that was dropped.

        Raises:
            InputError: one does.
        """
        gone = {name.upper(): None for name in self.touched if name.upper() not in self.spelled}
        for name in (name for each in gone for name in self.above.get(each, ())):
            source = next(each for each, _ in sources_of(self.views[name].query) if each.upper() in gone)
            raise _needed(source, name)

    def drop_unneeded(self, names: Collection[str]) -> dict[str, InputError]:
        """Drops views together, but for those that a remaining view selects from, and returns why each of these remains."""
        gone = dict.fromkeys(names)
        remaining: dict[str, InputError] = {}
        while needed := {
            name: user
            for name in gone
            if (user := next((each for each in self.above.get(name.upper(), ()) if each not in gone), None))
        }:
            remaining |= {name: _needed(name, user) for name, user in needed.items()}
            gone = {name: None for name in gone if name not in needed}
        for name in gone:
            self.drop(name)
        return remaining

    def beside(self, name: str, query: Query) -> tuple[object, ...]:
        """What decides, besides its text and the functions, whether a view can be declared: equal where nothing of that changed."""
        above = self.dependents([name])
        return (
            (*self.streams, *self.statics),
            self.beneath(query),
            tuple((each, self.views[each].definition.sql) for each in above),
            tuple(sink.view for sink in self.sinks if sink.view == name or sink.view in above),
        )

    def doubt_mistakes(self) -> None:
        """Makes sure that all rules with mistakes are judged anew when their files change: functions are others now."""
        self.rules = {path: replace(rules, mistakes={}) for path, rules in self.rules.items()}

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

    def dependents(self, names: Iterable[str]) -> list[str]:
        """The views that select from one of these, directly or through others; each after those that it selects from."""
        named = list(names)
        seen = {name.upper() for name in named}
        ended: list[str] = []

        def visit(name: str) -> None:
            for each in reversed(list(self.above.get(name.upper(), ()))):
                if each.upper() not in seen:
                    seen.add(each.upper())
                    visit(each)
                    ended.append(each)

        for name in reversed(named):
            visit(name)
        return ended[::-1]


def _needed(name: str, user: str) -> InputError:
    return InputError(f"View {user} selects from {name}. Drop {user} too.")


class _Queries(Mapping[str, Query]):
    """The query of every view, by name in upper case: of what is declared when it is asked."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def __getitem__(self, name: str) -> Query:
        return self._declared.views[self._declared.spelled[name]].query

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared.spelled)

    def __len__(self) -> int:
        return len(self._declared.spelled)
