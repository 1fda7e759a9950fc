"""Predicates that test string columns behind functions, read as patterns of the columns' own values.

`contains(lower(x), 'c')`, `trim(x) IN ('a', 'b')`, `coalesce(x, '') LIKE 'a%'`, `instr(x, 'c') > 0` and `length(x) < 9` ask
whether a value that passes through some functions satisfies a pattern. `lower(x) = lower(y)` asks whether two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt

import pyarrow as pa

from penstock.plan.letter_case import spark_lower
from penstock.plan.patterns import Form, TextPattern, escaped, formed, is_kernel_pattern
from penstock.sql.conditions.comparisons import like, like_pattern
from penstock.sql.conditions.nodes import (
    MIRRORED,
    Between,
    Compare,
    Holds,
    IsNull,
    Like,
    Member,
    Operand,
    Predicate,
)
from penstock.sql.conditions.operands import Compared
from penstock.sql.text.literals import Kind, Literal

_FORMING = {
    "LOWER": "lower",
    "LCASE": "lower",
    "UPPER": "upper",
    "UCASE": "upper",
    "TRIM": "trim",
    "BTRIM": "trim",
    "LTRIM": "ltrim",
    "RTRIM": "rtrim",
}
_REPLACING_NULL = {"COALESCE", "IFNULL", "NVL"}
#: signs around a text in the LIKE pattern that says the same
_AROUND = {"CONTAINS": ("%", "%"), "STARTSWITH": ("", "%"), "ENDSWITH": ("%", "")}
_MATCHING = {"LIKE": "LIKE", "ILIKE": "ILIKE", "RLIKE": "RLIKE", "REGEXP": "RLIKE", "REGEXP_LIKE": "RLIKE"}
_LENGTHS = {"LENGTH", "LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"}
#: places of the value and of the text that is looked for among the arguments
_FINDING = {"INSTR": (0, 1), "LOCATE": (1, 0), "POSITION": (1, 0)}
_HOLDS: dict[str, Callable[[int, int], bool]] = {"=": eq, "<=>": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_FAR = 1 << 40


@dataclass(frozen=True, slots=True)
class FormedColumn:
    """A string column behind functions, NULL where the column is or nowhere.

    Attributes:
        column: the column.
        form: the functions.
        if_null: what a NULL of the column becomes behind them; None: NULL.
    """

    column: Compared
    form: Form = ()
    if_null: str | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it is the column itself."""
        return not self.form and self.if_null is None

    def behind(self, function: str) -> FormedColumn | None:
        """The same behind one more function; None for one case behind the other, which Spark's optimizer makes one."""
        if {*self.form[-1:], function} == {"lower", "upper"}:
            return None
        if_null = None if self.if_null is None else formed((function,), self.if_null)
        form = self.form if self.form[-1:] == (function,) else (*self.form, function)
        return FormedColumn(self.column, form, if_null)


@dataclass(frozen=True, slots=True)
class PatternTest:
    """Whether a value satisfies any of some patterns; NULL of NULL.

    Attributes:
        value: what is tested.
        patterns: kernel patterns without a form of their own: `value.form` is meant.
        negated: whether TRUE is FALSE.
        null_safe: whether it is FALSE of NULL.
        has_null: whether NULL is one of what the value is compared with.
    """

    value: FormedColumn
    patterns: tuple[TextPattern, ...]
    negated: bool = False
    null_safe: bool = False
    has_null: bool = False


@dataclass(frozen=True, slots=True)
class EqualTest:
    """Whether two values are equal; NULL where one is NULL."""

    left: FormedColumn
    right: FormedColumn


@dataclass(frozen=True, slots=True)
class NullTest:
    """Whether a value is NULL."""

    value: FormedColumn


class TextTests:
    """Reads predicates.

    Args:
        column: the column that a bare name means, if it exists.
        literal: the constant that an operand is, as far as it is known.
        built_in: whether a function, its name in upper case, is Spark's own.
        reads_words: whether regular expressions may have `\\b`.
    """

    def __init__(
        self,
        column: Callable[[Operand], Compared | None],
        literal: Callable[[Operand], Literal | None],
        built_in: Callable[[str], bool],
        reads_words: Callable[[str], bool],
    ) -> None:
        self._column, self._literal = column, literal
        self._built_in, self._reads_words = built_in, reads_words

    def read(self, predicate: Predicate) -> PatternTest | EqualTest | NullTest | None:
        """The test that a predicate is; None: it is another, or one that kernels cannot compute."""
        match predicate:
            case Holds(operand):
                return self._called(operand)
            case IsNull(operand):
                value = self._tested(operand)
                return None if value is None or (value.is_bare and operand.call is None) else NullTest(value)
            case Compare():
                return self._compared(predicate)
            case Between(operand, low, high):
                bounds = self._numbers((low, high))
                return None if bounds is None else self._lengths(operand, [(bounds[0], bounds[1])])
            case Member():
                return self._member(predicate)
            case Like(operand, pattern, escape, word=word):
                return self._like(operand, word, pattern, escape)

    # -------------------------------------------------------------------------------------------- operands

    def _formed(self, operand: Operand) -> FormedColumn | None:
        """The column behind functions that an operand is."""
        call = operand.call
        if call is None:
            column = self._column(operand) if operand.column is not None else None
            is_text = column is not None and column.ordered and _is_text(column.type)
            return FormedColumn(column) if column is not None and is_text else None
        if not self._built_in(call.function):
            return None
        first, *others = call.arguments
        if call.function in _FORMING and not others:
            value = self._formed(first)
            return None if value is None else value.behind(_FORMING[call.function])
        if call.function in _REPLACING_NULL and others and (call.function == "COALESCE" or len(others) == 1):
            value, texts = self._formed(first), [self._text(each) for each in others]
            if value is None or None in texts:
                return None
            return value if value.if_null is not None else replace(value, if_null=texts[0])
        return None

    def _text(self, operand: Operand) -> str | None:
        """The string that a literal is, or a literal behind functions."""
        literal, call = self._literal(operand), operand.call
        if literal is not None:
            return literal.value if literal.kind is Kind.STRING and isinstance(literal.value, str) else None
        if call is None or call.function not in _FORMING or len(call.arguments) != 1:
            return None
        text = self._text(call.arguments[0])
        return (
            None
            if text is None or not self._built_in(call.function)
            else formed((_FORMING[call.function],), text)
        )

    def _tested(self, operand: Operand) -> FormedColumn | None:
        """The value that an operand is, tests, measures or searches."""
        call = operand.call
        if call is None or call.function in _FORMING or call.function in _REPLACING_NULL:
            return self._formed(operand)
        if call.function in _LENGTHS:
            return self._measured(operand)
        if call.function in _FINDING:
            found = self._searched(operand)
            return None if found is None else found[0]
        test = self._called(operand)
        return None if test is None else test.value

    def _measured(self, operand: Operand) -> FormedColumn | None:
        """The value whose length an operand is."""
        call = operand.call
        if call is None or call.function not in _LENGTHS or len(call.arguments) != 1:
            return None
        return self._formed(call.arguments[0]) if self._built_in(call.function) else None

    def _searched(self, operand: Operand) -> tuple[FormedColumn, str] | None:
        """The value in which an operand finds the place of a text, and the text."""
        call = operand.call
        if call is None or call.function not in _FINDING or len(call.arguments) != 2:
            return None
        where, what = _FINDING[call.function]
        value, text = self._formed(call.arguments[where]), self._text(call.arguments[what])
        return None if value is None or text is None or not self._built_in(call.function) else (value, text)

    def _numbers(self, items: Sequence[Operand]) -> list[int] | None:
        """The integers that constants are."""
        literals = [self._literal(each) for each in items]
        numbers = [
            each.value
            for each in literals
            if each is not None and each.kind is Kind.INTEGER and isinstance(each.value, int)
        ]
        return numbers if len(numbers) == len(items) else None

    # -------------------------------------------------------------------------------------------- predicates

    def _called(self, operand: Operand) -> PatternTest | None:
        call = operand.call
        if call is None or len(call.arguments) != 2 or not self._built_in(call.function):
            return None
        first, second = call.arguments
        if call.function in _MATCHING:
            return self._like(first, _MATCHING[call.function], second, None, called=True)
        value, text = self._formed(first), self._text(second)
        if call.function not in _AROUND or value is None or text is None:
            return None
        return _test(value, [_around(call.function, text)])

    def _compared(self, predicate: Compare) -> PatternTest | EqualTest | None:
        left, right, operator = predicate.left, predicate.right, predicate.operator
        if self._literal(left) is not None or self._text(left) is not None:
            left, right, operator = right, left, MIRRORED[operator]
        value = self._formed(left)
        if value is not None:
            other, text = self._formed(right), self._text(right)
            if other is not None:
                return EqualTest(value, other) if operator == "=" else None
            if value.is_bare or text is None or operator not in ("=", "<=>"):
                return None
            return _test(value, [_equal(text)], null_safe=operator == "<=>")
        numbers = self._numbers((right,))
        if numbers is None:
            return None
        if (found := self._searched(left)) is not None:
            return _found(*found, operator, numbers[0])
        bounds = _bounds(operator, numbers[0])
        return self._lengths(left, [bounds], null_safe=operator == "<=>")

    def _member(self, predicate: Member) -> PatternTest | None:
        nulls = [self._literal(item) == Literal(Kind.NULL, None) for item in predicate.items]
        items = [item for item, is_null in zip(predicate.items, nulls, strict=True) if not is_null]
        has_null = len(items) < len(predicate.items)
        if not items:
            return None
        value = self._formed(predicate.operand)
        if value is None:
            numbers = self._numbers(items)
            bounds = None if numbers is None else [(number, number) for number in numbers]
            return None if bounds is None else self._lengths(predicate.operand, bounds, has_null=has_null)
        texts = [text for text in map(self._text, items) if text is not None]
        if value.is_bare or len(texts) < len(items):
            return None
        return _test(value, [_equal(text) for text in dict.fromkeys(texts)], has_null=has_null)

    def _lengths(
        self,
        operand: Operand,
        bounds: Sequence[tuple[int, int | None]],
        *,
        null_safe: bool = False,
        has_null: bool = False,
    ) -> PatternTest | None:
        value = self._measured(operand)
        if value is None:
            return None
        patterns = [
            TextPattern("length", f"{least}..{'' if most is None else most}")
            for least, most in dict.fromkeys(bounds)
        ]
        return _test(value, patterns, null_safe=null_safe, has_null=has_null)

    def _like(
        self, operand: Operand, word: str, pattern: Operand, escape: Operand | None, *, called: bool = False
    ) -> PatternTest | None:
        value = self._formed(operand)
        literal = self._literal(pattern)
        if value is None or literal is None or not isinstance(literal.value, str):
            return None
        text, mark = literal.value, "\\" if escape is None else escape_mark(escape)
        if mark is None:
            return None
        if word == "RLIKE":
            return _test(value, [TextPattern("regex", text)]) if self._reads_words(text) else None
        if word == "LIKE" and value.is_bare and not called and like(text, mark) is not None:
            return None
        made = like_pattern(spark_lower(text) if word == "ILIKE" else text, mark)
        if made is None:
            return None
        tested = value.behind("lower") if word == "ILIKE" else value
        return None if tested is None else _test(tested, [TextPattern("like", made)])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _test(
    value: FormedColumn,
    patterns: Sequence[TextPattern],
    *,
    negated: bool = False,
    null_safe: bool = False,
    has_null: bool = False,
) -> PatternTest | None:
    """A test; None where kernels cannot compute a pattern."""
    if not all(map(is_kernel_pattern, patterns)):
        return None
    return PatternTest(value, tuple(patterns), negated, null_safe, has_null)


def _equal(text: str) -> TextPattern:
    return TextPattern("like", escaped(text))


def _around(function: str, text: str) -> TextPattern:
    before, behind = _AROUND[function]
    return TextPattern("like", f"{before}{escaped(text)}{behind}")


def _bounds(operator: str, number: int) -> tuple[int, int | None]:
    """The least and the most length for which a comparison holds."""
    match operator:
        case "<":
            return 0, number - 1
        case "<=":
            return 0, number
        case ">":
            return number + 1, None
        case ">=":
            return number, None
        case _:
            return number, number


def _found(value: FormedColumn, text: str, operator: str, number: int) -> PatternTest | None:
    """What a comparison asks of the place of a text, 0: nowhere, 1: at the start, where that is a pattern."""
    nowhere, first, second, far = (_HOLDS[operator](place, number) for place in (0, 1, 2, _FAR))
    if second is not far or (operator in ("=", "<=>") and number > 1):
        return None
    if nowhere is first is second:
        pattern = TextPattern("like", "%")
    elif first is second:
        pattern = _around("CONTAINS", text)
    elif nowhere is second:
        pattern = _around("STARTSWITH", text)
    else:
        return None
    return _test(value, [pattern], negated=not first, null_safe=operator == "<=>")


def escape_mark(escape: Operand) -> str | None:
    """What ESCAPE names; None where Spark refuses it: no plain string, or not one character of UTF-16."""
    mark = None if escape.literal is None or escape.text.startswith("(") else escape.literal.value
    return mark if isinstance(mark, str) and len(mark) == 1 and ord(mark) < 0x10000 else None
