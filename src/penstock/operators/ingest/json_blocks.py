"""JSON records of a block: what is decoded of all, and what of the matched ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.ingest.event_times import EpochTimes
from penstock.operators.ingest.json_decode import JsonDecoder, decoded_first
from penstock.operators.ingest.json_records import Records
from penstock.operators.ingest.record_fields import RecordFields
from penstock.operators.ingest.stream_program import StreamProgram


class LateColumnsError(Exception):
    """A matched record has values in its other columns that only Spark reads; it has been matched already."""


class BlockDecoder:
    """Decodes the columns that a program needs, and of matched records all.

    Args:
        schema: the columns of the records.
        program: the bound plan.
        times: the event time, where it is stored as numbers.
        fields: where the columns are in a record; None: at its top, by their names.
        is_whole: decodes all columns of each record, so that nothing fails late.
    """

    def __init__(
        self,
        schema: pa.Schema,
        program: StreamProgram,
        times: EpochTimes | None,
        fields: RecordFields | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        most = program.settings.max_record_bytes
        within = () if fields is None else fields.nested
        first = schema if is_whole else decoded_first(schema, program.needed, within)
        self._times = times
        self._whole = JsonDecoder(schema, most, fields)
        self._first = self._whole if len(first) == len(schema) else JsonDecoder(first, most, fields)

    def decode(
        self, records: Records
    ) -> tuple[
        pa.RecordBatch,
        Callable[[npt.NDArray[np.bool_], Sequence[str]], pa.RecordBatch],
        npt.NDArray[np.bool_],
    ]:
        """The tuples of a block, but for those that Spark has to read.

        Returns:
            The columns that are decoded of all; what gives some columns of the tuples whose bool is true, and raises LateColumnsError; and
            bool[records]: whose tuples they are.
        """
        decoded, is_decoded = self._first.decode(records)
        first, own = self._timed(decoded), records.where(is_decoded)

        def tuples(mask: npt.NDArray[np.bool_], columns: Sequence[str]) -> pa.RecordBatch:
            if self._first is self._whole:
                return first.select(list(columns)).filter(pa.array(mask))
            whole = self._whole.tuples(own.where(mask))
            if whole is None:
                raise LateColumnsError
            return self._timed(whole).select(list(columns))

        return first, tuples, is_decoded

    def _timed(self, tuples: pa.RecordBatch) -> pa.RecordBatch:
        return tuples if self._times is None else self._times.of(tuples)
