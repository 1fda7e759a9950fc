"""What the controller decides. The shell carries actions out; `fields()` is their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.arrangement import Arrangement

Figures = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """A decision about a stream.

    Attributes:
        stream: the stream's name.
        version: the version of its selections.
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
