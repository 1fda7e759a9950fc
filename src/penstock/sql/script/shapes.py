"""Selections that differ in the constants of their WHERE clause alone are parsed once.

Thousands of standing queries come from a few templates. Texts of one shape have the same tokens but for the constants
(`penstock.sql.conditions.shapes`), hence the same clauses at places that the constants move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.sql.conditions.shapes import constants, shape
from penstock.sql.text.clauses import Clause
from penstock.sql.text.query import SelectQuery

_MAX_SHAPES = 10_000


@dataclass(frozen=True, slots=True)
class _Template:
    """The first selection of a shape, where it begins, and where in it its condition does."""

    query: SelectQuery
    start: int
    condition: int


class SelectionShapes:
    """Remembers the shapes of selections."""

    def __init__(self) -> None:
        self._templates: dict[str, _Template] = {}

    def find(self, script: str, start: int, end: int) -> SelectQuery | None:
        """The selection that a part of a script is; None where none of its shape is known.

        Args:
            script: the script.
            start, end: the query's place, without white space around it.
        """
        text = script[start:end]
        key = shape(text)
        template = None if key is None else self._templates.get(key)
        if template is None:
            return None
        moved = start - template.start
        query, first = template.query, template.condition
        outputs = query.projection
        if outputs is not None:
            outputs = tuple(replace(each, clause=_moved(each.clause, script, moved)) for each in outputs)
        return SelectQuery(
            query.source,
            _moved(query.source_clause, script, moved),
            (Clause(text[first:], script, start + first),),
            outputs,
            query.hints,
        )

    def learn(self, script: str, start: int, end: int, query: SelectQuery) -> None:
        """Remembers the shape of a selection, if one like it can be told by its shape; arguments as of `find`."""
        text = script[start:end]
        key = shape(text)
        if (
            key is None
            or query.inner is not None
            or len(query.conditions) != 1
            or len(self._templates) >= _MAX_SHAPES
        ):
            return
        condition = query.conditions[0]
        first = condition.start - start
        # blanks stand for the source's name in a clause's text, and constants elsewhere move what is behind them
        if text[first:] == condition.text and all(place > first for place in constants(text)):
            self._templates[key] = _Template(query, start, first)


def _moved(clause: Clause, script: str, by: int) -> Clause:
    return Clause(clause.text, script, clause.start + by)
