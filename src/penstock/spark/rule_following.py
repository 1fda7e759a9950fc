"""Following files of rules while a run lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from penstock.spark.declaring.declared import RuleSet
from penstock.spark.declaring.rule_sets import RuleChanges
from penstock.spark.execution import Execution
from penstock.spark.recovery.causes import cause_of

#: seconds between two looks
_LOOK_SECONDS = 1.0
#: seconds until a change that failed is tried again, where the files do not change before
_RETRY_SECONDS = 60.0


def follow_files(
    run: Execution,
    lock: threading.RLock,
    rules: Callable[[], Mapping[str, RuleSet]],
    apply: Callable[[str], RuleChanges],
) -> None:
    """Look at the files of rules each second, from a thread of its own that ends with the run.

    Args:
        run: the run; its events say what was changed.
        lock: guards what is declared.
        rules: gives the rules that are declared, by the path of their statement.
        apply: brings the views of a statement, by its path, to what its files have.
    """
    followed = FollowedFiles(run, rules, apply)

    def follow() -> None:
        while run.active:
            time.sleep(_LOOK_SECONDS)
            with lock:
                changes = followed.look() if run.active else []
            for each in changes:
                run.rules_changed(each)

    threading.Thread(target=follow, daemon=True, name="penstock-rules").start()


class FollowedFiles:
    """The files of all CREATE VIEWS statements, and which changes in them the run has not taken yet.

    Args:
        run, rules, apply: see `follow_files`.
    """

    def __init__(
        self,
        run: Execution,
        rules: Callable[[], Mapping[str, RuleSet]],
        apply: Callable[[str], RuleChanges],
    ) -> None:
        self._run = run
        self._rules = rules
        self._apply = apply
        #: by path, when a change is tried that the run has not taken, in seconds of the monotonic clock
        self._pending: dict[str, float] = {}
        #: by path, why its files are not followed
        self._unread: dict[str, str] = {}

    def look(self) -> list[RuleChanges]:
        """Look at all files, apply what has changed, and return what that changed.

        A path that fails leaves the others and the run as they are.
        """
        changes = []
        for path, rules in list(self._rules().items()):
            try:
                if (applied := self._followed(path, rules)) is not None:
                    changes.append(applied)
            except Exception as error:  # the run continues with the rules that it has
                self._pending[path] = time.monotonic() + _RETRY_SECONDS
                self._note(path, cause_of(error).told)
        return changes

    def _followed(self, path: str, rules: RuleSet) -> RuleChanges | None:
        if rules.files.is_away:
            self._note(path, "their folder does not exist any more")
            return None
        if rules.files.look():
            self._pending[path] = time.monotonic()
        if self._pending.get(path, float("inf")) > time.monotonic():
            if path not in self._pending:
                self._unread.pop(path, None)
            return None
        changes = self._apply(path)
        del self._pending[path]
        self._unread.pop(path, None)
        return None if changes.is_empty else changes

    def _note(self, path: str, told: str) -> None:
        """Records why files are not followed, once as long as it is so."""
        if self._unread.get(path) != told:
            self._unread[path] = told
            self._run.events.record("rules_unread", rules=path, told=told)
