"""Following a script while it is edited: what is saved whole is followed, anything else is said."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.common import merged_warnings, read_script
from penstock.cli.given import Given
from penstock.errors import InputError, MistakesError, SqlError
from penstock.monitor.figures import counted

if TYPE_CHECKING:
    from penstock.spark.declaring.statements import Reconciled
    from penstock.spark.engine import Engine

#: seconds between two looks
_LOOKS = 1.0
#: a changed script is followed once it has been the same for so long, ...
_QUIET = 1.0
#: ... and so much longer where it is the beginning of the one before, as a save leaves it half way
_QUIET_PREFIX = 5.0
#: a script that was refused is tried again when it has changed, or after so long: a table's path may have come
_AGAIN = 30.0
#: an editor that saves by renaming takes the file away for a moment
_AWAY = 5.0
#: views that a message names
_NAMED = 10
_NO_OPTIONS = Given({}, {})


class Watcher:
    """Apply changes of a script to its running engine.

    Args:
        path: the script.
        text: what the engine was given.
        engine: it runs or will.
        console: where to say what was followed, and what not.
        clock: seconds, from any moment on.
        options: the settings of the command's options, which win over those of the script.
    """

    def __init__(
        self,
        path: Path,
        text: str,
        engine: Engine,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        options: Given = _NO_OPTIONS,
    ) -> None:
        self._path = path
        self._text = text
        self._engine = engine
        self._console = console
        self._options = options
        self._clock = clock
        #: the settings of the run, once they are needed, and the names of those last reported to wait
        self._given: Given | None = None
        self._waiting: list[str] = []
        self._next = 0.0
        #: the text last read, or what kept it from being read, and since when
        self._seen = text
        self._since = 0.0
        self._told = ""
        #: the text that was not followed, and when it is tried again
        self._refused: str | None = None
        self._again = 0.0

    def look(self) -> None:
        """Read the script, at most once a second; a mistake in it changes nothing and is printed once."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _LOOKS
        try:
            text = read_script(self._path)
        except InputError as error:
            if self._quiet(str(error), now) >= _AWAY:
                self._refuse(error)
            return
        quiet = self._quiet(text, now)
        if text == self._text:
            self._settle()
            return
        if text == self._refused and now < self._again:
            return
        before = set(self._engine.warnings)
        cut = self._text.startswith(text)
        if quiet < (_QUIET_PREFIX if cut else _QUIET):
            return
        try:
            if cut and not text.rstrip().endswith(";"):
                raise InputError("the script ends within a statement; save it completely")
            changes, answers = self._follow(text)
        except Exception as error:  # the run goes on with what it has
            self._refused, self._again = text, self._clock() + _AGAIN
            self._refuse(error)
            return
        self._text = text
        self._settle()
        for answer in answers:
            self._console.print(answer)
        self._console.print(f"{self._path}: applied: {_summary(changes)}")
        if self._waiting:
            self._console.print(f"settings that apply from the next start: {', '.join(self._waiting)}")
        for warning in merged_warnings(sorted(set(self._engine.warnings) - before)):
            self._console.print(f"warning: {warning}", style="yellow")

    def _follow(self, text: str) -> tuple[Reconciled, list[str]]:
        """Bring the engine to a changed script, whose settings wait for the next start.

        Returns:
            What has changed, and the answers of SHOW VIEWS and DESCRIBE.

        Raises:
            InputError: the script has a mistake.
        """
        if self._given is None:
            self._given, _ = self._read(self._text)
        given, declared = self._read(text)
        answers: list[str] = []
        changes = self._engine.reconcile(declared, answers.append)
        waiting = given.other_than(self._given)
        if waiting and waiting != self._waiting:
            self._engine.report_settings(str(self._path), waiting)
        self._waiting = waiting
        return changes, answers

    def _read(self, text: str) -> tuple[Given, str]:
        """The settings that a start would have with a script, and the script without them."""
        from penstock.sql.script.mistakes import Mistakes
        from penstock.sql.script.script import parse_script

        # the engine reports other mistakes: it knows the users' functions
        script = parse_script(text, mistakes=Mistakes())
        return self._options.with_script(script, Mistakes()), script.without_settings

    def _quiet(self, seen: str, now: float) -> float:
        """Seconds for which nothing else was seen."""
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since

    def _settle(self) -> None:
        """Takes note that the run follows the script as it is."""
        if self._told:
            self._engine.report_script(str(self._path), None)
        self._told, self._refused = "", None

    def _refuse(self, error: Exception) -> None:
        told = str(error) if isinstance(error, InputError) else _cause(error)
        if told != self._told:
            self._told = told
            self._engine.report_script(
                str(self._path), _brief(error) if isinstance(error, InputError) else told
            )
            self._console.print(
                f"{self._path}: not applied, the run continues unchanged: {told}", style="red"
            )


def _cause(error: Exception) -> str:
    from penstock.spark.recovery.causes import cause_of

    return cause_of(error).told


def _brief(error: InputError) -> str:
    """A mistake, or the first of several, with the number of its line."""
    mistakes = error.mistakes if isinstance(error, MistakesError) else (error,)
    first = mistakes[0]
    if isinstance(first, SqlError) and first.text:
        told = f"line {first.text.count(chr(10), 0, first.start) + 1}: {first.message}"
    else:
        told = str(first)
    return f"{told} (the first of {len(mistakes):,} mistakes)" if len(mistakes) > 1 else told


def _summary(changes: Reconciled) -> str:
    parts = [
        f"{counted(len(names), kind)} {what} ({_named(names)})"
        for kind, what, names in (
            ("table", "added", changes.tables),
            ("view", "added", changes.added),
            ("view", "redefined", changes.redefined),
            ("view", "dropped", changes.dropped),
            ("sink", "added", changes.sinks),
            ("sink", "removed", changes.removed_sinks),
        )
        if names
    ]
    if len(changes.dropped) > changes.kept:
        parts.append(f"{counted(changes.kept, 'view')} kept")
    return ", ".join(parts) or "nothing changed"


def _named(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
