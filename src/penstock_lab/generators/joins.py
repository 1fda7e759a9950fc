"""Random streams, static tables and join views over them, from a seed.

The queries never raise in Spark, so that `spark.sql` can answer them: no division, no cast of a text that is no number.
Every two streams have a bound between their event times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

#: of streams
EVENT_TIME = "at"
#: the first event time
BEGIN = datetime(2024, 3, 30, 22, tzinfo=UTC)
#: event times lie within so many seconds
SECONDS = 60

_WHOLE = (pa.int16(), pa.int32(), pa.int64())
#: of each column the types it may have
_COLUMNS: Mapping[str, tuple[pa.DataType, ...]] = {
    "k": _WHOLE,
    "m": _WHOLE,
    "digit": (pa.string(),),
    "x": (pa.float32(), pa.float64()),
    "cost": (pa.decimal128(8, 2), pa.decimal128(10, 3), pa.decimal128(25, 4)),
    "name": (pa.string(),),
    "day": (pa.date32(),),
    "open": (pa.bool_(),),
}
_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
#: an expression whose values are compared with others of its kind; `{0}` is the input
_KINDS: Mapping[str, Sequence[str]] = {
    "number": (
        *("{0}.k", "{0}.m", "{0}.x", "{0}.cost") * 4,
        *("{0}.digit", "{0}.k + 1", "{0}.m % 3", "abs({0}.x)", "coalesce({0}.k, 0)", "length({0}.name)"),
    ),
    "text": ("{0}.name", "{0}.name", "{0}.name", "upper({0}.name)", "coalesce({0}.name, 'north')"),
    "day": ("{0}.day", "{0}.day", "date_add({0}.day, 1)"),
    "truth": ("{0}.open", "{0}.open", "{0}.k > 1"),
}
#: columns that kernels compare with one another
_PLAIN = (("k", "m", "x", "cost"), ("k", "m"), ("name",), ("day",), ("open",))
_RESTRICTIONS = (
    "{0}.k > 1",
    "{0}.name IS NOT NULL",
    "{0}.x <= 2.0 OR {0}.m = 3",
    "length({0}.name) > 3",
    "{0}.digit IN (0, 1, 2)",
    "{0}.day BETWEEN DATE '2024-03-30' AND DATE '2024-03-31'",
    "NOT ({0}.open AND {0}.k = 0)",
    "{0}.name LIKE 'n%' OR {0}.cost > {0}.x",
    "{0}.x IS NULL",
    "1 < 2",
)
_BOUNDS = (
    ("{own} BETWEEN {other} - INTERVAL {low} SECONDS AND {other} + INTERVAL '{high}' SECOND",),
    ("{own} >= {other}", "{own} < {other} + INTERVAL {high} SECONDS"),
    ("NOT {own} + INTERVAL {low} SECONDS < {other}", "{own} - INTERVAL {high} SECONDS <= {other}"),
    ("{own} - {other} <= INTERVAL {high} SECONDS", "{other} < {own} + INTERVAL '0:20' MINUTE TO SECOND"),
    ("{own} = {other}",),
)


@dataclass(frozen=True, slots=True)
class JoinRelation:
    """A stream or a static table.

    Attributes:
        name: what it is called.
        schema: its columns; those of a stream have `EVENT_TIME` among them.
        is_static: whether it is a static table.
    """

    name: str
    schema: pa.Schema
    is_static: bool


class JoinGenerator:
    """Generates relations, their tuples and join views; the same seed gives the same ones.

    Args:
        seed: of the random numbers.

    Attributes:
        relations: three streams and two static tables, whose columns have the same names and not always the same types.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.relations = [self._relation(name, False) for name in ("flights", "weather", "delays")]
        self.relations += [self._relation(name, True) for name in ("airports", "carriers")]
        #: so many values of each kind there are
        self._spread = self.random.choice((2, 3, 4))

    def table(self, relation: JoinRelation, rows: int) -> pa.Table:
        """Tuples of a relation with NULLs and NaNs, in no order of event time."""
        return pa.table(
            [
                pa.array([self._value(field.name, field.type) for _ in range(rows)], field.type)
                for field in relation.schema
            ],
            schema=relation.schema,
        )

    def query(self, optional: Sequence[JoinRelation] = ()) -> str:
        """A join view of two to four inputs: one or more streams, static tables, the same one several times.

        Args:
            optional: now and then the last one is one of these, joined by LEFT JOIN with conditions that need no Spark.
        """
        streams, tables = (
            [each for each in self.relations if each.is_static is static] for static in (False, True)
        )
        count = self.random.choice((2, 2, 3, 3, 4))
        timed = self.random.randint(1, count)
        inputs = self.random.choices(streams, k=timed) + self.random.choices(tables, k=count - timed)
        self.random.shuffle(inputs)
        if not optional or self.random.random() < 0.6:
            return _JoinText(self.random, inputs).text()
        left = inputs[: self.random.choice((1, 2, 2, 3))]
        if all(each.is_static for each in left):
            left[0] = self.random.choice(streams)
        return _JoinText(self.random, [*left, self.random.choice(optional)], is_outer=True).text()

    def _relation(self, name: str, is_static: bool) -> JoinRelation:
        columns = [(column, self.random.choice(types)) for column, types in _COLUMNS.items()]
        if not is_static:
            columns.append((EVENT_TIME, self.random.choice((_INSTANT, _INSTANT, _INSTANT, _LOCAL))))
        return JoinRelation(name, pa.schema(columns), is_static)

    def _value(self, column: str, kind: pa.DataType) -> Any:
        if self.random.random() < (0.02 if column == EVENT_TIME else 0.08):
            return None
        number = self.random.randrange(self._spread)
        match column:
            case "k" | "m":
                return number
            case "digit":
                return str(number)
            case "x":
                return self.random.choice((number, number + 0.5, math.nan, -0.0))
            case "cost":
                return Decimal(number) + Decimal(self.random.choice(("0.00", "0.00", "0.50")))
            case "name":
                return ("north", "NORTH", "", "a name of more than sixteen bytes")[number]
            case "day":
                return date(2024, 3, 29) + timedelta(days=number % 4)
            case "open":
                return number % 2 == 0
        moment = BEGIN + timedelta(
            seconds=self.random.randrange(SECONDS), microseconds=self.random.choice((0, 0, 1))
        )
        return moment if kind == _INSTANT else moment.replace(tzinfo=None)


class _JoinText:
    """Writes one query.

    Args:
        random: of its choices.
        inputs: what it joins.
        is_outer: whether the last one is joined by LEFT JOIN.
    """

    def __init__(self, random: Random, inputs: Sequence[JoinRelation], *, is_outer: bool = False) -> None:
        self._random = random
        self._inputs = inputs
        self._is_outer = is_outer
        self._aliases = [f"i{number}" for number in range(len(inputs))]

    def text(self) -> str:
        joins, where = [f"{self._inputs[0].name} {self._aliases[0]}"], []
        for number in range(1, len(self._inputs)):
            other = self._random.randrange(number)
            if self._is_outer and number == len(self._inputs) - 1:
                joins.append(self._left_join(number))
                where += self._further(number, other)
                continue
            conditions = [*self._joining(number, other), *self._bounds(number), *self._further(number, other)]
            on = f"ON {conditions[0]}"
            if number == 1 and self._random.random() < 0.1:
                on = f"USING ({self._random.choice(('k', 'x', 'name', 'cost'))})"
            else:
                self._random.shuffle(conditions)
                kept = self._random.randint(1, len(conditions))
                on, conditions = f"ON {' AND '.join(conditions[:kept])}", conditions[kept:]
            where += conditions
            word = self._random.choice(("JOIN", "INNER JOIN"))
            joins.append(f"{word} {self._inputs[number].name} AS {self._aliases[number]} {on}")
        if len(self._inputs) > 2 and self._random.random() < 0.3:
            where.append(self._spanning())
        text = f"SELECT {', '.join(self._outputs())} FROM {' '.join(joins)}"
        return f"{text} WHERE {' AND '.join(where)}" if where else text

    def _left_join(self, number: int) -> str:
        """The last input, by comparisons of columns and conditions on one input."""
        conditions = []
        for operator in self._random.choice((("=",), ("=",), ("=", "="), ("=", "<"), ("<>",), (">=",))):
            kind = self._random.choice(_PLAIN)
            own, other = (
                f"{self._aliases[each]}.{self._random.choice(kind)}"
                for each in (number, self._random.randrange(number))
            )
            conditions.append(f"{own} {operator} {other}")
        conditions += [
            f"({self._random.choice(_RESTRICTIONS).format(self._aliases[each])})"
            for each in (number, self._random.randrange(number))
            if self._random.random() < 0.3
        ]
        conditions += self._bounds(number)
        self._random.shuffle(conditions)
        return f"LEFT JOIN {self._inputs[number].name} {self._aliases[number]} ON {' AND '.join(conditions)}"

    def _joining(self, number: int, other: int) -> list[str]:
        """What joins an input with an earlier one: keys, or anything else."""
        choice = self._random.random()
        if choice < 0.7:
            return [
                self._compared(number, other, "=")
                for _ in range(self._random.choice((1, 1, 1, 1, 1, 2, 2, 3)))
            ]
        if choice < 0.9:
            return [self._compared(number, other, self._random.choice(("<", "<=", ">", ">=", "<>", "<=>")))]
        return [self._computed(number, other)]

    def _compared(self, one: int, other: int, operator: str) -> str:
        kind = self._random.choice(("number", "number", "number", "text", "text", "day", "truth"))
        left, right = (self._side(each, kind) for each in (one, other))
        return f"{left} {operator} {right}"

    def _side(self, number: int, kind: str) -> str:
        text = self._random.choice(_KINDS[kind]).format(self._aliases[number])
        return f"({text})" if " " in text else text

    def _computed(self, one: int, other: int) -> str:
        """A condition on two inputs that only Spark judges."""
        left, right = self._side(one, "number"), self._side(other, "number")
        return self._random.choice(
            (
                f"0 + {left} + {right} > 2",
                f"coalesce({left}, {right}, 1) > 1",
                f"({left} > 1 OR {right} < 2)",
                f"({self._side(one, 'text')} <> {self._side(other, 'text')} OR {left} = {right})",
                f"{left} IN (0, 1, {right})",
            )
        )

    def _spanning(self) -> str:
        """A condition on three inputs."""
        one, two, three = (
            self._side(each, "number") for each in self._random.sample(range(len(self._inputs)), 3)
        )
        return self._random.choice(
            (
                f"0 + {one} + {two} > {three}",
                f"coalesce({one}, {two}) = {three}",
                f"({one} = {two} OR {two} <= {three})",
            )
        )

    def _bounds(self, number: int) -> Iterator[str]:
        """Conditions that bind a stream's event time to an earlier stream's, in one of several spellings."""
        streams = [each for each in range(number) if not self._inputs[each].is_static]
        if self._inputs[number].is_static or not streams:
            return
        own, other = (
            f"{self._aliases[each]}.{EVENT_TIME}" for each in (number, self._random.choice(streams))
        )
        low, high = self._random.choice((0, 5, 20)), self._random.choice((2, 10, 20))
        for each in self._random.choice(_BOUNDS):
            yield each.format(own=own, other=other, low=low, high=high)

    def _further(self, number: int, other: int) -> list[str]:
        makers: tuple[Callable[[], str], ...] = (
            lambda: f"({self._random.choice(_RESTRICTIONS).format(self._aliases[number])})",
            lambda: f"({self._random.choice(_RESTRICTIONS).format(self._aliases[other])})",
            lambda: self._compared(number, other, self._random.choice(("<", "<=", ">", ">=", "<>"))),
            lambda: self._computed(number, other),
        )
        return [make() for make in self._random.choices(makers, k=self._random.choice((0, 0, 0, 1, 1, 2)))]

    def _outputs(self) -> Iterator[str]:
        for number, alias in enumerate(self._aliases):
            names = self._random.sample(list(_COLUMNS), 2) + (
                [] if self._inputs[number].is_static else [EVENT_TIME]
            )
            yield from (f"{alias}.{name} AS {alias}_{name}" for name in names)
            if self._random.random() < 0.2:
                yield f"{self._side(number, 'number')} AS {alias}_computed"
        if self._random.random() < 0.3:
            one, other = self._random.sample(range(len(self._inputs)), 2)
            yield f"coalesce({self._side(one, 'text')}, {self._side(other, 'text')}, '') AS both_texts"
            yield f"0 + {self._side(one, 'number')} + {self._side(other, 'number')} AS their_sum"
