"""Selections: `SELECT ... FROM one_stream WHERE ...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.clauses import Clause
from penstock.sql.hints import Hints, parse_hints
from penstock.sql.lexing import name_of

ALLOWED = "Allowed in a view: SELECT columns and scalar expressions FROM one table or view WHERE a condition."

_UNSUPPORTED = {
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.ORDER_BY: "ORDER BY",
    TokenType.SORT_BY: "SORT BY",
    TokenType.CLUSTER_BY: "CLUSTER BY",
    TokenType.DISTRIBUTE_BY: "DISTRIBUTE BY",
    TokenType.LIMIT: "LIMIT",
    TokenType.OFFSET: "OFFSET",
    TokenType.UNION: "UNION",
    TokenType.INTERSECT: "INTERSECT",
    TokenType.EXCEPT: "EXCEPT",
    TokenType.JOIN: "JOIN",
    TokenType.CROSS: "JOIN",
    TokenType.INNER: "JOIN",
    TokenType.LEFT: "JOIN",
    TokenType.RIGHT: "JOIN",
    TokenType.FULL: "JOIN",
    TokenType.NATURAL: "JOIN",
    TokenType.SEMI: "JOIN",
    TokenType.ANTI: "JOIN",
    TokenType.LATERAL: "LATERAL VIEW",
    TokenType.WINDOW: "WINDOW",
    TokenType.PIVOT: "PIVOT",
    TokenType.UNPIVOT: "UNPIVOT",
    TokenType.TABLE_SAMPLE: "TABLESAMPLE",
    TokenType.QUALIFY: "QUALIFY",
}
_WINDOWS = {"window", "session_window", "window_time"}


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
    """

    source: str
    source_clause: Clause
    conditions: tuple[Clause, ...] = ()
    projection: tuple[Output, ...] | None = None
    hints: Hints = field(default_factory=Hints)

    @property
    def where(self) -> str | None:
        """The condition as one text, None if every tuple is selected."""
        if len(self.conditions) < 2:
            return self.conditions[0].text if self.conditions else None
        return " AND ".join(f"({clause.text}\n)" for clause in self.conditions)


def parse_select(script: str, tokens: Sequence[Token]) -> SelectQuery:
    """Parses the tokens of one query.

    Raises:
        UnsupportedError: anything but a selection on one source.
        SqlError: no query.
    """
    return _SelectParser(script, tokens).parse()


class _SelectParser:
    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        self.script = script
        self.tokens = tokens
        self.position = 0

    def parse(self) -> SelectQuery:
        if self._kind() in (TokenType.WITH, TokenType.L_PAREN, TokenType.FROM, TokenType.VALUES):
            raise self._unsupported("This form of query")
        if self._kind() is not TokenType.SELECT:
            raise self._expected("SELECT")
        self.position += 1
        hints = Hints()
        while self._kind() is TokenType.HINT:
            hints = parse_hints(self.script, self.tokens[self.position])
            self.position += 1
        if self._kind() is TokenType.DISTINCT:
            raise self._unsupported("DISTINCT")
        if self._kind() is TokenType.ALL:
            self.position += 1
        items = self._items()
        if self._kind() is not TokenType.FROM:
            raise self._expected("FROM")
        self.position += 1
        source, source_clause, alias = self._source()
        qualifier = (alias or source).upper()
        where = self._where(qualifier)
        outputs = tuple(self._output(first, last, qualifier) for first, last in items)
        if hints:
            raise UnsupportedError(
                f"MAX_ERROR, DEADLINE and LOSS are not supported yet. {ALLOWED}",
                self.script,
                hints.start,
                hints.end,
            )
        star = len(outputs) == 1 and outputs[0].is_star
        return SelectQuery(source, source_clause, where, None if star else outputs, hints)

    def _kind(self) -> TokenType | None:
        return self.tokens[self.position].token_type if self.position < len(self.tokens) else None

    def _place(self) -> tuple[int, int]:
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token.start, token.end + 1

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{what} is not supported yet. {ALLOWED}", self.script, *self._place())

    def _expected(self, what: str) -> SqlError:
        return SqlError(f"{what} is expected here.", self.script, *self._place())

    def _items(self) -> list[tuple[int, int]]:
        """Token ranges of the SELECT list."""
        items: list[tuple[int, int]] = []
        first, depth = self.position, 0
        while self.position < len(self.tokens):
            kind = self._kind()
            if depth == 0 and kind in (TokenType.COMMA, TokenType.FROM):
                if self.position == first:
                    raise self._expected("A column or expression")
                items.append((first, self.position))
                first = self.position + 1
                if kind is TokenType.FROM:
                    return items
            depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
            depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
            self.position += 1
        raise self._expected("FROM")

    def _source(self) -> tuple[str, Clause, str | None]:
        if self._kind() is TokenType.L_PAREN:
            raise self._unsupported("A subquery")
        name = name_of(self.tokens[self.position]) if self._kind() else None
        if name is None:
            raise self._expected("The name of a table or view")
        start, end = self._place()
        clause = Clause(self.script[start:end], self.script, start)
        self.position += 1
        if self._kind() is TokenType.DOT:
            raise self._unsupported("A name with a catalog or schema")
        alias = None
        if self._kind() is TokenType.ALIAS:
            self.position += 1
        if self._kind() in (TokenType.VAR, TokenType.IDENTIFIER):
            alias = self.tokens[self.position].text
            self.position += 1
        return name, clause, alias

    def _where(self, qualifier: str) -> tuple[Clause, ...]:
        kind = self._kind()
        if kind is None:
            return ()
        if kind is TokenType.COMMA:
            raise self._unsupported("Selecting from several tables")
        if kind in _UNSUPPORTED:
            raise self._unsupported(_UNSUPPORTED[kind])
        if kind is not TokenType.WHERE:
            raise self._expected("WHERE, or the end of the query")
        self.position += 1
        first, depth = self.position, 0
        while (kind := self._kind()) is not None:
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0 and kind in _UNSUPPORTED and not self._is_call():
                raise self._unsupported(_UNSUPPORTED[kind])
            if kind is TokenType.SELECT:
                raise self._unsupported("A subquery")
            self.position += 1
        if first == len(self.tokens):
            raise self._expected("A condition")
        return (self._clause(first, len(self.tokens), qualifier),)

    def _is_call(self) -> bool:
        following = self.tokens[self.position + 1 : self.position + 2]
        return bool(following) and following[0].token_type is TokenType.L_PAREN

    def _clause(self, first: int, last: int, qualifier: str) -> Clause:
        """The text of some tokens, with blanks in place of the source's name before a column's."""
        start, end = self.tokens[first].start, self.tokens[last - 1].end + 1
        text = self.script[start:end]
        for index in range(first, last - 2):
            name, dot = self.tokens[index], self.tokens[index + 1]
            if dot.token_type is not TokenType.DOT or name.text.upper() != qualifier:
                continue
            if index > first and self.tokens[index - 1].token_type is TokenType.DOT:
                continue
            width = dot.end + 1 - name.start
            text = text[: name.start - start] + " " * width + text[dot.end + 1 - start :]
        return Clause(text, self.script, start)

    def _output(self, first: int, last: int, qualifier: str) -> Output:
        clause = self._clause(first, last, qualifier)
        text = clause.text.strip()
        if last - first == 1 or text == "*":
            name = self.tokens[first].text if text != "*" else None
            is_name = self.tokens[first].token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            return Output(text, name if is_name else None, clause)
        tree = self._tree(clause)
        self._check(tree, clause)
        if not isinstance(tree, exp.Alias):
            name = tree.name if isinstance(tree, exp.Column | exp.Dot) else None
            return Output(text, name, clause)
        bare = last - 2 if self.tokens[last - 2].token_type is TokenType.ALIAS else last - 1
        expression = self._clause(first, bare, qualifier).text.strip()
        return Output(expression, tree.alias, clause)

    def _tree(self, clause: Clause) -> exp.Expression:
        try:
            tree = sqlglot.parse_one(clause.text, dialect="spark")
        except ParseError as error:
            start, end = _place_of(error, clause.text)
            raise clause.error(SqlError, "This is no expression.", start, end) from None
        assert isinstance(tree, exp.Expression)
        return tree

    def _check(self, tree: exp.Expression, clause: Clause) -> None:
        refused = {
            exp.AggFunc: "An aggregate function",
            exp.Window: "A window function",
            exp.Query: "A subquery",
            exp.UDTF: "A table-generating function",
            exp.Aliases: "A list of names",
        }
        for node in tree.walk():
            for kind, what in refused.items():
                if isinstance(node, kind):
                    raise clause.error(
                        UnsupportedError, f"{what} is not supported yet. {ALLOWED}", 0, len(clause.text)
                    )
            if isinstance(node, exp.Func) and node.name.lower() in _WINDOWS:
                raise clause.error(
                    UnsupportedError, f"{node.name}() is not supported yet. {ALLOWED}", 0, len(clause.text)
                )


def _place_of(error: ParseError, text: str) -> tuple[int, int]:
    """Where sqlglot found a mistake."""
    if not error.errors or error.errors[0].get("col") is None:
        return 0, len(text)
    found = error.errors[0]
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: found["line"] - 1])) + found["col"]
    return max(0, min(end, len(text)) - len(found["highlight"] or " ")), min(end, len(text))
