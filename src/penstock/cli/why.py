"""`penstock why`: says why a tuple is in the rows of a view, or is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import Conf, Functions, Master, Script, TextFormat, Tune, open_script
from penstock.errors import InputError
from penstock.monitor.figures import counted

if TYPE_CHECKING:
    from penstock.provenance import Judged, Partners, TupleWindow, Why


def why(
    script: Script,
    view: Annotated[str, typer.Argument(help="Name of a view of the script.", metavar="VIEW")],
    row: Annotated[
        str | None,
        typer.Option(
            "--row", help="The tuple as a JSON object, or @FILE with one.", metavar="JSON", show_default=False
        ),
    ] = None,
    quarantined: Annotated[
        int | None,
        typer.Option(
            "--quarantined",
            help="Instead of a row: record N of the quarantine in --output; 1 is the newest.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="For a join view: the input of the tuple; default: the one whose columns fit best.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Results folder; shows what became of the windows of the tuple.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        TextFormat, typer.Option("--format", help="Output format: text or json (everything).")
    ] = TextFormat.TEXT,
    master: Master = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
) -> None:
    """Show why a tuple matches a view, or why not: each condition with its values and verdict."""
    if (row is None) == (quarantined is None):
        raise InputError("Give either --row or --quarantined.")
    if quarantined is not None and output is None:
        raise InputError("--quarantined needs --output, the results folder with the quarantine.")
    text = None if row is None else read_row(row)
    engine, _ = open_script(script, master, conf, tune, functions)
    found = engine.why(view, text, quarantined=quarantined, input=relation, output=output)
    if output_format is TextFormat.JSON:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    print("\n".join(why_lines(found)))


def read_row(given: str) -> str:
    """The text of `--row`, from its file where it is `@FILE`.

    Raises:
        InputError: the file cannot be read.
    """
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise InputError(f"--row {given}: {reason}.") from error


def why_lines(why: Why) -> Iterator[str]:
    """An answer as lines of text."""
    yield f"{why.view}: {_headline(why)}"
    of = f"{why.input} ({why.relation})" if why.input not in ("", why.relation) else why.relation
    if why.values:
        yield f"tuple of {of}: {values_text(why.values)}"
    if why.missing:
        yield f"not given, so NULL: {', '.join(why.missing)}"
    if why.unknown:
        yield f"warning: not a column of {why.relation}, ignored: {', '.join(why.unknown)}"
    owner = why.view
    for each in why.conjuncts:
        if each.view != owner:
            yield f"conditions of {each.view}:"
        elif owner != why.view:
            yield f"conditions of {why.view}:"
        owner = each.view
        yield from _judged_lines(each.judged, 1)
    for window in why.windows:
        yield from _window_lines(window)
    for partner in why.partners:
        yield from _partner_lines(partner)
    if why.joined is not None:
        yield f"{counted(why.joined, 'joined row')} in the files of the tables"
    yield from (f"note: {note}" for note in why.notes)


def value_text(value: Any) -> str:
    """A value as SQL shows it: text in quotes, NULL, everything else as JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def values_text(values: Mapping[str, Any]) -> str:
    """Named values in one line."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in values.items())


def _headline(why: Why) -> str:
    if why.set_aside:
        return (
            f"the record is in the quarantine: {why.set_aside}"
            if why.values
            else (f"Penstock sets the record aside: {why.set_aside}")
        )
    if why.verdict == "true":
        kind = {"selection": "the tuple matches", "join": "the tuple takes part in the join"}
        return kind.get(why.kind, "the tuple is in the windows below")
    failing = [each.judged for each in why.conjuncts if each.judged.verdict != "true"]
    reasons = "; ".join(f"{each.text} is {each.verdict}" for each in failing)
    return f"the tuple does not match: {reasons}"


def _judged_lines(judged: Judged, depth: int) -> Iterator[str]:
    values = ", ".join(
        f"{each.text} = {value_text(each.value)}" if each.error is None else f"{each.text}: {each.error}"
        for each in judged.values
    )
    is_shown = any(each.error == judged.error for each in judged.values)
    error = f"   {judged.error}" if judged.error is not None and not is_shown else ""
    text = " ".join(judged.text.split())
    yield f"{'  ' * depth}{judged.verdict:<6} {text}{'   ' + values if values else ''}{error}"
    for part in judged.parts:
        yield from _judged_lines(part, depth + 1)


def _window_lines(window: TupleWindow) -> Iterator[str]:
    keys = f", {values_text(window.keys)}" if window.keys else ""
    fate = "" if window.fate == "unknown" else f": {window.fate}"
    reason = f" ({window.reason})" if window.reason else ""
    yield f"  window {window.start} - {window.end}{keys}{fate}{reason}"
    for each in window.revisions:
        kind = "final" if each.is_final else "not final"
        coverage = "" if each.coverage is None else f", coverage {each.coverage:.3g}"
        yield f"    revision {each.revision}, {kind}{coverage}, {each.op}: {values_text(each.row)}"


def _partner_lines(partner: Partners) -> Iterator[str]:
    name = partner.input if partner.input == partner.relation else f"{partner.input} ({partner.relation})"
    if partner.read is None or partner.count is None:
        yield f"  partners from {name}: unknown. {partner.reason}"
        return
    yield f"  partners from {name}: {partner.count:,} of {counted(partner.read, 'tuple')}"
    for row in partner.rows:
        yield f"    {values_text(row)}"
