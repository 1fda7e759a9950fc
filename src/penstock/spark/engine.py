"""The engine: streams, views and sinks are declared here, then run."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import DuplicateNameError, InputError, UnknownNameError
from penstock.settings import Settings
from penstock.spark.bindings import ViewDefinition
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.ingest import Trigger
from penstock.spark.layout import Layout
from penstock.spark.run import Run
from penstock.spark.session import require_classic
from penstock.spark.sinks import Sink, SinkFunction, open_sink
from penstock.spark.source import Source
from penstock.spark.sources import check_columns, open_table, stream_source
from penstock.sql.bind import bind_selections
from penstock.sql.script import CreateTable, CreateView, InsertInto, parse_query, parse_script
from penstock.sql.views import ResolvedView, resolve


#: begins the name of the view behind an INSERT INTO with a condition or projection of its own
_INSERT = "insert_into_"


@dataclass(slots=True, eq=False)
class _Stream:
    """A declared stream and the views on it."""

    name: str
    source: Source
    host: SparkExpressionHost
    views: dict[str, ViewDefinition] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return to_arrow_schema(self.source.schema)


class Engine:
    """Adaptive continuous queries over the streams of one Spark session.

    Args:
        spark: a classic session.
        settings: what may be tuned; keyword arguments set single fields of `Settings`.

    Raises:
        InputError: a Spark Connect session.

    Example:
        >>> engine = Engine(spark)                                        # doctest: +SKIP
        >>> engine.execute(open("flights.sql").read())                    # doctest: +SKIP
        >>> run = engine.start(output="out", available_now=True)          # doctest: +SKIP
        >>> run.await_termination()                                       # doctest: +SKIP
        >>> run.results("long_late").show()                               # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, settings: Settings | None = None, **tune: Any) -> None:
        require_classic(spark)
        self._spark = spark
        self._settings = (settings or Settings()).model_copy(update=Settings(**tune).model_dump(include=set(tune)))
        self._streams: dict[str, _Stream] = {}
        self._tables: dict[str, CreateTable] = {}
        self._views: dict[str, ResolvedView] = {}
        self._run: Run | None = None
        self._lock = threading.RLock()

    def execute(self, script: str) -> Engine:
        """Declares what a script says: CREATE TABLE, CREATE VIEW, INSERT INTO.

        On a running engine new streams start at once and new views from the next binding on.

        Raises:
            InputError: a mistake in the script; nothing of it is declared then.
        """
        with self._lock:
            staged = self._declare(script)
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
        with self._lock:
            self._refuse_taken(name, ())
            check_columns(name, frame.schema, event_time)
            self._streams[name] = self._new_stream(name, stream_source(frame, event_time))
        return self

    def view(self, name: str, sql: str) -> Engine:
        """Declares a selection view, or redefines one; takes effect at the next binding.

        Raises:
            InputError: a mistake in the query.
        """
        return self.views({name: sql})

    def views(self, queries: Mapping[str, str]) -> Engine:
        """Declares many views in one step, in order; a view may select from an earlier one."""
        with self._lock:
            staged = _Staged(dict(self._views))
            for name, sql in queries.items():
                self._stage_view(staged, name, sql, redefine=True)
            self._check(staged)
            self._install(staged)
        return self

    def drop(self, *names: str) -> Engine:
        """Drops views; they are answered no more from the next binding on.

        Raises:
            UnknownNameError: there is no such view.
        """
        with self._lock:
            gone: dict[str, list[str]] = {}
            for name in names:
                if name not in self._views:
                    raise UnknownNameError(f"no view {name}; existing views: {_some(self._views)}")
                gone.setdefault(self._views[name].stream, []).append(name)
            for stream, dropped in gone.items():
                for name in dropped:
                    del self._views[name], self._streams[stream].views[name]
                if self._run is not None and stream in self._run.queries:
                    self._run.change(stream, {}, dropped)
        return self

    def reconcile(self, script: str) -> tuple[int, int]:
        """Brings the views to what a changed script says; its tables that are known stay as they are.

        Returns:
            How many views were added or redefined, and how many dropped.

        Raises:
            InputError: a mistake in the script; nothing changes then.
        """
        with self._lock:
            statements = parse_script(script).statements
            wanted = {s.name: s for s in statements if isinstance(s, CreateView)}
            known = {name: view.sql for stream in self._streams.values() for name, view in stream.views.items()}
            changed = {name: view for name, view in wanted.items() if known.get(name) != view.text}
            dropped = [name for name in known if name not in wanted and not name.startswith(_INSERT)]
            staged = _Staged({name: view for name, view in self._views.items() if name not in dropped})
            for statement in statements:
                if isinstance(statement, CreateTable) and statement.name not in self._tables:
                    source = open_table(self._spark, statement, self._settings)
                    staged.tables[statement.name] = statement
                    staged.streams[statement.name] = self._new_stream(statement.name, source)
            for name, view in changed.items():
                self._stage_view(staged, name, view, redefine=True)
            self._check(staged)
            self._install(staged)
            self.drop(*(name for name in dropped if name in self._views))
            return len(changed), len(dropped)

    def function(self, name: str, fn: Callable[..., pa.Array], returns: str) -> Engine:
        """Registers a vectorised function for use in queries.

        Args:
            name: its name in SQL.
            fn: takes one `pyarrow.Array` an argument, returns one of the same length.
            returns: its Spark SQL type, such as 'DOUBLE'.
        """
        self._spark.udf.register(name, F.arrow_udf(fn, returnType=returns))
        return self

    def sink(self, view: str, write: SinkFunction) -> Engine:
        """Hands the rows of a view to a function, batch by batch, after they have been published.

        Args:
            view: the view's name.
            write: takes a DataFrame and the batch's number, as with Spark's foreachBatch. A batch may
                be handed over again after a crash. Its exception stops the stream.

        Raises:
            UnknownNameError: there is no such view.
        """
        with self._lock:
            self._add_sink(Sink(getattr(write, "__name__", "function"), view, write))
        return self

    @property
    def declared(self) -> dict[str, list[str]]:
        """The views on each stream."""
        return {name: list(stream.views) for name, stream in self._streams.items()}

    def explain(self) -> str:
        """What will run where and why, without starting anything."""
        lines = []
        for stream in self._streams.values():
            bound = bind_selections(
                {name: view.condition for name, view in stream.views.items()}, stream.schema, stream.host
            )
            lines.append(f"stream {stream.name}: {len(stream.views)} views, map stage {stream.source.place(bound.derived)}")
            lines += [f"  p-attribute {a.name}: {a.type} = {a.expression}" for a in bound.selections.attributes[:50]]
            lines.append(f"  {sum(len(query.terms) for query in bound.selections.queries)} terms")
        return "\n".join(lines)

    def start(
        self,
        output: str | Path | None = None,
        checkpoint: str | Path | None = None,
        trigger: str = "0 seconds",
        available_now: bool = False,
    ) -> Run:
        """Starts an ingest query for every stream that has views.

        Args:
            output: the results folder; a temporary one where None.
            checkpoint: what a restart needs; inside the results folder where None.
            trigger: least time between two batches, as Spark writes it.
            available_now: end when everything available now has been answered.

        Raises:
            InputError: nothing to run, or the folders do not fit.
        """
        with self._lock:
            if self._run is not None and self._run.active:
                raise InputError("the engine is running; stop it before it is started again")
            streams = [stream for stream in self._streams.values() if stream.views]
            if not streams:
                raise InputError("nothing to run: declare at least one stream and one view on it")
            folder = Path(output or tempfile.mkdtemp(prefix="penstock-")).resolve()
            layout = Layout(folder, Path(checkpoint).resolve() if checkpoint else folder / "_penstock" / "checkpoint")
            layout.open()
            self._run = Run(self._spark, layout, self._settings, Trigger(available_now, trigger))
            for stream in streams:
                self._start(stream)
            return self._run

    def _start(self, stream: _Stream) -> None:
        assert self._run is not None, "streams are started on a run"
        for sink in stream.sinks:
            self._run.add_sink(stream.name, sink)
        self._run.add_stream(stream.name, stream.source, stream.views)

    def _declare(self, script: str) -> _Staged:
        staged = _Staged(dict(self._views))
        inserts = []
        for statement in parse_script(script).statements:
            if isinstance(statement, CreateTable):
                self._refuse_taken(statement.name, (*staged.tables, *staged.views))
                staged.tables[statement.name] = statement
            elif isinstance(statement, CreateView):
                staged.texts[statement.name] = statement
            else:
                inserts.append(statement)
        targets = {insert.table for insert in inserts}
        for name, table in staged.tables.items():
            if name not in targets:
                staged.streams[name] = self._new_stream(name, open_table(self._spark, table, self._settings))
        for name, view in staged.texts.items():
            self._refuse_taken(name, staged.streams)
            self._stage_view(staged, name, view)
        for insert in inserts:
            self._stage_insert(staged, insert)
        self._check(staged)
        return staged

    def _stage_view(self, staged: _Staged, name: str, view: CreateView | str, redefine: bool = False) -> None:
        query = parse_query(view) if isinstance(view, str) else view.query
        text = view if isinstance(view, str) else view.text
        if name in self._streams or name in staged.streams or (name in staged.views and not redefine):
            raise DuplicateNameError(f"the name {name} is taken")
        streams = {**self._streams, **staged.streams}
        columns = {stream.name: stream.schema.names for stream in streams.values()}
        resolved = resolve(query, staged.views, columns)
        staged.views[name] = resolved
        definition = ViewDefinition(name, f"{name}:{hash_text(text)}", text, resolved.condition, resolved.projection)
        staged.definitions.setdefault(resolved.stream, {})[name] = definition
        if resolved.projection is not None:
            streams[resolved.stream].host.types([sql for sql, _ in resolved.projection])

    def _stage_insert(self, staged: _Staged, insert: InsertInto) -> None:
        table = staged.tables.get(insert.table) or self._tables.get(insert.table)
        if table is None:
            known = _some([*self._tables, *staged.tables])
            raise UnknownNameError(f"INSERT INTO {insert.table}: no such table; existing tables: {known}")
        write = open_sink(table)
        view = insert.query.source
        if view not in staged.views or not insert.query.is_plain:
            view = _INSERT + insert.table
            self._stage_view(staged, view, insert.text)
        staged.sinks.append(Sink(insert.table, view, write))

    def _check(self, staged: _Staged) -> None:
        """Binds what is new, so that a mistake is told before anything changes."""
        streams = {**self._streams, **staged.streams}
        for name, definitions in staged.definitions.items():
            stream = streams[name]
            conditions = {view: definition.condition for view, definition in definitions.items()}
            bind_selections(conditions, stream.schema, stream.host)

    def _install(self, staged: _Staged) -> None:
        self._tables |= staged.tables
        self._streams |= staged.streams
        self._views = staged.views
        moved: dict[str, list[str]] = {}
        for stream in self._streams.values():
            new = staged.definitions.get(stream.name, {})
            elsewhere = [n for n in stream.views if n not in new and self._views[n].stream != stream.name]
            for name in elsewhere:
                del stream.views[name]
            moved[stream.name] = elsewhere
            stream.views |= new
        for sink in staged.sinks:
            self._add_sink(sink)
        if self._run is None or not self._run.active:
            return
        for stream in self._streams.values():
            if stream.name in self._run.queries:
                new = staged.definitions.get(stream.name, {})
                if new or moved[stream.name]:
                    self._run.change(stream.name, new, moved[stream.name])
            elif stream.views:
                self._start(stream)

    def _add_sink(self, sink: Sink) -> None:
        if sink.view not in self._views:
            raise UnknownNameError(f"no view {sink.view}; existing views: {_some(self._views)}")
        stream = self._streams[self._views[sink.view].stream]
        stream.sinks.append(sink)
        if self._run is not None and stream.name in self._run.queries:
            self._run.add_sink(stream.name, sink)

    def _new_stream(self, name: str, source: Source) -> _Stream:
        return _Stream(name, source, SparkExpressionHost(self._spark, source.schema))

    def _refuse_taken(self, name: str, staged: Iterable[str]) -> None:
        if name in self._streams or name in self._tables or name in self._views or name in staged:
            raise DuplicateNameError(f"the name {name} is taken")


@dataclass(slots=True, eq=False)
class _Staged:
    """What a script declares, before any of it is installed."""

    views: dict[str, ResolvedView]
    tables: dict[str, CreateTable] = field(default_factory=dict)
    streams: dict[str, _Stream] = field(default_factory=dict)
    texts: dict[str, CreateView] = field(default_factory=dict)
    definitions: dict[str, dict[str, ViewDefinition]] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)


def hash_text(text: str) -> str:
    """A short digest of a definition's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "") or "none"
