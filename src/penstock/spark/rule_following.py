"""Following files of rules while a run lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.spark.declared import RuleSet
from penstock.spark.execution import Execution
from penstock.spark.recovery.causes import cause_of
from penstock.spark.rule_sets import RuleChanges

#: seconds between two looks
_LOOK_SECONDS = 1.0


def follow_files(
    run: Execution,
    lock: threading.RLock,
    rules: Callable[[], Mapping[str, RuleSet]],
    apply: Callable[[Sequence[str]], list[RuleChanges]],
) -> None:
    """Look at the files of rules each second, from a thread of its own that ends with the run.

    Args:
        run: the run; its events say what was changed.
        lock: guards what is declared.
        rules: gives the rules that are declared, by the path of their statement.
        apply: brings the views of statements, by their paths, to what their files have.
    """
    arguments = (run, lock, rules, apply)
    threading.Thread(target=_follow, args=arguments, daemon=True, name="penstock-rules").start()


def _follow(
    run: Execution,
    lock: threading.RLock,
    rules: Callable[[], Mapping[str, RuleSet]],
    apply: Callable[[Sequence[str]], list[RuleChanges]],
) -> None:
    away: set[str] = set()
    while run.active:
        time.sleep(_LOOK_SECONDS)
        with lock:
            declared = rules()
            gone = {path for path, each in declared.items() if each.files.is_away}
            due = [path for path, each in declared.items() if each.files.look()]
            if not run.active:
                return
            for path in gone - away:
                run.events.record("rules_unread", rules=path, told="their folder does not exist any more")
            away = gone
            try:
                changes = apply(due) if due else []
            except Exception as error:  # the run continues with the rules that it has
                for path in due:
                    run.events.record("rules_unread", rules=path, told=cause_of(error).told)
                continue
        for each in changes:
            run.rules_changed(each)
