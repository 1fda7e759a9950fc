"""What Spark's optimiser rearranges in an expression that may raise, so that other rows raise than the text says.

Values stay the same; where nothing raises, none of this matters. Source: Spark 4.3, `ReorderAssociativeOperator`, `BooleanSimplification`,
`SimplifyConditionals`, `NullPropagation`, `NullDownPropagation`, `UnwrapCastInBinaryComparison`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa

from penstock.plan.scalar_trees import ColumnValue, Computation, Constant, Scalar

#: forms of which Spark knows that they are never NULL, or that it takes apart
_FORMS = frozenset(("coalesce", "case", "is_null", "is_not_null", "and", "or", "not"))


def raises_alike_in_any_order(tree: Scalar) -> bool:
    """Whether a sum or product of whole numbers raises for the same rows when Spark puts its constants together.

    With one operand beside constants of one sign, each step is between the operand and the result.

    Args:
        tree: it.
    """
    assert isinstance(tree, Computation), "a call was made"
    if tree.function not in ("add", "multiply"):
        return True
    operands = list(_operands(tree, tree))
    constants = [each.value for each in operands if isinstance(each, Constant)]
    if len(constants) < 2:
        return True
    numbers = [each for each in constants if isinstance(each, int)]
    if len(numbers) < len(constants) or len(operands) - len(constants) != 1:
        return False
    together = sum(numbers) if tree.function == "add" else 1
    if tree.function == "multiply":
        for each in numbers:
            together *= each
        is_of_one_sign = min(numbers) > 0
    else:
        is_of_one_sign = min(numbers) >= 0 or max(numbers) <= 0
    bound = 1 << (tree.type.bit_width - 1)
    return is_of_one_sign and -bound <= together < bound


def _operands(tree: Scalar, of: Computation) -> Iterator[Scalar]:
    if isinstance(tree, Computation) and (tree.function, tree.type) == (of.function, of.type):
        for each in tree.arguments:
            yield from _operands(each, of)
    else:
        yield tree


def has_distinct_tests(tree: Scalar) -> bool:
    """Whether no two tests of a condition say the same or the opposite, as far as their columns and constants tell, and none is a constant."""
    tests = list(_tests(tree))
    contents = [frozenset(_contents(each)) for each in tests]
    return len(set(contents)) == len(contents) and not any(isinstance(each, Constant) for each in tests)


def is_of_functions(tree: Scalar) -> bool:
    """Whether a value is NULL where a column of it is, and Spark knows no more of it."""
    if isinstance(tree, Computation):
        return tree.function not in _FORMS and all(map(is_of_functions, tree.arguments))
    return True


def _tests(tree: Scalar) -> Iterator[Scalar]:
    if isinstance(tree, Computation) and tree.function in ("and", "or", "not"):
        for each in tree.arguments:
            yield from _tests(each)
    else:
        yield tree


def _contents(tree: Scalar) -> Iterator[object]:
    match tree:
        case ColumnValue(name):
            yield name, "column"
        case Constant(value, kind):
            yield Decimal(str(value)) if pa.types.is_decimal(kind) else value
        case Computation():
            for each in tree.arguments:
                yield from _contents(each)
