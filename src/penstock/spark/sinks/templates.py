"""Templates of bodies: JSON with places for columns.

A text of the template that is `${column}` alone becomes the column's value; within other text it becomes the value as text. So whatever a
column holds, the body is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import InputError, UnknownNameError, meant
from penstock.spark.results.json_columns import json_lines

_PLACE = re.compile(r"\$\{([^{}]*)\}")
#: a text of JSON, or a place outside of one
_TEXT_OR_PLACE = re.compile(rf'"(?:[^"\\]|\\.)*"|{_PLACE.pattern}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    """A body with places.

    Attributes:
        body: the JSON value.
    """

    body: Any

    @classmethod
    def parsed(cls, text: str, names: Collection[str]) -> Template:
        """Read a template.

        Args:
            text: JSON.
            names: what places may name.

        Raises:
            InputError: it is no JSON, as where a place stands outside of quotes.
            UnknownNameError: a place names something else.
        """
        bare = _bare_place(text)
        quoted = "" if bare is None else f'Put a column in quotes: "{bare}" instead of {bare}.'
        for name in _PLACE.findall(text):
            if name not in names:
                near = meant(name, names).removesuffix(".")
                told = f"template names {name}, which does not exist{near}; existing: {', '.join(names)}"
                raise UnknownNameError(f"{told}. {quoted}" if quoted else told)
        try:
            body = json.loads(text)
        except ValueError as error:
            told = f"template is no JSON: {error}"
            raise InputError(f"template is no JSON. {quoted}" if quoted else told) from error
        return cls(body)

    @property
    def names(self) -> tuple[str, ...]:
        """What its places name, each once."""
        return tuple(dict.fromkeys(_PLACE.findall(json.dumps(self.body, ensure_ascii=False))))

    def filled(self, values: Mapping[str, Any]) -> bytes:
        """The body with values, JSON values by name, in its places."""
        return json.dumps(_filled(self.body, values), ensure_ascii=False, separators=(",", ":")).encode()


def _bare_place(text: str) -> str | None:
    """The first place of a template that stands outside of JSON's texts."""
    return next((found[0] for found in _TEXT_OR_PLACE.finditer(text) if found[0].startswith("$")), None)


def objects_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON values, written as `penstock results` writes them."""
    return [json.loads(line) for batch in rows.to_batches() for line in json_lines(batch)]


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        return {name: _filled(each, values) for name, each in part.items()}
    if isinstance(part, list):
        return [_filled(each, values) for each in part]
    if not isinstance(part, str):
        return part
    if (alone := _PLACE.fullmatch(part)) is not None:
        return values[alone[1]]
    return _PLACE.sub(lambda found: _text(values[found[1]]), part)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
