"""Texts made of pieces that were written elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.sql.text.clauses import Clause


@dataclass(frozen=True, slots=True)
class PlacedText:
    """A text made of pieces that were written elsewhere.

    Attributes:
        text: the text.
        pieces: (start, end, clause) of those in order; a clause's text stands there literally, or an
            expression made from it.
        whole: the clause shown where a mistake is in no piece.
    """

    text: str
    pieces: tuple[tuple[int, int, Clause], ...]
    whole: Clause

    def placed(self, error: SqlError) -> SqlError:
        """An error in the text, shown where the piece was written."""
        for start, end, clause in self.pieces:
            if start <= error.start < end:
                if self.text[start:end] != clause.text:
                    return clause.error(type(error), error.message)
                return clause.error(
                    type(error), error.message, error.start - start, min(error.end, end) - start
                )
        return self.whole.error(type(error), error.message)
