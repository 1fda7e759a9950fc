"""Rows of panes and windows: partials of groups and the values kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.operators.windows.aggregates import Parts, merge_values
from penstock.operators.windows.required_slack import ARRIVAL
from penstock.operators.windows.stored import packed, unpacked


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Rows by (keys, arrival) of one or several panes.

    Attributes:
        partials: keys, arrival and the columns of the parts.
        values: keys, arrival, value and rows, by argument; arguments that were never there may be missing.
    """

    partials: pa.Table
    values: Mapping[str, pa.Table]

    def until(self, arrival: int) -> Content:
        """What had arrived by then."""
        return Content(
            _until(self.partials, arrival),
            {name: _until(table, arrival) for name, table in self.values.items()},
        )

    def since(self, arrival: int) -> pa.Table:
        """The partials that have arrived since."""
        return self.partials.filter(pa.array(self.partials.column(ARRIVAL).to_numpy() > arrival))

    def merged(self, parts: Parts, keys: Sequence[str]) -> Content:
        """A row for each group, without arrivals."""
        return Content(
            parts.merge(self.partials, keys),
            {name: merge_values(table, keys) for name, table in self.values.items()},
        )

    def by_arrival(self, parts: Parts, keys: Sequence[str]) -> Content:
        """A row for each (keys, arrival)."""
        return self.merged(parts, [*keys, ARRIVAL])

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return int(self.partials.nbytes + sum(table.nbytes for table in self.values.values()))

    @classmethod
    def loaded(cls, stored: bytes) -> Content:
        """What `stored` gave."""
        tables = unpacked(stored).tables
        return cls(tables.pop(""), tables)

    def stored(self) -> bytes:
        """The rows in bytes."""
        return packed({"": self.partials, **self.values})

    def pieces(self, size: int) -> list[Content]:
        """The rows in parts of about `size` bytes."""
        number = min(max(1, -(-self.nbytes // size)), self.partials.num_rows or 1)

        def piece(table: pa.Table, which: int) -> pa.Table:
            first, last = (table.num_rows * place // number for place in (which, which + 1))
            return table.slice(first, last - first)

        return [
            Content(
                piece(self.partials, which),
                {name: piece(table, which) for name, table in self.values.items()},
            )
            for which in range(number)
        ]


def together(contents: Iterable[Content]) -> Content:
    """The rows of all, at least one."""
    every = list(contents)
    if len(every) == 1:
        return every[0]
    names = dict.fromkeys(name for each in every for name in each.values)
    return Content(
        pa.concat_tables([each.partials for each in every]),
        {name: pa.concat_tables([e.values[name] for e in every if name in e.values]) for name in names},
    )


def _until(table: pa.Table, arrival: int) -> pa.Table:
    return table.filter(pa.array(table.column(ARRIVAL).to_numpy() <= arrival))
