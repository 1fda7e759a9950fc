"""What the conditions of a join become: keys, comparisons, conditions on one input, and what is left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import SqlError
from penstock.plan.expressions import CommonType
from penstock.plan.joins import Comparison, JoinKey, Operator
from penstock.plan.spark_types import spark_name
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import KeptColumns, cast_text, own_text, row_text
from penstock.sql.joins.scope import Column, Expression
from penstock.sql.joins.user_predicates import UserPredicates
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import enclosed


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison, over its input's relation; `cast` is the type it is brought to, None where it has it."""

    input: int
    text: str
    cast: CommonType | None
    expression: Expression = field(compare=False)

    @property
    def own(self) -> str:
        """Over the relation, cast."""
        return cast_text(self.text, self.cast)

    def over_rows(self, name: Callable[[Column], str]) -> str:
        """Over joined rows, cast."""
        return cast_text(self.expression.text(name), self.cast)


@dataclass(slots=True)
class JoinConditions:
    """Takes conjuncts and finds the place where each is judged.

    What the last input of an outer join is joined by restricts no other: a condition on another input alone is a key, NULL
    where it is not met and true of the last one.

    Attributes:
        kept: the columns that are kept; those that conditions need are added.
        count: how many inputs are joined so; behind them are lookups.
        optional: the last input where it is that of an outer join; None in an inner join.
        pushed: by input conditions over its relation.
        users: takes what users' functions judge; None: those are left to Spark.
        is_full: whether it is a FULL JOIN, whose optional input is restricted by nothing either.
        comparisons: see `JoinPlan`.
        residual: conditions on every row that no kernel judges.
        matching: likewise those that say what the optional input is joined by.
        unjudged: the first condition among `matching`, where it was written.
        warnings: of texts that are compared with what is no text.
    """

    kept: KeptColumns
    count: int
    optional: int | None
    users: UserPredicates | None = None
    is_full: bool = False
    pushed: dict[int, list[str]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    residual: list[str] = field(default_factory=list)
    matching: list[str] = field(default_factory=list)
    unjudged: Clause | None = None
    warnings: list[str] = field(default_factory=list)
    _equal: list[tuple[Side, Side, pa.DataType]] = field(default_factory=list)
    _looked_up: list[tuple[Side, Side, pa.DataType]] = field(default_factory=list)
    _demanded: dict[int, list[str]] = field(default_factory=dict)

    def add(self, conjuncts: Sequence[Conjunct], *, is_outer: bool = False) -> None:
        """Adds conditions.

        Args:
            conjuncts: the conditions.
            is_outer: whether they say what the optional input is joined by; otherwise they are true of every row.
        """
        users = self.users
        if users is not None:
            conjuncts = [each for each in conjuncts if not users.take(each)]
        types = self.common_types(conjuncts)
        compared = {number: self.sides(conjuncts[number], common) for number, common in types.items()}
        unequal = [number for number in compared if conjuncts[number].operator != "="]
        texts = [side.over_rows(row_text) for number in unequal for side in compared[number]]
        raises = iter(self.kept.host.may_raise(texts))
        # computed before it is known what matches, so that what may raise is left to Spark
        left_to_spark = {number for number in unequal if any([next(raises), next(raises)])}
        for number, each in enumerate(conjuncts):
            if (
                number not in compared
                or number in left_to_spark
                or (is_outer and self.optional not in each.inputs)
            ):
                self._leave(each, is_outer)
                continue
            left, right = compared[number]
            if each.operator == "=":
                (self._looked_up if is_outer else self._equal).append((left, right, types[number].type))
            else:
                self._compare(left, Operator(each.operator or ""), right)

    def keys(self) -> tuple[JoinKey, ...]:
        """The keys: columns that are equal to one another, by way of others too."""
        classes: list[list[Side]] = []
        types: dict[Side, pa.DataType] = {}
        for left, right, kind in self._equal:
            types[left] = types[right] = kind
            touched = [each for each in classes if left in each or right in each]
            merged = list(dict.fromkeys(side for each in (*touched, [left, right]) for side in each))
            classes = [each for each in classes if each not in touched] + [merged]
        for left, right, kind in self._looked_up:
            types[left] = types[right] = kind
            self._look_up(*((left, right) if right.input == self.optional else (right, left)), classes)
        keys = tuple(self._key(sides, types[sides[0]]) for sides in classes)
        return (*keys, *(self._met(*each) for each in self._demanded.items()))

    def _look_up(self, own: Side, optional: Side, classes: list[list[Side]]) -> None:
        """Adds a side of the optional input to a key; where it has one, what is equal to another input's besides is a condition."""
        known = next((each for each in classes if optional in each), None)
        if known is None:
            known = next((each for each in classes if own in each), None)
            if known is None:
                classes.append([own, optional])
            else:
                known.append(optional)
        elif own not in known:
            same = next((side for side in known if side.input == own.input), None)
            if same is None:
                self._equate(own, optional)
            else:
                self._demanded.setdefault(own.input, []).append(_equated((same.own, own.own)))

    def _equate(self, own: Side, optional: Side) -> None:
        """Two sides that are equal without a key: neither is the larger one, which kernels judge where neither can raise."""
        sides = own, optional
        if any(self.kept.host.may_raise([side.over_rows(row_text) for side in sides])):
            self.matching.append(_equated(side.over_rows(self.kept.text) for side in sides))
            return
        for operator in (Operator.LESS_EQUAL, Operator.GREATER_EQUAL):
            self._compare(own, operator, optional)

    def _key(self, sides: Iterable[Side], kind: pa.DataType) -> JoinKey:
        found: dict[int, Side] = {}
        for side in sides:
            first = found.setdefault(side.input, side)
            if side == first:
                continue
            self._restrict(side.input, _equated((first.own, side.own)))
        names = {number: self.kept.computed(side.expression, side.cast) for number, side in found.items()}
        return JoinKey(tuple(names.get(number) for number in range(self.count)), kind)

    def _met(self, number: int, conditions: Sequence[str]) -> JoinKey:
        """The key of the tuples of an input that meet what is demanded of them to have a partner."""
        assert self.optional is not None, "it is an outer join"
        names: list[str | None] = [None] * self.count
        met = " AND ".join(map(enclosed, conditions))
        names[number] = self.kept.added(number, f"CASE WHEN {met} THEN TRUE END", pa.bool_())
        other = self.optional if number != self.optional else 0
        names[other] = self.kept.added(other, "TRUE", pa.bool_())
        return JoinKey(tuple(names), pa.bool_())

    def common_types(self, conjuncts: Sequence[Conjunct]) -> dict[int, CommonType]:
        """By number of a comparison of two inputs the type in which Spark compares, where kernels can do as Spark does."""
        numbers = [number for number, each in enumerate(conjuncts) if each.sides is not None]
        pairs = [conjuncts[number].operands for number in numbers]
        found = self.kept.host.common_types(
            [(left.text(row_text), right.text(row_text)) for left, right in pairs]
        )
        return {
            number: common
            for number, common in zip(numbers, found, strict=True)
            if common is not None and common.is_plain and not pa.types.is_null(common.type)
        }

    def sides(self, conjunct: Conjunct, common: CommonType) -> list[Side]:
        """Both sides of a comparison of two inputs, brought to a type."""
        types = self.kept.host.types([operand.text(row_text) for operand in conjunct.operands])
        for operand, kind in zip(conjunct.operands, types, strict=True):
            if pa.types.is_string(kind) and not pa.types.is_string(common.type):
                self.warnings.append(_warning_of_cast(conjunct, operand, common.type))
        return [
            Side(number, operand.text(own_text), None if kind == common.type else common, operand)
            for operand, kind in zip(conjunct.operands, types, strict=True)
            for number in operand.inputs
        ]

    def _compare(self, left: Side, operator: Operator, right: Side) -> None:
        names = [self.kept.computed(side.expression, side.cast) for side in (left, right)]
        comparison = Comparison(names[0], operator, names[1])
        if comparison not in self.comparisons:
            self.comparisons.append(comparison)

    def _leave(self, conjunct: Conjunct, is_outer: bool) -> None:
        """Leaves a condition to Spark: over the relation where it speaks of one input, else over joined rows."""
        inputs = conjunct.inputs
        if len(inputs) > 1:
            (self.matching if is_outer else self.residual).append(conjunct.text(self.kept.text))
            if is_outer:
                self.unjudged = self.unjudged or conjunct.clause
            return
        (number,) = inputs or {0}
        if is_outer and number != self.optional:
            self._demanded.setdefault(number, []).append(conjunct.text(own_text))
        else:
            self._restrict(number, conjunct.text(own_text))

    def _restrict(self, number: int, text: str) -> None:
        if self.is_full:
            self._demanded.setdefault(number, []).append(text)
            return
        self.pushed.setdefault(number, []).append(text)


def _equated(texts: Iterable[str]) -> str:
    return " = ".join(map(enclosed, texts))


def _warning_of_cast(conjunct: Conjunct, operand: Expression, kind: pa.DataType) -> str:
    """What to say of a text that is compared with what is none."""
    text, target = operand.clause.text, spark_name(kind)
    message = (
        f"{text} is STRING, the other side is not: Spark casts {text} to {target}, which fails for a tuple whose text is not "
        f"a {target}. Penstock counts such a tuple as an error and joins it with nothing. Cast the other side to STRING, or "
        f"use try_cast({text} AS {target})."
    )
    clause = conjunct.clause
    return clause.error(SqlError, message).render()
