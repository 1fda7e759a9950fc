"""Stand-in."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.plan.patterns import TextPattern

NULL_SIGNATURE = 0


def _like(text):
    out, at = "", 0
    while at < len(text):
        c = text[at]
        if c == "\\":
            out += re.escape(text[at + 1])
            at += 2
            continue
        out += ".*" if c == "%" else "." if c == "_" else re.escape(c)
        at += 1
    return re.compile(out, re.S).fullmatch


class SignatureEncoder:
    def __init__(self, patterns: Sequence[TextPattern]) -> None:
        self._tests = [
            (_like(p.text) if p.kind == "like" else re.compile(p.text).search, p.folding) for p in patterns
        ]
        self._known = {None: 0}
        self._sets: list = [(), ()]
        self._numbers = {(): 1}

    @property
    def signatures(self):
        return len(self._sets)

    def satisfied(self, signature):
        return np.array(self._sets[signature], np.int32)

    def encode(self, column, rows=None):
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if rows is not None:
            column = column.take(pa.array(rows))
        return np.array([self._one(v) for v in column.to_pylist()], np.uint32)

    def _one(self, value):
        got = self._known.get(value)
        if got is None:
            low = value.lower()
            held = tuple(n for n, (t, f) in enumerate(self._tests) if t(low if f else value))
            got = self._numbers.get(held)
            if got is None:
                got = self._numbers[held] = len(self._sets)
                self._sets.append(held)
            self._known[value] = got
        return got
