"""Declaring: what scripts, texts and frames say is resolved, opened and bound, so that a mistake is told before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from penstock.control.policies.call_order import CallsStanding
from penstock.errors import DuplicateNameError, InputError, UngroupedError, UnsupportedError
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.plan.notes import Note
from penstock.settings import Settings
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.declaring.columns import with_columns
from penstock.spark.declaring.declared import Declared, RuleSet, Stream
from penstock.spark.declaring.described import answered
from penstock.spark.declaring.explained import explained
from penstock.spark.declaring.further import further_mistakes
from penstock.spark.declaring.insertions import check_width, insert_view, refuse_reserved, view_of
from penstock.spark.declaring.refreshing import with_remedy
from penstock.spark.declaring.retaining import retain_table, retain_views
from penstock.spark.declaring.rule_sets import (
    Declare,
    RuleChanges,
    after_refused,
    before_rules,
    declare_apart,
    follow_rules,
    keep_last_definitions,
    refuse_unknown,
)
from penstock.spark.declaring.session_settings import refuse_others
from penstock.spark.declaring.view_binding import ViewBinding
from penstock.spark.sinks.declared import SinkFunction, early_rows_note, function_sink, table_sink
from penstock.spark.sources.event_times import reads_any
from penstock.spark.sources.outside_values import filled
from penstock.spark.sources.probes import Probe, open_probe
from penstock.spark.sources.rule_files import RuleFiles
from penstock.spark.sources.source import Source
from penstock.spark.sources.static_tables import is_static, open_static
from penstock.spark.sources.table_checks import table_warnings
from penstock.spark.sources.tables import open_table
from penstock.spark.storage.names import check_length, check_name
from penstock.sql.script.mistakes import Mistakes, placed, read_by
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import (
    CreateTable,
    CreateView,
    CreateViews,
    InsertInto,
    Retain,
)
from penstock.sql.text.query import SelectQuery


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `Engine.reconcile` changed.

    Attributes:
        added, redefined, dropped: names of views.
        kept: how many that were there before are there still.
        tables: names of new tables.
        sinks, removed_sinks: tables of new INSERT INTO, and of those that the script no longer has.
    """

    added: list[str]
    redefined: list[str]
    dropped: list[str]
    kept: int
    tables: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    removed_sinks: list[str] = field(default_factory=list)


def _inserts(declared: Declared) -> list[tuple[str, str]]:
    """The table and the query of each INSERT INTO."""
    return [(sink.name, sink.text) for sink in declared.sinks if sink.text]


class Declaring:
    """Adds to what is declared, all of a script or nothing: each method changes the copy it is given, or raises.

    Args:
        spark: the session.
        settings: frozen settings.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        #: the user's aggregates, by name in upper case
        self.aggregates: dict[str, UserAggregate] = {}
        #: the user's functions that take arrays and return one, and not iterators of them, by name
        self.on_arrays: dict[str, Callable[..., Any]] = {}
        self._spark = spark
        self._settings = settings
        self._binding = ViewBinding(spark, settings, self.aggregates, self.on_arrays)

    def execute(self, staged: Declared, script: str) -> list[str]:
        """Adds what a script says, and returns the answers to what it asks.

        Raises:
            InputError: a mistake in the script, or all that do not follow from one another (`MistakesError`).
        """
        mistakes = Mistakes()
        parsed = parse_script(script, staged.names, self.aggregates, mistakes)
        refuse_others(parsed.settings, self._settings, self._spark, mistakes)
        self._tables(staged, parsed.tables, parsed.targets, mistakes)
        before = staged.copy()
        self._views_and_rules(staged, parsed.views, parsed.rules, mistakes)
        now, after = after_refused(staged, parsed.inserts)
        staged.waiting += after
        self._statements(staged, now, mistakes)
        for views in parsed.apart:
            self._judge_apart(before.copy(), views, mistakes)
        answers = answered(staged, parsed.asked, mistakes)
        mistakes.found = [
            with_remedy(self._spark, staged, with_columns(staged, each)) for each in mistakes.found
        ]
        mistakes.raise_any()
        return answers

    def told_views(self, staged: Declared, queries: Mapping[str, str]) -> None:
        """Adds views by their texts; a refusal says whether the view can be refreshed.

        Raises:
            InputError: a mistake in a text.
        """
        with self._telling_remedies(staged):
            self.views(staged, queries)

    @contextmanager
    def _telling_remedies(self, staged: Declared) -> Iterator[None]:
        """Lets a refusal say whether the view can be refreshed."""
        try:
            yield
        except (UngroupedError, UnsupportedError) as error:
            raise with_remedy(self._spark, staged, with_columns(staged, error)) from None

    def settle(self, staged: Declared) -> None:
        """Declares what waits for views whose rules have mistakes.

        Raises:
            InputError: such a view has no last good definition.
        """
        waiting, staged.waiting = staged.waiting, []
        mistakes = Mistakes()
        self._statements(staged, waiting, mistakes)
        mistakes.raise_any()

    def reconcile(self, staged: Declared, script: str) -> tuple[Reconciled, list[str]]:
        """Brings the views to what a changed script says, and answers what it asks.

        Raises:
            InputError: see `Engine.reconcile`.
        """
        before = staged.texts
        sinks = _inserts(staged)
        staged.waiting = []
        parsed = parse_script(script, aggregates=self.aggregates)
        if parsed.is_empty:
            raise InputError("The script has no view. To end all views, stop the run.")
        staged.refuse_other_tables(parsed)
        known = {name.upper() for name in staged.tables}
        mistakes = Mistakes()
        refuse_others(parsed.settings, self._settings, self._spark, mistakes)
        new_tables = [table for table in parsed.tables if table.name.upper() not in known]
        self._tables(staged, new_tables, parsed.targets, mistakes)
        wanted = {view.name: view for view in parsed.views}
        targets = {insert_view(insert) for insert in parsed.inserts}
        kept_rules = {rules.path for rules in parsed.rules if staged.has_rules(rules)}
        ruled = {name for path in kept_rules for name in staged.rules[path].views}
        staged.rules = {path: rules for path, rules in staged.rules.items() if path in kept_rules}
        dropped = [
            name
            for name in before
            if name not in wanted
            and name not in targets
            and name not in ruled
            and not staged.views[name].is_inner
        ]
        # views over those of other rules are declared anew behind the rules
        over = [name for name in staged.dependents(dropped) if name in wanted or name in targets]
        for name in (*over, *dropped):
            staged.drop(name)
        staged.sinks = [sink for sink in staged.sinks if not sink.text or sink.view not in over]
        changed = {name: view for name, view in wanted.items() if before.get(name) != view.text}
        new_rules = [rules for rules in parsed.rules if rules.path not in kept_rules]
        due = [view for name, view in wanted.items() if name in changed or name in over]
        added = self._views_and_rules(staged, due, new_rules, mistakes)
        mistakes.raise_any()
        retain_views(staged, (view for view in parsed.views if view.name.upper() in staged.spelled))
        self.settle(staged)
        kept = {(insert.table, insert.text) for insert in parsed.inserts}
        staged.sinks = [sink for sink in staged.sinks if not sink.text or (sink.name, sink.text) in kept]
        present = {(sink.name, sink.text) for sink in staged.sinks}
        for insert in parsed.inserts:
            if (insert.table, insert.text) not in present:
                self._insert(staged, insert)
        staged.refuse_loose_ends()
        answers = answered(staged, parsed.asked, mistakes)
        mistakes.raise_any()
        return Reconciled(
            added=[name for name in (*changed, *added) if name not in before],
            redefined=[name for name in changed if name in before],
            dropped=[name for name in dropped if name not in staged.views],
            kept=len(staged.views.keys() & before.keys()),
            tables=[table.name for table in new_tables],
            sinks=[table for table, text in _inserts(staged) if (table, text) not in sinks],
            removed_sinks=[table for table, text in sinks if (table, text) not in _inserts(staged)],
        ), answers

    def follow(self, staged: Declared, path: str) -> RuleChanges:
        """Brings the views of a CREATE VIEWS statement, by its path, to what its files were when they were last read."""
        return follow_rules(staged, path, self.views)

    def keep_last(self, staged: Declared, catalog: Mapping[str, Any]) -> None:
        """Declares the views of rules with mistakes as the catalog of an earlier run has them; see `keep_last_definitions`."""
        keep_last_definitions(staged, catalog, self.views, self.aggregates)

    def _views_and_rules(
        self,
        staged: Declared,
        views: Iterable[CreateView],
        rules: Iterable[CreateViews],
        mistakes: Mistakes,
    ) -> list[str]:
        """Adds views of a script and of its rules, and returns the names of the latter; views over rules are added last."""
        first, over = before_rules(staged, views)
        self._apart(staged, first, mistakes, self.views)
        added = self._rules(staged, rules, mistakes)
        now, after = after_refused(staged, over.values())
        staged.waiting += after
        self._statements(staged, now, mistakes)
        return added

    def _apart(
        self, staged: Declared, views: Mapping[str, CreateView], mistakes: Mistakes, declare: Declare
    ) -> None:
        """Adds the views without a mistake."""

        def declare_independent(trial: Declared, each: Mapping[str, CreateView]) -> None:
            declare(trial, mistakes.independent(each, trial.names))

        if not views or mistakes.is_full:
            return
        found: list[tuple[CreateView, InputError]] = []
        for name, error in declare_apart(staged, views, declare_independent):
            found.append((views[name], placed(error, views[name])))
            mistakes.add(found[-1][1], name)
            if mistakes.is_full:
                return
        for view, error in found:
            self._add_further(staged, view, error, mistakes)

    def _add_further(self, staged: Declared, view: CreateView, error: InputError, mistakes: Mistakes) -> None:
        """Takes in the mistakes of a view behind its first one."""
        for each in further_mistakes(view, with_columns(staged, error), partial(self._judged, staged, view)):
            if mistakes.is_full:
                return
            mistakes.add(each)

    def _judged(self, staged: Declared, view: CreateView, text: str) -> InputError | None:
        """The mistake of a view, had it another query."""
        try:
            query = parse_query(text, self.aggregates)
            self.views(staged.copy(), {view.name: replace(view, query=query, text=text)})
        except InputError as error:
            return with_columns(staged, error)
        return None

    def _judge_apart(self, trial: Declared, views: Sequence[CreateView], mistakes: Mistakes) -> None:
        """Takes in the mistake of a view that the script drops or declares twice.

        Args:
            trial: the tables of the script.
            views: the view, behind those beneath it, whose mistakes are known.
            mistakes: takes the mistake in.
        """
        *beneath, view = views
        own = {each.name.upper() for each in beneath}
        outside = {name.upper() for each in views for name in read_by(each.query)} - own
        # what rules declare, and what is written to, is not among the opened tables
        if mistakes.is_full or not outside <= {name.upper() for name in (*trial.streams, *trial.statics)}:
            return
        with suppress(InputError):
            self.views(trial, {each.name: each for each in beneath})
            try:
                self.views(trial, {view.name: view})
            except DuplicateNameError:
                # why it is set apart, which is told already
                return
            except InputError as error:
                mistakes.add(placed(error, view))

    def _statements(
        self, staged: Declared, statements: Iterable[CreateView | InsertInto], mistakes: Mistakes
    ) -> None:
        """Adds views over rules, and then sinks."""

        def declare(trial: Declared, views: Mapping[str, CreateView]) -> None:
            refuse_unknown(trial, views)
            self.views(trial, views)

        views = {each.name: each for each in statements if isinstance(each, CreateView)}
        self._apart(staged, views, mistakes, declare)
        known = {name.upper() for name in staged.names}
        for insert in (each for each in statements if isinstance(each, InsertInto)):
            if mistakes.is_full or mistakes.follow((insert.table, *read_by(insert.query)), known):
                continue
            try:
                self._insert(staged, insert)
            except InputError as error:
                mistakes.add(found := placed(error, insert))
                view = CreateView(insert_view(insert), insert.query, insert.text, insert.start, insert.end)
                self._add_further(staged, view, found, mistakes)

    def _rules(self, staged: Declared, statements: Iterable[CreateViews], mistakes: Mistakes) -> list[str]:
        """Adds the views of CREATE VIEWS statements but for those with mistakes, and returns their names.

        Beside a mistake of the script the files are not read, and any name may be one that they declare.
        """
        names = []
        for statement in statements:
            with mistakes.collected():
                if statement.path in staged.rules:
                    message = (
                        f"Rules from {statement.path} are declared already. Remove one of the statements."
                    )
                    raise DuplicateNameError(message, *statement.at())
                staged.rules[statement.path] = RuleSet(RuleFiles(statement, self.aggregates))
            if mistakes.found:
                mistakes.hides_any = True
            else:
                names += self.follow(staged, statement.path).added
        return names

    def stream(self, staged: Declared, name: str, source: Source) -> None:
        """Adds a stream.

        Raises:
            DuplicateNameError: the name is taken.
        """
        if name.upper() in staged.names:
            raise DuplicateNameError(
                f"{name} exists already. Names are case-insensitive; choose another name."
            )
        staged.streams[name] = self._new_stream(source)

    def view(self, staged: Declared, name: str, sql: str, retain: str | None) -> None:
        """Adds a view, or redefines one.

        Raises:
            InputError: its query has a mistake, or `retain` is no length of time, or the view cannot have it.
        """
        with self._telling_remedies(staged):
            query = parse_query(sql, self.aggregates)
            kept = None if retain is None else Retain.of(retain)
            self.views(staged, {name: CreateView(name, query, sql, 0, len(sql), kept)})

    def views(self, staged: Declared, views: Mapping[str, CreateView | str]) -> None:
        """Adds views and binds them anew with what selects from them, see `ViewBinding.declare`."""
        self._binding.declare(staged, views)

    def sink(self, staged: Declared, view: str, write: SinkFunction) -> None:
        """Adds a function that the rows of a view are passed to.

        Raises:
            UnknownNameError: no view has this name.
            InputError: a column of the view has the name of one that sinks receive beside them.
        """
        sink = function_sink(staged.view_name(view), write)
        refuse_reserved(staged, sink)
        staged.sinks.append(sink)

    def explain(
        self, declared: Declared, measured: Callable[[str], CallsStanding | None] = lambda _: None
    ) -> str:
        """What will run where and why, without starting anything.

        Args:
            declared: what is declared.
            measured: gives what a run has measured of a stream's calls of users' functions; None: nothing.
        """
        return explained(
            self._spark,
            self._settings,
            declared,
            self._binding.selections,
            self._binding.windows,
            measured,
        )

    def _tables(
        self,
        staged: Declared,
        tables: Iterable[CreateTable],
        targets: Collection[str],
        mistakes: Mistakes,
    ) -> None:
        """Opens tables of a script but for those that it only writes to.

        Args:
            staged: what is declared; they are added.
            tables: the tables.
            targets: names of those that the script writes to, in upper case.
            mistakes: takes their mistakes in.
        """
        for table in tables:
            with mistakes.collected(table.name), table.pointing():
                check_name("table", table.name)
                check_length("table", table.name)
                staged.tables[table.name] = table
                if table.name.upper() in targets and not is_static(table):
                    continue
                whole = filled(table)
                if is_static(whole):
                    staged.statics[table.name] = open_static(self._spark, whole)
                    staged.warnings[table.name] = table_warnings(whole, is_static=True)
                else:
                    retain_table(staged, whole)
                    source = open_table(self._spark, whole, self._settings)
                    staged.streams[table.name] = self._new_stream(source, open_probe(self._spark, whole))
                    staged.warnings[table.name] = table_warnings(whole, partial(reads_any, self._spark))

    def _insert(self, staged: Declared, insert: InsertInto) -> None:
        table = next(table for name, table in staged.tables.items() if name.upper() == insert.table.upper())
        query = insert.query
        refuse_unknown(staged, {}, [query])
        if (
            isinstance(query, SelectQuery)
            and query.projection is None
            and not query.conditions
            and query.inner is None
            and query.source.upper() in staged.spelled
        ):
            view = staged.view_name(query.source)
        else:
            view = insert_view(insert)
            place = insert.start, insert.end
            self.views(staged, {view: CreateView(view, query, insert.text, *place)})
        check_width(staged, insert, table, view)
        read = view_of(staged, view)
        with table.pointing():
            sink = table_sink(self._spark, filled(table), read, insert.text)
        refuse_reserved(staged, sink)
        if (note := early_rows_note(sink, table, read)) is not None:
            staged.warnings.setdefault(view, []).append(Note(note))
        staged.sinks.append(sink)

    def _new_stream(self, source: Source, probe: Probe | None = None) -> Stream:
        return Stream(source, SparkExpressionHost(self._spark, source.schema, declaring=True), probe)
