"""What the controller decides. The shell carries actions out; `fields()` is their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.arrangement import Arrangement
from penstock.plan.joins import JoinOrder

Figures = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """A decision about a stream or a view.

    Attributes:
        stream: the name of either.
        version: the version of its plan.
        reason: why, in one sentence.
        figures: the measurements behind it.
    """

    stream: str
    version: int
    reason: str
    figures: Figures

    def fields(self) -> dict[str, object]:
        """A compact JSON form."""
        return {
            "action": type(self).__name__,
            "stream": self.stream,
            "version": self.version,
            "reason": self.reason,
            "figures": dict(self.figures),
        }


@dataclass(frozen=True, slots=True, eq=False)
class SampleTuples(Action):
    """Report samples with every batch: a new sequence is being measured."""


@dataclass(frozen=True, slots=True, eq=False)
class SwapSequence(Action):
    """Follow this arrangement from the next binding on.

    Attributes:
        arrangement: the new evaluation sequence.
    """

    arrangement: Arrangement

    def fields(self) -> dict[str, object]:
        """A compact JSON form, without the micro-arrows themselves."""
        return {**Action.fields(self), "arrangement": self.arrangement.fields()}


@dataclass(frozen=True, slots=True, eq=False)
class KeepSequence(Action):
    """Measured again, found the running arrangement again: nothing to do."""


@dataclass(frozen=True, slots=True, eq=False)
class SwitchJoin(Action):
    """Join in this order from the next cut on.

    Attributes:
        order: the new one.
    """

    order: JoinOrder

    def fields(self) -> dict[str, object]:
        """A compact JSON form: by input with new tuples, the inputs that they meet, by which method and key."""
        orders = [
            {"first": each.first, "steps": [[step.input, step.method.value, step.key] for step in each.steps]}
            for each in self.order.orders
        ]
        return {**Action.fields(self), "orders": orders}


@dataclass(frozen=True, slots=True, eq=False)
class ReorderOperators(Action):
    """Run the unary operators in this order from the next batch on.

    Attributes:
        order: their names.
    """

    order: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """A compact JSON form."""
        return {**Action.fields(self), "order": list(self.order)}
