"""From the clauses of a query with GROUP BY, aggregates or DISTINCT to a window view or a running view."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import ALL_TIME, GroupingSet, Windows
from penstock.sql.text.clauses import Clause
from penstock.sql.text.grouping import GroupBy
from penstock.sql.text.intervals import length_text
from penstock.sql.text.lexing import name_of, own_name, spelling, tokenize, without_parentheses
from penstock.sql.text.parts import ALLOWED_RUNNING, ALLOWED_SESSION, ALLOWED_WINDOW, Item, Parts
from penstock.sql.windows.aggregate_calls import AggregateCall, is_aggregate
from penstock.sql.windows.calls import WindowCall, is_window, read_window
from penstock.sql.windows.group_expressions import (
    GroupExpressions,
    columns_of,
    refuse_call,
)
from penstock.sql.windows.grouping_sets import WINDOW, GroupingColumns, grouping_sets
from penstock.sql.windows.query import GroupExpression, Key, WindowQuery, key_name

#: hints that are about windows
_OF_WINDOWS = ("MAX_ERROR", "DEADLINE", "LOSS", "CUMULATE")


def parse_window_query(parts: Parts, users: Collection[str] = ()) -> WindowQuery:
    """Reads a query with GROUP BY, aggregates or DISTINCT.

    Args:
        parts: the clauses of the query.
        users: names of the user's aggregates that it may call, in upper case.

    Raises:
        UnsupportedError: what no window view may have.
        SqlError: what is no query of Spark, such as a column that is neither grouped nor aggregated, or hints that do not go together.
    """
    return _WindowParser(parts, users).parse()


@dataclass(frozen=True, slots=True)
class _Grouping:
    """What a grouping expression stands for: itself, or an item of the SELECT list."""

    expression: Clause
    entry: Clause


class _WindowParser:
    def __init__(self, parts: Parts, users: Collection[str]) -> None:
        self.parts = parts
        self.users = users
        self.group_by = parts.group_by or GroupBy((), ())
        if parts.distinct is not None:
            entries = tuple(item.expression for item in parts.items)
            self.group_by = GroupBy(entries, entries)
            self._refuse_aggregated(parts.distinct)

    def parse(self) -> WindowQuery:
        parts = self.parts
        self._check_hints()
        if parts.distinct is None:
            groupings = [self._grouping(entry) for entry in self.group_by.entries]
        else:
            groupings = [_Grouping(entry, entry) for entry in self.group_by.entries]
        window = self._window(groupings)
        place = parts.group_by_keyword or parts.distinct or parts.having or parts.items[0].clause
        keys, places = self._keys(groupings)
        sets = () if self.group_by.sets is None else grouping_sets(self.group_by, places)
        self._check_kind(window, has_keys=bool(keys))
        self._check_sets(sets, has_keys=bool(keys))
        columns = GroupingColumns(
            tuple(dict.fromkeys(_spelled(each.expression) for each in groupings)),
            key_name(len(keys)) if sets else None,
        )
        rewriter = GroupExpressions(window, keys, parts.source, self.users, columns)
        aliases: dict[str, str] = {}
        named: dict[str, str] = {}
        outputs: list[GroupExpression] = []
        for item in parts.items:
            self._check_item(item)
            expression = rewriter.rewrite(item.expression, aliases)
            name = item.alias or _window_alone(item.expression) or own_name(_tokens(item.expression))
            outputs.append(GroupExpression(expression, name, item.clause))
            operand = expression if expression.isidentifier() else f"({expression})"
            if item.alias is not None:
                aliases.setdefault(item.alias.upper(), operand)
            if name is not None:
                named.setdefault(name.upper(), operand)
        having: tuple[GroupExpression, ...] = ()
        if parts.having is not None:
            condition = rewriter.rewrite(parts.having, named)
            having = (GroupExpression(condition, None, parts.having),)
        _refuse_mixed(rewriter.aggregates)
        return WindowQuery(
            source=parts.source,
            source_clause=parts.source_clause,
            time="" if window is None else window.time.text.strip(),
            time_clause=place if window is None else window.time,
            windows=ALL_TIME if window is None else self._laid(window),
            window_clause=place if window is None else window.clause,
            group_by=self.group_by.entries,
            grouped=self.group_by.written,
            keys=keys,
            aggregates=rewriter.aggregates,
            outputs=tuple(outputs),
            having=having,
            conditions=() if parts.where is None else (parts.where,),
            hints=parts.hints,
            gap=None if window is None else window.gap,
            sets=sets,
            before_window=len({*places[: places.index(WINDOW)]}) if WINDOW in places else 0,
        )

    def _check_hints(self) -> None:
        hints = self.parts.hints
        script = self.parts.source_clause.script
        if hints.loss is not None and hints.deadline_seconds is None:
            message = "LOSS limits missed deadlines, but the view has no deadline. Add DEADLINE('3 seconds')."
            raise SqlError(message, script, *hints.places["LOSS"])
        if hints.cumulate is not None and hints.deadline_seconds is not None:
            message = "CUMULATE and DEADLINE exclude each other. Remove one of them."
            raise SqlError(message, script, *hints.places["CUMULATE"])
        if hints.backfill and hints.deadline_seconds is not None:
            message = (
                "BACKFILL and DEADLINE exclude each other: windows from before the view are already late."
            )
            raise SqlError(message, script, *hints.places["BACKFILL"])

    def _laid(self, window: WindowCall) -> Windows:
        """The windows of a call, cumulating ones where the hint asks for them."""
        windows, length = window.windows, self.parts.hints.cumulate
        if length is None:
            return windows
        if windows.slide != windows.size:
            message = (
                "CUMULATE needs tumbling windows, whose length is the step. Write window(time, '10 minutes')."
            )
            raise window.clause.error(SqlError, message)
        if length <= windows.size or length % windows.size:
            message = f"CUMULATE: the length of time must be a multiple of the window's {length_text(windows.size)}, and longer."
            raise SqlError(message, window.clause.script, *self.parts.hints.places["CUMULATE"])
        return Windows(length, windows.slide, windows.start, is_cumulating=True)

    def _check_kind(self, window: WindowCall | None, *, has_keys: bool) -> None:
        """Refuses hints that are about windows in a running view, and those about its state in a window view."""
        is_running = window is None
        for name, place in self.parts.hints.places.items():
            if window is not None and window.gap is not None and name in (*_OF_WINDOWS, "STATE_TTL"):
                message = f"{name} is not supported for sessions; their only hint is BACKFILL. Remove the hint. {ALLOWED_SESSION}"
            elif is_running and name in _OF_WINDOWS:
                message = f"{name} needs a window in GROUP BY; this view has none. {ALLOWED_WINDOW}"
            elif not is_running and name == "STATE_TTL":
                message = f"STATE_TTL is for a view without a window; windows leave the state as they become final. Remove the hint. {ALLOWED_RUNNING}"
            elif name == "STATE_TTL" and not has_keys:
                message = (
                    f"STATE_TTL is for groups; this view has one row. Remove the hint. {ALLOWED_RUNNING}"
                )
            else:
                continue
            raise SqlError(message, self.parts.source_clause.script, *place)

    def _check_sets(self, sets: Sequence[GroupingSet], *, has_keys: bool) -> None:
        """Refuses grouping sets without a key, and with a deadline."""
        hints, keyword = self.parts.hints, self.parts.group_by_keyword
        if sets and not has_keys and keyword is not None:
            message = "These grouping sets have no key. Leave them out."
            raise keyword.error(UnsupportedError, message)
        if sets and hints.deadline_seconds is not None:
            message = "DEADLINE is not supported with GROUPING SETS, ROLLUP or CUBE. Write a view for each grouping set, or remove the hint."
            script = self.parts.source_clause.script
            raise UnsupportedError(message, script, *hints.places["DEADLINE"])

    def _refuse_aggregated(self, distinct: Clause) -> None:
        """Refuses DISTINCT of groups."""
        tokens = [token for item in self.parts.items for token in _tokens(item.expression)]
        called = any(is_aggregate(tokens, position, self.users) for position in range(len(tokens)))
        if called or self.parts.group_by is not None or self.parts.having is not None:
            message = f"SELECT DISTINCT of aggregates or groups is not supported yet. {ALLOWED_RUNNING}"
            raise distinct.error(UnsupportedError, message)

    def _check_item(self, item: Item) -> None:
        text = item.expression.text.strip()
        if text == "*":
            message = f"`*` is not supported in an aggregation. Name the columns. {ALLOWED_WINDOW}"
            raise item.clause.error(UnsupportedError, message)
        name = (item.alias or "").lower()
        if name in ("window", "session_window") and _window_alone(item.expression) != name:
            message = f"The name {name} is reserved for the window itself; choose another name."
            raise item.clause.error(UnsupportedError, message)

    def _grouping(self, entry: Clause) -> _Grouping:
        """A grouping expression, or the item of the SELECT list that it names by alias or number."""
        tokens = _tokens(entry)
        if len(tokens) == 1 and not entry.is_qualified():
            if tokens[0].token_type is TokenType.NUMBER:
                return _Grouping(self._item_at(entry).expression, entry)
            name = (name_of(tokens[0]) or "").upper()
            for item in self.parts.items:
                if item.alias is not None and item.alias.upper() == name:
                    return _Grouping(item.expression, entry)
            for item in self.parts.items:
                if _window_alone(item.expression) == name.lower():
                    return _Grouping(item.expression, entry)
        return _Grouping(entry, entry)

    def _item_at(self, entry: Clause) -> Item:
        number = entry.text.strip()
        items = self.parts.items
        if not number.isdigit() or not 1 <= int(number) <= len(items):
            message = (
                f"A number in GROUP BY must be the position of an item in the SELECT list, 1 to {len(items)}."
            )
            raise entry.error(SqlError, message)
        return items[int(number) - 1]

    def _window(self, groupings: Sequence[_Grouping]) -> WindowCall | None:
        """The one window of GROUP BY, None where it has none."""
        found: dict[tuple[object, ...], WindowCall] = {}
        for grouping in groupings:
            clause = grouping.expression
            tokens = _tokens(clause)
            position = 0
            while position < len(tokens):
                refuse_call(clause, tokens, position)
                if is_aggregate(tokens, position, self.users):
                    raise grouping.entry.error(SqlError, "GROUP BY cannot use an aggregate.")
                if not is_window(tokens, position):
                    position += 1
                    continue
                call, end = read_window(clause, tokens, position)
                if position or end < len(tokens):
                    allowed = ALLOWED_WINDOW if call.gap is None else ALLOWED_SESSION
                    message = f"GROUP BY needs the window itself, not an expression of it. {allowed}"
                    raise call.clause.error(UnsupportedError, message)
                found.setdefault(call.identity, call)
                position = end
        if not found:
            return None
        first, *others = found.values()
        for other in others:
            allowed = ALLOWED_WINDOW if first.gap is None else ALLOWED_SESSION
            raise other.clause.error(UnsupportedError, f"GROUP BY allows one window only. {allowed}")
        return first

    def _keys(self, groupings: Sequence[_Grouping]) -> tuple[tuple[Key, ...], list[int]]:
        """The keys, each once, and of each grouping expression the number of its key, or WINDOW."""
        found: dict[tuple[str, ...], Key] = {}
        places: list[int] = []
        for grouping in groupings:
            clause = grouping.expression
            if is_window(_tokens(clause), 0):
                places.append(WINDOW)
                continue
            tokens = without_parentheses(_tokens(clause))
            names = {column.name.upper() for column in columns_of(clause).values()}
            if not names:
                message = "A grouping key without a column is not supported; remove it."
                if clause.text.strip() == "*":
                    message = "SELECT DISTINCT * is not supported yet. Name the columns."
                raise grouping.entry.error(UnsupportedError, message)
            place = clause.part(tokens[0].start, tokens[-1].end + 1)
            key = found.setdefault(spelling(tokens), Key(place.text, key_name(len(found)), place))
            places.append(list(found.values()).index(key))
        return tuple(found.values()), places


def _refuse_mixed(calls: Sequence[AggregateCall]) -> None:
    """Refuses what Spark does, see `INVALID_PANDAS_UDF_PLACEMENT`."""
    users = [call for call in calls if call.is_users]
    sparks = [call for call in calls if not call.is_users]
    if users and sparks:
        place = sparks[0].clause
        message = (
            f"A view cannot mix your aggregate {users[0].clause.text} with built-in aggregates. Move one of them to another "
            "view."
        )
        raise place.error(UnsupportedError, message)


def _tokens(clause: Clause) -> list[Token]:
    return tokenize(clause.text, clause.start, clause.script)


def _spelled(clause: Clause) -> tuple[str, ...]:
    return spelling(without_parentheses(_tokens(clause)))


def _window_alone(clause: Clause) -> str | None:
    """The function's name, where a clause is a window and nothing else."""
    tokens = _tokens(clause)
    if not is_window(tokens, 0):
        return None
    call, end = read_window(clause, tokens, 0)
    return call.name if end == len(tokens) else None
