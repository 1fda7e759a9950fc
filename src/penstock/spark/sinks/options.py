"""Reading the options of a sink's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import ModuleType

from penstock.errors import ConnectionFailedError, InputError, SqlError
from penstock.spark.sinks.delivery import refuse_missing
from penstock.spark.sinks.providers import SinkTable

#: values of options in messages
_EXAMPLES = {"path": "/data/alerts", "url": "https://host/path", "dbtable": "alerts", "table": "alerts"}


def required(table: SinkTable, option: str) -> str:
    """The value of an option.

    Raises:
        InputError: it is not set.
    """
    value = table.options.get(option.replace("_", ""))
    if not value:
        raise InputError(f"table {table.name}: set the option {option}. {example(option)}")
    return value


def example(option: str) -> str:
    """How a message goes on that asks for an option: 'Write it in OPTIONS, as in OPTIONS (path '...').'"""
    name = option if option.replace("_", "").isalnum() else f"`{option}`"
    return f"Write OPTIONS ({name} '{_EXAMPLES.get(option, '...')}')."


def columns(table: SinkTable, option: str) -> tuple[str, ...]:
    """The columns that an option names, separated by commas; () where it is not set.

    Raises:
        SqlError: the view has no such column.
    """
    named = [
        each.strip() for each in table.options.get(option.replace("_", ""), "").split(",") if each.strip()
    ]
    try:
        return refuse_missing(named, table.columns.names, f"table {table.name}", option)
    except InputError as error:
        raise SqlError(str(error), *table.statement.at(option)) from error


def choice(table: SinkTable, option: str, allowed: Sequence[str]) -> str:
    """The value of an option that has few; the first where it is not set.

    Raises:
        SqlError: it is another one.
    """
    value = table.options.get(option.replace("_", ""), allowed[0]).lower()
    if value not in allowed:
        raise SqlError(
            f"table {table.name}: {option} is '{value}'; allowed: {', '.join(allowed)}",
            *table.statement.at(option),
        )
    return value


def whole_number(table: SinkTable, option: str, default: int) -> int:
    """A whole number from 0.

    Raises:
        SqlError: it is none.
    """
    text = table.options.get(option.replace("_", ""), str(default))
    if not text.isdecimal():
        raise SqlError(
            f"table {table.name}: {option} is '{text}'. Write a whole number from 0.",
            *table.statement.at(option),
        )
    return int(text)


def library(table: SinkTable, module: str, extra: str) -> ModuleType:
    """A library that an extra installs.

    Raises:
        ConnectionFailedError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConnectionFailedError(
            f"table {table.name}: sink {table.statement.source} needs the package {module}: pip install 'penstock[{extra}]'",
            *table.statement.at("using"),
        ) from error


def refuse_double(table: SinkTable, names: Iterable[str]) -> None:
    """Refuses columns of a database that have one name, as a window's `w_start` beside a column of that name.

    Raises:
        SqlError: two have, whatever their case.
    """
    double = [name for name, count in Counter(map(str.lower, names)).items() if count > 1]
    if double:
        raise SqlError(
            f"table {table.name}: two columns would be {double[0]}. Rename one with AS; a window w becomes w_start and w_end.",
            *table.statement.at("using"),
        )
