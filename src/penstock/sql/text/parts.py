"""The clauses of a query: where each begins and ends, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.cursor import Cursor
from penstock.sql.text.grouping import GroupBy, read_group_by
from penstock.sql.text.hints import Hints, parse_hints
from penstock.sql.text.lexing import NESTING, closing, is_call, parse_expression
from penstock.sql.text.parse_errors import parse_mistake

ALLOWED = "Allowed in a view: SELECT scalar expressions FROM one table or view WHERE condition."
ALLOWED_WINDOW = (
    "Allowed in a window view: SELECT keys, window, aggregates FROM one table or view WHERE condition "
    "GROUP BY keys, window(time, 'size'[, 'slide'[, 'start']]) HAVING condition."
)
ALLOWED_RUNNING = (
    "Allowed in a running view: SELECT keys, aggregates FROM one table or view WHERE condition GROUP BY keys HAVING "
    "condition; or SELECT DISTINCT expressions."
)
ALLOWED_SESSION = (
    "Allowed in a session view: SELECT keys, session_window, aggregates FROM one table or selection view WHERE condition GROUP BY "
    "keys, session_window(time, 'gap') HAVING condition."
)
ALLOWED_OVER_WINDOWS = (
    "Allowed over a window view: SELECT scalar expressions FROM the view WHERE condition; or aggregates, with "
    "GROUP BY a window over the window of the view."
)
ALLOWED_OVER_A_WINDOW = (
    "Allowed over a window view with window w: window(x, 'size'[, 'slide'[, 'start']]), where x is w, window_time(w), "
    "w.start or w.end."
)
INSTEAD_OF_A_SUBQUERY = "make it a view, or JOIN the static table"


#: words that a join begins with
JOINS = {
    TokenType.JOIN,
    TokenType.INNER,
    TokenType.LEFT,
    TokenType.RIGHT,
    TokenType.FULL,
    TokenType.CROSS,
} | {TokenType.NATURAL, TokenType.SEMI, TokenType.ANTI}
#: clauses that no view may have, and what they are called
UNSUPPORTED = {
    **dict.fromkeys(JOINS, "JOIN"),
    TokenType.ORDER_BY: "ORDER BY",
    TokenType.SORT_BY: "SORT BY",
    TokenType.CLUSTER_BY: "CLUSTER BY",
    TokenType.DISTRIBUTE_BY: "DISTRIBUTE BY",
    TokenType.LIMIT: "LIMIT",
    TokenType.OFFSET: "OFFSET",
    TokenType.UNION: "UNION",
    TokenType.INTERSECT: "INTERSECT",
    TokenType.EXCEPT: "EXCEPT",
    TokenType.LATERAL: "LATERAL VIEW",
    TokenType.WINDOW: "WINDOW",
    TokenType.PIVOT: "PIVOT",
    TokenType.UNPIVOT: "UNPIVOT",
    TokenType.TABLE_SAMPLE: "TABLESAMPLE",
    TokenType.QUALIFY: "QUALIFY",
}
_WINDOWS = {"window", "session_window", "window_time"}
#: the clauses after the source, in their order, and what each is made of
_TAIL = {
    TokenType.WHERE: "a condition",
    TokenType.GROUP_BY: "a grouping expression",
    TokenType.HAVING: "a condition",
}
#: what may follow the name of an input, and is read as another name of it where it is misspelt
_KEYWORDS = ("WHERE", "GROUP", "HAVING", "JOIN", "LEFT", "INNER")


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT list.

    Attributes:
        clause: the whole item.
        expression: the item without its alias.
        alias: the name after AS, if any.
        tree: what sqlglot makes of the item; None for `*` and single words.
    """

    clause: Clause
    expression: Clause
    alias: str | None
    tree: exp.Expression | None


@dataclass(frozen=True, slots=True)
class Parts:
    """A query in clauses; the source's name before a column's is blank in all of them.

    Attributes:
        source: name after FROM.
        source_clause: where that name was written.
        qualifier: what stands before a column's name: the source's alias, else its name; in upper case.
        hints: Penstock's hints.
        items: the SELECT list.
        where: the condition, if any.
        group_by: what stands behind GROUP BY, None without it.
        group_by_keyword: where `GROUP BY` was written.
        having: the condition on groups, if any.
        distinct: where `DISTINCT` was written, if it was.
        within: the tokens of the query that FROM has in parentheses; (): it has a name.
    """

    source: str
    source_clause: Clause
    qualifier: str
    hints: Hints
    items: tuple[Item, ...]
    where: Clause | None
    group_by: GroupBy | None
    group_by_keyword: Clause | None
    having: Clause | None
    distinct: Clause | None = None
    within: tuple[Token, ...] = ()


def split_query(script: str, tokens: Sequence[Token]) -> Parts:
    """Finds the clauses of one query.

    Args:
        script: the text the tokens come from.
        tokens: those of the query.

    Raises:
        UnsupportedError: a clause that no view may have.
        SqlError: no query.
    """
    return Splitter(script, tokens).split()


def parse_tree(clause: Clause) -> exp.Expression:
    """What sqlglot makes of an expression, with or without an alias.

    Raises:
        SqlError: it is none.
    """
    try:
        return parse_expression(clause.text)
    except ParseError as error:
        raise parse_mistake(error, clause) from None


def refuse(tree: exp.Expression, clause: Clause, refused: Mapping[type[exp.Expr], str], windows: str) -> None:
    """Refuses what an expression may not have.

    Args:
        tree: the expression.
        clause: where it was written.
        refused: what it may not have, and what to say of it.
        windows: what to say of a window, behind the name of its function.

    Raises:
        UnsupportedError: it has something of that.
    """
    for node in tree.walk():
        for kind, message in refused.items():
            if isinstance(node, kind):
                raise clause.error(UnsupportedError, message)
        if isinstance(node, exp.Func) and node.name.lower() in _WINDOWS:
            raise clause.error(UnsupportedError, f"{node.name}() {windows}")


class Splitter(Cursor):
    """Finds clauses, from left to right.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.
        allowed: what a view may be, for messages.
    """

    def __init__(self, script: str, tokens: Sequence[Token], allowed: str = ALLOWED) -> None:
        super().__init__(script, tokens)
        self.qualifier = ""
        self.allowed = allowed
        self.distinct: Clause | None = None

    def _head(self) -> tuple[Hints, list[tuple[int, int]]]:
        """The hints and the token ranges of the SELECT list; moves past FROM."""
        if self.kind() in (TokenType.WITH, TokenType.L_PAREN, TokenType.FROM, TokenType.VALUES):
            raise self._unsupported("This form of query")
        if not self.accept(TokenType.SELECT):
            raise self.expected("SELECT")
        hints = Hints()
        while self.kind() is TokenType.HINT:
            hints = parse_hints(self.script, self.tokens[self.position])
            self.position += 1
        if self.accept(TokenType.DISTINCT):
            self.distinct = self._clause(self.position - 1, self.position)
        else:
            self.accept(TokenType.ALL)
        items = self._items()
        if not self.accept(TokenType.FROM):
            raise self.expected("FROM")
        return hints, items

    def split(self) -> Parts:
        """See `split_query`."""
        hints, items = self._head()
        source, source_clause, alias, within = self._source()
        self.qualifier = (alias or source).upper()
        if any(token.token_type is TokenType.GROUP_BY for token in self.tokens[self.position :]):
            self.allowed = ALLOWED_WINDOW
        ranges = self._tail()
        where, having = ranges.get(TokenType.WHERE), ranges.get(TokenType.HAVING)
        keyword = group_by = None
        if (grouping := ranges.get(TokenType.GROUP_BY)) is not None:
            keyword = self._clause(grouping[0] - 1, grouping[0])
            group_by = self._group_by(*grouping)
        return Parts(
            source,
            source_clause,
            self.qualifier,
            hints,
            tuple(self._item(*item) for item in items),
            None if where is None else self._clause(*where),
            group_by,
            keyword,
            None if having is None else self._clause(*having),
            self.distinct,
            within,
        )

    def _unsupported(self, what: str, yet: str = " yet", instead: str = "") -> UnsupportedError:
        remedy = f"; {instead}" if instead else ""
        return UnsupportedError(
            f"{what} is not supported{yet}{remedy}. {self.allowed}", self.script, *self.place()
        )

    def _expected_clause(self, what: str) -> SqlError:
        """The mistake that something else follows; a misspelt keyword before it may have been read as the name of an input."""
        for token in (self.tokens[self.position], self.tokens[self.position - 1]):
            alike = [word for word in _KEYWORDS if abs(len(word) - len(token.text)) < 2]
            meant = get_close_matches(token.text.upper(), alike, 1, cutoff=0.74)
            if token.token_type is TokenType.VAR and meant:
                message = f"Expected {what} here; did you mean {meant[0]}?"
                return SqlError(message, self.script, token.start, token.end + 1)
        return self.expected(what)

    def _items(self) -> list[tuple[int, int]]:
        """Token ranges of the SELECT list."""
        items: list[tuple[int, int]] = []
        first, depth = self.position, 0
        while self.position < len(self.tokens):
            kind = self.kind()
            if depth == 0 and kind in (TokenType.COMMA, TokenType.FROM):
                if self.position == first:
                    raise self.expected("a column or expression")
                items.append((first, self.position))
                first = self.position + 1
                if kind is TokenType.FROM:
                    return items
            depth += self._nesting()
            self.position += 1
        raise self._expected_from(first)

    def _expected_from(self, first: int) -> SqlError:
        """The mistake that no FROM follows the last item of a SELECT list, at the word that may be it, misspelt."""
        alike = (at for at, token in enumerate(self.tokens) if at > first and _is_misspelt_from(token))
        self.position = next(alike, self.position)
        return self.expected("FROM")

    def _nesting(self) -> int:
        """1 where a bracket or CASE opens, -1 where it closes."""
        return NESTING.get(self.kinds[self.position], 0)

    def _source(self) -> tuple[str, Clause, str | None, tuple[Token, ...]]:
        """Moves past what FROM or JOIN names: its name and place, its alias, and the tokens of a query in parentheses."""
        within: tuple[Token, ...] = ()
        if self.kind() is TokenType.L_PAREN:
            name, clause, within = self._query_in_from()
        else:
            start, end = self.place()
            name = self.name("the name of a table or view")
            clause = Clause(self.script[start:end], self.script, start)
        if self.kind() is TokenType.DOT:
            raise self._unsupported("A name with a catalog or schema")
        alias = None
        self.accept(TokenType.ALIAS)
        following = self.tokens[self.position] if self.kind() else None
        if following is not None and following.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            alias = following.text
            self.position += 1
        return name, clause, alias, within

    def _query_in_from(self) -> tuple[str, Clause, tuple[Token, ...]]:
        """Moves past a query in parentheses: a name for it, where it was written, and its tokens."""
        first = self.position
        end = closing(self.tokens, first)
        if end is None or self.kind(1) is not TokenType.SELECT:
            raise self._unsupported("A subquery", instead=INSTEAD_OF_A_SUBQUERY)
        self.position = end + 1
        token = self.tokens[first]
        # each of a text has another
        name = f"subquery_{token.start}"
        clause = Clause(self.script[token.start : self.tokens[end].end + 1], self.script, token.start)
        return name, clause, tuple(self.tokens[first + 1 : end])

    def _tail(self) -> dict[TokenType, tuple[int, int]]:
        """Token ranges of what follows WHERE, GROUP BY and HAVING."""
        found: dict[TokenType, tuple[int, int]] = {}
        following = list(_TAIL)
        while (kind := self.kind()) is not None:
            if kind is TokenType.COMMA:
                raise self._unsupported("Selecting from several tables")
            if kind in UNSUPPORTED:
                raise self._unsupported(UNSUPPORTED[kind])
            if kind not in following:
                raise self._expected_clause(
                    "WHERE, or the end of the query" if not found else "the end of the query"
                )
            following = following[following.index(kind) + 1 :]
            self.position += 1
            first = self.position
            self._skip_clause()
            if first == self.position:
                raise self.expected(_TAIL[kind])
            found[kind] = (first, self.position)
        return found

    def _skip_clause(self) -> None:
        """Moves to the next clause, or to the end."""
        depth = 0
        while (kind := self.kind()) is not None:
            if depth == 0 and kind in _TAIL:
                return
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0 and kind in UNSUPPORTED and not self._is_name():
                raise self._unsupported(UNSUPPORTED[kind])
            if kind is TokenType.SELECT:
                raise self._unsupported("A subquery", instead=INSTEAD_OF_A_SUBQUERY)
            self.position += 1

    def _is_name(self) -> bool:
        """Whether a word that may begin a clause is a function or column here."""
        if is_call(self.tokens, self.position):
            return True
        following = [token.token_type for token in self.tokens[self.position + 1 : self.position + 3]]
        return self.kind() is TokenType.WINDOW and TokenType.ALIAS not in following

    def _group_by(self, first: int, last: int) -> GroupBy:
        if self.kinds[first:last] == [TokenType.ALL]:
            self.position = first
            raise self._unsupported("GROUP BY ALL")
        return read_group_by(self.script, self.tokens, first, last, self._clause)

    def _clause(self, first: int, last: int) -> Clause:
        """The text of some tokens, with blanks in place of the source's name before a column's."""
        return unqualified(self.script, self.tokens[first:last], self.qualifier)

    def _item(self, first: int, last: int) -> Item:
        clause = self._clause(first, last)
        if last - first == 1 or clause.text.strip() == "*":
            return Item(clause, clause, None, None)
        if self.tokens[first].token_type is TokenType.STAR and self.tokens[first + 1].text.upper() in (
            "EXCEPT",
            "EXCLUDE",
        ):
            message = f"`* {self.tokens[first + 1].text.upper()}` is not supported; name the columns."
            raise clause.error(UnsupportedError, message)
        tree = parse_tree(clause)
        if not isinstance(tree, exp.Alias):
            return Item(clause, clause, None, tree)
        bare = last - 2 if self.tokens[last - 2].token_type is TokenType.ALIAS else last - 1
        return Item(clause, self._clause(first, bare), tree.alias, tree)


def _is_misspelt_from(token: Token) -> bool:
    return token.token_type is TokenType.VAR and bool(
        get_close_matches(token.text.upper(), ["FROM"], 1, 0.74)
    )


def unqualified(script: str, tokens: Sequence[Token], qualifier: str) -> Clause:
    """The text of some tokens, with blanks in place of a name before a column's.

    Args:
        script: the text the tokens come from.
        tokens: at least one.
        qualifier: the name, in upper case.
    """
    start = tokens[0].start
    text = script[start : tokens[-1].end + 1]
    for index, (name, dot) in enumerate(pairwise(tokens[:-1])):
        if dot.token_type is not TokenType.DOT or name.text.upper() != qualifier:
            continue
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue
        width = dot.end + 1 - name.start
        text = text[: name.start - start] + " " * width + text[dot.end + 1 - start :]
    return Clause(text, script, start)
