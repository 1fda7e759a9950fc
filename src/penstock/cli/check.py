"""`penstock check`: binds a script against its streams and starts nothing."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, build_engine, read_script


def check(script: Script, master: Master = None, conf: Conf = None, functions: Functions = None) -> None:
    """Check a script: names, types, sources and sinks. Nothing is started."""
    text = read_script(script)
    engine = build_engine(master, conf, functions)
    engine.execute(text)
    for stream, views in engine.declared.items():
        Console().print(f"stream {stream}: {len(views)} views", highlight=False)
    Console().print(f"{script} is good", highlight=False, soft_wrap=True)
