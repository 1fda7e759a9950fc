"""The engine: streams, views and sinks are declared here, then run."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import PythonEvalType, arrow_udf

from penstock.control.policies.call_order import CallsStanding
from penstock.errors import DuplicateNameError, InputError
from penstock.monitor.figures import counted
from penstock.plan.notes import Note
from penstock.provenance import Backtest, Why
from penstock.settings import Settings, Tuning, tuned
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.functions import (
    aggregate_type,
    function_type,
    named,
    refuse_builtin,
    register_aggregate,
    registering,
)
from penstock.spark.declaring.functions_by_row import drop_by_row, register_by_row
from penstock.spark.declaring.retaining import refuse_over_removed, retained_seconds
from penstock.spark.declaring.rule_sets import RuleChanges
from penstock.spark.declaring.statements import Declaring, Reconciled
from penstock.spark.declaring.triggers import trigger_of
from penstock.spark.declaring.view_list import Views
from penstock.spark.execution import Execution
from penstock.spark.handing_over import hand_over
from penstock.spark.ingest.call_orders import stored_standing
from penstock.spark.provenance.backtest import Wanted, backtest
from penstock.spark.provenance.why import Asked, why
from penstock.spark.publication.kinds import rows_of
from penstock.spark.reporting.catalog import known_catalog
from penstock.spark.rule_following import follow_files
from penstock.spark.run import Run, leave
from penstock.spark.sessions.acknowledged import acknowledge_answers
from penstock.spark.sessions.build import require_classic, require_meaning
from penstock.spark.sessions.store_access import configure
from penstock.spark.sessions.zone import keep_zone, require_zone
from penstock.spark.sinks.declared import SinkFunction
from penstock.spark.sources.columns import check_columns
from penstock.spark.sources.event_times import stored_times
from penstock.spark.sources.source import Progress, untold
from penstock.spark.sources.tables import stream_source
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import address_of
from penstock.trigger import Trigger

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

#: a function or class that a decorator registers and returns
Given = TypeVar("Given", bound=Callable[..., Any])
#: views that a repr names
_MOST_NAMED = 5
_AT_ONCE = Trigger()


class Engine:
    """Adaptive continuous queries over the streams of one Spark session.

    Leaving a `with` block stops the run. The session stays open: its owner closes it.

    Args:
        spark: a classic session.
        settings: what can be tuned.
        **tune: single fields of `Settings`, such as `shards=2`.

    Raises:
        InputError: a Spark Connect session, a session without ANSI mode, or a setting that is unknown or out of range.

    Example:
        >>> _ = spark.range(2000).write.parquet(f"{folder}/numbers")
        >>> engine = Engine(spark, shards=2).execute(f'''
        ...     CREATE TABLE numbers (id BIGINT) USING parquet OPTIONS (path '{folder}/numbers');
        ...     CREATE VIEW small AS SELECT id FROM numbers WHERE id < 3;
        ... ''')
        >>> engine
        <Engine: stream numbers; 1 view: small; not started>
        >>> with engine.start(f"{folder}/out", trigger=Trigger.available_now(ended=True)) as run:
        ...     run.await_termination()
        True
        >>> run.results("small").orderBy("id").toArrow()["id"].to_pylist()
        [0, 1, 2]
        >>> run.status().streams["numbers"].tuples
        2000
    """

    def __init__(self, spark: SparkSession, settings: Settings | None = None, **tune: Unpack[Tuning]) -> None:
        require_classic(spark)
        require_meaning(spark)
        acknowledge_answers()
        self._spark = spark
        self._settings = tuned(settings or Settings(), tune)
        self._declared = Declared()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._declaring = Declaring(spark, self._settings)
        self._execution: Execution | None = None
        self._lock = threading.RLock()
        #: the run beside which files of rules are followed
        self._followed: Execution | None = None

    def __repr__(self) -> str:
        names = ", ".join(list(self.views)[:_MOST_NAMED])
        more = len(self.views) - _MOST_NAMED
        views = f"{counted(len(self.views), 'view')}{': ' if names else ''}{names}"
        streams = ", ".join(self._declared.streams) or "none"
        execution = self._execution
        state = "not started" if execution is None else f"run {execution.status_file.book.state}"
        return f"<Engine: stream{'' if len(self._declared.streams) == 1 else 's'} {streams}; {views}{f' and {more} more' if more > 0 else ''}; {state}>"

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(error, self.close)

    def close(self) -> None:
        """Stop the run, if one was started. The session stays open.

        Raises:
            Exception: as of `Run.stop`.
        """
        if self._execution is not None:
            self._execution.stop()

    def execute(self, script: str, show: Callable[[str], object] = print) -> Engine:
        """Declare the tables, views and sinks of a script: CREATE TABLE, CREATE VIEW, CREATE VIEWS, INSERT INTO.

        SHOW VIEWS and DESCRIBE are answered once all of it is declared. SET is refused unless the engine, or its session, has this value.

        On a running engine new streams start at once, and new views take effect from the next batch on. A run follows the files of
        CREATE VIEWS. A rule with a mistake keeps its last good definition, where it had one (`refused_rules`); what selects from its
        view is declared by `start`.

        Args:
            script: SQL statements.
            show: called with the answer of each SHOW VIEWS and DESCRIBE, a text of some lines.

        Raises:
            InputError: the script has a mistake; nothing of it is declared.
        """
        with self._staged() as staged:
            answers = self._declaring.execute(staged, script)
            if self._execution is not None and self._execution.active:
                self._declaring.settle(staged)
        for each in answers:
            show(each)
        return self

    def stream(
        self, name: str, frame: DataFrame, event_time: str | None = None, event_time_format: str | None = None
    ) -> Engine:
        """Declare a streaming DataFrame as a stream.

        Args:
            name: the stream's name.
            frame: the DataFrame.
            event_time: the column of the event time, a TIMESTAMP unless `event_time_format` is given.
            event_time_format: how the event time is stored: 'seconds', 'millis', 'micros' or 'nanos' since 1970 as numbers, or a
                datetime pattern of Spark as text. Queries see the column as a TIMESTAMP.

        Raises:
            InputError: the DataFrame does not stream, a column name is reserved, or the event time is stored in another way.
            DuplicateNameError: the name is taken.
        """
        if not frame.isStreaming:
            raise InputError(
                f"Stream {name}: the DataFrame is not a streaming DataFrame. Use spark.readStream."
            )
        source = stream_source(frame, event_time)
        if event_time_format is not None:
            if event_time is None:
                raise InputError(f"Stream {name}: event_time_format needs event_time, the name of a column.")
            source = source.timed(
                stored_times(self._spark, name, frame.schema, event_time, event_time_format)
            )
        check_columns(name, source.schema, event_time)
        with self._staged() as staged:
            self._declaring.stream(staged, name, source)
        return self

    def view(self, name: str, sql: str, retain: str | None = None) -> Engine:
        """Declare a view, or redefine one; it takes effect from the next batch on.

        Args:
            name: the view's name.
            sql: its SELECT.
            retain: how long published rows of a window or join view are kept, such as '30 days'; None: as the setting `retain_seconds`
                says.

        Raises:
            InputError: the query has a mistake, `retain` is no length of time, or the view cannot have it.
        """
        with self._staged() as staged:
            self._declaring.view(staged, name, sql, retain)
        return self

    def add_views(self, queries: Mapping[str, str]) -> Engine:
        """Declare or redefine many views in one step, faster than one by one; a view may select from an earlier one.

        Args:
            queries: name -> SELECT.

        Raises:
            InputError: a query has a mistake; nothing is declared.
        """
        with self._staged() as staged:
            self._declaring.told_views(staged, queries)
        return self

    @property
    def views(self) -> Views[Engine]:
        """Return the declared views: a mapping of name -> SQL text."""
        return Views(self._declared.texts, self.add_views)

    def drop(self, *names: str) -> Engine:
        """Drop views; they take part in no batch from the next one on. Their published rows remain.

        Args:
            *names: names of views.

        Raises:
            UnknownNameError: no view has this name.
            InputError: another view selects from one of them.
        """
        with self._staged() as staged:
            for name in names:
                staged.drop(staged.view_name(name))
            staged.refuse_loose_ends()
        return self

    def reconcile(self, script: str, show: Callable[[str], object] = print) -> Reconciled:
        """Add, redefine and drop views until they are those of a changed script.

        Args:
            script: SQL statements.
            show: as of `execute`.

        Returns:
            The views that were added, redefined and dropped.

        Raises:
            InputError: the script has a mistake, has no view, or changes or omits a declared table; nothing changes.
        """
        with self._staged() as staged:
            changes, answers = self._declaring.reconcile(staged, script)
        for each in answers:
            show(each)
        return changes

    def report_script(self, path: str, refused: str | None) -> None:
        """Record that a changed script is refused, or is followed again. `Run.events` and `penstock status` report it.

        Args:
            path: the script.
            refused: why it is refused; None: the run follows it.
        """
        if self._execution is not None:
            self._execution.script_changed(path, refused)

    def report_settings(self, path: str, names: Sequence[str]) -> None:
        """Record that a changed script has other settings, which apply from the next start. `Run.events` reports it.

        Args:
            path: the script.
            names: of the settings, such as `penstock.batch_rows`.
        """
        if self._execution is not None:
            self._execution.settings_changed(path, names)

    @overload
    def function(self, name: str, fn: Callable[..., Any], returns: str) -> Engine: ...
    @overload
    def function(self, name: Given, /) -> Given: ...
    @overload
    def function(
        self, name: str | None = None, /, *, returns: str | None = None
    ) -> Callable[[Given], Given]: ...
    def function(
        self, name: Any = None, fn: Callable[..., Any] | None = None, returns: str | None = None
    ) -> Any:
        """Register a vectorised function for use in queries; also a decorator, with or without arguments.

        Args:
            name: its name in SQL; of a decorated function its Python name where None.
            fn: takes one `pyarrow.Array` for each argument, returns one of the same length.
            returns: its Spark SQL type, such as 'DOUBLE'; where None, the type of the annotated `pyarrow` array.

        Returns:
            The engine, or as a decorator the function itself.

        Raises:
            InputError: `returns` is not a type, no type can be told from the annotation, or `fn` takes no argument.
            DuplicateNameError: Spark or an aggregate has this name.

        Example:
            >>> import pyarrow as pa, pyarrow.compute as pc
            >>> @engine.function
            ... def half(values: pa.Array) -> pa.DoubleArray:
            ...     return pc.divide(values, 2.0)
            >>> @engine.function(returns="BIGINT")
            ... def twice(values):
            ...     return pc.multiply(values, 2)
            >>> spark.sql("SELECT half(3D), twice(3)").first()[:]
            (1.5, 6)
        """
        return registering(self._register_function, function_type, name, fn, returns) or self

    def _register_function(self, name: str, fn: Callable[..., Any], returns: str) -> None:
        refuse_builtin(f"function {name}", name)
        _refuse_taken(f"function {name}", name, self._declaring.aggregates, "an aggregate")
        guarded = named(name, fn, returns)
        udf: UserDefinedFunctionLike = arrow_udf(guarded, returnType=returns)  # type: ignore[call-overload]
        self._spark.udf.register(name, udf)
        self._functions[name] = guarded
        self._declaring.on_arrays.pop(name, None)
        drop_by_row(self._spark, name)
        if udf.evalType == PythonEvalType.SQL_SCALAR_ARROW_UDF:
            self._declaring.on_arrays[name] = guarded
            register_by_row(self._spark, name, guarded, returns)
        self._declared.doubt_mistakes()

    @overload
    def aggregate(self, name: str, cls_or_fn: Callable[..., Any], returns: str) -> Engine: ...
    @overload
    def aggregate(self, name: Given, /) -> Given: ...
    @overload
    def aggregate(
        self, name: str | None = None, /, *, returns: str | None = None
    ) -> Callable[[Given], Given]: ...
    def aggregate(
        self, name: Any = None, cls_or_fn: Callable[..., Any] | None = None, returns: str | None = None
    ) -> Any:
        """Register an aggregate for use in queries and in `spark.sql`; also a decorator, with or without arguments.

        Args:
            name: its name in SQL; of a decorated function or class its Python name where None.
            cls_or_fn: a function that takes the tuples of a group, one `pyarrow.Array` for each argument, and returns a value, None
                for NULL. Or a class, created without arguments, with `add(arrays...)`, `remove(arrays...)` and `result()`. Its
                state passes from one instance of a window to the next: `remove` undoes `add`, and `result` changes nothing.
            returns: its Spark SQL type, such as 'DOUBLE' or 'STRUCT<least: DOUBLE, n: BIGINT>'; where None, the type of the annotated
                Python value.

        Returns:
            The engine, or as a decorator the function or class itself.

        Raises:
            InputError: `returns` is not a type, no type can be told from the annotation, or `cls_or_fn` has another form.
            DuplicateNameError: Spark or a function has this name.

        Example:
            >>> @engine.aggregate
            ... def spread(values: pa.Array) -> int | None:
            ...     found = pc.min_max(values).as_py()
            ...     return None if found["max"] is None else found["max"] - found["min"]
            >>> spark.sql("SELECT spread(x) FROM VALUES (3), (8) AS t(x)").first()[:]
            (5,)
        """
        return registering(self._register_aggregate, aggregate_type, name, cls_or_fn, returns) or self

    def _register_aggregate(self, name: str, given: Callable[..., Any], returns: str) -> None:
        with self._lock:
            _refuse_taken(f"aggregate {name}", name, self._functions, "a function")
            self._declaring.aggregates[name.upper()] = register_aggregate(self._spark, name, given, returns)
            self._declared.doubt_mistakes()

    def sink(self, view: str, write: SinkFunction) -> Engine:
        """Pass the rows of a view to a function, batch by batch, after they have been published.

        Args:
            view: the view's name.
            write: takes a DataFrame and the batch's number, as with Spark's foreachBatch; of a window view every
                revision, as `Run.changes` has them. After a crash it may receive a batch again. If it raises, Penstock calls it
                again with the same rows after a wait; streams and other sinks go on.

        Raises:
            UnknownNameError: no view has this name.
            InputError: a column of the view has a name that Penstock gives to a column of its own.
        """
        with self._staged() as staged:
            self._declaring.sink(staged, view, write)
        return self

    @property
    def declared(self) -> dict[str, list[str]]:
        """Return the names of the views on each stream, by stream."""
        derived = (rows_of(*beneath) for beneath in self._declared.derived)
        return {name: self._declared.reading(name) for name in (*self._declared.streams, *derived)}

    @property
    def warnings(self) -> list[str]:
        """Return warnings: what is declared, allowed, and rarely meant; each begins with the name of a view or table."""
        return [f"{name}: {text}" for name, text in self._declared.told if not isinstance(text, Note)]

    @property
    def notes(self) -> list[str]:
        """Return what documented choices do to views, such as `STATE_TTL`; each begins with the name of a view."""
        return [f"{name}: {text}" for name, text in self._declared.told if isinstance(text, Note)]

    @property
    def refused_rules(self) -> list[str]:
        """Return the rules of files with mistakes, a line each: place, name of the view, reason, and whether an earlier definition runs.

        `start` finds the definitions that an earlier run had.
        """
        return [str(each) for rules in self._declared.rules.values() for each in rules.refused]

    def explain(self, output: str | Path | None = None) -> str:
        """Describe what would run where and why; start nothing.

        Args:
            output: the results folder of a run whose measurements are shown; None: those of the run at hand, if there is one.

        Raises:
            InputError: there is no results folder.
        """
        run = self._execution
        layout = None if output is None else Layout.of(output, None)
        if layout is not None and layout.ledger.reader is None:
            raise InputError(f"{output} is not a results folder. Name the folder that a run writes to.")

        def measured(stream: str) -> CallsStanding | None:
            if layout is not None:
                return stored_standing(layout.call_statistics(stream))
            query = None if run is None else run.queries.get(stream)
            return None if query is None else query.plans.calls.standing

        return self._declaring.explain(self._declared, measured)

    def why(
        self,
        view: str,
        row: str | Mapping[str, Any] | None = None,
        *,
        quarantined: int | None = None,
        input: str | None = None,
        output: str | Path | None = None,
    ) -> Why:
        """Say why a tuple is in the rows of a view, or is not; changes nothing, beside a run too.

        Spark judges each part of the view's conditions, in one job and one more for each part that raises an error.

        Args:
            view: the view's name.
            row: the tuple: a JSON object as text, decoded as the source decodes its records, or column -> Python value.
            quarantined: instead of a row, a record in the quarantine of the view's stream in `output`: 1 is the newest.
            input: of a join view the input that the tuple is of, an alias or table; None: the one whose columns fit best.
            output: a results folder, which says what became of the windows of the tuple.

        Raises:
            UnknownNameError: no view, or no input, has this name.
            InputError: the row is no JSON object or does not fit the columns, or the folder is no results folder.

        Example:
            >>> engine = Engine(spark).stream("ticks", spark.readStream.format("rate").load())
            >>> _ = engine.view("odd", "SELECT * FROM ticks WHERE value > 5 AND value % 2 = 1")
            >>> found = engine.why("odd", {"value": 8})
            >>> found.verdict, [(each.judged.text, each.judged.verdict) for each in found.conjuncts]
            ('false', [('value > 5', 'true'), ('value % 2 = 1', 'false')])
        """
        if (row is None) == (quarantined is None):
            raise InputError("Give either a row or the number of a quarantined record.")
        asked = Asked(row, quarantined, input, output)
        return why(self._spark, self._declared, view, asked, self._settings.max_record_bytes)

    def backtest(
        self,
        view: str,
        *,
        sql: str | None = None,
        over: str | Path | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        rows: int = 5,
    ) -> Backtest:
        """Say what a view, or a draft of one, would answer over stored tuples; changes nothing, beside a run too.

        Spark reads the files as a table and answers the view at once: windows are those over all tuples that were read.

        Args:
            view: the view's name; of a draft the name of a view that it replaces, or a new one.
            sql: the SELECT of a draft; None: the declared view.
            over: a folder or file with tuples of the view's stream, or a results folder: the tuples that its views matched. None: the
                files of the tables themselves.
            since, until: the event times wanted, `until` exclusive; a text is a date or timestamp in the session's time zone.
            rows: most sample rows.

        Raises:
            UnknownNameError: no view has this name.
            InputError: the draft has a mistake, nothing is stored at that place, or there is no event time to select by.
        """
        declared = self._declared
        if sql is not None:
            declared = declared.copy()
            self._declaring.views(declared, {view: sql})
        wanted = Wanted(None if over is None else str(over), since, until, rows)
        return backtest(self._spark, declared, view, wanted)

    def start(
        self,
        output: str | Path | None = None,
        checkpoint: str | Path | None = None,
        trigger: Trigger | str = _AT_ONCE,
        available_now: bool | None = None,
        ended: bool | None = None,
        progress: Progress = untold,
    ) -> Run:
        """Start an ingest query for each stream that has views.

        Args:
            output: the results folder; None: a temporary one.
            checkpoint: the folder that a restart needs; None: inside the results folder.
            trigger: when batches start, and when the run ends; a text is deprecated.
            available_now: deprecated; use `Trigger.available_now()`.
            ended: deprecated; use `Trigger.available_now(ended=True)`.
            progress: called with what the start is doing, repeatedly while that takes long. Raise to abort the start.

        Raises:
            InputError: the engine runs already, has no view, or the folders do not fit it; or a rule has a mistake, and so has the
                definition that its window or join view had in an earlier run; or a rule without an earlier definition has a mistake,
                and the script selects from its view.
            CheckpointError: another run uses the checkpoint, or it belongs to another results folder.
        """
        when = trigger_of(trigger, available_now, ended)
        require_meaning(self._spark)
        with self._lock:
            if self._execution is not None and self._execution.active:
                raise InputError("The engine is running. Stop it before you start it again.")
            layout = Layout.of(output or tempfile.mkdtemp(prefix="penstock-"), checkpoint)
            self._keep_last(layout)
            if not self._declared.views:
                raise InputError(
                    "The engine has nothing to run: declare at least one stream and one view on it."
                )
            layout.check()
            refuse_over_removed(layout, self._declared.derived)
            for folder in (layout.output, layout.checkpoint):
                configure(self._spark, address_of(folder))
            require_zone(self._spark, layout)
            run = self._execution = Execution(
                self._spark,
                layout,
                self._settings,
                when,
                self._functions,
                self._declaring.on_arrays,
                self._declaring.aggregates,
                progress,
            )
            run.set_retention(retained_seconds(self._declared))
            run.set_sinks(self._declared.sinks_of_views())
            run.set_rules(self._declared.files_of_rules)
            begun = {
                name: stream
                for name, stream in self._declared.streams.items()
                if self._declared.on(name) or name in self._declared.mapped
            }
            try:
                for name, stream in begun.items():
                    run.prepare(name, stream.source, stream.probe)
                    if layout.has_replay(name):
                        # its copy of the table was read in this zone
                        keep_zone(self._spark, layout)
                keep_zone(self._spark, layout)
                for kind, definitions in self._declared.lane_views.items():
                    run.lanes.set_views(kind, definitions, self._declared.statics)
                run.lanes.set_deadlines(self._declared.deadlines)
                for place, views in self._declared.derived.items():
                    run.lanes.derive(*place, views)
                for name, stream in begun.items():
                    bound = self._declared.bound.pop(name, None)
                    run.add_stream(name, stream.source, self._declared.on(name), stream.probe, bound)
                run.started()
            except BaseException as error:
                if isinstance(error, InputError):
                    run.refused(error)
                try:
                    run.stop()
                except Exception as second:
                    error.add_note(f"stopping the started parts failed too: {second}")
                raise
            finally:
                run.is_starting = False
            self._follow_rules()
            return Run(run)

    def _keep_last(self, layout: Layout) -> None:
        """Gives the views of rules with mistakes the definitions that they had in an earlier run, and declares what needs them."""
        if self.refused_rules:
            staged = self._declared.copy()
            if (catalog := known_catalog(layout)) is not None:
                self._declaring.keep_last(staged, catalog)
            self._declaring.settle(staged)
            self._declared = staged

    def _follow_rules(self) -> None:
        """Makes sure that the files of rules are followed while the run lasts."""
        run = self._execution
        if self._declared.rules and run is not None and self._followed is not run:
            self._followed = run
            for path, rules in self._declared.rules.items():
                run.rules_changed(RuleChanges(path, standing=rules.refused))
            follow_files(run, self._lock, lambda: self._declared.rules, self._apply_rules)

    def _apply_rules(self, path: str) -> RuleChanges:
        """Brings the views of a CREATE VIEWS statement, by its path, to what its files have."""
        with self._staged() as staged:
            return self._declaring.follow(staged, path)

    @contextmanager
    def _staged(self) -> Iterator[Declared]:
        """What is declared, to be changed: the changes count once the block has ended without an error."""
        with self._lock:
            staged = self._declared.copy()
            yield staged
            self._install(staged)

    def _install(self, staged: Declared) -> None:
        run = self._execution
        if run is None or not run.active:
            self._declared = staged
            return
        refuse_over_removed(run.layout, staged.derived.keys() - self._declared.derived.keys())
        try:
            hand_over(run, self._declared, staged)
        except BaseException:
            run.set_sinks(self._declared.sinks_of_views())
            raise
        staged.bound.clear()
        self._declared = staged
        self._follow_rules()


def _refuse_taken(what: str, name: str, taken: Iterable[str], kind: str) -> None:
    if str(name).upper() in map(str.upper, taken):
        raise DuplicateNameError(
            f"{what}: {kind} has that name already. Names are case-insensitive; choose another name."
        )
