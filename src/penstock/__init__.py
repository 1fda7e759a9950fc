"""Adaptive continuous queries on Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.matcher import Matcher
    from penstock.operators.selection.matches import Matches
    from penstock.settings import Settings
    from penstock.spark.engine import Engine
    from penstock.spark.run import Run
    from penstock.spark.sessions.build import build_session

#: public name -> module; loaded at first use, so that what needs Spark is imported only where it is used
_MODULES = {
    "Engine": "penstock.spark.engine",
    "Matcher": "penstock.matcher",
    "Matches": "penstock.operators.selection.matches",
    "Run": "penstock.spark.run",
    "Settings": "penstock.settings",
    "build_session": "penstock.spark.sessions.build",
}

__all__ = ["Engine", "Matcher", "Matches", "Run", "Settings", "build_session"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
