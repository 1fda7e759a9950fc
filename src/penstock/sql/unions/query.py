"""A query of the form `SELECT ... UNION ALL SELECT ...`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from penstock.sql.text.clauses import Clause
from penstock.sql.text.query import SelectQuery


@dataclass(frozen=True, slots=True)
class UnionQuery:
    """Selections whose rows are one view's.

    Attributes:
        branches: the selections, in order; a UNION ALL among them is one in parentheses, or a view.
        clause: the whole query.
        selected: selections over it, the innermost first.
    """

    branches: tuple[SelectQuery | UnionQuery, ...]
    clause: Clause
    selected: tuple[SelectQuery, ...] = ()


def union_name(text: str) -> str:
    """Name of the view that a UNION ALL in FROM becomes, by its text."""
    return f"union_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
