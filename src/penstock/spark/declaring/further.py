"""Further mistakes of a view that has one: its query is judged once more as if each misspelt name were the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from penstock.errors import InputError, SqlError, UnknownNameError
from penstock.sql.script.statements import CreateView
from penstock.sql.text.lexing import quote

#: mistakes of one view that are looked for
_MOST = 20
#: known names that an unknown one is read as, until one fits where it stands
_TRIED = 3
#: the function that takes arguments of any number and of nearly any type
_ANY_FUNCTION = "hash"
#: what the text has before and behind an item of its SELECT list that is a name
_TO_ITEM = re.compile(r"\s*SELECT\b(?:(?!\bFROM\b).)*", re.IGNORECASE | re.DOTALL)
_BEHIND_ITEM = re.compile(r"\s*(?:,|FROM\b)", re.IGNORECASE)


def further_mistakes(
    view: CreateView, error: InputError, judged: Callable[[str], InputError | None]
) -> Iterator[SqlError]:
    """Yield the mistakes behind the first one of a view, as long as each is an unknown column, field or function.

    A name that is like no other is read as some known one: behind it only unknown names are told, as types may be others.

    Args:
        view: the view.
        error: its first mistake, at its place in the script.
        judged: gives the mistake of a query, with its place in the query, if it has one.
    """
    if not isinstance(error, SqlError):
        return
    text, script = view.text, error.text
    #: of each character of `text`, and of its end, the place in the script
    origin = list(range(view.end - len(text), view.end + 1))
    found = error.at(text, error.start - origin[0], error.end - origin[0])
    #: where names were read as others
    places: set[int] = set()
    is_guessed = False
    for _ in range(_MOST):
        begin, end = _span(found)
        if not isinstance(found, UnknownNameError) or begin == end:
            return
        places.add(origin[begin])
        for number, meant in enumerate(_readings(found, begin, end)):
            changed = text[:begin] + meant + text[end:]
            mistake = judged(changed)
            if not isinstance(mistake, SqlError) or mistake.text != changed:
                return
            shifted = origin[:begin] + [origin[begin]] * len(meant) + origin[end:]
            is_guessed = is_guessed or found.near is None or number > 0
            first, last = _span(mistake)
            if shifted[first] not in places and (first < last or not is_guessed):
                break
        else:
            return
        text, origin, found = changed, shifted, mistake
        yield mistake.at(script, origin[mistake.start], origin[mistake.end])


def _readings(error: UnknownNameError, begin: int, end: int) -> list[str]:
    """What the unknown name between two places is read as, until one fits: the one that is meant, others that the text has not, others.

    A SELECT list has no column twice: an item of it that the text has elsewhere is given another name.
    """
    words = set(re.findall(r"\w+", error.text.upper()))
    order = {each: (each != error.near, each != _ANY_FUNCTION, each.upper() in words) for each in error.known}
    before, after = error.text[:begin], error.text[end:]
    is_item = (
        before.count("(") == before.count(")") and _TO_ITEM.fullmatch(before) and _BEHIND_ITEM.match(after)
    )
    return [
        (each if each.isidentifier() else quote(each))
        + (f" AS _{begin}" if is_item and each.upper() in words else "")
        for each in sorted(order, key=order.__getitem__)[:_TRIED]
    ]


def _span(error: SqlError) -> tuple[int, int]:
    """Where the text has the name that is unknown, the last one within the mistake but for a function; empty without any."""
    if isinstance(error, UnknownNameError) and error.name:
        name = re.escape(error.name)
        names = re.compile(rf"{re.escape(quote(error.name))}|(?<!\w){name}(?!\w)", re.IGNORECASE)
        found = [each.span() for each in names.finditer(error.text, error.start, error.end)]
        called = [each for each in found if error.text.startswith("(", each[1])]
        if found:
            return (*called, found[-1])[0]
    return error.start, error.start
