"""`penstock check`: binds a script against its streams and starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from penstock.cli.common import (
    Conf,
    Functions,
    Master,
    Script,
    Tune,
    merged_warnings,
    open_script,
    tell_warnings,
)
from penstock.errors import InputError
from penstock.monitor.figures import counted, source_words


def check(
    script: Script, master: Master = None, conf: Conf = None, tune: Tune = None, functions: Functions = None
) -> None:
    """Check a script: names, types, sources and sinks. Starts no query and writes nothing, so it needs no --output."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    engine, _ = open_script(script, master, conf, tune, functions, show=console.print)
    if engine.refused_rules:
        wrong = counted(len(engine.refused_rules), "rule")
        raise InputError("\n".join([f"{script}: {wrong} with mistakes", *engine.refused_rules]))
    tell_warnings(engine, console)
    for note in merged_warnings(engine.notes):
        console.print(f"note: {note}")
    for warning in unused(engine.declared):
        console.print(f"warning: {warning}", style="yellow")
    for stream, views in engine.declared.items():
        console.print(f"{source_words(stream)}: {counted(len(views), 'view')}")
    console.print(f"{script}: no mistakes found")


def unused(declared: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What a script declares that leaves nothing to answer: no stream at all, and streams that no view reads.

    Args:
        declared: the views on each stream.
    """
    if not declared:
        yield "the script declares no stream; nothing will run"
    for stream, views in declared.items():
        if not views:
            yield f"no view reads stream {stream}; add a view or remove the table"
