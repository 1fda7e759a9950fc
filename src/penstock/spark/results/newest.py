"""Which revision of each row of a window view counts."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.windows.flattening import flattened
from penstock.spark.results.window_schemas import FINAL, REVISION, ROW, marks_in, newest_by

#: where rows of several operators are: which one a row is of
OPERATOR = "__penstock_operator"
_NUMBER = "__penstock_number"


def newest_rows(table: pa.Table) -> pa.Table:
    """The newest revision of each row in order, those withdrawn among them: a final one goes before others but in a
    running view, and one of a later operator before that of an earlier one.

    Args:
        table: columns of a view's own, MARKS and ROW, and OPERATOR where rows of several are.
    """
    marks = marks_in(table.column_names)
    flat = pa.Table.from_struct_array(table.column(ROW).combine_chunks())
    # a window among the keys of a ranking is taken apart
    comparable = flattened(flat) if any(pa.types.is_nested(kind) for kind in flat.schema.types) else flat
    keys = [f"_key{number}" for number in range(comparable.num_columns)]
    places = pa.array(range(table.num_rows), pa.int64())
    numbered = comparable.rename_columns(keys)
    order = newest_by((marks[FINAL], OPERATOR, marks[REVISION]), flat.column_names)
    order = [name for name in order if name in table.column_names]
    for name in order:
        numbered = numbered.append_column(name, table.column(name))
    ordered = numbered.append_column(_NUMBER, places).sort_by([(name, "ascending") for name in order])
    last = ordered.group_by(keys, use_threads=False).aggregate([(_NUMBER, "last")])
    return table.take(last.column(f"{_NUMBER}_last").combine_chunks().sort())
