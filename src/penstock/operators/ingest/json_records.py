"""JSON records where their bytes are: values of Kafka, or lines of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.json_scan import copied_lines, has_replaced

#: U+FFFD as it is and as an escape
_REPLACED = re.compile(rb"\xef\xbf\xbd|\\u[fF]{3}[dD]")
_LINE_FEED = 10
_NOWHERE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Some records.

    Attributes:
        data: their bytes, and maybe others.
        begins, ends: int32[records], where each begins and ends.
        lines: whether line feeds and nothing else are between them and behind the last one.
        doubtful: records that only Spark reads, ascending.
    """

    data: pa.Buffer
    begins: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    lines: bool = False
    doubtful: npt.NDArray[np.int32] = field(default_factory=lambda: _NOWHERE)

    @classmethod
    def of_values(cls, values: pa.Array) -> Records:
        """Those of binary values; NULL is an empty record."""
        places = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        return cls(values.buffers()[2] or pa.py_buffer(b""), places[:-1], places[1:])

    @classmethod
    def of_lines(cls, text: bytes) -> Records:
        """The lines of a piece of a file that begins and ends with whole lines, but for the empty ones.

        Spark ends a line at a line feed, at a carriage return, or at both. It sets records aside that hold U+FFFD: they are doubtful.
        """
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not text.endswith(b"\n"):
            text += b"\n"
        data = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(data == _LINE_FEED).astype(np.int32)
        begins = np.concatenate([np.zeros(1, np.int32), ends[:-1] + 1]).astype(np.int32)
        filled = ends > begins
        begins, ends = begins[filled], ends[filled]
        places = [each.start() for each in _REPLACED.finditer(text)] if has_replaced(data) else []
        doubtful = np.unique(np.searchsorted(ends, places)).astype(np.int32) if places else _NOWHERE
        return cls(pa.py_buffer(text), begins, ends, lines=True, doubtful=doubtful)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, rows: slice) -> Records:
        """Those of neighbours."""
        begins, ends = self.begins[rows], self.ends[rows]
        first, last, _ = rows.indices(len(self))
        own = self.doubtful[(self.doubtful >= first) & (self.doubtful < last)] - first
        return Records(self.data, begins, ends, self.lines, own.astype(np.int32))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Records:
        """Those whose bool is true; none of them is doubtful any more."""
        if chosen.all():
            return self
        return Records(self.data, self.begins[chosen], self.ends[chosen])

    def as_lines(self) -> pa.Buffer:
        """Their bytes, a line feed behind each."""
        if not len(self):
            return pa.py_buffer(b"")
        if self.lines:
            first = int(self.begins[0])
            return self.data.slice(first, int(self.ends[-1]) + 1 - first)
        lines = np.empty(int((self.ends - self.begins + 1).sum(dtype=np.int64)), np.uint8)
        copied_lines(np.frombuffer(self.data, np.uint8), self.begins, self.ends, lines)
        return pa.py_buffer(lines)

    def are_utf8(self) -> bool:
        """Whether all are; a character does not reach over the end of a record."""
        lines = self.as_lines()
        whole = pa.Array.from_buffers(
            pa.large_string(), 1, [None, pa.py_buffer(np.array([0, lines.size], np.int64)), lines]
        )
        try:
            whole.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
