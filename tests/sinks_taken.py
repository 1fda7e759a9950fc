"""A sink whose target keeps what it is given."""

from __future__ import annotations

import threading

from penstock.spark.sinks.declared import Sink
from penstock.spark.sinks.delivery import Delivery, Form
from penstock.spark.sinks.providers import PlainTarget
from penstock.spark.sinks.published import Limits
from sink_cases import SELECTION


class Taken(PlainTarget):
    """A target that keeps what it is given."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.numbers: list[int] = []
        self.ordinals: list[str] = []
        self.fails: list[Exception] = []
        self.blocks: threading.Event | None = None

    def deliver(self, delivery: Delivery) -> None:
        if self.blocks is not None:
            assert self.blocks.wait(60)
        if self.fails:
            raise self.fails.pop(0)
        column = "id" if delivery.view == SELECTION else "n"
        self.ids += delivery.rows.column(column).to_pylist()
        self.numbers.append(delivery.number)
        self.ordinals += delivery.ordinals


def sink_to(
    target: Taken, name: str = "taken", view: str = SELECTION, limits: Limits | None = None, **named: object
) -> Sink:
    """A sink of a view."""
    form = Form("append" if view == SELECTION else "changes")
    return Sink(
        name,
        view,
        "test",
        lambda _: target,
        form,
        limits or Limits(None, 1),
        "at least once",
        **named,  # type: ignore[arg-type]
    )
