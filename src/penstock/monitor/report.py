"""The status of a results folder as lines of text: problems first, then a line a stream and a line a view."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import islice

from penstock.monitor.admission import admission_lines
from penstock.monitor.book import Document
from penstock.monitor.details import detail_lines
from penstock.monitor.figures import clock, counted, roughly, since
from penstock.monitor.overview import (
    MOST_STREAMS,
    MOST_VIEWS,
    WIDTH,
    sink_table,
    stream_table,
    stream_totals,
    view_table,
    view_totals,
)
from penstock.monitor.problems import UNBROKEN, problem_lines

#: problems on one screen, and characters of one
_MOST_PROBLEMS, _MOST_CHARACTERS = 8, 380


def status_lines(document: Document, *, verbose: bool = False) -> Iterator[str]:
    """Yield what `penstock status` prints.

    Args:
        document: see `folder_status`.
        verbose: all streams and views, every problem whole, and the details of each; otherwise what fits one screen.
    """
    yield _run(document)
    problems = list(problem_lines(document))
    if problems:
        yield f"{counted(len(problems), 'problem')}:"
    shown = problems if verbose else problems[:_MOST_PROBLEMS]
    for problem in shown:
        yield from _wrapped(problem, None if verbose else _MOST_CHARACTERS)
    if len(shown) < len(problems):
        yield f"  {len(problems) - len(shown):,} more: -v"
    if document["streams"]:
        yield ""
        yield stream_totals(document)
        yield from stream_table(document, None if verbose else MOST_STREAMS)
    views = list(view_table(document, None if verbose else MOST_VIEWS))
    if views:
        yield ""
        yield view_totals(document)
        yield from views
        yield from islice(admission_lines(document["views"]), 1)
    sinks = list(sink_table(document))
    if sinks:
        yield ""
        yield counted(len(sinks) - 1, "sink")
        yield from sinks
    if verbose:
        yield ""
        yield from detail_lines(document)


def _run(document: Document) -> str:
    state = document["state"]
    if state in ("running", "starting"):
        state += f" (process {document['pid']})"
    parts = [f"{document['output']}: {state}"]
    if document.get("started"):
        parts.append(f"started {clock(document['started'])}")
    if document.get("time"):
        parts.append(f"last report {roughly(since(document['time']))} ago")
    return ", ".join(parts)


def _wrapped(problem: str, most: int | None) -> Iterator[str]:
    """Yield a problem in lines that fit, cut at `most` characters; a command within it remains whole."""
    text = re.sub(r"[ \t\r\n]+", " ", problem)
    if most is not None and len(text) > most:
        text = f"{text[: most - 3]}..."
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(UNBROKEN, " ") for line in lines)
