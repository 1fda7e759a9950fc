"""`penstock explain`: shows what would run where, and why."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, Tune, open_script


def explain(
    script: Script, master: Master = None, conf: Conf = None, tune: Tune = None, functions: Functions = None
) -> None:
    """Explain how Penstock would run a script: decoding, compared columns, joins. Starts no query."""
    engine, _ = open_script(script, master, conf, tune, functions)
    Console().print(engine.explain(), highlight=False, markup=False, soft_wrap=True)
