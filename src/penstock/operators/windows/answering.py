"""Answers of a view's windows, with what can be promised of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.operators.windows.answers import Answer
from penstock.operators.windows.lifecycle import Lifecycle


@dataclass(frozen=True, slots=True)
class Answering:
    """Makes answers by what can be promised now.

    Attributes:
        view: name of the view.
        windows: of the view.
        can_promise, coverage: whether the slack policy promises, and the coverage that answers are likely to have.
        reached: the event time that the stream has come to; None before any.
    """

    view: str
    windows: Lifecycle
    can_promise: bool
    coverage: float | None
    reached: int | None

    def __call__(
        self, end: int, revision: int, rows: pa.Table, replaced: pa.Table, *, is_final: bool
    ) -> Answer:
        """The answer of a window."""
        windows = self.windows
        is_promised = self.can_promise and windows.is_closed(end) and not windows.lacks(end)
        return Answer(
            view=self.view,
            start=windows.windows.begin(end),
            end=end,
            revision=revision,
            final=is_final,
            slack=0 if self.reached is None else self.reached - end,
            coverage=1.0 if is_final else self.coverage if is_promised else None,
            promised=is_promised,
            rows=rows,
            replaced=replaced,
        )
