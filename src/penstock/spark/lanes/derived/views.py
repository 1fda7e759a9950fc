"""Window views over a window view, a join view or a UNION ALL, as their lane knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.plan.windows import Windows
from penstock.spark.storage.bindings import WindowDefinition
from penstock.sql.windows.bind import BoundWindow
from penstock.sql.windows.query import Beneath


@dataclass(frozen=True, slots=True)
class JoinTime:
    """What is the time of a row of a join view or UNION ALL.

    Attributes:
        column: its column.
        ahead: how much later the other event times in the row may be, microseconds, at least 0.
    """

    column: str
    ahead: int


@dataclass(frozen=True, slots=True)
class DerivedView:
    """A window view over another view, as it is declared.

    Attributes:
        definition: the view.
        bound: the view over the columns of the one beneath.
        stream, view: the view beneath and its stream; of a join view `JOINS.name`, of a UNION ALL `UNIONS.name`.
        beneath: which time the rows of the view beneath have, and the windows of one that has some.
        below: identifies the definition of the view beneath.
    """

    definition: WindowDefinition
    bound: BoundWindow
    stream: str
    view: str
    beneath: Beneath | JoinTime
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
    beneath: Beneath | JoinTime

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Answered:
        """What `document` gave."""
        beneath = document["beneath"]
        time = (
            Beneath(Windows(**beneath["windows"]), beneath["moment"])
            if "windows" in beneath
            else JoinTime(**beneath)
        )
        return cls(document["name"], document["operator"], document["below"], time)
