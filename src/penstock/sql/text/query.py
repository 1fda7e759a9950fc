"""Selections: `SELECT ... FROM one_stream WHERE ...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints
from penstock.sql.text.lexing import name_of, outer, tokenize
from penstock.sql.text.parts import (
    ALLOWED,
    ALLOWED_WINDOW,
    INSTEAD_OF_A_SUBQUERY,
    Item,
    Parts,
    refuse,
    split_query,
)

_CONSTANTS = (TokenType.TRUE, TokenType.FALSE, TokenType.NULL)
_GROUPED = "needs GROUP BY window(...), because a stream never ends"
_REFUSED = {
    exp.AggFunc: f"An aggregate function {_GROUPED}. {ALLOWED_WINDOW}",
    exp.Window: (
        "Of functions with OVER, ROW_NUMBER, RANK and DENSE_RANK are supported, with a bound: QUALIFY ROW_NUMBER() OVER (...) <= 10. "
        f"{ALLOWED}"
    ),
    exp.Query: f"A subquery is not supported yet; {INSTEAD_OF_A_SUBQUERY}. {ALLOWED}",
    exp.UDTF: f"A function that returns several rows is not supported yet. {ALLOWED}",
    exp.Aliases: f"A list of names is not supported yet. {ALLOWED}",
}


@dataclass(frozen=True, slots=True)
class Output:
    """An item of a SELECT list.

    Attributes:
        expression: Spark SQL text; `*` for all columns of the source.
        name: its column name; None for `*` and for an expression that Spark names itself.
        clause: where it was written.
    """

    expression: str
    name: str | None
    clause: Clause

    @property
    def is_name(self) -> bool:
        """Whether the expression is one bare or quoted name."""
        return self.expression.isidentifier() or (
            self.expression[0] == "`" and "`" not in self.expression[1:-1]
        )

    @property
    def written(self) -> Clause:
        """The expression where it was written."""
        start = self.clause.text.find(self.expression)
        return Clause(self.expression, self.clause.script, self.clause.start + start)

    @property
    def is_star(self) -> bool:
        """Whether this stands for all columns of the source."""
        return self.expression == "*"


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A selection on one table or view.

    Attributes:
        source: name after FROM.
        source_clause: where that name was written.
        conditions: the WHERE clause, if any; of a flattened view on views, all of theirs. A tuple
            is selected where all of them are true.
        projection: the SELECT list; None for `*` alone.
        hints: Penstock's hints.
        inner: the query in FROM, a `statements.Query`, that `source` is a name for; None: that of a table or view, or it is flattened.
    """

    source: str
    source_clause: Clause
    conditions: tuple[Clause, ...] = ()
    projection: tuple[Output, ...] | None = None
    hints: Hints = field(default_factory=Hints)
    inner: Any = None

    @property
    def where(self) -> str | None:
        """The condition as one text, None if every tuple is selected."""
        if len(self.conditions) < 2:
            return self.conditions[0].text if self.conditions else None
        return " AND ".join(f"({clause.text}\n)" for clause in self.conditions)


def parse_selection(parts: Parts) -> SelectQuery:
    """Reads a query without GROUP BY.

    Raises:
        UnsupportedError: an aggregate, a window or anything else that is no function of one tuple.
        SqlError: a hint that only window views can have.
    """
    if parts.hints:
        raise SqlError(
            "MAX_ERROR, DEADLINE, LOSS, BACKFILL, STATE_TTL and CUMULATE need GROUP BY; this view has none.",
            parts.source_clause.script,
            parts.hints.start,
            parts.hints.end,
        )
    outputs = tuple(_output(item) for item in parts.items)
    star = len(outputs) == 1 and outputs[0].is_star
    where = () if parts.where is None else (parts.where,)
    return SelectQuery(parts.source, parts.source_clause, where, None if star else outputs, parts.hints)


def parse_input(script: str, tokens: Sequence[Token]) -> SelectQuery:
    """Reads the selection that an input of a join or aggregation is.

    Args:
        script: the text the tokens come from.
        tokens: those of the query.

    Raises:
        UnsupportedError: it aggregates, is a UNION ALL, or no selection otherwise.
    """
    for _, token in outer(tokens):
        if token.token_type is TokenType.UNION:
            message = f"A UNION ALL is not supported here yet; {INSTEAD_OF_A_SUBQUERY}. {ALLOWED}"
            raise UnsupportedError(message, script, token.start, token.end + 1)
    parts = split_query(script, tokens)
    for clause in (parts.group_by_keyword, parts.having, parts.distinct):
        if clause is not None:
            message = f"A query that aggregates is not supported here yet; {INSTEAD_OF_A_SUBQUERY}. {ALLOWED}"
            raise clause.error(UnsupportedError, message)
    query = parse_selection(parts)
    return replace(query, inner=parse_input(script, parts.within)) if parts.within else query


def _output(item: Item) -> Output:
    text = item.expression.text.strip()
    if item.tree is None:
        word = tokenize(text)[0]
        is_name = word.token_type not in _CONSTANTS
        return Output(text, name_of(word) if is_name else None, item.clause)
    refuse(item.tree, item.clause, _REFUSED, f"{_GROUPED}. {ALLOWED_WINDOW}")
    name = item.alias
    if name is None and isinstance(item.tree, exp.Column | exp.Dot):
        name = item.tree.name
    return Output(text, name, item.clause)
