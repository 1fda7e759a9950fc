"""Which revision of each row of a window view counts."""

from __future__ import annotations

import pyarrow as pa

from penstock.spark.results.window_schemas import FINAL, REVISION, ROW

#: where rows of several operators are: which one a row is of
OPERATOR = "_operator"
_NUMBER = "_number"


def newest_rows(table: pa.Table) -> pa.Table:
    """The newest revision of each row in order, those withdrawn among them: a final one goes before others, and one
    of a later operator before that of an earlier one.

    Args:
        table: columns FINAL, REVISION, ROW, and OPERATOR where rows of several are.
    """
    flat = pa.Table.from_struct_array(table.column(ROW).combine_chunks())
    keys = [f"_key{number}" for number in range(flat.num_columns)]
    places = pa.array(range(table.num_rows), pa.int64())
    numbered = flat.rename_columns(keys)
    order = [name for name in (FINAL, OPERATOR, REVISION) if name in table.column_names]
    for name in order:
        numbered = numbered.append_column(name, table.column(name))
    ordered = numbered.append_column(_NUMBER, places).sort_by([(name, "ascending") for name in order])
    last = ordered.group_by(keys, use_threads=False).aggregate([(_NUMBER, "last")])
    return table.take(last.column(f"{_NUMBER}_last").combine_chunks().sort())
