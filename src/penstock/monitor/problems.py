"""The problems of a status: what needs a person's attention, the worst first."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from penstock.monitor.admission import admission_lines
from penstock.monitor.book import Document
from penstock.monitor.figures import counted, view_words
from penstock.monitor.lost import nothing_read, overflow_words, static_aside
from penstock.monitor.promises import Promise
from penstock.monitor.stream_faults import lost_rows, refused_views, source_faults
from penstock.monitor.troubles import open_troubles, seconds_of, sink_words, trouble_words

#: views named at the most
_NAMED = 3
#: stands between the words of a command, which a line break must not divide
UNBROKEN = "\N{NO-BREAK SPACE}"


def problem_lines(document: Document) -> Iterator[str]:
    """Yield a line for each problem of `folder_status`, the worst first."""
    if document.get("reason"):
        yield f"{document['state']}: {document['reason']}"
    streams: Mapping[str, Mapping[str, Any]] = document["streams"]
    lost = {name: told for name, stream in streams.items() if (told := nothing_read(stream))}
    for name, told in lost.items():
        yield f"stream {name}: {told}"
    output = shlex.quote(document["output"])
    yield from _of_statics(document["views"], output)
    is_over = document["state"] in ("stopped", "dead")
    if is_over or document["state"] in ("running", "starting"):
        last = seconds_of(document.get("time"))
        clock_of = (lambda: last) if is_over else time.time
        for name, trouble in open_troubles(document.get("lanes", {}), clock_of):
            yield trouble_words(name, trouble, is_over=is_over)
        for name, sink in document.get("sinks", {}).items():
            yield from sink_words(name, sink, is_over=is_over)
    for name, stream in streams.items():
        yield from _of_source(name, stream)
    if script := document.get("script"):
        yield f"script {script['script']}: not applied, the run continues unchanged: {script['told']}"
    for path, rules in document.get("rules", {}).items():
        yield from _of_rules(path, rules)
    for name, view in document["views"].items():
        if not view.get("dropped"):
            yield from _of_view(name, view)
    yield from islice(admission_lines(document["views"]), 1, None)
    for name, stream in streams.items():
        yield from _of_records(name, stream, output, is_named=name in lost)


def _of_rules(path: str, rules: Mapping[str, Any]) -> Iterator[str]:
    """The rules with mistakes of a CREATE VIEWS statement: how many, then the first of them."""
    refused, kept = rules["refused"], rules["kept"]
    if not refused:
        return
    runs = f"the last good definition of {'it' if refused == 1 else f'{kept:,}'} runs"
    left = "it has no earlier definition and is left out" if refused == 1 else f"{refused - kept:,} left out"
    parts = [*([runs] if kept else ()), *([left] if kept < refused else ())]
    all_named = "; `penstock check` names all" if refused > _NAMED else ""
    yield f"rules {path}: {counted(refused, 'rule')} with mistakes: {', '.join(parts)}{all_named}"
    yield from (f"rule {each}" for each in rules["named"][:_NAMED])


def _of_source(name: str, stream: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"stream {name}: {fault}" for fault in source_faults(stream))
    yield from refused_views(stream)
    for held in stream.get("held_by", {}).values():
        if not held["is_known"]:
            yield f"stream {name}: an unused reader keeps {held['bytes']:,} bytes of its log"


def _of_view(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    standing = view.get("standing") or {}
    if standing.get("violations"):
        yield f"{view_words(name)}: LOSS promise broken {counted(standing['violations'], 'time')}"
    if (promise := Promise.of(view)) is not None and promise.fault is not None:
        yield f"{view_words(name)}: {promise.fault}"
    if standing.get("overloaded"):
        yield f"{view_words(name)}: overloaded, most of its windows miss their deadline"
    if standing.get("failing"):
        yield f"{view_words(name)}: most of its windows fail"
    if view.get("raised"):
        yield f"{view_words(name)}: a condition failed, {counted(view['raised'], 'joined row')} left out"
    if overflowed := overflow_words(view.get("overflowed", 0)):
        yield f"{view_words(name)}: {overflowed}"
    if left_out := view.get("left_out"):
        yield f"{view_words(name)}: {counted(left_out, 'tuple')} left out, as their sessions were final for longer than history_seconds"


def _of_statics(views: Mapping[str, Mapping[str, Any]], output: str) -> Iterator[str]:
    """The static tables that are lost, and those of which records were set aside; each once, whatever views read it."""
    lost: dict[str, None] = {}
    read: dict[str, Mapping[str, Any]] = {}
    for view in views.values():
        for table, known in (view.get("tables") or {}).items() if not view.get("dropped") else ():
            if told := known.get("lost"):
                lost[f"static table {table} is lost; its last version remains in use: {told['reason']}"] = (
                    None
                )
            # views with other conditions have other rows of it
            read[table] = max(read.get(table, known), known, key=lambda each: each.get("rows") or 0)
    for table, known in sorted(read.items(), key=lambda each: each[1].get("rows") != 0):
        if aside := static_aside(known):
            command = f"penstock quarantine {output} {table}".replace(" ", UNBROKEN)
            yield f"static table {table}: {aside.rstrip('.')}: {command}"
    yield from lost


def _of_records(name: str, stream: Mapping[str, Any], output: str, *, is_named: bool) -> Iterator[str]:
    aside: Mapping[str, int] = stream.get("quarantined") or {}
    command = f"penstock quarantine {output} {name}".replace(" ", UNBROKEN)
    if is_named:
        yield f"stream {name}: see the records: {command}"
    elif aside:
        most = max(aside, key=lambda reason: aside[reason])
        origin = ((stream.get("samples") or {}).get(most) or {}).get("origin")
        why = f"{'all' if len(aside) == 1 else 'most'}: {most}{f' (for example {origin})' if origin else ''}"
        yield (f"stream {name}: {counted(sum(aside.values()), 'record')} set aside, {why}: {command}")
    yield from (f"stream {name}: {fault}" for fault in lost_rows(stream, _NAMED))
