"""Values of options from outside of a script: `${env:NAME}` and `${file:PATH}` (docs/decisions/0088)."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from penstock.errors import ConnectionFailedError
from penstock.redaction import is_secret, remember, secrets_within
from penstock.sql.script.statements import CreateTable

#: options whose values each record has: they are no secrets, whatever their names
_SEEN = {"kafka": frozenset({"headers", "record_key"})}
_OUTSIDE = re.compile(r"\$\{(?P<where>env|file):(?P<name>[^{}]+)\}")


def filled(table: CreateTable) -> CreateTable:
    """A table with the values of its options filled in; no message shows those that are secret from now on.

    Raises:
        ConnectionFailedError: a variable is not set, or a file cannot be read.
    """
    options = {name: _filled(table, name, value) for name, value in table.options.items()}
    seen = _SEEN.get(table.source, frozenset())
    for name, value in options.items():
        remember([value] if is_secret(name) and name not in seen else secrets_within(value))
    return table if options == table.options else replace(table, options=options)


def _filled(table: CreateTable, option: str, value: str) -> str:
    def found(place: re.Match[str]) -> str:
        where, name = place["where"], place["name"].strip()
        if where == "env":
            if name not in os.environ:
                raise ConnectionFailedError(
                    f"table {table.name}: option {option} needs the environment variable {name}, which is not set. Set it.",
                    *table.at(option),
                )
            content = os.environ[name]
            if is_secret(name):
                remember([content])
            return content
        try:
            content = Path(name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text"
            raise ConnectionFailedError(
                f"table {table.name}: option {option} needs the file {name}, which cannot be read: {reason}.",
                *table.at(option),
            ) from None
        remember([content])
        return content

    return _OUTSIDE.sub(found, value)
