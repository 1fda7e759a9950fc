"""A query that Spark answers as a whole, again and again."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.text.clauses import Clause


@dataclass(frozen=True, slots=True)
class RefreshedQuery:
    """Any query of Spark SQL with the hint `REFRESH('1 minute')`.

    Attributes:
        clause: the query.
        seconds: the least time between two answers.
        sources: the tables and views that it names, each once, and where it names them first.
        names: every name in it, in upper case, among which are those of all columns that it reads; None: it may read all columns.
    """

    clause: Clause
    seconds: float
    sources: tuple[tuple[str, Clause], ...]
    names: frozenset[str] | None

    @property
    def text(self) -> str:
        """The query."""
        return self.clause.text
