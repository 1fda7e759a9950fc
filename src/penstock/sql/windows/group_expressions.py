"""Expressions over groups: the window, keys and aggregates in them by the names of a group's columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UngroupedError, UnsupportedError
from penstock.sql.conditions.operands import BARE_FUNCTIONS
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import is_call, name_of, parse_expression, spelled, spelling, tokenize
from penstock.sql.text.parts import ALLOWED_SESSION, ALLOWED_WINDOW, parse_tree
from penstock.sql.windows.aggregate_calls import (
    ALLOWED_AGGREGATES,
    AggregateCall,
    is_aggregate,
    read_aggregate,
)
from penstock.sql.windows.calls import WindowCall, is_window, read_window
from penstock.sql.windows.grouping_sets import ID_COLUMN, GroupingColumns, is_grouping
from penstock.sql.windows.query import WINDOW_NAME, Key, aggregate_name

_REFUSED_CALLS = {
    "window_time": (
        "window_time() takes the window of another view. Select the window, AS w, and group the view over this one by "
        "window(window_time(w), '1 hour')"
    ),
    "struct": "struct() is not supported here; use named_struct()",
    **dict.fromkeys(
        ("explode", "explode_outer", "inline", "inline_outer", "posexplode", "posexplode_outer", "stack"),
        "A function that returns several rows is not supported yet",
    ),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A name in a text, with the fields behind it.

    Attributes:
        name: its first part.
        end: offset after the first part.
        last: offset after the last part.
        is_qualified: whether it has the source's name before it, so that it is no alias.
    """

    name: str
    end: int
    last: int
    is_qualified: bool


class GroupExpressions:
    """Rewrites expressions of the SELECT list and HAVING; collects the aggregates in them.

    Args:
        window: the window that groups; None of a running view.
        keys: the keys that group.
        source: the table or view after FROM.
        users: names of the user's aggregates, in upper case.
        columns: what `grouping` and `grouping_id` are about.
    """

    def __init__(
        self,
        window: WindowCall | None,
        keys: Sequence[Key],
        source: str,
        users: Collection[str],
        columns: GroupingColumns,
    ) -> None:
        self._window = window
        self._columns = columns
        self._source = source
        self._users = users
        self._keys = sorted(
            ((spelled(key.expression), key.name) for key in keys), key=lambda key: -len(key[0])
        )
        self._grouped = [each.clause for each in keys]
        self._found: dict[tuple[object, ...], AggregateCall] = {}

    @property
    def aggregates(self) -> tuple[AggregateCall, ...]:
        """The aggregates found so far, each once; the n-th is `_an`."""
        return tuple(self._found.values())

    def rewrite(self, clause: Clause, aliases: Mapping[str, str]) -> str:
        """The expression over a group's columns `_w`, `_k0`, ... and `_a0`, ...

        Args:
            clause: the expression as it was written.
            aliases: names of outputs in upper case and what they stand for, rewritten. Keys go
                before them, in HAVING too.

        Raises:
            SqlError: a column that is neither grouped nor aggregated.
            UnsupportedError: what no window view may have.
        """
        tokens = tokenize(clause.text, clause.start, clause.script)
        columns = columns_of(clause)
        replaced: list[tuple[int, int, str]] = []
        position = 0
        while position < len(tokens):
            start = tokens[position].start
            column = columns.get(start)
            refuse_call(clause, tokens, position)
            if is_grouping(tokens, position):
                name, position = self._columns.rewrite(clause, tokens, position)
                replaced.append((start, tokens[position - 1].end + 1, name))
                continue
            if is_aggregate(tokens, position, self._users):
                call, position = read_aggregate(clause, tokens, position, self._users)
                replaced.append((start, tokens[position - 1].end + 1, self._aggregate(call)))
                continue
            if is_window(tokens, position):
                window, position = read_window(clause, tokens, position)
                if self._window is None or window.identity != self._window.identity:
                    message = _differs(window, self._window)
                    raise window.clause.error(UnsupportedError, message)
                replaced.append((start, tokens[position - 1].end + 1, WINDOW_NAME))
                continue
            alias = None if column is None or column.is_qualified else aliases.get(column.name.upper())
            if (key := self._key(clause, tokens, position, columns)) is not None:
                name, position = key
                replaced.append((start, tokens[position - 1].end + 1, name))
                continue
            if column is not None:
                window_name = None if self._window is None or column.is_qualified else self._window.name
                is_window_name = column.name.lower() == window_name
                is_id = column.name.upper() == ID_COLUMN and not column.is_qualified
                found = alias or (WINDOW_NAME if is_window_name else self._columns.name if is_id else None)
                if found is not None:
                    replaced.append((start, column.end, found))
                elif column.name.upper() not in BARE_FUNCTIONS:
                    error = self._ungrouped(clause, tokens, position, column.last)
                    place = error.text, error.start, error.end
                    keys = self._places_of_keys(error.start)
                    raise UngroupedError(error.message, *place, column.name, self._source, keys)
                position = _after(tokens, column.last)
                continue
            position += 1
        text = clause.text
        for start, end, name in reversed(replaced):
            text = text[:start] + name + text[end:]
        return text.strip()

    def _ungrouped(self, clause: Clause, tokens: Sequence[Token], position: int, last: int) -> SqlError:
        """What is wrong with a column that is neither grouped nor aggregated: often a function around it that is no aggregate."""
        start = tokens[position].start
        what = f"{clause.text[start:last]} is neither grouped nor aggregated"
        around = _call_around(tokens, position)
        if around is None:
            return clause.error(SqlError, f"{what}. Add it to GROUP BY, or aggregate it.", start, last)
        function = name_of(around) or around.text
        if function.upper() not in {node.name.upper() for node in parse_tree(clause).find_all(exp.Anonymous)}:
            message = f"{what}. Add it to GROUP BY, or aggregate it. {function} is not an aggregate function. {ALLOWED_AGGREGATES}"
            return clause.error(SqlError, message, start, last)
        users = ", ".join(sorted(each.lower() for each in self._users)) or "none so far"
        message = (
            f"{function} is not an aggregate function, and {what}. {ALLOWED_AGGREGATES} Of your own, with DEADLINE: {users}; "
            "declare one with Engine.aggregate, or in AGGREGATES of the module given by --functions."
        )
        return clause.error(SqlError, message, around.start, around.end + 1)

    def _places_of_keys(self, origin: int) -> list[tuple[str, int, int]]:
        """The columns in GROUP BY, see `UngroupedError`."""
        return [
            (column.name, clause.start + start - origin, clause.start + column.end - origin)
            for clause in self._grouped
            for start, column in columns_of(clause).items()
        ]

    def _aggregate(self, call: AggregateCall) -> str:
        self._found.setdefault(call.identity, call)
        return aggregate_name(list(self._found).index(call.identity))

    def _key(
        self,
        clause: Clause,
        tokens: Sequence[Token],
        position: int,
        columns: Mapping[int, Column],
    ) -> tuple[str, int] | None:
        """The key that is written there and the position after it."""
        if position and tokens[position - 1].token_type is TokenType.DOT:
            return None
        for words, name in self._keys:
            last = position + len(words)
            if spelling(tokens[position:last]) != words:
                continue
            start, end = tokens[position].start, tokens[last - 1].end + 1
            if not any(start <= at < end for at in columns):
                continue
            if start in columns and end <= columns[start].last:
                return name, last
            if _is_operand(clause.text, start, end):
                return name, last
        return None


def columns_of(clause: Clause, allowed: str = ALLOWED_WINDOW) -> dict[int, Column]:
    """The names of columns in an expression, by the offsets where they begin.

    Args:
        clause: the expression.
        allowed: what may stand in its place, for messages.

    Raises:
        SqlError: no expression.
        UnsupportedError: a star or a subquery.
    """
    found: dict[int, Column] = {}
    for node in parse_tree(clause).walk():
        if isinstance(node, exp.Query):
            message = f"A subquery is not supported yet; make it a view, or JOIN the static table. {allowed}"
            raise clause.error(UnsupportedError, message)
        if not isinstance(node, exp.Column):
            continue
        first, last = node.parts[0], node.parts[-1]
        if isinstance(last, exp.Star):
            raise clause.error(UnsupportedError, f"`*` is not supported here. Name the columns. {allowed}")
        end = first.meta["end"] + 1
        qualified = clause.is_qualified(first.meta["start"])
        found[first.meta["start"]] = Column(first.name, end, last.meta["end"] + 1, qualified)
    return found


def refuse_call(
    clause: Clause, tokens: Sequence[Token], position: int, allowed: str = ALLOWED_WINDOW
) -> None:
    """Refuses what stands in no expression over groups.

    Args:
        clause: the expression.
        tokens: those of the expression.
        position: where to look in them.
        allowed: what may stand there, for messages.

    Raises:
        UnsupportedError: a window function, a table-generating function or `struct`.
    """
    token = tokens[position]
    what = _REFUSED_CALLS.get(token.text.lower()) if is_call(tokens, position) else None
    if (
        token.token_type is TokenType.OVER
        and position
        and tokens[position - 1].token_type is TokenType.R_PAREN
    ):
        what = "A window function (OVER) is not supported yet"
    if what is not None:
        raise clause.error(UnsupportedError, f"{what}. {allowed}", token.start, token.end + 1)


def _differs(call: WindowCall, grouped: WindowCall | None) -> str:
    """What is wrong with a window or session that is not the one of GROUP BY."""
    is_session = call.gap is not None
    what = "session window" if is_session else "window"
    allowed = ALLOWED_SESSION if is_session else ALLOWED_WINDOW
    if grouped is None:
        return f"This {what} is not in GROUP BY. {allowed}"
    own = "window" if grouped.gap is None else "session window"
    return f"This {what} differs from the {own} of GROUP BY. {allowed}"


def _call_around(tokens: Sequence[Token], position: int) -> Token | None:
    """The name of the innermost function in whose arguments a token is."""
    depth = 0
    for at in range(position - 1, 0, -1):
        kind = tokens[at].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth < 0:
            depth = 0
            if tokens[at - 1].token_type is TokenType.VAR and is_call(tokens, at - 1):
                return tokens[at - 1]
    return None


def _after(tokens: Sequence[Token], offset: int) -> int:
    """Position of the first token that begins there or later."""
    return next((number for number, token in enumerate(tokens) if token.start >= offset), len(tokens))


def _is_operand(text: str, start: int, end: int) -> bool:
    """Whether parentheses around a part of an expression would not change it."""
    try:
        return _without_parentheses(text) == _without_parentheses(
            f"{text[:start]}({text[start:end]}){text[end:]}"
        )
    except ParseError:
        return False


def _without_parentheses(text: str) -> exp.Expression:
    tree = exp.Tuple(expressions=[parse_expression(text)])
    while (inner := tree.find(exp.Paren)) is not None:
        inner.replace(inner.this)
    return tree
