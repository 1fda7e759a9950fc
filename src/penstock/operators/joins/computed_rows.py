"""What workers compute of joined rows by trees: conditions on several inputs, and columns of the view that are expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.joins.changes import DELETE, OP
from penstock.operators.scalars.evaluation import Evaluation
from penstock.operators.scalars.values import either
from penstock.plan.joins import JoinOutput
from penstock.plan.scalar_trees import Scalar


@dataclass(frozen=True, slots=True)
class ComputedRows:
    """The trees of a join view; all that is computed of its rows has one.

    Attributes:
        condition: to be true of a joined row; None: there is none.
        lasting: the part of it that is judged of a withdrawn row where a static table has changed: as the row was before, it may
            have been published. None: nothing is.
        outputs: how each column of the view is computed; None of those that are columns of an input.
    """

    condition: Scalar | None
    lasting: Scalar | None
    outputs: tuple[Scalar | None, ...]

    def matches(self, joined: pa.RecordBatch, *, has_changed: bool) -> tuple[pa.RecordBatch, int]:
        """The rows that satisfy the condition, and how many were lost because it raised.

        Args:
            joined: the columns that are needed, OP among them where rows may be withdrawn.
            has_changed: whether rows may have been published with another version of a static table.
        """
        if self.condition is None:
            return joined, 0
        evaluation = Evaluation(joined)
        holds, raised = evaluation.holds(self.condition), evaluation.of(self.condition).raised
        if has_changed:
            is_gone = pc.equal(joined.column(OP), DELETE).to_numpy(zero_copy_only=False)
            lasts, lost = np.ones(joined.num_rows, np.bool_), None
            if self.lasting is not None:
                lasts, lost = evaluation.holds(self.lasting), evaluation.of(self.lasting).raised
            holds = np.where(is_gone, lasts, holds)
            raised = either(
                None if raised is None else raised & ~is_gone, None if lost is None else lost & is_gone
            )
        rows = joined if holds.all() else joined.filter(pa.array(holds))
        return rows, 0 if raised is None else int(np.count_nonzero(raised))

    def columns(self, rows: pa.RecordBatch, outputs: Sequence[JoinOutput]) -> list[pa.Array]:
        """The columns of the view."""
        evaluation = Evaluation(rows)
        return [
            rows.column(output.column).cast(output.type)
            if tree is None
            else evaluation.column(tree).cast(output.type)
            for output, tree in zip(outputs, self.outputs, strict=True)
        ]
