"""A query that Spark answers as a whole, again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.written import Written


@dataclass(frozen=True, slots=True)
class InnerQuery:
    """A query within another one that is a view of its own.

    Attributes:
        name: the view's.
        query: a `statements.Query`.
        text: its text, which says all.
        clause: where it was written.
    """

    name: str
    query: Any
    text: str
    clause: Clause


@dataclass(frozen=True, slots=True)
class RefreshedQuery:
    """A query of Spark SQL that Spark answers as a whole.

    With the hint `REFRESH('1 minute')` it reads the tuples of streams. Without it, lanes have refused the query, and Spark answers it over the
    rows of its inner queries, which are views of their own.

    Attributes:
        clause: the query.
        seconds: the least time between two answers.
        sources: the tables and views that it names, each once, and where it names them first; those of inner queries once they are declared.
        names: every name in it, in upper case, among which are those of all columns that it reads; None: it may read all columns.
        inner: its inner queries, until they are declared.
        rest: the query over the names of these; None: it has the hint.
        streams: (name in `rest`, view) of the streams that it reads by a view of their tuples, once they are declared.
        refused: why lanes do not answer it as a whole; None: it has the hint.
        by_names: whether lanes refused it before it was known what its names are, and it has no inner query that they answer.
    """

    clause: Clause
    seconds: float
    sources: tuple[tuple[str, Clause], ...]
    names: frozenset[str] | None
    inner: tuple[InnerQuery, ...] = ()
    rest: Written | None = None
    streams: tuple[tuple[str, str], ...] = ()
    refused: UnsupportedError | None = field(default=None, compare=False)
    by_names: bool = False

    @property
    def text(self) -> str:
        """The query as Spark reads it."""
        return self.clause.text if self.rest is None else self.rest.text

    def refuse_without_views(self, is_view: Callable[[str], bool]) -> None:
        """Refuse a query that has waited until its names are known, if none of them is a view.

        Args:
            is_view: whether a name is that of a view, or may be.

        Raises:
            UnsupportedError: why lanes do not answer it.
        """
        if self.by_names and self.refused is not None and not any(is_view(name) for name, _ in self.sources):
            raise self.refused
