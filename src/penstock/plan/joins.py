"""Join views as the operators see them: inputs, keys, bounds on event time, and the order in which inputs are probed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from penstock.plan.calls import Argument
from penstock.plan.times import BEFORE_ALL


@dataclass(frozen=True, slots=True)
class JoinColumn:
    """What is kept of a tuple of an input.

    Attributes:
        name: the column's name in runs and among joined rows; unique in the join.
        text: Spark SQL over the columns of the input's relation.
        type: its Arrow type; that of a key is the one in which Spark compares it.
    """

    name: str
    text: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join.

    Attributes:
        alias: how the query calls it.
        relation: the stream or static table.
        is_static: whether it is a static table.
        condition: Spark SQL over the relation's columns: tuples take part where it is true; None: all do.
        columns: what is kept of a tuple.
        time: name of the event time among `columns`; None for a static table.
        or_null: names of those of `columns` that are NULL where their text raises; for others the tuple takes no part.
        is_untimed: whether tuples of a stream take part whatever their event time is, NULL included: no other stream is joined.
    """

    alias: str
    relation: str
    is_static: bool
    condition: str | None
    columns: tuple[JoinColumn, ...]
    time: str | None
    or_null: tuple[str, ...] = ()
    is_untimed: bool = False


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Columns of two or more inputs that are equal in every joined row; NULL equals nothing.

    Attributes:
        columns: by input its column; None where it has no part in the key.
        type: the type of all of them.
    """

    columns: tuple[str | None, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class TimeBound:
    """Of a joined row: lower <= (event time of `right`) - (event time of `left`) <= upper.

    Attributes:
        left, right: numbers of two inputs that are streams, left < right.
        lower, upper: microseconds, both inclusive; what other bounds of the query imply is taken into account.
    """

    left: int
    right: int
    lower: int
    upper: int


class Operator(StrEnum):
    """Comparisons that joined rows may have to satisfy."""

    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    NOT_EQUAL = "<>"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of columns of two inputs, which have one type; NULL satisfies none, NaN is the largest number.

    Attributes:
        left, right: names of the columns.
        operator: between them.
    """

    left: str
    operator: Operator
    right: str


@dataclass(frozen=True, slots=True)
class UserPredicate:
    """A condition on what a user's function makes of a joined row.

    Attributes:
        text: as it was written, for people.
        function: the function's name.
        arguments: what it is given.
        type: Arrow type of its value.
        condition: Spark SQL over the column `_value`: the value, to be true.
    """

    text: str
    function: str
    arguments: tuple[Argument, ...]
    type: pa.DataType
    condition: str


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """A column of the view.

    Attributes:
        name: as the view has it.
        text: Spark SQL over the names of the inputs' columns.
        type: its Arrow type.
        column: the one column that `text` is; None where it is to be computed.
    """

    name: str
    text: str
    type: pa.DataType
    column: str | None


class OptionalJoin(StrEnum):
    """What a join tells of its optional input."""

    #: left rows with each partner, those without one filled with NULL
    LEFT = "LEFT JOIN"
    #: likewise, and the tuples of the optional input without a left row
    FULL = "FULL JOIN"
    #: left rows that have a partner, once
    SEMI = "SEMI JOIN"
    #: left rows that have none
    ANTI = "ANTI JOIN"
    #: left rows with their newest partner
    AS_OF = "ASOF JOIN"
    #: likewise, those without one filled with NULL
    LEFT_AS_OF = "LEFT ASOF JOIN"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A LEFT JOIN of joined rows with a static table: each row with all of its partners, or with NULL in their place.

    Attributes:
        input: the table.
        keys: equalities of a column of the rows with one of the table; NULL equals nothing. A run of the table is sorted by the first.
        comparisons: other conditions, between a column of the rows and one of the table.
        required: boolean columns of the rows; where one is not true the row has no partner.
    """

    input: JoinInput
    keys: tuple[JoinKey, ...]
    comparisons: tuple[Comparison, ...]
    required: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that it reads, each once."""
        own = {column.name for column in self.input.columns}
        names = [key.columns[0] for key in self.keys]
        names += [name for each in self.comparisons for name in (each.left, each.right)]
        names += self.required
        return tuple(dict.fromkeys(name for name in names if name is not None and name not in own))


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A join view.

    Every two streams among the inputs have a bound, so that what a tuple may still meet is finite. The lower one of an ASOF JOIN may
    be `BEFORE_ALL`, see `keeps_newest`.

    Attributes:
        name: the view's.
        inputs: two or more.
        keys: equalities.
        bounds: one for every two streams.
        comparisons: other conditions that kernels judge.
        residual: Spark SQL over the names of the inputs' columns, to be true: conditions that no kernel judges.
        outputs: the view's columns.
        optional: the number of the last input where rows of the others do not need a partner in it, or appear once for all
            partners, or with the newest one.
        filters: Spark SQL as in `residual`, to be true of a row once the optional input is filled with NULL. What comes before
            says of that input only which of its tuples match.
        predicates: conditions that users' functions judge, after all others.
        kind: how the optional input is joined; ignored without one.
        wider: of two inputs that the hint STATE_TTL bounds, the bound up to which pairs beyond are counted.
        lookups: what the joined rows are joined with, one after the other; `filters` and `outputs` see the columns of all. They
            are numbered behind the inputs.
    """

    name: str
    inputs: tuple[JoinInput, ...]
    keys: tuple[JoinKey, ...]
    bounds: tuple[TimeBound, ...]
    comparisons: tuple[Comparison, ...]
    residual: tuple[str, ...]
    outputs: tuple[JoinOutput, ...]
    optional: tuple[int, ...] = ()
    filters: tuple[str, ...] = ()
    predicates: tuple[UserPredicate, ...] = ()
    kind: OptionalJoin = OptionalJoin.LEFT
    wider: tuple[TimeBound, ...] = ()
    lookups: tuple[Lookup, ...] = ()

    @property
    def relations(self) -> tuple[JoinInput, ...]:
        """All that is joined: the inputs, and the tables of the lookups behind them."""
        return (*self.inputs, *(each.input for each in self.lookups))

    @property
    def widened(self) -> JoinPlan:
        """The same with the bounds up to which pairs are counted."""
        return replace(self, bounds=self.wider) if self.wider else self

    @property
    def has_optional_stream(self) -> bool:
        """Whether the optional input is a stream: partners may come later than a left row."""
        return any(not self.inputs[number].is_static for number in self.optional)

    @property
    def withdraws(self) -> bool:
        """Whether rows may be withdrawn: those without a partner, where one may come later."""
        return self.has_optional_stream and self.kind is not OptionalJoin.SEMI

    @property
    def is_as_of(self) -> bool:
        """Whether the last input has versions: a left row meets its newest partner alone."""
        return bool(self.optional) and self.kind in (OptionalJoin.AS_OF, OptionalJoin.LEFT_AS_OF)

    @property
    def looks_back_forever(self) -> bool:
        """Whether partners in the last input may have any age."""
        right = len(self.inputs) - 1
        return self.is_as_of and any(each.right == right and each.lower <= BEFORE_ALL for each in self.bounds)

    @property
    def keeps_newest(self) -> bool:
        """Whether of old versions only the newest one of each key matters. Where conditions compare it with a left row, an older
        version may satisfy them."""
        own = {column.name for column in self.inputs[-1].columns}
        compared = any(own & {each.left, each.right} for each in self.comparisons)
        return self.looks_back_forever and not compared

    @property
    def anchor(self) -> int:
        """The first stream before an optional input: its event time says when a row without a partner is due.

        Raises:
            ValueError: there is none.
        """
        last = len(self.inputs) - 1
        found = next((number for number, each in enumerate(self.inputs[:last]) if not each.is_static), None)
        if found is None:
            raise ValueError(f"join {self.name}: no stream before the last input")
        return found

    def turned(self) -> JoinPlan:
        """The other half of a FULL OUTER JOIN: tuples of its second input without a partner in the first.

        Raises:
            ValueError: it has not two inputs.
        """
        first, second = self.inputs
        bounds = (TimeBound(0, 1, -each.upper, -each.lower) for each in self.bounds)
        keys = (JoinKey(each.columns[::-1], each.type) for each in self.keys)
        return replace(
            self, inputs=(second, first), keys=tuple(keys), bounds=tuple(bounds), kind=OptionalJoin.ANTI
        )

    def ahead_of(self, number: int) -> int:
        """How much later than the event time of an input those of others in a row may be, microseconds, at least 0."""
        later = [each.upper for each in self.bounds if each.left == number]
        later += (-each.lower for each in self.bounds if each.right == number)
        return max([0, *later])


class Method(StrEnum):
    """How an input is searched for partners."""

    #: both sides in order of the key, as runs lie
    MERGE = "merge"
    #: a table over the tuples of the input, made for the cut
    HASH = "hash"
    #: every tuple of the input within the bound is looked at
    NESTED = "nested loops"


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of a probe order.

    Attributes:
        input: the input that is probed.
        method: how.
        key: number of the key it is searched by; None: by event time alone, or with nothing.
    """

    input: int
    method: Method
    key: int | None


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """What the new tuples of one input meet, one input after the other.

    Attributes:
        first: the input that has new tuples.
        steps: the others, each once.
    """

    first: int
    steps: tuple[ProbeStep, ...]


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """How a cut is joined. It changes what an answer costs, never the answer.

    Attributes:
        orders: one for each input that may have new tuples, by its number.
    """

    orders: tuple[ProbeOrder, ...]

    def turned(self) -> JoinOrder:
        """The order for a plan of two inputs that is turned round."""
        return JoinOrder(
            tuple(
                ProbeOrder(1 - each.first, tuple(replace(step, input=1 - step.input) for step in each.steps))
                for each in self.orders
            )
        )
