"""Options and steps that subcommands share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.engine import Engine
from penstock.spark.session import build_session

Script = Annotated[
    Path, typer.Argument(help="SQL script: CREATE TABLE, CREATE VIEW, INSERT INTO.", metavar="SCRIPT")
]
Master = Annotated[str | None, typer.Option(help="Spark master URL; default local[*].", metavar="URL")]
Conf = Annotated[
    list[str] | None, typer.Option(help="A Spark setting; may be repeated.", metavar="KEY=VALUE")
]
Functions = Annotated[
    Path | None,
    typer.Option(help="Python module whose FUNCTIONS are registered for the script.", metavar="FILE"),
]


def read_script(path: Path) -> str:
    """The text of a script.

    Raises:
        ConnectionFailedError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConnectionFailedError(f"cannot read script {path}: {reason}") from error


def build_engine(master: str | None, conf: list[str] | None, functions: Path | None) -> Engine:
    """An engine on a session of its own.

    Raises:
        InputError: a setting is not KEY=VALUE, or the functions cannot be loaded.
    """
    settings = {}
    for pair in conf or []:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(f"--conf {pair}: allowed: KEY=VALUE")
        settings[key] = value
    engine = Engine(build_session(master, settings))
    if functions is not None:
        _register(engine, functions)
    return engine


def _register(engine: Engine, path: Path) -> None:
    """Registers what a module's FUNCTIONS says: name -> (vectorised function, SQL type of its result)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"--functions {path}: no such Python module")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"--functions {path}: {type(error).__name__}: {error}") from error
    table = getattr(module, "FUNCTIONS", None)
    if not isinstance(table, dict):
        raise InputError(
            f"--functions {path}: it must define FUNCTIONS = {{'name': (function, 'SQL TYPE'), ...}}"
        )
    for name, (function, returns) in table.items():
        engine.function(name, function, returns)
