"""What the controller decides. The shell carries actions out; `fields()` is their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.arrangement import Arrangement
from penstock.plan.deadlines import WindowWork
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
class FoundSequence(Action):
    """An evaluation sequence was found.

    Attributes:
        arrangement: it.
        runner_up: the one that was nearly found; None where nothing was to be chosen.
    """

    arrangement: Arrangement
    runner_up: Arrangement | None

    def fields(self) -> dict[str, object]:
        """A compact JSON form, without the micro-arrows themselves."""
        other = None if self.runner_up is None else self.runner_up.fields()
        return {**Action.fields(self), "arrangement": self.arrangement.fields(), "runner_up": other}


@dataclass(frozen=True, slots=True, eq=False)
class KeepSequence(FoundSequence):
    """Measured; `arrangement` is the running one, and none that was found saves enough: nothing to do."""


@dataclass(frozen=True, slots=True, eq=False)
class SwapSequence(FoundSequence):
    """Follow the arrangement from the next binding on.

    Attributes:
        before: the running one.
    """

    before: Arrangement

    def fields(self) -> dict[str, object]:
        """A compact JSON form, without the micro-arrows themselves."""
        return {**FoundSequence.fields(self), "before": self.before.fields()}


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


@dataclass(frozen=True, slots=True, eq=False)
class StartOrder(Action):
    """Work an instance out now.

    Attributes:
        number: of the instance.
        work: what it is worked out from.
        firm: abandon it at its deadline; else its result will be late, but later ones can be carried from it.
        lot: orders of one lot run behind each other on one processor, in one job.
        sample: work it out from a sample of so many tuples; 0: from all.
    """

    number: int
    work: WindowWork
    firm: bool
    lot: int = 0
    sample: int = 0

    def fields(self) -> dict[str, object]:
        """A compact JSON form."""
        return {**Action.fields(self), "number": self.number, "carried": self.work.carried, "firm": self.firm}


@dataclass(frozen=True, slots=True, eq=False)
class GiveUpInstance(Action):
    """Do not work an instance out. Its tuples count for the next one that is.

    Attributes:
        number: of the instance.
        shed: it was predicted to miss its deadline, or others were chosen before it; else the deadline passed while it waited.
    """

    number: int
    shed: bool

    def fields(self) -> dict[str, object]:
        """A compact JSON form."""
        return {**Action.fields(self), "number": self.number, "outcome": "shed" if self.shed else "missed"}


@dataclass(frozen=True, slots=True, eq=False)
class ReportViolation(Action):
    """Tell the user: a query has lost more instances than it allows."""


@dataclass(frozen=True, slots=True, eq=False)
class AdjustPrediction(Action):
    """The factor rho of a query's predicted costs has changed."""


@dataclass(frozen=True, slots=True, eq=False)
class RaiseOverload(Action):
    """Tell the user: a query cannot be kept up with."""
