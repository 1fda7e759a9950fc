"""Adaptive continuous queries on Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.matcher import Matcher
    from penstock.operators.matches import Matches
    from penstock.settings import Settings
    from penstock.spark.engine import Engine

#: public name -> module; loaded at first use, so that what needs Spark is imported only where it is used
_MODULES = {
    "Engine": "penstock.spark.engine",
    "Matcher": "penstock.matcher",
    "Matches": "penstock.operators.matches",
    "Settings": "penstock.settings",
}

__all__ = ["Engine", "Matcher", "Matches", "Settings"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
