"""Whether a block of tuples known by its statistics alone can hold a match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.rules.facts import RulePlan, put_in
from penstock.operators.selection.selector import SelectionPlan
from penstock.plan.selection import Domain


class CodeBounds(NamedTuple):
    """Codes that a p-attribute may take in a block.

    Attributes:
        low: lowest code of a value that is not NULL.
        high: highest one.
        has_null: whether NULL may occur.
    """

    low: int
    high: int
    has_null: bool


def code_bounds(encoder: ColumnEncoder, minimum: Any, maximum: Any, has_null: bool) -> CodeBounds:
    """Codes between two values, as Parquet's statistics give them.

    Statistics leave NaN out, so a float may always be as large as NaN.

    Args:
        encoder: codes the attribute's values.
        minimum: a lower bound of its values, as Python value of the column's type.
        maximum: an upper bound.
        has_null: whether NULL may occur.

    Raises:
        pyarrow.ArrowException: a bound is no value of the column's type.
    """
    coding = encoder.coding
    low, high = encoder.encode(pa.array([minimum, maximum], coding.type)).tolist()
    if coding.domain is Domain.FLOAT:
        high = coding.null_code - 1
    return CodeBounds(low, high, has_null)


def could_match(plan: SelectionPlan, bounds: Sequence[CodeBounds | None]) -> bool:
    """Whether any term or tree can be satisfied by tuples within the bounds.

    Args:
        plan: the compiled selections.
        bounds: one a p-attribute, in the order of the plan's codings, then one an attribute of the rules; None where
            nothing is known.
    """
    codings = len(plan.codings)
    if plan.rules is not None and _rules_could_match(plan.rules, bounds[codings:]):
        return True
    return _terms_could_match(plan, bounds[:codings])


def _rules_could_match(plan: RulePlan, bounds: Sequence[CodeBounds | None]) -> bool:
    known: set[int] = set()
    held: set[int] = set()
    for attribute, own in zip(plan.attributes, bounds, strict=True):
        if attribute.coding is None or own is None:
            continue
        null_code = attribute.coding.null_code
        for fact, ranges in zip(attribute.facts, attribute.ranges, strict=True):
            has_null = any(low <= null_code <= high for low, high in ranges)
            if any(low <= own.low and own.high <= high for low, high in ranges):
                if has_null or not own.has_null:
                    held.add(fact)
                    known.add(fact)
            elif not any(low <= own.high and own.low <= high for low, high in ranges) and not (
                has_null and own.has_null
            ):
                known.add(fact)
    return any(put_in(node, known, held) is not False for node in plan.nodes)


def _terms_could_match(plan: SelectionPlan, bounds: Sequence[CodeBounds | None]) -> bool:
    coded = plan.coded
    everything = [CodeBounds(0, coding.codes - 1, True) for coding in plan.codings]
    known = [own or whole for own, whole in zip(bounds, everything, strict=True)]
    low, high = (np.asarray([each[side] for each in known], np.int64) for side in (0, 1))
    has_null = np.asarray([each.has_null for each in known], np.bool_)
    ranges = np.diff(coded.predicate_start)
    attribute = np.repeat(coded.predicate_attribute, ranges)
    null_code = np.asarray([coding.null_code for coding in plan.codings], np.int64)[attribute]
    holds = (coded.range_low <= high[attribute]) & (coded.range_high >= low[attribute])
    holds |= has_null[attribute] & (coded.range_high == null_code)
    predicate = np.repeat(np.arange(len(ranges)), ranges)
    possible = np.bincount(predicate[holds], minlength=len(ranges)) > 0
    sizes = np.diff(coded.term_start)
    failing = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[~possible], minlength=len(sizes))
    return bool(np.any(failing == 0))
