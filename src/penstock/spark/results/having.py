"""HAVING in the worker: conditions that compare groups with constants are judged by the kernels of shared selection, plain expressions by trees.

Any other condition is left to Spark, which judges it after the shards in a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.operators.scalars.evaluation import Evaluation, whole_batch
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.spark.results.window_schemas import BEFORE, DELETE, OP, has_plain_outputs
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.windows.bind import BoundWindow

Bools = npt.NDArray[np.bool_]
#: gives the rows of a table of groups that pass, bool[rows]; holds scratch space: one a thread
Judge = Callable[[pa.Table], Bools]


@dataclass(frozen=True, slots=True)
class KeptGroups:
    """What HAVING leaves of the raw rows of some answers.

    Attributes:
        rows: the groups that pass, and with what they were those that passed in the revision before only.
        places: bool[raw rows], which of the raw rows these are.
        more: int8[raw rows], 1, 0 or -1 by how each changes the number of results.
    """

    rows: pa.Table
    places: Bools
    more: npt.NDArray[np.int8]


def kept_groups(judge: Judge, raw: pa.Table) -> KeptGroups:
    """Judge the groups of raw rows as they are, and as they were in the revision before.

    Args:
        judge: see `group_condition`.
        raw: see `raw_schema`.
    """
    before = raw.column(BEFORE).combine_chunks()
    names = [field.name for field in before.type]
    then = raw
    for name in names:
        then = then.set_column(then.column_names.index(name), name, pc.struct_field(before, name))
    passes = judge(raw)
    passed = judge(then) & before.is_valid().to_numpy(zero_copy_only=False)
    places = passes | passed
    now = pa.array(passes[places])
    rows, old = raw.filter(pa.array(places)), then.filter(pa.array(places))
    for name in names:
        chosen = pc.if_else(now, rows.column(name), old.column(name))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), chosen)
    op = rows.schema.field(OP)
    told = pc.if_else(now, rows.column(OP), pa.scalar(DELETE, op.type))
    rows = rows.set_column(rows.column_names.index(OP), op, told)
    is_row = pc.not_equal(raw.column(OP), DELETE).to_numpy()
    more = np.where(is_row, passes.astype(np.int8), -passes.astype(np.int8)) - passed
    return KeptGroups(rows.drop_columns(BEFORE), places, more)


def is_plain(view: BoundWindow) -> bool:
    """Whether the worker makes its results: its outputs are columns of the groups or it computes them, and it judges HAVING."""
    return has_plain_outputs(view) and (view.having is None or group_condition(view) is not None)


def group_condition(view: BoundWindow) -> Judge | None:
    """Return the condition of a view on its groups; None where only Spark can judge it.

    Args:
        view: one with HAVING.
    """
    aggregates = [(f"_a{number}", each.type) for number, each in enumerate(view.plan.aggregates)]
    keys = [(f"_k{number}", kind) for number, (_, kind) in enumerate(view.plan.keys)]
    assert view.having is not None
    if any(each.function == "approx_percentile" for each in view.plan.aggregates):
        # a second estimate of a large group differs: what the first one was is not known any more
        return None
    compared = _compared(view.having, tuple(keys + aggregates))
    if compared is not None or view.having_tree is None:
        return compared
    tree = view.having_tree
    return lambda groups: Evaluation(whole_batch(groups)).holds(tree)


@lru_cache(256)
def _compared(text: str, groups: tuple[tuple[str, pa.DataType], ...]) -> Judge | None:
    """The condition where it compares groups with constants."""
    schema = pa.schema(groups)
    try:
        bound = bind_selections({"having": text}, schema, None)
    except InputError:
        return None
    if any(pa.types.is_temporal(schema.field(column.name).type) for column in bound.columns):
        # a moment is compared by the time zone of the session
        return None
    plan = compile_selections(bound.selections)
    selector = Selector(plan, "index")

    def judge(rows: pa.Table) -> Bools:
        found = selector.match([rows.column(name) for name in plan.columns], rows.num_rows)
        return np.diff(found.offsets).astype(np.bool_)

    return judge
