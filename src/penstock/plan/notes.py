"""What is worth knowing of a declared view and is no fault of it."""

from __future__ import annotations


class Note(str):
    """A text among the warnings of a view that tells what a documented choice does: nobody has to change anything.

    Example:
        >>> [isinstance(text, Note) for text in (Note("the state keeps every group"), "no file matches")]
        [True, False]
    """

    __slots__ = ()
