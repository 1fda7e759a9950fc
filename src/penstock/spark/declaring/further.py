"""Further mistakes of a view that has one: its query is judged once more as if each misspelt name were the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from penstock.errors import InputError, SqlError, UnknownNameError
from penstock.sql.script.statements import CreateView

#: mistakes of one view that are looked for
_MOST = 20
_MISSPELT = re.compile(
    r"(?:Column|Field|\S+ has no column) (?P<name>\w+)(?: does not exist)?"
    r"(?:; did you mean (?P<near>\w+)\?|\.) .*?(?:columns|fields)[^:]*: (?P<known>\w+(?:, \w+)*)",
)
_FUNCTION = re.compile(r"Function (?P<name>\w+) does not exist; did you mean (?P<near>\w+)\?")


def further_mistakes(
    view: CreateView, error: InputError, judged: Callable[[str], InputError | None]
) -> Iterator[SqlError]:
    """Yield the mistakes behind the first one of a view, as long as each is an unknown column, field or function.

    A name that is like no other is read as some column: behind it only unknown names are told, as types may be others.

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
    found = SqlError(error.message, text, error.start - origin[0], error.end - origin[0])
    places, guesses = {error.start}, 0
    for _ in range(_MOST):
        told = _FUNCTION.match(found.message) or _MISSPELT.match(found.message)
        name = None if told is None else told["name"]
        begin = -1 if name is None else text.rfind(name, max(0, found.start), found.end)
        if told is None or name is None or begin < 0:
            return
        if (meant := told["near"]) is None:
            known = told["known"].split(", ")
            # no column twice in a SELECT list
            fresh = [each for each in known if not re.search(rf"\b{each}\b", text)] or known
            meant = fresh[guesses % len(fresh)]
            guesses += 1
        end = begin + len(name)
        text = text[:begin] + meant + text[end:]
        origin[begin:end] = [origin[begin]] * len(meant)
        mistake = judged(text)
        if not isinstance(mistake, SqlError) or mistake.text != text:
            return
        if origin[mistake.start] in places or (guesses and not isinstance(mistake, UnknownNameError)):
            return
        places.add(origin[mistake.start])
        yield type(mistake)(mistake.message, script, origin[mistake.start], origin[mistake.end])
        found = mistake
