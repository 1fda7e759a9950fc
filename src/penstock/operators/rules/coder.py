"""The values of an attribute by number, and the facts that each number stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.coding.encode import ColumnEncoder, code_type
from penstock.operators.rules.facts import FactAttribute
from penstock.operators.text.equal import compared
from penstock.operators.text.signatures import NULL_SIGNATURE, SignatureEncoder
from penstock.plan.patterns import TextPattern


class FactCoder:
    """Numbers the values of an attribute: two values have one number where the same facts hold of them.

    Args:
        attribute: the attribute.
        signatures: an encoder of its patterns that nobody else uses; None: a new one.
    """

    def __init__(self, attribute: FactAttribute, signatures: SignatureEncoder | None = None) -> None:
        self.name = attribute.name
        self._attribute = attribute
        self._held: list[frozenset[int]] = []
        #: what codes its values; None for text
        self.encoder: ColumnEncoder | None = None
        #: what numbers its values where it is text
        self.signature_encoder: SignatureEncoder | None = None
        self._equal = attribute.equal
        coding = attribute.coding
        if attribute.equal is not None:
            null = () if attribute.null_fact < 0 else (attribute.null_fact,)
            self._held = [frozenset(null), frozenset(), frozenset(attribute.facts)]
            return
        if coding is None:
            self.signature_encoder = signatures or SignatureEncoder(attribute.patterns)
            return
        self.encoder = ColumnEncoder(coding, code_type([coding]))
        of_code: list[set[int]] = [set() for _ in range(coding.codes)]
        for fact, ranges in zip(attribute.facts, attribute.ranges, strict=True):
            for low, high in ranges:
                for code in range(low, high + 1):
                    of_code[code].add(fact)
        numbers: dict[frozenset[int], int] = {}
        self._number_of_code = np.asarray(
            [numbers.setdefault(frozenset(facts), len(numbers)) for facts in of_code], np.uint32
        )
        self._held = list(numbers)

    @property
    def patterns(self) -> tuple[str, tuple[TextPattern, ...]]:
        """The column, and what its values are matched against where they are text."""
        return self._attribute.name, self._attribute.patterns

    def numbers(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.uint32]:
        """The number of each value.

        Args:
            columns: the attribute's values, and those of the column that it is compared with.
            rows: which of them, ascending; all where None.

        Returns:
            uint32[rows].

        Raises:
            TypeError: the column's type does not fit the attribute.
        """
        if self._equal is not None:
            return compared(columns[0], columns[1], self._equal.forms, self._equal.if_null, rows)
        (column,) = columns
        if self.signature_encoder is not None:
            return self.signature_encoder.encode(column, rows)
        assert self.encoder is not None, "the others are text"
        chosen = column if rows is None else column.take(pa.array(rows))
        return self._number_of_code[self.encoder.encode(chosen)]

    @property
    def signatures(self) -> int:
        """How many sets of patterns have a number; 0 where numbers are fixed."""
        return 0 if self.signature_encoder is None else self.signature_encoder.signatures

    def forget(self) -> None:
        """Drops the numbers of text; later values get new ones."""
        if self.signature_encoder is not None:
            self.signature_encoder.forget()
            self._held.clear()

    def held(self, number: int) -> frozenset[int]:
        """The facts that hold of the values with a number."""
        if self.signature_encoder is None:
            return self._held[number]
        for known in range(len(self._held), number + 1):
            self._held.append(self._of_signature(self.signature_encoder, known))
        return self._held[number]

    def _of_signature(self, signatures: SignatureEncoder, signature: int) -> frozenset[int]:
        attribute = self._attribute
        if signature == NULL_SIGNATURE:
            return frozenset(() if attribute.null_fact < 0 else (attribute.null_fact,))
        return frozenset(attribute.facts[pattern] for pattern in signatures.satisfied(signature).tolist())
