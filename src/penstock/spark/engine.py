"""The engine: streams, views and sinks are declared here, then run."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import PythonEvalType, arrow_udf
from pyspark.sql.types import StructType

from penstock.errors import DuplicateNameError, InputError
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.settings import Settings, tuned
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declared import Declared, Stream, View
from penstock.spark.definitions import (
    beneath,
    check_projections,
    define_deadline,
    define_derived,
    define_join,
    define_selection,
    define_window,
    joined_columns,
    rows_schema,
)
from penstock.spark.functions import named, register_aggregate
from penstock.spark.ingest.explaining import explain_bound, explain_window, explain_windows
from penstock.spark.ingest.trigger import Trigger
from penstock.spark.ingest.window_views import CompiledWindows, compile_windows, sharing
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.joins.explaining import explain_first
from penstock.spark.lanes.joins.views import check_demands
from penstock.spark.publication.kinds import rows_of
from penstock.spark.run import Run
from penstock.spark.sessions.build import require_classic, require_meaning
from penstock.spark.sinks import Sink, SinkFunction, open_sink
from penstock.spark.sources.probes import Probe, open_probe
from penstock.spark.sources.source import Source
from penstock.spark.sources.static_tables import is_static, open_static
from penstock.spark.sources.table_checks import table_warnings
from penstock.spark.sources.tables import check_columns, open_table, stream_source
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition, WindowRegister
from penstock.spark.storage.joins import JOINS_NAME, JoinDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.conditions.bind import BoundSelections, bind_selections
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.script import (
    CreateTable,
    CreateView,
    InsertInto,
    Query,
    parse_query,
    parse_script,
    sources_of,
)
from penstock.sql.script.views import flatten
from penstock.sql.text.intervals import trigger_microseconds
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import WindowQuery

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `Engine.reconcile` changed.

    Attributes:
        added, redefined, dropped: names of views.
        kept: how many that were there before are there still.
    """

    added: list[str]
    redefined: list[str]
    dropped: list[str]
    kept: int


class Engine:
    """Adaptive continuous queries over the streams of one Spark session.

    Args:
        spark: a classic session.
        settings: what may be tuned; keyword arguments set single fields of `Settings`.

    Raises:
        InputError: a Spark Connect session or one without ANSI mode, or a setting that is unknown or out
            of range.

    Example:
        >>> engine = Engine(spark)                                        # doctest: +SKIP
        >>> engine.execute(open("flights.sql").read())                    # doctest: +SKIP
        >>> run = engine.start(output="out", available_now=True)          # doctest: +SKIP
        >>> run.await_termination()                                       # doctest: +SKIP
        >>> run.results("long_late").show()                               # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, settings: Settings | None = None, **tune: Any) -> None:
        require_classic(spark)
        require_meaning(spark)
        self._spark = spark
        self._settings = tuned(settings or Settings(), tune)
        self._declared = Declared()
        self._functions: dict[str, Callable[..., Any]] = {}
        #: names of those that take arrays and return one, and not iterators of them
        self._on_arrays: set[str] = set()
        #: by name in upper case
        self._aggregates: dict[str, UserAggregate] = {}
        self._run: Run | None = None
        self._lock = threading.RLock()

    def execute(self, script: str) -> Engine:
        """Declares what a script says: CREATE TABLE, CREATE VIEW, INSERT INTO.

        On a running engine new streams start at once and new views from the next binding on.

        Raises:
            InputError: a mistake in the script; nothing of it is declared then.
        """
        with self._lock:
            staged = self._declared.copy()
            parsed = parse_script(script, known=staged.names, aggregates=self._aggregates)
            self._stage_tables(staged, parsed.tables, {insert.table.upper() for insert in parsed.inserts})
            self._stage_views(staged, {view.name: view for view in parsed.views})
            for insert in parsed.inserts:
                self._stage_insert(staged, insert)
            self._install(staged)
        return self

    def stream(self, name: str, frame: DataFrame, event_time: str | None = None) -> Engine:
        """Declares any streaming DataFrame as a stream.

        Raises:
            InputError: it is no streaming DataFrame, or a column name is reserved.
            DuplicateNameError: the name is taken.
        """
        if not frame.isStreaming:
            raise InputError(f"stream {name}: the DataFrame is not a streaming one; use spark.readStream")
        check_columns(name, frame.schema, event_time)
        with self._lock:
            staged = self._declared.copy()
            if any(name.upper() == taken.upper() for taken in staged.names):
                raise DuplicateNameError(
                    f"{name} exists already. Names are case-insensitive; choose another one."
                )
            staged.streams[name] = self._new_stream(stream_source(frame, event_time))
            self._install(staged)
        return self

    def view(self, name: str, sql: str) -> Engine:
        """Declares a selection view, or redefines one; takes effect at the next binding.

        Raises:
            InputError: a mistake in the query.
        """
        return self.views({name: sql})

    def views(self, queries: Mapping[str, str]) -> Engine:
        """Declares or redefines many views in one step; a view may select from an earlier one."""
        with self._lock:
            staged = self._declared.copy()
            self._stage_views(staged, queries)
            self._install(staged)
        return self

    def drop(self, *names: str) -> Engine:
        """Drops views; they are answered no more from the next binding on.

        Raises:
            UnknownNameError: there is no such view.
        """
        with self._lock:
            staged = self._declared.copy()
            for name in names:
                del staged.views[staged.view_name(name)]
            staged.refuse_loose_ends()
            self._install(staged)
        return self

    def reconcile(self, script: str) -> Reconciled:
        """Brings the views to what a changed script says.

        Returns:
            The views that were added, redefined and dropped.

        Raises:
            InputError: a mistake in the script, no view in it, or a table that is no more what it was or is gone; nothing
                changes then.
        """
        with self._lock:
            staged = self._declared.copy()
            before = {name: view.definition.sql for name, view in staged.views.items()}
            parsed = parse_script(script, aggregates=self._aggregates)
            if not (parsed.views or parsed.inserts):
                raise InputError("the script has no view; to end all of them, stop the run")
            staged.refuse_other_tables(parsed)
            known = {name.upper() for name in staged.tables}
            new = [table for table in parsed.tables if table.name.upper() not in known]
            self._stage_tables(staged, new, {insert.table.upper() for insert in parsed.inserts})
            wanted = {view.name: view for view in parsed.views}
            targets = {_insert_view(insert) for insert in parsed.inserts}
            dropped = [name for name in before if name not in wanted and name not in targets]
            for name in dropped:
                del staged.views[name]
            changed = {name: view for name, view in wanted.items() if before.get(name) != view.text}
            self._stage_views(staged, changed)
            kept = {(insert.table, insert.text) for insert in parsed.inserts}
            staged.sinks = [sink for sink in staged.sinks if not sink.text or (sink.name, sink.text) in kept]
            present = {(sink.name, sink.text) for sink in staged.sinks}
            for insert in parsed.inserts:
                if (insert.table, insert.text) not in present:
                    self._stage_insert(staged, insert)
            staged.refuse_loose_ends()
            self._install(staged)
            return Reconciled(
                added=[name for name in changed if name not in before],
                redefined=[name for name in changed if name in before],
                dropped=dropped,
                kept=len(before) - len(dropped),
            )

    def function(self, name: str, fn: Callable[..., pa.Array], returns: str) -> Engine:
        """Registers a vectorised function for use in queries.

        Args:
            name: its name in SQL.
            fn: takes one `pyarrow.Array` an argument, returns one of the same length.
            returns: its Spark SQL type, such as 'DOUBLE'.

        Raises:
            InputError: `returns` is no type.
            DuplicateNameError: it is the name of an aggregate of the user's.
        """
        _refuse_taken(f"function {name}", name, self._aggregates, "an aggregate")
        guarded = named(name, fn, returns)
        udf: UserDefinedFunctionLike = arrow_udf(guarded, returnType=returns)  # type: ignore[call-overload]
        self._spark.udf.register(name, udf)
        self._functions[name] = guarded
        self._on_arrays.discard(name)
        if udf.evalType == PythonEvalType.SQL_SCALAR_ARROW_UDF:
            self._on_arrays.add(name)
        return self

    def aggregate(self, name: str, cls_or_fn: Callable[..., Any], returns: str) -> Engine:
        """Registers an aggregate for use in queries; `spark.sql` has it too.

        Args:
            name: its name in SQL.
            cls_or_fn: a function that takes the tuples of a group, one `pyarrow.Array` an argument, and returns a value, None for NULL.
                Or a class, made without arguments, with `add(arrays...)`, `remove(arrays...)` and `result()`, whose state goes
                from one instance of a window to the next: `remove` undoes `add`, and `result` changes nothing.
            returns: its Spark SQL type, such as 'DOUBLE' or 'STRUCT<least: DOUBLE, n: BIGINT>'.

        Raises:
            InputError: `returns` is no type, or `cls_or_fn` no such function or class.
            DuplicateNameError: it is the name of a function.
        """
        with self._lock:
            _refuse_taken(f"aggregate {name}", name, self._functions, "a function")
            self._aggregates[name.upper()] = register_aggregate(self._spark, name, cls_or_fn, returns)
        return self

    def sink(self, view: str, write: SinkFunction) -> Engine:
        """Hands the rows of a view to a function, batch by batch, after they have been published.

        Args:
            view: the view's name.
            write: takes a DataFrame and the batch's number, as with Spark's foreachBatch; of a window view every
                revision, as `Run.changes` has them. A batch may be handed over again after a crash. Its
                exception stops the stream.

        Raises:
            UnknownNameError: there is no such view.
        """
        with self._lock:
            staged = self._declared.copy()
            known = staged.view_name(view)
            staged.sinks.append(Sink(getattr(write, "__name__", "function"), known, write))
            self._install(staged)
        return self

    @property
    def declared(self) -> dict[str, list[str]]:
        """The views on each stream."""
        joins = self._declared.joins.items()
        derived = (rows_of(*beneath) for beneath in self._declared.derived)
        return {
            name: [*self._declared.on(name), *(view for view, each in joins if name in each.streams)]
            for name in (*self._declared.streams, *derived)
        }

    @property
    def warnings(self) -> list[str]:
        """What was declared that is allowed and seldom meant, a text each, with the name of what it is about."""
        declared = self._declared
        return [
            f"{name}: {text}"
            for name, texts in declared.warnings.items()
            if name in declared.names
            for text in texts
        ]

    def explain(self) -> str:
        """What will run where and why, without starting anything."""
        lines = []
        for name, stream in self._declared.streams.items():
            views = self._declared.on(name).values()
            selections = [view for view in views if isinstance(view, ViewDefinition)]
            conditions = {view.name: view.condition for view in selections}
            bound = self._bind(stream.source.schema, stream.host, conditions)
            windows = self._compiled(stream, [view for view in views if isinstance(view, WindowDefinition)])
            place = stream.source.place((*bound.derived, *windows.derived))
            lines.append(f"stream {name}: {len(views)} views, map stage {place}")
            lines += explain_bound(bound) + explain_windows(windows)
        for definition in self._declared.joins.values():
            lines += explain_first(
                definition.plan, self._settings.shards or self._spark.sparkContext.defaultParallelism
            )
        for (name, below), derived in self._declared.derived.items():
            lines.append(f"stream {rows_of(name, below)}: the rows of {below}, {len(derived)} views")
            lines += [
                f"    {each}: {explain_window(view.bound, is_derived=True)}" for each, view in derived.items()
            ]
        return "\n".join(lines)

    def start(
        self,
        output: str | Path | None = None,
        checkpoint: str | Path | None = None,
        trigger: str = "0 seconds",
        available_now: bool = False,
        ended: bool = False,
    ) -> Run:
        """Starts an ingest query for every stream that has views.

        Args:
            output: the results folder; a temporary one where None.
            checkpoint: what a restart needs; inside the results folder where None.
            trigger: least time between two batches, as Spark writes it.
            available_now: stop when everything available now has been answered, every window with what is there.
                Windows that later tuples may still change are not final, and the next run goes on with them.
            ended: with `available_now`: what is there now is all there will ever be, so that every window is final.

        Raises:
            InputError: nothing to run, `ended` without `available_now`, a trigger that is no length of time, or folders that do not fit.
        """
        trigger_microseconds(trigger)
        if ended and not available_now:
            raise InputError("ended: allowed with available_now only: a run that goes on has not ended")
        require_meaning(self._spark)
        with self._lock:
            if self._run is not None and self._run.active:
                raise InputError("the engine is running; stop it before it is started again")
            if not self._declared.views:
                raise InputError("nothing to run: declare at least one stream and one view on it")
            layout = Layout.of(output or tempfile.mkdtemp(prefix="penstock-"), checkpoint)
            layout.open()
            self._run = Run(
                self._spark,
                layout,
                self._settings,
                Trigger(available_now, trigger, ended),
                self._functions,
            )
            self._run.set_sinks(self._declared.sinks_by_stream())
            try:
                self._run.set_joins(self._declared.joins, self._declared.statics)
                for place, views in self._declared.derived.items():
                    self._run.derive(*place, views)
                for name, stream in self._declared.streams.items():
                    definitions = self._declared.on(name)
                    if definitions or name in self._declared.joined:
                        self._run.add_stream(name, stream.source, definitions, stream.probe)
                self._run.started()
            except BaseException as error:
                try:
                    self._run.stop()
                except Exception as second:
                    error.add_note(f"stopping what had started failed too: {second}")
                raise
            finally:
                self._run.is_starting = False
            return self._run

    def _stage_tables(self, staged: Declared, tables: Iterable[CreateTable], targets: set[str]) -> None:
        for table in tables:
            staged.tables[table.name] = table
            if is_static(table):
                with table.pointing():
                    staged.statics[table.name] = open_static(self._spark, table)
                continue
            if table.name.upper() not in targets:
                with table.pointing():
                    source = open_table(self._spark, table, self._settings)
                staged.streams[table.name] = self._new_stream(source, open_probe(self._spark, table))
                staged.warnings[table.name] = table_warnings(table)

    def _stage_views(self, staged: Declared, views: Mapping[str, CreateView | str]) -> None:
        """Resolves and binds views and what selects from them, so that a mistake is told before anything changes."""
        declared = {name.upper(): name for name in staged.views}
        taken = {name.upper() for name in (*staged.tables, *staged.streams)}
        written: dict[str, tuple[Query, str]] = {}
        for name, view in views.items():
            if name.upper() in taken:
                raise DuplicateNameError(f"{name} is a table or stream; choose another name for the view.")
            if isinstance(view, str):
                query, text = parse_query(view, self._aggregates), view
            else:
                query, text = view.query, view.text
            written[declared.setdefault(name.upper(), name)] = (query, text)
        known = {name.upper(): view.query for name, view in staged.views.items()}
        for name in staged.dependents(written.keys() & staged.views.keys()):
            view_ = staged.views[name]
            written.setdefault(name, (view_.query, view_.definition.sql))
        users = {each: aggregate.signature for each, aggregate in self._aggregates.items()}
        new: dict[str, dict[str, SelectQuery]] = {}
        selections: dict[str, list[SelectQuery]] = {}
        for name, (query, text) in written.items():
            known[name.upper()] = query
            _refuse_circle(name, known)
            flat = flatten(query, known)
            below = beneath(query, _texts(staged, written), known)
            if isinstance(flat, JoinQuery):
                staged.views[name] = self._joined(staged, name, (query, text), flat, below)
                continue
            if isinstance(flat, WindowQuery) and flat.over is not None:
                staged.views[name] = self._derived(staged, name, (query, text), flat, below, known)
                continue
            stream = staged.stream_name(flat)
            source, host = staged.streams[stream].source, staged.streams[stream].host
            definition: ViewDefinition | WindowDefinition | DeadlineDefinition
            if isinstance(flat, WindowQuery):
                if flat.hints.deadline_seconds is None:
                    definition = define_window(name, text, flat, below, source, host)
                else:
                    definition = define_deadline(name, text, flat, below, source, host, users)
                new.setdefault(stream, {})[name] = flat.selection
            else:
                definition = define_selection(name, text, flat, source)
                new.setdefault(stream, {})[name] = flat
                selections.setdefault(stream, []).append(flat)
            staged.views[name] = View(stream, query, definition)
        for stream, selected in selections.items():
            check_projections(selected, staged.streams[stream].host)
        staged.refuse_loose_ends()
        for stream, queries in new.items():
            source, host = staged.streams[stream].source, staged.streams[stream].host
            self._warn(staged, self._bind(source.schema, host, queries, declaring=True), queries)

    def _derived(
        self,
        staged: Declared,
        name: str,
        written: tuple[Query, str],
        flat: WindowQuery,
        below: tuple[tuple[str, str], ...],
        known: Mapping[str, Query],
    ) -> View:
        """A window view over a window or join view, bound to the columns of that.

        Args:
            staged: what is declared; warnings are added.
            name: the view's name.
            written: its query and text.
            flat: its query over the view beneath.
            below: (name, text) of the views beneath.
            known: the query of every view, by name in upper case.
        """
        query, text = written
        source = staged.view_name(flat.source)
        inner, view = flatten(known[source.upper()], known), staged.views[source]
        assert isinstance(view.definition, WindowDefinition | JoinDefinition), (
            "selections are replaced by what they are over, and nothing is over windows with a deadline"
        )
        if isinstance(inner, WindowQuery):
            place, stream = view.stream, staged.streams[view.stream]
            columns = rows_schema(inner, source, stream.source, stream.host)
        else:
            assert isinstance(view.definition, JoinDefinition), "it is over a window or join view"
            place, columns = JOINS_NAME, joined_columns(view.definition)
        host = SparkExpressionHost(self._spark, columns)
        derived = define_derived(name, text, flat, below, (place, view.definition), columns, host)
        selection = {name: flat.selection}
        self._warn(staged, self._bind(columns, host, selection, declaring=True), selection)
        return View(rows_of(place, source), query, derived.definition, derived)

    def _warn(self, staged: Declared, bound: BoundSelections, queries: Iterable[str]) -> None:
        staged.warnings.update((name, []) for name in queries)
        for name, warning in bound.warnings:
            staged.warnings[name].append(warning)

    def _joined(
        self,
        staged: Declared,
        name: str,
        written: tuple[Query, str],
        flat: JoinQuery,
        below: tuple[tuple[str, str], ...],
    ) -> View:
        """A join view, bound, with what it asks of its streams checked.

        Args:
            staged: what is declared.
            name: the view's name.
            written: its query and text.
            flat: its query over streams and static tables.
            below: (name, text) of the views beneath.
        """
        query, text = written
        schemas = {each: stream.source.schema for each, stream in staged.streams.items()}
        schemas |= {each: table.schema for each, table in staged.statics.items()}
        definition, staged.warnings[name] = define_join(
            name, text, flat, below, schemas, staged.relations, self._spark, self._on_arrays
        )
        for stream in definition.streams:
            source, host = staged.streams[stream].source, staged.streams[stream].host
            check_demands(definition.plan, stream, source, host)
        return View(definition.streams[0], query, definition)

    def _stage_insert(self, staged: Declared, insert: InsertInto) -> None:
        table = next(table for name, table in staged.tables.items() if name.upper() == insert.table.upper())
        with table.pointing():
            write = open_sink(table)
        query = insert.query
        if (
            isinstance(query, SelectQuery)
            and query.projection is None
            and not query.conditions
            and query.source.upper() in {name.upper() for name in staged.views}
        ):
            view = staged.view_name(query.source)
        else:
            view = _insert_view(insert)
            self._stage_views(staged, {view: insert.text})
        staged.sinks.append(Sink(insert.table, view, write, insert.text))

    def _bind(
        self,
        columns: StructType,
        host: SparkExpressionHost,
        queries: Mapping[str, SelectQuery | str],
        *,
        declaring: bool = False,
    ) -> BoundSelections:
        require_meaning(self._spark)
        timezone = self._spark.conf.get("spark.sql.session.timeZone") or "UTC"
        return bind_selections(queries, arrow_schema(columns), host, timezone, declaring=declaring)

    def _compiled(self, stream: Stream, windows: Sequence[WindowDefinition]) -> CompiledWindows:
        schema = arrow_schema(stream.source.schema)
        register = WindowRegister().changed(sharing(windows, schema, stream.host), ())
        event_time = stream.source.event_time
        return compile_windows(0, register, schema, stream.host, self._settings, 1, event_time)

    def _install(self, staged: Declared) -> None:
        staged.refuse_deadlines()
        before, self._declared = self._declared, staged
        run = self._run
        if run is None or not run.active:
            return
        run.set_sinks(staged.sinks_by_stream())
        if staged.joins != before.joins or staged.statics.keys() != before.statics.keys():
            run.set_joins(staged.joins, staged.statics)
        for name, stream in staged.streams.items():
            old, new = before.on(name), staged.on(name)
            if name in run.queries:
                changed = {
                    view: definition for view, definition in new.items() if old.get(view) != definition
                }
                dropped = [view for view in old if view not in new]
                if changed or dropped:
                    run.change(name, changed, dropped)
            elif new or name in staged.joined:
                run.add_stream(name, stream.source, new, stream.probe)
        derived = staged.derived
        for place in before.derived | derived:
            known, wanted = before.derived.get(place, {}), derived.get(place, {})
            added = {name: view for name, view in wanted.items() if known.get(name) != view}
            gone = [name for name in known if name not in wanted]
            if added or gone:
                run.derive(*place, added, gone)

    def _new_stream(self, source: Source, probe: Probe | None = None) -> Stream:
        return Stream(source, SparkExpressionHost(self._spark, source.schema), probe)


def _insert_view(insert: InsertInto) -> str:
    """Name of the view behind an INSERT INTO with a condition or projection of its own."""
    digest = hashlib.sha256(insert.text.encode()).hexdigest()[:6]
    return f"insert_into_{insert.table.lower()}_{digest}"


def _refuse_taken(what: str, name: str, taken: Iterable[str], kind: str) -> None:
    if str(name).upper() in map(str.upper, taken):
        raise DuplicateNameError(
            f"{what}: {kind} has that name already. Names are case-insensitive; choose another one."
        )


def _texts(staged: Declared, written: Mapping[str, tuple[Query, str]]) -> dict[str, str]:
    """The text of every view, of those that are being declared the new one."""
    return {**staged.texts, **{name: text for name, (_, text) in written.items()}}


def _refuse_circle(name: str, views: Mapping[str, Query]) -> None:
    passed: set[str] = set()
    reached = [name.upper()]
    while reached:
        for source, _ in sources_of(views[reached.pop()]):
            if source.upper() == name.upper():
                raise InputError(f"view {name} would select from itself")
            if source.upper() in views and source.upper() not in passed:
                passed.add(source.upper())
                reached.append(source.upper())
