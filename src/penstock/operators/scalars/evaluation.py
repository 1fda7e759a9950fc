"""Trees of scalar expressions over a batch: their values, and the rows at which they raise, as Spark has both under ANSI rules.

Spark computes an argument only where those before it leave it open: of `a AND b` not the second one where the first is false, of a
function not the one behind a NULL. What raises there does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.scalars.arithmetic import ARITHMETIC
from penstock.operators.scalars.moments import MOMENTS
from penstock.operators.scalars.texts import TEXTS
from penstock.operators.scalars.values import Argument, Bools, Found, both, either, valid
from penstock.plan.scalar_trees import ColumnValue, Computation, Constant, Scalar

#: functions that are NULL where an argument is, but for `_OF_KNOWN`: they take the arguments, then the type of the result
FUNCTIONS: Mapping[str, Callable[..., Found]] = {**ARITHMETIC, **MOMENTS, **TEXTS}
#: functions that are NULL where all arguments are, and compute all of them
_OF_KNOWN = frozenset(("greatest", "least"))
#: Spark computes the divisor first
_LAST_FIRST = frozenset(("divide", "integral_divide", "remainder", "pmod"))


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is for each row.

    Attributes:
        values: one a row, or one for all; where it raised any.
        raised: bool[rows], at which rows it raised; None: at none.
    """

    values: Argument
    raised: Bools | None = None


def whole_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


class Evaluation:
    """Expressions over one batch; what several of them share is computed once.

    Args:
        batch: the columns that they read.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._known: dict[Scalar, Value] = {}

    def of(self, tree: Scalar) -> Value:
        """The value of an expression."""
        known = self._known.get(tree)
        if known is None:
            known = self._known[tree] = self._computed(tree)
        return known

    def column(self, tree: Scalar) -> pa.Array:
        """The value of an expression for each row, NULL where it raises."""
        value = self.of(tree)
        values = value.values
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self._batch.num_rows)
        if value.raised is None:
            return values
        return pc.if_else(pa.array(value.raised), pa.scalar(None, values.type), values)

    def holds(self, tree: Scalar) -> Bools:
        """Where a condition is true, bool[rows]: not where it raises."""
        return np.asarray(pc.fill_null(self.column(tree), False).to_numpy(zero_copy_only=False), np.bool_)

    def _computed(self, tree: Scalar) -> Value:
        match tree:
            case ColumnValue(name, kind, path):
                column = self._batch.column(name)
                column = pc.struct_field(column, list(path)) if path else column
                return Value(column if column.type == kind else column.cast(kind))
            case Constant(value, kind):
                return Value(pa.scalar(value, kind))
            case Computation("and" | "or"):
                return self._logic(tree)
            case Computation("not", (argument,)):
                value = self.of(argument)
                return Value(pc.invert(value.values), value.raised)
            case Computation("is_null", (argument,)):
                value = self.of(argument)
                return Value(pc.is_null(value.values), value.raised)
            case Computation("is_not_null", (argument,)):
                value = self.of(argument)
                return Value(pc.is_valid(value.values), value.raised)
            case Computation("coalesce"):
                return self._coalesce(tree)
            case Computation("if"):
                return self._if(tree)
            case _:
                return self._function(tree)

    def _function(self, tree: Computation) -> Value:
        arguments = [self.of(each) for each in tree.arguments]
        raised: Bools | None = None
        known: Bools | None = None
        for each in reversed(arguments) if tree.function in _LAST_FIRST else arguments:
            if each.raised is not None:
                raised = either(raised, each.raised if known is None else each.raised & known)
            if tree.function not in _OF_KNOWN:
                known = both(known, valid(each.values))
        values, own = FUNCTIONS[tree.function](*(each.values for each in arguments), tree.type)
        if own is not None:
            raised = either(raised, own if known is None else own & known)
        return Value(values, raised)

    def _logic(self, tree: Computation) -> Value:
        one, other = (self.of(each) for each in tree.arguments)
        is_and = tree.function == "and"
        raised = one.raised
        if other.raised is not None:
            decided = self._is(one.values, value=not is_and)
            raised = either(raised, other.raised & ~decided)
        return Value((pc.and_kleene if is_and else pc.or_kleene)(one.values, other.values), raised)

    def _if(self, tree: Computation) -> Value:
        condition, then, otherwise = (self.of(each) for each in tree.arguments)
        holds = self._is(condition.values, value=True)
        raised = condition.raised
        if then.raised is not None:
            raised = either(raised, then.raised & holds)
        if otherwise.raised is not None:
            raised = either(raised, otherwise.raised & ~holds)
        return Value(pc.if_else(pa.array(holds), then.values, otherwise.values), raised)

    def _coalesce(self, tree: Computation) -> Value:
        arguments = [self.of(each) for each in tree.arguments]
        raised: Bools | None = None
        unknown = np.ones(self._batch.num_rows, np.bool_)
        for each in arguments:
            if each.raised is not None:
                raised = either(raised, each.raised & unknown)
            known = valid(each.values)
            unknown = unknown & ~known if known is not None else np.zeros_like(unknown)
        return Value(pc.coalesce(*(each.values for each in arguments)), raised)

    def _is(self, values: Argument, *, value: bool) -> Bools:
        """Where values are not NULL and such, bool[rows]."""
        if isinstance(values, pa.Scalar):
            return np.full(self._batch.num_rows, values.as_py() is value)
        found = values if value else pc.invert(values)
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), np.bool_)
