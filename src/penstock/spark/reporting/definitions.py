"""Which definition of a view a row is of.

The catalog numbers the definitions that a view's name has had, from 1 on, and keeps what earlier ones were. Matches carry
the number (`operators/selection/matches.DEFINITIONS`), so that merging files loses nothing; the rows of other views are told
apart by their operator or lane. See docs/decisions/0039.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from penstock.errors import SqlError
from penstock.spark.publication.kinds import is_running_name

#: of a view in the catalog: the number of its definition; 1 where it says none
NUMBER = "number"
#: of a view in the catalog: the entries of its other definitions, in no order
OTHERS = "others"

#: of a view in the catalog: it aggregates without a window
IS_RUNNING = "is_running"

#: column behind those of a selection where rows of all its definitions are shown
DEFINITION = "definition"

Entry = Mapping[str, Any]


def numbered(entry: Entry, known: Entry | None) -> dict[str, Any]:
    """The entry of a view, with the number of its definition and with its other definitions.

    A definition that was there before has the number that it had, whatever came in between.

    Args:
        entry: what the view is now.
        known: what the catalog has of its name.
    """
    others = [] if known is None else list(all_definitions(known))
    same = next((each for each in others if _has_rows_of(each, entry)), None)
    told = {name: value for name, value in entry.items() if name != OTHERS}
    if same is None:
        number = 1 + max(map(number_of, others), default=0)
    else:
        others.remove(same)
        number = number_of(same)
        if is_selection(entry):
            told["columns"] = _all_columns(same.get("columns"), entry.get("columns"))
    return {**told, NUMBER: number, **({OTHERS: others} if others else {})}


def number_of(entry: Entry) -> int:
    """The number of a definition."""
    return int(entry.get(NUMBER, 1))


def counted_as(view: str, number: int) -> str:
    """Return the name under which the matches of one definition of a view are counted: the view's own of the first one."""
    return view if number == 1 else f"{view}\0{number}"


def all_definitions(entry: Entry) -> Iterator[dict[str, Any]]:
    """All definitions of a view's name, the one it has now first."""
    yield {name: value for name, value in entry.items() if name != OTHERS}
    yield from entry.get(OTHERS, ())


def is_selection(entry: Entry) -> bool:
    """Whether a view is a selection on a stream."""
    return "projection" in entry


def stored_columns(views: Mapping[str, Entry], stream: str) -> set[str] | None:
    """The columns of a stream that some selection on it reads or has read; None: all, or there is none."""
    read = list(_read_columns(views, stream))
    known = [each for each in read if each is not None]
    return set(chain.from_iterable(known)) if known and len(known) == len(read) else None


def lacking_columns(views: Mapping[str, Entry], stream: str, columns: Sequence[str]) -> list[str]:
    """Those of a stream's columns that matches may lack, for some selection on it does not read them or has not."""
    read = [set(own) for own in _read_columns(views, stream) if own is not None]
    return [name for name in columns if any(name not in own for own in read)]


def _read_columns(views: Mapping[str, Entry], stream: str) -> Iterator[Sequence[str] | None]:
    for entry in views.values():
        for each in all_definitions(entry):
            if is_selection(each) and each.get("stream") == stream:
                yield each.get("columns")


def is_running_view(entry: Entry) -> bool:
    """Whether a view aggregates without a window; an earlier version marked only its name."""
    return bool(entry.get(IS_RUNNING)) or is_running_name(str(entry.get("stream")))


def _has_rows_of(one: Entry, other: Entry) -> bool:
    """Whether rows of one definition are rows of the other: of a selection, if they have the columns that its SELECT list reads."""
    if is_selection(one) and is_selection(other):
        return (
            one.get("stream") == other.get("stream")
            and (_listed(one) == _listed(other) or _has_columns(one.get("columns"), other.get("columns")))
            and (one.get("condition") == other.get("condition") or _spelt(one) == _spelt(other))
        )
    return is_selection(one) == is_selection(other) and one.get("id") == other.get("id")


def _listed(entry: Entry) -> list[tuple[str, ...]] | None:
    """The SELECT list of a selection."""
    projection = entry["projection"]
    return None if projection is None else [tuple(each) for each in projection]


def _all_columns(one: Sequence[str] | None, other: Sequence[str] | None) -> list[str] | None:
    """What a definition stores whose SELECT list has changed, so that it is still the same if the change is taken back."""
    return None if one is None or other is None else list(dict.fromkeys([*one, *other]))


def _has_columns(stored: Sequence[str] | None, read: Sequence[str] | None) -> bool:
    return stored is None or (read is not None and set(read) <= set(stored))


def _spelt(entry: Entry) -> tuple[str, ...] | None:
    """The condition of a selection but for blanks and comments."""
    # readers of a folder ask for no condition, and need not wait for the parser to load
    from penstock.sql.text.lexing import spelling, tokenize

    condition = entry.get("condition")
    try:
        return None if condition is None else spelling(tokenize(condition))
    except SqlError:
        return (str(condition),)
