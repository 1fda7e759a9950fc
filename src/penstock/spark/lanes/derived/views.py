"""Window views over a window view, as their lane knows them, and how event times of the two compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.operators.windows.answers import Progress
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Windows
from penstock.spark.storage.bindings import WindowDefinition
from penstock.sql.windows.bind import BoundWindow
from penstock.sql.windows.query import Beneath

#: by which end of its window a row of the view beneath lies in time, and how far before that
_SIDES = {"start": ("start", 0), "end": ("end", 0), "last": ("end", 1)}


@dataclass(frozen=True, slots=True)
class DerivedView:
    """A window view over a window view, as it is declared.

    Attributes:
        definition: the view.
        bound: the view over the columns of the one beneath.
        stream, view: the view beneath and its stream.
        beneath: the windows of the view beneath, and which moment of one is the time of its rows.
        below: identifies the definition of the view beneath.
    """

    definition: WindowDefinition
    bound: BoundWindow
    stream: str
    view: str
    beneath: Beneath
    below: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A derived view as a cut answers it.

    Attributes:
        name: the view's.
        operator: names its files and its definition in the checkpoint.
        below: identifies the definition of the view beneath.
        beneath: see `DerivedView`.
    """

    name: str
    operator: int
    below: str
    beneath: Beneath

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Answered:
        """What `document` gave."""
        beneath = Beneath(Windows(**document["beneath"]["windows"]), document["beneath"]["moment"])
        return cls(document["name"], document["operator"], document["below"], beneath)

    @property
    def side(self) -> str:
        """`start` or `end`: by which end of its window a row of the view beneath lies in time."""
        return _SIDES[self.beneath.moment][0]

    @property
    def back(self) -> int:
        """How far before that end, microseconds."""
        return _SIDES[self.beneath.moment][1]

    def times(self, progress: Progress) -> Progress:
        """How far the rows of the view beneath are told, by their times, given how far its windows are."""
        return Progress(*(self._time(end) for end in (progress.closed, progress.beforehand, progress.final)))

    def _time(self, end: int) -> int:
        """The time of the first window that ends later: of all rows before it is known what is of those that end by then."""
        if end in (BEFORE_ALL, AFTER_ALL):
            return end
        windows = self.beneath.windows
        following = end + windows.slide - (end - windows.start - windows.size) % windows.slide
        return following - self.back - (windows.size if self.side == "start" else 0)
