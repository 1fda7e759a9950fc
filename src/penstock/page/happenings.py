"""What happened in a run, newest first: events that repeat are one line with a count, so that the others remain visible."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.monitor.book import MEASURED

#: events of each sort that are kept
_MOST = 200
#: kinds of which each event is a line of its own: a run begins or ends, its views or its plans change, something fails for good
_SINGLE = frozenset(
    [
        *("run_started", "run_ended", "run_stopped", "run_failed", "run_refused", "stream_started"),
        *("views_changed", "join_switched", "predicates_reordered", "functions_reordered", "views_failed"),
        *("lane_failed", "view_failed", "backfill_failed", "backfill_done", "topic_recreated"),
    ]
)
#: fields that say what an event is about
_SUBJECT = ("kind", "action", "stream", "view", "lane", "table", "rules", "cause")

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Happening:
    """Events of one kind about one thing.

    Attributes:
        event: the newest.
        count: how many.
    """

    event: Event
    count: int


class Happenings:
    """Takes in events; the owner sees to threads."""

    def __init__(self) -> None:
        self._number = 0
        #: by what they are about, the one that happened last at the end, with the number of the newest event
        self._single: OrderedDict[Hashable, tuple[int, Happening]] = OrderedDict()
        self._repeated: OrderedDict[Hashable, tuple[int, Happening]] = OrderedDict()

    def add(self, event: Event) -> None:
        """Takes in an event; measurements are none."""
        kind = str(event.get("kind"))
        if kind in MEASURED:
            return
        self._number += 1
        is_single = kind in _SINGLE or event.get("action") == "SwapSequence"
        known = self._single if is_single else self._repeated
        key: Hashable = self._number if is_single else tuple(str(event.get(what)) for what in _SUBJECT)
        _, before = known.pop(key, (0, Happening(event, 0)))
        known[key] = self._number, Happening(event, before.count + 1)
        if len(known) > _MOST:
            known.popitem(last=False)

    def newest(self, most: int) -> list[Happening]:
        """Return the newest ones, newest first; where they are more, those that repeat are half of them at the most."""
        single, repeated = list(self._single.values()), list(self._repeated.values())
        shown = repeated[-max(most // 2, most - len(single)) :]
        shown += single[-(most - len(shown)) :] if len(shown) < most else []
        return [happening for _, happening in sorted(shown, key=lambda each: each[0], reverse=True)]
