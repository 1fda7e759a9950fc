"""Event times that are stored as numbers: what the worker makes of them, the same as Spark does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: microseconds of a number's unit; nanoseconds are divided
UNITS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1, "nanos": 0}
_A_MICROSECOND = 1_000
#: the type of the column that they become
MOMENT = pa.timestamp("us", "UTC")


def most_units(unit: str) -> int:
    """The largest number of a unit that is a moment, and but for its sign the least one."""
    return (2**63 - 1) // max(1, UNITS[unit])


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """A column of numbers, each the time since 1970-01-01 00:00:00 UTC.

    Attributes:
        column: its name.
        unit: one of UNITS.
    """

    column: str
    unit: str

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the column as moments, if it has it."""
        place = batch.schema.get_field_index(self.column)
        if place < 0:
            return batch
        return batch.set_column(place, pa.field(self.column, MOMENT), self.moments(batch.column(place)))

    def moments(self, numbers: pa.Array) -> pa.Array:
        """The moments of integers or, of seconds, floating-point numbers; NULL where there is none so early or late."""
        missing = numbers.is_null().to_numpy(zero_copy_only=False)
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            microseconds, is_moment = self._microseconds(values)
        return pa.array(microseconds, pa.int64(), mask=missing | ~is_moment).cast(MOMENT)

    def _microseconds(
        self, values: npt.NDArray[np.int64 | np.float64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        if self.unit == "nanos":
            return values.astype(np.int64) // _A_MICROSECOND, np.ones(len(values), np.bool_)
        most = most_units(self.unit)
        is_moment = (values >= -most) & (values <= most)
        kept = np.where(is_moment, values, 0)
        if np.issubdtype(values.dtype, np.integer):
            return kept.astype(np.int64) * UNITS[self.unit], is_moment
        return (kept * UNITS[self.unit]).astype(np.int64), is_moment
