"""Calls of aggregate functions: which there are, what each is computed from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import PAIRED, PICKING
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import arguments, is_call, parse_expression, spelling, tokenize
from penstock.sql.text.literals import number
from penstock.sql.text.ordering import OrderEntry, within_group
from penstock.sql.windows.listing import Listing

_Error = TypeVar("_Error", bound=SqlError)

#: names of aggregate functions in SQL -> the name they go by here
AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "min_by": "min_by",
    "max_by": "max_by",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "median": "percentile",
    "percentile": "percentile",
    "approx_count_distinct": "approx_count_distinct",
    "approx_percentile": "approx_percentile",
    "percentile_approx": "approx_percentile",
    "count_if": "count",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any": "max",
    "any_value": "min",
    "mode": "mode",
    "collect_set": "collect_set",
    "collect_list": "collect_list",
    "array_agg": "collect_list",
    "listagg": "collect_list",
    "string_agg": "collect_list",
    **{name: name for name in sorted(PAIRED)},
    "regr_count": "count",
    "regr_avgx": "avg",
    "regr_avgy": "avg",
    "skewness": "skewness",
    "kurtosis": "kurtosis",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
}
#: functions of the distinct values of their argument -> Spark's, with DISTINCT
DISTINCT = {"count_distinct": "count", "sum_distinct": "sum", "avg_distinct": "avg"}
#: a function -> what it is with DISTINCT
_DISTINCT = {
    "count": "count_distinct",
    "sum": "sum_distinct",
    "avg": "avg_distinct",
    "min": "min",
    "max": "max",
    "collect_set": "collect_set",
    "collect_list": "collect_set",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
}
#: functions of the tuples in which both arguments are there that are another function of one argument: the place of it
_OF_ONE = {"regr_count": 0, "regr_avgy": 0, "regr_avgx": 1}
#: functions of a condition that are the least or largest of its values: Spark's name of them, which takes BOOLEAN alone
_OF_CONDITIONS = {"bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or"} | dict.fromkeys(
    ("some", "any"), "bool_or"
)
ALLOWED_AGGREGATES = (
    "Allowed aggregates: COUNT(*), COUNT(x), COUNT(DISTINCT x), SUM, AVG or MEAN, MIN, MAX, MAX_BY(x, y), MIN_BY(x, y), STDDEV, STDDEV_POP, "
    "VARIANCE, VAR_POP, SKEWNESS, KURTOSIS, CORR(x, y), COVAR_POP(x, y), COVAR_SAMP(x, y), REGR_SLOPE(y, x) and the other REGR_ functions, "
    "BIT_AND, BIT_OR, BIT_XOR, MEDIAN, PERCENTILE(x, p), APPROX_COUNT_DISTINCT(x[, rsd]), "
    "APPROX_PERCENTILE(x, p[, accuracy]), COUNT_IF, BOOL_AND or EVERY, BOOL_OR or SOME or ANY, ANY_VALUE, MODE, "
    "COLLECT_SET, COLLECT_LIST or ARRAY_AGG, LISTAGG or STRING_AGG, with FILTER (WHERE condition); SUM(DISTINCT x), AVG(DISTINCT x)."
)

#: Spark's other aggregate functions
_OTHERS = frozenset(
    {"approx_top_k", "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "count_min_sketch"}
    | {"first", "first_value", "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg"}
    | {"hll_union_agg", "last", "last_value", "percentile_cont", "percentile_disc"}
    | {"try_avg", "try_sum"}
)
#: other ways to aggregate, to be said where one is refused
_INSTEAD = {
    **dict.fromkeys(("first", "first_value"), "min_by(x, time), the value at the least time"),
    **dict.fromkeys(("last", "last_value"), "max_by(x, time), the value at the largest time"),
    **dict.fromkeys(("try_sum", "try_avg"), "SUM or AVG, which are NULL where they do not fit their type"),
}
#: functions that join the values of a group to one text
_LISTING = frozenset({"listagg", "string_agg"})
#: before `ANY (...)` and `SOME (...)` they make a condition
_LIKE = (TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE)
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.TRUE, TokenType.FALSE)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate.

    Attributes:
        function: its name in `penstock.plan.windows.Aggregate`: "avg" for MEAN too, "percentile" for
            MEDIAN, "count_distinct" for COUNT(DISTINCT x); of the user's its name in upper case.
        arguments: Spark SQL texts: none for COUNT(*), two for those of `PICKING` and `PAIRED`, of LISTAGG the value and the keys of its
            ORDER BY, one of Spark's other functions, one or more of the user's. `FILTER (WHERE c)` is part of each: `CASE WHEN c THEN x END`.
        parameter: the fraction of a percentile in [0, 1], else None.
        accuracy: of an approximate one: the relative standard deviation of a distinct count, the accuracy of
            a percentile; else None.
        clause: the call as it was written first.
        is_users: whether it is an aggregate of the user's.
        spark: Spark's name of a function that is another one here, "bool_and" and "bool_or"; "" for the others.
        listing: of LISTAGG how it joins its values, until it is bound: see `penstock.sql.windows.listing`.
    """

    function: str
    arguments: tuple[str, ...]
    parameter: float | None
    accuracy: float | None
    clause: Clause
    is_users: bool = False
    spark: str = ""
    listing: Listing | None = None

    @property
    def sql(self) -> str:
        """The call in Spark SQL."""
        if self.listing is not None:
            return self.listing.sql(self.arguments)
        if self.function in DISTINCT:
            return f"{DISTINCT[self.function]}(DISTINCT {self.arguments[0]})"
        text = f"{self.spark or self.function}({', '.join(self.arguments) or '*'}"
        if self.parameter is not None:
            text += f", {self.parameter!r}D"
        if self.accuracy is not None:
            text += f", {self.accuracy!r}D" if self.parameter is None else f", {self.accuracy:.0f}"
        return f"{text})"

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells one aggregate from another, blanks and case apart."""
        spelled = tuple(spelling(tokenize(argument)) for argument in self.arguments)
        return self.spark or self.function, self.parameter, self.accuracy, self.listing, spelled


def is_users_aggregate(tokens: Sequence[Token], position: int, users: Collection[str]) -> bool:
    """Whether an aggregate of the user's is called there; `users` are their names in upper case."""
    return is_call(tokens, position) and tokens[position].text.upper() in users


def is_aggregate(tokens: Sequence[Token], position: int, users: Collection[str] = ()) -> bool:
    """Whether an aggregate function of Spark, or one of the user's, is called there."""
    return is_users_aggregate(tokens, position, users) or (
        is_call(tokens, position)
        and tokens[position].text.lower() in (*AGGREGATES, *_OTHERS)
        and (position == 0 or tokens[position - 1].token_type not in _LIKE)
    )


def read_aggregate(
    clause: Clause, tokens: Sequence[Token], position: int, users: Collection[str] = ()
) -> tuple[AggregateCall, int]:
    """Reads the call that begins there.

    Args:
        clause: the text the tokens come from.
        tokens: those of the clause.
        position: of the function's name, for which `is_aggregate` holds.
        users: names of the user's aggregates, in upper case.

    Returns:
        The call, and the position after it and its FILTER.

    Raises:
        UnsupportedError: a function, DISTINCT or a form of arguments that window views do not have.
        SqlError: an aggregate in an aggregate, or arguments the function does not take.
    """
    reader = _Reader(clause, tokens, position, users)
    is_users = is_users_aggregate(tokens, position, users)
    return (reader.read_users() if is_users else reader.read()), reader.end


class _Reader:
    def __init__(
        self, clause: Clause, tokens: Sequence[Token], position: int, users: Collection[str]
    ) -> None:
        self.clause = clause
        self.tokens = tokens
        self.position = position
        self.users = users
        self.name = tokens[position].text.lower()
        self.end = position + 2

    def read_users(self) -> AggregateCall:
        """A call of an aggregate of the user's."""
        found, self.end = arguments(self.tokens, self.position + 1)
        self._refuse_inside(self.position + 1, self.end)
        name = self.tokens[self.position].text
        following = self.tokens[self.end].text.upper() if self.end < len(self.tokens) else ""
        kinds = {token.token_type for token in self.tokens[self.position : self.end]}
        refused = {
            "DISTINCT": self._quantifier(found),
            "`*`": any(self._has_star(*each) for each in found),
            "ORDER BY": TokenType.ORDER_BY in kinds or following == "WITHIN",
            "FILTER": following == "FILTER",
            "OVER": following == "OVER",
            "A call without arguments": not found,
        }
        for what, is_there in refused.items():
            if is_there:
                message = f"{what} is not supported with your aggregate {name}. Write {name}(expression[, expression, ...])."
                raise self._error(UnsupportedError, message, self.position, self.end)
        texts = tuple(self._text(*each) for each in found)
        return AggregateCall(name.upper(), texts, None, None, self._place(), is_users=True)

    def read(self) -> AggregateCall:
        """A call of one of Spark's, with its FILTER."""
        found, self.end = arguments(self.tokens, self.position + 1)
        if self.name not in AGGREGATES:
            instead = f" Write {_INSTEAD[self.name]}." if self.name in _INSTEAD else ""
            raise self._unsupported(f"{self.name.upper()} is not supported yet.{instead}")
        self._refuse_inside(self.position + 1, self.end)
        order: tuple[OrderEntry, ...] = ()
        if self.name in _LISTING:
            behind = self.end
            order, self.end = within_group(self.clause, self.tokens, self.end)
            self._refuse_inside(behind, self.end)
        condition = self._filter()
        if self.end < len(self.tokens) and self.tokens[self.end].token_type is TokenType.OVER:
            raise self._unsupported("A window function (OVER) is not supported.")
        distinct = self._quantifier(found)
        function = AGGREGATES[self.name]
        if distinct:
            if function not in _DISTINCT or self.name == "count_if" or self.name in _OF_ONE:
                raise self._unsupported(f"{self.name.upper()}(DISTINCT) is not supported yet.")
            function = _DISTINCT[function]
        if self.name in _LISTING:
            return self._of_list(function, found, order, condition)
        if function in PICKING or function in PAIRED or self.name in _OF_ONE:
            return self._of_two(function, found, condition)
        accuracy = self._accuracy(found)
        parameter = self._parameter(found)
        if len(found) != 1:
            raise self._unsupported(f"{self.name.upper()} takes one argument here, not {len(found)}.")
        argument = self._argument(*found[0], distinct)
        if self.name == "count_if":
            argument = f"CASE WHEN ({argument}\n) THEN 1 END"
        if condition is not None:
            argument = f"CASE WHEN {condition} THEN {argument or '1'} END"
        own = () if argument is None else (argument,)
        spark = _OF_CONDITIONS.get(self.name, "")
        return AggregateCall(function, own, parameter, accuracy, self._place(), spark=spark)

    def _of_two(self, function: str, found: list[tuple[int, int]], condition: str | None) -> AggregateCall:
        """A call with two arguments; both are NULL where the condition does not hold."""
        if len(found) != 2:
            what = ", the value and what decides" if function in PICKING else ""
            raise self._unsupported(f"{self.name.upper()} takes two arguments{what}, not {len(found)}.")
        texts = [str(self._argument(*each, distinct=False)) for each in found]
        if self.name in _OF_ONE:
            place = _OF_ONE[self.name]
            texts = [f"CASE WHEN CAST({texts[1 - place]} AS DOUBLE) IS NOT NULL THEN {texts[place]} END"]
        if condition is not None:
            # the value too: where the condition does not hold, it may raise
            texts = [f"CASE WHEN {condition} THEN {each} END" for each in texts]
        return AggregateCall(function, tuple(texts), None, None, self._place())

    def _of_list(
        self, function: str, found: list[tuple[int, int]], order: Sequence[OrderEntry], condition: str | None
    ) -> AggregateCall:
        """A call of LISTAGG; its value and the keys of its order are NULL where the condition does not hold."""
        if not 1 <= len(found) <= 2:
            message = f"{self.name.upper()} takes the value and a delimiter, not {len(found)} arguments."
            raise self._unsupported(message)
        for first, last in found:
            for position in range(first, last):
                if self.tokens[position].token_type is TokenType.ORDER_BY:
                    message = f"The order stands behind the call: {self.name.upper()}(x, ', ') WITHIN GROUP (ORDER BY x)."
                    raise self._error(SqlError, message, position, last)
        texts = [str(self._argument(*found[0], distinct=False)), *(each.expression for each in order)]
        if condition is not None:
            texts = [f"CASE WHEN {condition} THEN {each} END" for each in texts]
        delimiter = self._text(*found[1]) if len(found) == 2 else None
        if delimiter is not None and not _is_constant(delimiter):
            message = f"The delimiter of {self.name.upper()} must be a constant, such as ', '."
            raise self._error(SqlError, message, *found[1])
        directions = tuple((each.is_descending, each.nulls_first) for each in order)
        listing = Listing(delimiter, directions, is_distinct=function == "collect_set")
        return AggregateCall(function, tuple(texts), None, None, self._place(), listing=listing)

    def _refuse_inside(self, first: int, last: int) -> None:
        for position in range(first, last):
            if is_aggregate(self.tokens, position, self.users):
                raise self._error(
                    SqlError, "An aggregate cannot contain another aggregate.", position, position + 1
                )
            if self.tokens[position].token_type is TokenType.SELECT:
                raise self._unsupported(
                    "A subquery is not supported; make it a view, or JOIN the static table."
                )
            if self.tokens[position].token_type is TokenType.OVER:
                raise self._unsupported("A window function (OVER) is not supported.")

    def _filter(self) -> str | None:
        """The condition of a FILTER clause after the call, if there is one."""
        kinds = [token.token_type for token in self.tokens[self.end : self.end + 3]]
        if kinds[:1] != [TokenType.FILTER]:
            return None
        if kinds != [TokenType.FILTER, TokenType.L_PAREN, TokenType.WHERE]:
            raise self._error(SqlError, "Expected FILTER (WHERE condition) here.", self.end, self.end + 1)
        opening = self.end + 1
        _, self.end = arguments(self.tokens, opening)
        self._refuse_inside(opening, self.end)
        if self.end - 1 == opening + 2:
            raise self._error(SqlError, "Expected a condition here.", self.end - 1, self.end)
        return self._text(opening + 2, self.end - 1)

    def _quantifier(self, found: list[tuple[int, int]]) -> bool:
        """Takes DISTINCT or ALL away from the first argument; whether it was DISTINCT."""
        if not found:
            return False
        first, last = found[0]
        kind = self.tokens[first].token_type
        if kind in (TokenType.DISTINCT, TokenType.ALL) and last - first > 1:
            found[0] = (first + 1, last)
        return kind is TokenType.DISTINCT

    def _accuracy(self, found: list[tuple[int, int]]) -> float | None:
        """Takes the accuracy of an approximate aggregate away from the arguments."""
        match AGGREGATES[self.name]:
            case "approx_count_distinct":
                message = (
                    "The relative standard deviation must be a number from 0.0008 to 0.39, such as 0.05."
                )
                return self._number(found.pop(), 0.0008, 0.39, message) if len(found) > 1 else 0.05
            case "approx_percentile":
                message = (
                    "The accuracy must be a whole number from 1 to 10000: the inverse of the rank error."
                )
                is_given = len(found) > 2
                return self._number(found.pop(), 1, 10_000, message, is_whole=True) if is_given else 10_000
        return None

    def _parameter(self, found: list[tuple[int, int]]) -> float | None:
        """Takes the fraction of a percentile away from the arguments."""
        if self.name == "median":
            return 0.5
        if AGGREGATES[self.name] not in ("percentile", "approx_percentile"):
            return None
        if len(found) != 2:
            raise self._unsupported(f"{self.name.upper()} takes two arguments here, not {len(found)}.")
        message = "The fraction of a percentile must be a number from 0 to 1, such as 0.95."
        return self._number(found.pop(), 0, 1, message)

    def _number(
        self, place: tuple[int, int], least: float, most: float, message: str, *, is_whole: bool = False
    ) -> float:
        """A number among the arguments; the message says what it must be."""
        literal = number(self._text(*place))
        if literal is None or not isinstance(literal.value, int | float | Decimal):
            raise self._error(UnsupportedError, message, *place)
        if not least <= literal.value <= most or (is_whole and literal.value % 1):
            raise self._error(SqlError, message, *place)
        return float(literal.value)

    def _argument(self, first: int, last: int, distinct: bool) -> str | None:
        is_count = self.name == "count"
        if last - first == 1 and is_count and not distinct:
            kind = self.tokens[first].token_type
            if kind is TokenType.STAR or kind in _LITERALS:
                return None
        if self._has_star(first, last):
            raise self._unsupported("`*` is allowed in COUNT(*) only.")
        return self._text(first, last)

    def _has_star(self, first: int, last: int) -> bool:
        return any(self.tokens[at].token_type is TokenType.STAR for at in (first, last - 1))

    def _place(self) -> Clause:
        """The call, its FILTER included."""
        return self.clause.part(self.tokens[self.position].start, self.tokens[self.end - 1].end + 1)

    def _text(self, first: int, last: int) -> str:
        return self.clause.text[self.tokens[first].start : self.tokens[last - 1].end + 1]

    def _unsupported(self, message: str) -> UnsupportedError:
        return self._error(UnsupportedError, f"{message} {ALLOWED_AGGREGATES}", self.position, self.end)

    def _error(self, kind: type[_Error], message: str, first: int, last: int) -> _Error:
        tokens = self.tokens
        return self.clause.error(kind, message, tokens[first].start, tokens[last - 1].end + 1)


def _is_constant(text: str) -> bool:
    """Whether a text is an expression without columns."""
    try:
        return parse_expression(text).find(exp.Column) is None
    except ParseError:
        return False
