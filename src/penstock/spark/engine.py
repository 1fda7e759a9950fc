"""The engine: streams, views and sinks are declared here, then run."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import PythonEvalType, arrow_udf

from penstock.errors import DuplicateNameError, InputError
from penstock.settings import Settings, tuned
from penstock.spark.declared import Declared
from penstock.spark.declaring import Declaring, Reconciled
from penstock.spark.functions import named, refuse_builtin, register_aggregate
from penstock.spark.ingest.trigger import Trigger
from penstock.spark.publication.kinds import rows_of
from penstock.spark.run import Run
from penstock.spark.sessions.build import require_classic, require_meaning
from penstock.spark.sessions.zone import keep_zone, require_zone
from penstock.spark.sinks import Sink, SinkFunction
from penstock.spark.sources.columns import check_columns
from penstock.spark.sources.event_times import stored_times
from penstock.spark.sources.source import Progress, untold
from penstock.spark.sources.tables import stream_source
from penstock.spark.storage.layout import Layout
from penstock.sql.text.intervals import trigger_microseconds

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike


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
        self._declaring = Declaring(spark, self._settings)
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
            self._declaring.execute(staged, script)
            self._install(staged)
        return self

    def stream(
        self, name: str, frame: DataFrame, event_time: str | None = None, event_time_format: str | None = None
    ) -> Engine:
        """Declares any streaming DataFrame as a stream.

        Args:
            name: the stream's name.
            frame: the DataFrame.
            event_time: the column of the event time, a TIMESTAMP unless `event_time_format` is given.
            event_time_format: how the event time is stored: 'seconds', 'millis', 'micros' or 'nanos' since 1970 as numbers, or a
                datetime pattern of Spark as text. Queries see the column as a TIMESTAMP.

        Raises:
            InputError: it is no streaming DataFrame, a column name is reserved, or the event time is not stored so.
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
        with self._lock:
            staged = self._declared.copy()
            self._declaring.stream(staged, name, source)
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
            self._declaring.views(staged, queries)
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
            reconciled = self._declaring.reconcile(staged, script)
            self._install(staged)
        return reconciled

    def function(self, name: str, fn: Callable[..., pa.Array], returns: str) -> Engine:
        """Registers a vectorised function for use in queries.

        Args:
            name: its name in SQL.
            fn: takes one `pyarrow.Array` an argument, returns one of the same length.
            returns: its Spark SQL type, such as 'DOUBLE'.

        Raises:
            InputError: `returns` is no type, or `fn` takes no argument.
            DuplicateNameError: it is the name of a function of Spark's, or of an aggregate of the user's.
        """
        refuse_builtin(f"function {name}", name)
        _refuse_taken(f"function {name}", name, self._declaring.aggregates, "an aggregate")
        guarded = named(name, fn, returns)
        udf: UserDefinedFunctionLike = arrow_udf(guarded, returnType=returns)  # type: ignore[call-overload]
        self._spark.udf.register(name, udf)
        self._functions[name] = guarded
        self._declaring.on_arrays.discard(name)
        if udf.evalType == PythonEvalType.SQL_SCALAR_ARROW_UDF:
            self._declaring.on_arrays.add(name)
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
            self._declaring.aggregates[name.upper()] = register_aggregate(
                self._spark, name, cls_or_fn, returns
            )
        return self

    def sink(self, view: str, write: SinkFunction) -> Engine:
        """Hands the rows of a view to a function, batch by batch, after they have been published.

        Args:
            view: the view's name.
            write: takes a DataFrame and the batch's number, as with Spark's foreachBatch; of a window view every
                revision, as `Run.changes` has them. A batch may be handed over again after a crash. Its
                exception stops the stream; that of a window or join view's sink only its lane, which is tried again.

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
        derived = (rows_of(*beneath) for beneath in self._declared.derived)
        return {name: self._declared.reading(name) for name in (*self._declared.streams, *derived)}

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
        return self._declaring.explain(self._declared)

    def start(
        self,
        output: str | Path | None = None,
        checkpoint: str | Path | None = None,
        trigger: str = "0 seconds",
        available_now: bool = False,
        ended: bool = False,
        progress: Progress = untold,
    ) -> Run:
        """Starts an ingest query for every stream that has views.

        Args:
            output: the results folder; a temporary one where None.
            checkpoint: what a restart needs; inside the results folder where None.
            trigger: least time between two batches, as Spark writes it.
            available_now: stop when everything available now has been answered, every window with what is there.
                Windows that later tuples may still change are not final, and the next run goes on with them.
            ended: with `available_now`: what is there now is all there will ever be, so that every window is final.
            progress: told what the start of a stream is at, again and again while that takes long; what it raises ends the start.

        Raises:
            InputError: nothing to run, `ended` without `available_now`, a trigger that is no length of time, or folders that do not fit.
        """
        trigger_microseconds(trigger)
        if ended and not available_now:
            raise InputError("ended=True requires available_now=True.")
        require_meaning(self._spark)
        with self._lock:
            if self._run is not None and self._run.active:
                raise InputError("The engine is running. Stop it before you start it again.")
            if not self._declared.views:
                raise InputError(
                    "The engine has nothing to run: declare at least one stream and one view on it."
                )
            layout = Layout.of(output or tempfile.mkdtemp(prefix="penstock-"), checkpoint)
            layout.open()
            require_zone(self._spark, layout)
            self._run = Run(
                self._spark,
                layout,
                self._settings,
                Trigger(available_now, trigger, ended),
                self._functions,
                self._declaring.aggregates,
                progress,
            )
            self._run.set_sinks(self._declared.sinks_by_stream())
            begun = {
                name: stream
                for name, stream in self._declared.streams.items()
                if self._declared.on(name) or name in self._declared.mapped
            }
            try:
                for name, stream in begun.items():
                    self._run.prepare(name, stream.source)
                    if layout.replay(name).is_dir():
                        # its copy of the table was read in this zone
                        keep_zone(self._spark, layout)
                keep_zone(self._spark, layout)
                self._run.set_joins(self._declared.joins, self._declared.statics)
                self._run.set_deadlines(self._declared.deadlines)
                for place, views in self._declared.derived.items():
                    self._run.derive(*place, views)
                for name, stream in begun.items():
                    self._run.add_stream(name, stream.source, self._declared.on(name), stream.probe)
                self._run.started()
            except BaseException as error:
                if isinstance(error, InputError):
                    self._run.refused(error)
                try:
                    self._run.stop()
                except Exception as second:
                    error.add_note(f"stopping the started parts failed too: {second}")
                raise
            finally:
                self._run.is_starting = False
            return self._run

    def _install(self, staged: Declared) -> None:
        before, self._declared = self._declared, staged
        run = self._run
        if run is None or not run.active:
            return
        run.set_sinks(staged.sinks_by_stream())
        if staged.joins != before.joins or staged.statics.keys() != before.statics.keys():
            run.set_joins(staged.joins, staged.statics)
        run.set_deadlines(staged.deadlines)
        for name, stream in staged.streams.items():
            old, new = before.on(name), staged.on(name)
            if name in run.queries:
                changed = {
                    view: definition for view, definition in new.items() if old.get(view) != definition
                }
                dropped = [view for view in old if view not in new]
                if changed or dropped:
                    run.change(name, changed, dropped)
            elif new or name in staged.mapped:
                run.prepare(name, stream.source)
                run.add_stream(name, stream.source, new, stream.probe)
        derived = staged.derived
        for place in before.derived | derived:
            known, wanted = before.derived.get(place, {}), derived.get(place, {})
            added = {name: view for name, view in wanted.items() if known.get(name) != view}
            gone = [name for name in known if name not in wanted]
            if added or gone:
                run.derive(*place, added, gone)


def _refuse_taken(what: str, name: str, taken: Iterable[str], kind: str) -> None:
    if str(name).upper() in map(str.upper, taken):
        raise DuplicateNameError(
            f"{what}: {kind} has that name already. Names are case-insensitive; choose another name."
        )
