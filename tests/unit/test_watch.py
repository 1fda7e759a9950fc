"""What a followed script that is wrong costs: it is looked into once, and whatever happens the run goes on."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.cli.watch import Watcher
from penstock.errors import InputError, MistakesError, SqlError
from penstock.spark.declaring.statements import Reconciled


class _Refusing:
    """An engine that refuses whatever it is given, for a reason."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.given: list[str] = []
        self.reason: Exception | None = InputError("no such table")
        self.reported: list[tuple[str, str | None]] = []

    def reconcile(self, text: str, show: Callable[[str], object]) -> Reconciled:  # noqa: ARG002 - it answers nothing
        self.given.append(text)
        if self.reason is not None:
            raise self.reason
        return Reconciled([], [], [], 1, tables=["alerts"], sinks=["alerts"])

    def report_script(self, path: str, refused: str | None) -> None:
        self.reported.append((path, refused))


def test_the_status_hears_of_a_refused_script_until_one_is_applied(tmp_path: Path) -> None:
    path, out, now = tmp_path / "script.sql", io.StringIO(), [0.0]
    engine: Any = _Refusing()
    watcher = Watcher(path, "good;", engine, Console(file=out, width=300, soft_wrap=True), lambda: now[0])

    def look(text: str) -> list[tuple[str, str | None]]:
        """What the status hears of the script that was saved."""
        engine.reported.clear()
        path.write_text(text)
        for _ in range(8):
            now[0] += 1
            watcher.look()
        return list(engine.reported)

    text = "SELECT 1;\nSELECT wieght FROM t;"
    mistake = SqlError("Column wieght does not exist.", text, 17, 23)
    engine.reason = MistakesError([mistake, mistake])
    assert look(text) == [(str(path), "line 2: Column wieght does not exist. (the first of 2 mistakes)")]
    assert look("good;") == [(str(path), None)], "it is the script that runs"
    assert look("good;") == []
    engine.reason = InputError("no such table")
    assert look("wrong;") == [(str(path), "no such table")]
    engine.reason = None
    assert look("better;") == [(str(path), None)]
    assert out.getvalue().endswith(f"{path}: applied: 1 table added (alerts), 1 sink added (alerts)\n")


def test_a_wrong_script_is_tried_again_when_it_changes_or_after_a_while(tmp_path: Path) -> None:
    path, out, now = tmp_path / "script.sql", io.StringIO(), [0.0]
    engine: Any = _Refusing()
    console = Console(file=out, width=300, soft_wrap=True)
    watcher = Watcher(path, "good;", engine, console, lambda: now[0])

    def look(seconds: int) -> int:
        """How often the engine was given the script."""
        before = len(engine.given)
        for _ in range(seconds):
            now[0] += 1
            watcher.look()
        return len(engine.given) - before

    path.write_text("wrong;")
    assert look(25) == 1
    assert look(30) == 1
    assert out.getvalue() == f"{path}: not applied, the run continues unchanged: no such table\n"
    engine.reason = RuntimeError("the connection\nis gone")
    path.write_text("wrong again;")
    assert look(25) == 1
    told = out.getvalue().splitlines()
    assert len(told) == 2
    assert "not applied, the run continues unchanged: " in told[1]
    assert "the connection" in told[1]
    path.write_text("good;")
    assert look(5) == 0
    path.write_text("wrong again;")
    assert look(5) == 1
