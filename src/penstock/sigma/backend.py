"""Sigma conditions as Spark SQL: a back end on pySigma's conversion base."""

# ruff: noqa: ARG002 - pySigma passes its state to each method
from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, cast

from sigma.conditions import (
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionValueExpression,
)
from sigma.conversion.base import TextQueryBackend
from sigma.conversion.state import ConversionState
from sigma.exceptions import SigmaFeatureNotSupportedByBackendError
from sigma.processing.pipeline import ProcessingPipeline
from sigma.types import (
    CompareOperators,
    SigmaCompareExpression,
    SigmaRegularExpression,
    SigmaString,
    SpecialChars,
    TimestampPart,
)

from penstock.sigma.literals import like_pattern, name, text

#: what Sigma's wildcards are in LIKE
_WILDCARDS = {SpecialChars.WILDCARD_MULTI: "%", SpecialChars.WILDCARD_SINGLE: "_"}


class SparkSqlBackend(TextQueryBackend):
    """Convert the condition of a Sigma rule to a condition of Spark SQL.

    Text is compared without regard to case, unless a rule asks for it. A missing field is NULL: it matches nothing, and NOT
    of it is true, as in Sigma.

    Args:
        pipeline: what is done to rules before, such as the names of fields and the conditions of log sources.
        keywords: columns that a keyword is searched in.
        numbers: columns of a numeric type, in any case: comparisons (`lt`, `gte` ...) take them as they are, and cast others.
    """

    name: ClassVar[str] = "Spark SQL"
    or_token: ClassVar[str] = "OR"
    and_token: ClassVar[str] = "AND"
    # used by nothing: NOT is a method
    not_token: ClassVar[str] = "NOT"
    eq_token: ClassVar[str] = " = "
    group_expression: ClassVar[str | None] = "({expr})"
    field_null_expression: ClassVar[str | None] = "{field} IS NULL"
    field_exists_expression: ClassVar[str | None] = "{field} IS NOT NULL"
    field_not_exists_expression: ClassVar[str | None] = "{field} IS NULL"
    field_equals_field_expression: ClassVar[str | None] = "lower({field1}) = lower({field2})"
    field_equals_field_startswith_expression: ClassVar[str | None] = (
        "startswith(lower({field1}), lower({field2}))"
    )
    field_equals_field_endswith_expression: ClassVar[str | None] = (
        "endswith(lower({field1}), lower({field2}))"
    )
    field_equals_field_contains_expression: ClassVar[str | None] = (
        "contains(lower({field1}), lower({field2}))"
    )
    compare_operators: ClassVar[dict[CompareOperators, str] | None] = {
        CompareOperators.LT: "<",
        CompareOperators.LTE: "<=",
        CompareOperators.GT: ">",
        CompareOperators.GTE: ">=",
        CompareOperators.NEQ: "<>",
    }
    field_timestamp_part_expression: ClassVar[str | None] = "{timestamp_part}({field})"
    timestamp_part_mapping: ClassVar[dict[TimestampPart, str] | None] = {
        TimestampPart.MINUTE: "minute",
        TimestampPart.HOUR: "hour",
        TimestampPart.DAY: "day",
        TimestampPart.WEEK: "weekofyear",
        TimestampPart.MONTH: "month",
        TimestampPart.YEAR: "year",
    }

    def __init__(
        self, pipeline: ProcessingPipeline, keywords: Sequence[str], numbers: Collection[str] = ()
    ) -> None:
        super().__init__(pipeline)
        self._keywords = tuple(keywords)
        self._numbers = {each.upper() for each in numbers}

    def escape_and_quote_field(self, field_name: str) -> str:
        """Return a field's name as Spark SQL writes a column's."""
        return name(field_name)

    def convert_condition_not(self, cond: ConditionNOT, state: ConversionState) -> Any:
        """Return NOT with two values: NULL counts as false."""
        inner = self.convert_condition(cast(Any, cond.args[0]), state)
        return None if inner is None else f"({inner}) IS NOT TRUE"

    def convert_condition_field_eq_val_str(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the comparison of a field with text that may have wildcards, in any case."""
        return _equals(name(cond.field), cast(SigmaString, cond.value), "ILIKE")

    def convert_condition_field_eq_val_str_case_sensitive(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the comparison of a field with text that may have wildcards, in its case."""
        return _equals(name(cond.field), cast(SigmaString, cond.value), "LIKE")

    def convert_condition_field_eq_val_num(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the comparison of a field with a number, which is right for a column of numbers and for one of text."""
        return f"{name(cond.field)} = {text(str(cond.value))}"

    def convert_condition_field_eq_val_bool(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the comparison of a field with true or false as text."""
        return f"{name(cond.field)} ILIKE {text(str(cond.value).lower())}"

    def convert_condition_field_eq_val_re(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the test of a field by a regular expression."""
        return _matches(name(cond.field), cast(SigmaRegularExpression, cond.value))

    def convert_condition_field_compare_op_val(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Any:
        """Return the comparison of a field with a number by order."""
        value = cast(SigmaCompareExpression, cond.value)
        if not re.fullmatch(r"[-+.\de]+", str(value.number)):
            return super().convert_condition_field_compare_op_val(cond, state)
        assert self.compare_operators is not None
        column = name(cond.field)
        number = column if cond.field.upper() in self._numbers else f"try_cast({column} AS DOUBLE)"
        return f"{number} {self.compare_operators[value.op]} {value.number}"

    def convert_condition_val_str(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the search for a keyword."""
        value = cast(SigmaString, cond.value)
        pattern = re.sub(r"^%*|(?<!\\)%*$", "%", _pattern(value))
        return self._searched(f"ILIKE {text(pattern)}")

    def convert_condition_val_num(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the search for a number as a keyword."""
        return self._searched(f"ILIKE {text(f'%{cond.value}%')}")

    def convert_condition_val_re(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the search by a regular expression."""
        matched = _matches("", cast(SigmaRegularExpression, cond.value))
        return self._searched(matched.strip())

    def _searched(self, test: str) -> str:
        """The OR of a test of each column that keywords are searched in."""
        if not self._keywords:
            raise SigmaFeatureNotSupportedByBackendError(
                "the rule searches keywords, and no column is searched: name one with --keywords"
            )
        tests = [f"{name(column)} {test}" for column in self._keywords]
        return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"


def _equals(column: str, value: SigmaString, like: str) -> str:
    """The comparison of a column with text: by `=` where case and wildcards do not matter."""
    if not value.contains_special():
        plain = "".join(map(str, value.s))
        if like == "LIKE" or plain.upper() == plain.lower():
            return f"{column} = {text(plain)}"
    return f"{column} {like} {text(_pattern(value))}"


def _pattern(value: SigmaString) -> str:
    """The pattern of LIKE for text with wildcards.

    Raises:
        SigmaFeatureNotSupportedByBackendError: a placeholder is left in it.
    """
    parts = []
    for part in value.s:
        if isinstance(part, str):
            parts.append(like_pattern(part))
        elif isinstance(part, SpecialChars):
            parts.append(_WILDCARDS[part])
        else:
            raise SigmaFeatureNotSupportedByBackendError(
                f"the placeholder %{part.name}% has no value: set it in a pipeline"
            )
    return "".join(parts)


def _matches(column: str, value: SigmaRegularExpression) -> str:
    flags = "".join(sorted(SigmaRegularExpression.sigma_to_re_flag[flag] for flag in value.flags))
    return f"{column} RLIKE {text((f'(?{flags})' if flags else '') + str(value.regexp))}"
