"""Sinks as they are declared: by INSERT INTO a table, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InputError, SqlError
from penstock.spark.sinks.delivery import Delivery, Form, Mode, refuse_missing
from penstock.spark.sinks.lengths import seconds
from penstock.spark.sinks.providers import (
    COMMON,
    Opens,
    PlainTarget,
    Promise,
    SinkProvider,
    SinkTable,
    provider_of,
    refuse_unknown,
)
from penstock.spark.sinks.published import Limits
from penstock.spark.sources.reader_options import plain_option
from penstock.sql.script.statements import CreateTable

#: given the rows of one view of one batch, with the columns penstock_batch and penstock_ordinal, of a selection
#: penstock_definition too, and the batch's number
SinkFunction = Callable[[DataFrame, int], None]
Begin = Literal["earliest", "latest"]
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SinkView:
    """A view, as the declaration of a sink needs it.

    Attributes:
        name: the view's name.
        columns: its own columns.
        key: those that tell its rows apart; None: there are none, or the SELECT list lacks them.
        has_windows: whether its rows are those of windows or sessions, early or final.
        changes: whether rows are replaced or withdrawn.
        has_sessions: whether they are those of sessions.
        needs: of a ranking or a view with grouping sets that has no key, what gives it one, and "" of one with a key: no other tells its
            rows apart. None of other views.
    """

    name: str
    columns: pa.Schema
    key: tuple[str, ...] | None
    has_windows: bool
    changes: bool
    has_sessions: bool = False
    needs: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """Where the rows of one view go.

    Attributes:
        name: of the table or function, for messages.
        view: whose rows.
        kind: the word after USING; `function` of a function.
        opens: opens the target.
        form: in what form it takes rows.
        limits: how many rows a delivery has.
        promise: how often the counterpart gets a row.
        takes_frames: whether Spark reads the rows.
        begin: which rows a new sink begins with.
        every_seconds: least time between two deliveries, as long as none is full.
        is_eager: whether the target has something to do before the first delivery of a run.
        text: the query of the INSERT INTO that declared it; empty for a function.
    """

    name: str
    view: str
    kind: str
    opens: Opens
    form: Form
    limits: Limits
    promise: Promise
    takes_frames: bool = False
    begin: Begin = "earliest"
    every_seconds: float = 0.0
    is_eager: bool = False
    text: str = ""


class _FunctionTarget(PlainTarget):
    def __init__(self, write: SinkFunction) -> None:
        self._write = write

    def deliver(self, delivery: Delivery) -> None:
        self._write(delivery.frame(), delivery.batch)


def function_sink(view: str, write: SinkFunction) -> Sink:
    """The sink that passes rows of a view to a function."""
    name = getattr(write, "__name__", "function")
    target = _FunctionTarget(write)
    return Sink(name, view, "function", lambda _: target, Form("changes"), Limits(), "at least once", True)


def table_sink(spark: SparkSession, table: CreateTable, view: SinkView, text: str) -> Sink:
    """The sink behind the target of an INSERT INTO.

    Args:
        spark: the session.
        table: the target.
        view: whose rows.
        text: the query of the statement.

    Raises:
        UnsupportedError: there is no such sink.
        InputError, ConnectionFailedError: an option is missing, unknown or has no allowed value; or see the provider.
    """
    provider = provider_of(table)
    refuse_unknown(table, provider)
    common = {plain_option(each) for each in COMMON}
    options = {plain_option(name): value for name, value in table.options.items()}
    own = {name: value for name, value in options.items() if name not in common}
    form = _form(table, options, provider, view)
    declared = SinkTable(table, own, view.name, view.columns, form)
    opens = provider.open(spark, declared)
    promise_of = getattr(provider, "promise_of", None)
    begin = options.get("begin", "earliest")
    if begin not in ("earliest", "latest"):
        raise _wrong(table, "begin", begin, ("earliest", "latest"))
    return Sink(
        table.name,
        view.name,
        table.source,
        opens,
        form,
        provider.limits,
        provider.promise if promise_of is None else promise_of(declared),
        getattr(provider, "takes_frames", False),
        cast(Begin, begin),
        seconds(table, options, "every", getattr(provider, "every_seconds", 0.0)),
        getattr(provider, "is_eager", False),
        text,
    )


def early_rows_note(sink: Sink, table: CreateTable, view: SinkView) -> str | None:
    """That a sink gets early and corrected rows of windows; None where it does not, where its mode is written, and of the console.

    Args:
        sink: the sink.
        table: its table.
        view: whose rows it gets.
    """
    is_chosen = "mode" in {plain_option(name) for name in table.options}
    is_noted = sink.form.mode == "changes" and view.has_windows and not sink.form.final_only
    if not is_noted or is_chosen or sink.kind == "console":
        return None
    return (
        f"sink {table.name}: rows of windows are written early and again when corrected or final (columns revision, is_final). "
        "OPTIONS (final_only 'true') writes final rows only."
    )


def _form(table: CreateTable, options: dict[str, str], provider: SinkProvider, view: SinkView) -> Form:
    where = f"table {table.name}"
    told = options.get("finalonly", "false").lower()
    if told not in _FLAGS:
        raise _wrong(table, "final_only", told, tuple(_FLAGS))
    final_only = _FLAGS[told]
    if final_only and not view.has_windows:
        raise SqlError(
            f"{where}: view {view.name} has no windows, so none of its rows is early. Remove final_only.",
            *table.at("final_only"),
        )
    mode = _mode(table, options.get("mode"), provider, view, final_only=final_only)
    key: tuple[str, ...] = ()
    if "key" in options:
        if mode != "upsert":
            raise SqlError(f"{where}: key belongs to mode upsert; the mode is {mode}.", *table.at("key"))
        named = [each.strip() for each in options["key"].split(",") if each.strip()]
        try:
            key = refuse_missing(named, view.columns.names, where)
        except InputError as error:
            raise SqlError(str(error), *table.at("key")) from error
        if not key:
            raise SqlError(f"{where}: key names no column.", *table.at("key"))
        if view.needs is not None and (view.key is None or set(key) != set(view.key)):
            has = (
                f"has no key: {view.needs}, or use mode changes"
                if view.key is None
                else f"has the key {', '.join(view.key)}. By another one, rows would overwrite each other, or old ones would remain. Remove the option key"
            )
            raise SqlError(f"{where}: view {view.name} {has}.", *table.at("key"))
    elif mode == "upsert":
        if view.key is None and view.needs is not None:
            message = f"{where}: mode upsert needs a key, and view {view.name} has none: {view.needs}, or use mode changes."
            raise SqlError(message, *table.at("mode"))
        if view.key is None:
            if view.has_sessions:
                needs = "select all of its group keys and session_window, or session_window.start and session_window.end"
            elif view.has_windows:
                needs = "select all of its group keys, of a window view the window too"
            else:
                needs = "its SELECT list has no group keys, or not all"
            raise SqlError(
                f"{where}: mode upsert needs a key, and view {view.name} gives none: {needs}. Or set the option key.",
                *table.at("mode"),
            )
        key = view.key
    return Form(mode, key, final_only)


def _mode(
    table: CreateTable, wanted: str | None, provider: SinkProvider, view: SinkView, *, final_only: bool
) -> Mode:
    may_append = not view.changes or final_only
    if wanted is None:
        if not view.changes and "append" in provider.modes:
            return "append"
        allowed = [each for each in provider.modes if each != "append" or may_append]
        return next((each for each in allowed if each != "upsert" or view.key is not None), allowed[0])
    mode = wanted.lower()
    if mode not in provider.modes:
        raise _wrong(table, "mode", wanted, provider.modes)
    if mode == "append" and not may_append:
        needs = " Set final_only 'true', or use" if view.has_windows else " Use"
        others = " or ".join(each for each in provider.modes if each != "append")
        raise SqlError(
            f"table {table.name}: mode append is for rows that never change, and rows of view {view.name} do.{needs} mode {others}.",
            *table.at("mode"),
        )
    return mode


def _wrong(table: CreateTable, option: str, value: str, allowed: Sequence[str]) -> SqlError:
    return SqlError(
        f"table {table.name}: {option} is '{value}'; allowed: {', '.join(allowed)}", *table.at(option)
    )


def named_apart(sinks: Sequence[Sink]) -> dict[str, Sink]:
    """Sinks by the names under which the ledger and the status know them: of a table's view or a function's."""
    found: dict[str, Sink] = {}
    for sink in sinks:
        name = f"{sink.name}.{sink.view}"
        number = 2
        while name in found:
            name, number = f"{sink.name}.{sink.view}.{number}", number + 1
        found[name] = sink
    return found
