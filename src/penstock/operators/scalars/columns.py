"""Derived columns that a worker computes itself, in place of Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.operators.scalars.evaluation import Evaluation
from penstock.plan.expressions import Derived
from penstock.plan.scalar_trees import Scalar, columns_of


@dataclass(frozen=True)
class ComputedColumns:
    """Derived columns with the trees that compute them.

    Attributes:
        derived: the columns.
        trees: one each.
    """

    derived: tuple[Derived, ...]
    trees: tuple[Scalar, ...]

    def read_for(self, names: Sequence[str]) -> list[str]:
        """The stream's columns that are needed for some columns, each once.

        Args:
            names: of the stream's columns, derived ones and error columns.
        """
        read: dict[str, None] = {}
        for name in names:
            number = self._numbers.get(name)
            read |= dict.fromkeys([name] if number is None else columns_of(self.trees[number]))
        return list(read)

    def added_to(self, batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
        """A batch with those of some columns that are computed.

        Args:
            batch: at least what `read_for` the names says.
            names: as there.
        """
        wanted = {number for name in names if (number := self._numbers.get(name)) is not None}
        evaluation, rows = Evaluation(batch), batch.num_rows
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        for number in sorted(wanted):
            column, tree = self.derived[number], self.trees[number]
            found[column.name] = evaluation.column(tree)
            if column.error_column is not None:
                raised = evaluation.of(tree).raised
                found[column.error_column] = pa.array(np.zeros(rows, np.bool_) if raised is None else raised)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Which column each name belongs to."""
        names = {each.name: number for number, each in enumerate(self.derived)}
        return names | {
            each.error_column: number for number, each in enumerate(self.derived) if each.error_column
        }
