"""Join views: `SELECT columns and expressions FROM a JOIN b ON ... [JOIN c ...] [WHERE ...]`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.text.clauses import Clause
from penstock.sql.text.parts import Item
from penstock.sql.text.query import SelectQuery

#: inputs that a join view may have
MOST_INPUTS = 6


@dataclass(frozen=True, slots=True)
class JoinSource:
    """An input as it was written.

    Attributes:
        source: name of a table or view.
        alias: how the query calls it; its name where it has no alias.
        clause: where the name was written.
        on: the condition after ON, by which it is joined with the inputs before it.
        using: the names after USING.
        is_optional: whether it is the right one of a LEFT OUTER JOIN.
        below: the selection that `source` stands for, over a table; None for a table.
    """

    source: str
    alias: str
    clause: Clause
    on: Clause | None = None
    using: tuple[Clause, ...] = ()
    is_optional: bool = False
    below: SelectQuery | None = None

    @property
    def relation(self) -> str:
        """The table beneath."""
        return self.source if self.below is None else self.below.source


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A join of two or more inputs.

    Attributes:
        sources: the inputs in the order of the text.
        items: the SELECT list.
        where: the condition after WHERE.
        selected: of a selection over a join view, flattened: the selections over the join, the one on its rows first.
    """

    sources: tuple[JoinSource, ...]
    items: tuple[Item, ...]
    where: Clause | None
    selected: tuple[SelectQuery, ...] = ()
