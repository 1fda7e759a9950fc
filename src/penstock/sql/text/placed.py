"""Texts made of pieces that were written elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
                    return clause.at(error)
                return clause.at(error, error.start - start, min(error.end, end) - start)
        return self.whole.at(error)


@dataclass(slots=True)
class PlacedWriter:
    """Writes a text piece by piece."""

    text: str = ""
    pieces: list[tuple[int, int, Clause]] = field(default_factory=list)

    def add(self, text: str, *clauses: Clause) -> None:
        """Adds a text, and clauses behind it with commas between."""
        self.text += text
        self.listed((clause.text, clause) for clause in clauses)

    def listed(self, items: Iterable[tuple[str, Clause]]) -> None:
        """Adds pieces with commas between, each made from a clause."""
        for number, (text, clause) in enumerate(items):
            self.text += ", " if number else ""
            self.pieces.append((len(self.text), len(self.text) + len(text), clause))
            self.text += text

    def placed(self, below: PlacedText) -> None:
        """Adds a placed text."""
        shift = len(self.text)
        self.pieces += ((shift + start, shift + end, clause) for start, end, clause in below.pieces)
        self.text += below.text

    def finished(self, whole: Clause) -> PlacedText:
        """What was written; `whole` as of `PlacedText`."""
        return PlacedText(self.text, tuple(self.pieces), whole)
