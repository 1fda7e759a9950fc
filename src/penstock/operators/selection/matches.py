"""What a selection operator answers for one batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.names import free_name

#: the column of `matches/` that names the satisfied queries
QUERIES = "queries"
#: the column of `matches/` that says by which definition of each of them: its number, in the order of QUERIES. Files of plan
#: versions whose views all have their first definitions are without; NULL is 1 for each
DEFINITIONS = "__penstock_definitions"


def queries_name(columns: Collection[str]) -> str:
    """The name of that column beside these of the tuple, one of which may be called so itself."""
    return free_name(QUERIES, columns)


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The queries each tuple of a batch satisfies, in compressed sparse rows.

    Attributes:
        names: query names.
        offsets: int64[rows + 1]; tuple i satisfies queries[offsets[i]:offsets[i + 1]].
        queries: int32 indices into `names`, row by row, ascending within a row.
        evaluations: ASC evaluations made for the batch, or None where the index answered it.
    """

    names: list[str]
    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    evaluations: int | None

    def to_arrow(self) -> pa.LargeListArray:
        """Return the names of the queries that each tuple satisfies, without copying: large_list<dictionary<string>>[rows].

        Example:
            >>> Matches(["far", "ua"], np.array([0, 2, 2]), np.array([0, 1], np.int32), None).to_arrow().to_pylist()
            [['far', 'ua'], []]
        """
        names = pa.DictionaryArray.from_arrays(
            pa.array(self.queries, pa.int32()), pa.array(self.names, pa.string())
        )
        return pa.LargeListArray.from_arrays(pa.array(self.offsets, pa.int64()), names)
