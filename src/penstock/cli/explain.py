"""`penstock explain`: says what would run where, and why."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, build_engine, read_script


def explain(script: Script, master: Master = None, conf: Conf = None, functions: Functions = None) -> None:
    """Explain a script: where the map stage runs, p-attributes, derived columns. Nothing is started."""
    text = read_script(script)
    engine = build_engine(master, conf, functions)
    engine.execute(text)
    Console().print(engine.explain(), highlight=False, markup=False, soft_wrap=True)
