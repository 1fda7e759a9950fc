"""`penstock try`: says what a view, or a draft of one, would answer over stored tuples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import Conf, Functions, Master, Script, TextFormat, Tune, open_script
from penstock.cli.why import values_text
from penstock.errors import InputError
from penstock.monitor.figures import counted

if TYPE_CHECKING:
    from penstock.provenance import Backtest, Count

#: lines of a histogram; more hours are shown by day
_MOST_LINES = 48
_WIDTH = 40
#: letters of a day in a timestamp
_DAY = 10


def try_view(
    script: Script,
    view: Annotated[
        str | None,
        typer.Argument(
            help="Name of a view of the script; with --sql the name of the draft.",
            metavar="[VIEW]",
            show_default=False,
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            help="A draft: SELECT ... FROM a stream of the script.",
            metavar="SELECT",
            show_default=False,
        ),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            "--over",
            help="Folder or file with tuples, or a results folder; default: the files of the table.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Earliest event time, such as '2026-01-31 12:00'.", metavar="TIME", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="End of event times, exclusive.", metavar="TIME", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Most rows to print.", min=0)] = 5,
    output_format: Annotated[
        TextFormat, typer.Option("--format", help="Output format: text or json (everything).")
    ] = TextFormat.TEXT,
    master: Master = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
) -> None:
    """Try a view over stored tuples: matches by hour and some rows. Starts no query, changes no results."""
    if view is None and sql is None:
        raise InputError("Name a view of the script, or give a draft with --sql.")
    engine, _ = open_script(script, master, conf, tune, functions)
    found = engine.backtest(view or "draft", sql=sql, over=over, since=since, until=until, rows=limit)
    if output_format is TextFormat.JSON:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    print("\n".join(backtest_lines(found)))


def backtest_lines(found: Backtest) -> Iterator[str]:
    """A backtest as lines of text."""
    what = "match" if found.by != "window" and len(found.tuples) == 1 else "row"
    plural = "matches" if what == "match" else "rows"
    read = ", ".join(f"{counted(count, 'tuple')} of {name}" for name, count in found.tuples.items())
    yield f"{found.view}: {found.matches:,} {what if found.matches == 1 else plural} in {read}"
    for name, place in found.over.items():
        yield f"{name}: {place}"
    if found.set_aside:
        yield f"{counted(found.set_aside, 'record')} set aside: they do not fit the columns"
    if found.errors:
        yield f"{counted(found.errors, 'tuple')} not matched: the condition raises an error"
    yield from (f"note: {note}" for note in found.notes)
    if len(found.parts) > 1:
        yield "tuples that each part of the condition lets through:"
        width = max(len(f"{part.tuples:,}") for part in found.parts)
        yield from (f"  {part.tuples:>{width},}  {part.text}" for part in found.parts)
    if found.matches:
        yield f"{plural} by {_unit(found)}:"
        yield from _histogram(found)
    if found.rows:
        yield f"rows, {len(found.rows)} of {found.matches:,}:"
        yield from (f"  {values_text(row)}" for row in found.rows)


def _unit(found: Backtest) -> str:
    return "day" if _is_by_day(found) else found.by


def _is_by_day(found: Backtest) -> bool:
    return found.by != "file" and len(found.counts) > _MOST_LINES


def _histogram(found: Backtest) -> Iterator[str]:
    counts: Sequence[tuple[str, int]] = (
        _by_day(found.counts) if _is_by_day(found) else _labelled(found.counts)
    )
    most = max(count for _, count in counts)
    width = max(len(label) for label, _ in counts)
    for label, count in counts[:_MOST_LINES]:
        bar = "#" * max(round(_WIDTH * count / most), 1 if count else 0)
        yield f"  {label:<{width}} {count:>8,} {bar}".rstrip()
    if len(counts) > _MOST_LINES:
        rest = sum(count for _, count in counts[_MOST_LINES:])
        yield f"  {len(counts) - _MOST_LINES:,} more lines with {rest:,}"


def _labelled(counts: Sequence[Count]) -> list[tuple[str, int]]:
    return [(each.of or "unknown", each.matches) for each in counts]


def _by_day(counts: Sequence[Count]) -> list[tuple[str, int]]:
    days: dict[str, int] = {}
    for each in counts:
        day = each.of[:_DAY] or "unknown"
        days[day] = days.get(day, 0) + each.matches
    return list(days.items())
