"""`penstock check`: binds a script against its streams and starts nothing."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, Tune, open_script, tell_warnings


def check(
    script: Script, master: Master = None, conf: Conf = None, tune: Tune = None, functions: Functions = None
) -> None:
    """Check a script: names, types, sources and sinks. Nothing is started."""
    engine, _ = open_script(script, master, conf, tune, functions)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    tell_warnings(engine, console)
    for stream, views in engine.declared.items():
        console.print(f"stream {stream}: {len(views)} views")
    console.print(f"{script} is good")
