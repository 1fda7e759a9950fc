"""Which slack policy a view has chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

#: `penstock.operators.windows.slack_policies` has them
SlackPolicyName = Literal["required", "pd", "aq-k-slack", "mp-k-slack", "k-slack", "fixed"]
SLACK_POLICIES: tuple[SlackPolicyName, ...] = get_args(SlackPolicyName)


@dataclass(frozen=True, slots=True)
class SlackChoice:
    """Which policy chooses the slack of a view.

    Attributes:
        policy: one of `SLACK_POLICIES`.
        length: the slack of `fixed`, microseconds, >= 0; None with every other policy.
    """

    policy: str = "required"
    length: int | None = None

    def __str__(self) -> str:
        return self.policy if self.length is None else f"{self.policy} {self.length / 1e6:g} seconds"
