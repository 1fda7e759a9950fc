"""Options and steps that subcommands share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from penstock.errors import ConnectionFailedError, InputError
from penstock.settings import Settings, tuned
from penstock.spark.engine import Engine
from penstock.spark.session import build_session
from penstock.sql.script import parse_script

Script = Annotated[
    Path, typer.Argument(help="SQL script: CREATE TABLE, CREATE VIEW, INSERT INTO.", metavar="SCRIPT")
]
Master = Annotated[str | None, typer.Option(help="Spark master URL; default local[*].", metavar="URL")]
Conf = Annotated[
    list[str] | None, typer.Option(help="A Spark setting; may be repeated.", metavar="KEY=VALUE")
]
Tune = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of Penstock; may be repeated.", metavar="NAME=VALUE"),
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


def open_script(
    path: Path,
    master: str | None,
    conf: list[str] | None,
    tune: list[str] | None,
    functions: Path | None,
) -> tuple[Engine, str]:
    """A script, and an engine on which all it says is declared.

    What can be told without Spark is told before Spark starts.

    Raises:
        InputError: a mistake in the script, its sources or the options.
    """
    text = read_script(path)
    parse_script(text)
    engine = build_engine(master, conf, tune, functions)
    engine.execute(text)
    return engine, text


def build_engine(
    master: str | None, conf: list[str] | None, tune: list[str] | None, functions: Path | None
) -> Engine:
    """An engine on a session of its own.

    Raises:
        InputError: a setting is not KEY=VALUE, unknown or out of range, or the functions cannot be loaded.
    """
    settings = tuned(Settings(), _pairs("--set", "NAME=VALUE", tune))
    registered = {} if functions is None else _load_functions(functions)
    engine = Engine(build_session(master, _pairs("--conf", "KEY=VALUE", conf)), settings)
    for name, (function, returns) in registered.items():
        engine.function(name, function, returns)
    return engine


def _pairs(option: str, allowed: str, pairs: list[str] | None) -> dict[str, str]:
    found = {}
    for pair in pairs or []:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(f"{option} {pair}: allowed: {allowed}")
        found[key] = value
    return found


def _load_functions(path: Path) -> dict[str, tuple[Callable[..., pa.Array], str]]:
    """What a module's FUNCTIONS says: name -> (vectorised function, SQL type of its result)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"--functions {path}: no such Python module")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"--functions {path}: {type(error).__name__}: {error}") from error
    table = getattr(module, "FUNCTIONS", None)
    if not isinstance(table, dict) or not all(map(_is_entry, table.values())):
        raise InputError(
            f"--functions {path}: it must define FUNCTIONS = {{'name': (function, 'SQL TYPE'), ...}}"
        )
    return table


def _is_entry(entry: object) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2 and callable(entry[0]) and isinstance(entry[1], str)
