"""What a benchmark expects of its figures: told as each comes, and by the exit code in the end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Expectations:
    """What was expected and whether it came.

    Attributes:
        judged: whether figures count; a run that is too short for them prints them all the same, in small letters.
        broken: how many did not hold.
    """

    judged: bool = True
    broken: int = 0

    def hold(self, what: str, held: bool, figures: str, *, always: bool = False) -> None:
        """Prints whether an expectation holds; one about answers, not figures, counts always."""
        counts = self.judged or always
        self.broken += counts and not held
        verdict = "HELD    " if held else "NOT HELD"
        print(f"{verdict if counts else verdict.lower()} {what}: {figures}", flush=True)

    def at_most(self, what: str, figure: float, most: float) -> None:
        """Prints whether a figure is as small as it should be."""
        self.hold(what, figure <= most, f"{figure:.3f} (at most {most:g})")

    def at_least(self, what: str, figure: float, least: float) -> None:
        """Prints whether a figure is as large as it should be."""
        self.hold(what, figure >= least, f"{figure:.3f} (at least {least:g})")

    @property
    def exit_code(self) -> int:
        """1 where one did not hold."""
        return int(self.broken > 0)
