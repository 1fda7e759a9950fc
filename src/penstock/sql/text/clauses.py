"""Pieces of SQL text that remember where they were written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from penstock.errors import SqlError

_Error = TypeVar("_Error", bound=SqlError)


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL text.

    Attributes:
        text: the SQL.
        script: the text in which mistakes are shown.
        start: offset in `script` of the first character of `text`, which stands there literally,
            but for qualifiers that are blank in `text`.
    """

    text: str
    script: str = field(repr=False)
    start: int

    @classmethod
    def alone(cls, text: str) -> Clause:
        """A text that is part of no script."""
        return cls(text, text, 0)

    def part(self, start: int, end: int) -> Clause:
        """The piece between two offsets in `text`."""
        return Clause(self.text[start:end], self.script, self.start + start)

    def error(self, kind: type[_Error], message: str, start: int = 0, end: int | None = None) -> _Error:
        """An error at a place given by offsets in `text`; without these, of the whole clause."""
        return self.at(kind(message), start, end)

    def at(self, error: _Error, start: int = 0, end: int | None = None) -> _Error:
        """The same error at a place as of `error`."""
        end = len(self.text) if end is None else end
        return error.at(self.script, self.start + start, self.start + end)

    def placed(self, error: SqlError) -> SqlError:
        """An error whose place was given in `text`, shown in the script."""
        return self.at(error, error.start, error.end)

    def is_qualified(self, offset: int = 0) -> bool:
        """Whether the name at an offset in `text` has the source's name before it, blank in `text`."""
        rest = self.text[offset:]
        name = self.start + offset + len(rest) - len(rest.lstrip())
        return self.script[:name].rstrip().endswith(".")

    def locating(self, error: SqlError, written: str) -> SqlError:
        """An error in a text made from this clause, shown where the clause has the offending words.

        Args:
            error: its place is given in `written`.
            written: a text of which at least parts stand in the clause; the whole clause is marked
                where the offending words do not.
        """
        words = written[error.start : error.end]
        whole = self.text.find(written)
        start = whole + error.start if whole >= 0 else self.text.find(words) if words.strip() else -1
        if start < 0:
            return self.at(error)
        return self.at(error, start, start + max(1, len(words)))
