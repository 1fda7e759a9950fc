"""An expression is planned once with the same settings, and anew where they have changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.spark.analysis import planning


def test_other_settings_are_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def planned(_table: object, texts: list[str], _column: object) -> dict[str, str]:
        asked.extend(texts)
        return {}

    monkeypatch.setattr(planning, "_failures", planned)
    monkeypatch.setattr(planning, "_planned", set())

    def table(settings: str) -> Any:
        conf = SimpleNamespace(getAll=lambda: SimpleNamespace(toString=lambda: settings))
        session = SimpleNamespace(_jsparkSession=SimpleNamespace(conf=lambda: conf))
        return SimpleNamespace(schema=SimpleNamespace(json=lambda: "{}"), sparkSession=session)

    for settings in ("ansi -> true", "ansi -> true", "ansi -> false"):
        planning.failures(table(settings), ["a + 1"], cast(Any, None))
    assert asked == ["a + 1", "a + 1"]
