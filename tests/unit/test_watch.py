"""What a followed script that is wrong costs: it is looked into once, and whatever happens the run goes on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.cli.watch import Watcher
from penstock.errors import InputError


class _Refusing:
    """An engine that refuses whatever it is given, for a reason."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.given: list[str] = []
        self.reason: Exception = InputError("no such table")

    def reconcile(self, text: str) -> None:
        self.given.append(text)
        raise self.reason


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
