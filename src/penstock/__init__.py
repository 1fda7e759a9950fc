"""Adaptive continuous queries on Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import (
        AggregateFailedError,
        CheckpointError,
        ConnectionFailedError,
        DamagedError,
        DuplicateNameError,
        FunctionFailedError,
        InputError,
        MistakesError,
        PenstockError,
        SinkFailedError,
        SqlError,
        StartStoppedError,
        StreamFailedError,
        TypeMismatchError,
        UnknownNameError,
        UnsupportedError,
    )
    from penstock.matcher import Matcher
    from penstock.operators.selection.matches import Matches
    from penstock.settings import Settings
    from penstock.spark.engine import Engine
    from penstock.spark.run import Run
    from penstock.spark.sessions.build import build_session
    from penstock.status import LaneStatus, RunStatus, SinkStatus, StreamStatus, ViewStatus
    from penstock.trigger import Trigger

_ERRORS, _STATUS = "penstock.errors", "penstock.status"
#: public name -> module; loaded at first use, so that what needs Spark is imported only where it is used
_MODULES = {
    "AggregateFailedError": _ERRORS,
    "CheckpointError": _ERRORS,
    "ConnectionFailedError": _ERRORS,
    "DamagedError": _ERRORS,
    "DuplicateNameError": _ERRORS,
    "Engine": "penstock.spark.engine",
    "FunctionFailedError": _ERRORS,
    "InputError": _ERRORS,
    "LaneStatus": _STATUS,
    "Matcher": "penstock.matcher",
    "Matches": "penstock.operators.selection.matches",
    "MistakesError": _ERRORS,
    "PenstockError": _ERRORS,
    "Run": "penstock.spark.run",
    "RunStatus": _STATUS,
    "Settings": "penstock.settings",
    "SinkFailedError": _ERRORS,
    "SinkStatus": _STATUS,
    "SqlError": _ERRORS,
    "StartStoppedError": _ERRORS,
    "StreamFailedError": _ERRORS,
    "StreamStatus": _STATUS,
    "Trigger": "penstock.trigger",
    "TypeMismatchError": _ERRORS,
    "UnknownNameError": _ERRORS,
    "UnsupportedError": _ERRORS,
    "ViewStatus": _STATUS,
    "build_session": "penstock.spark.sessions.build",
}

__all__ = [
    "AggregateFailedError",
    "CheckpointError",
    "ConnectionFailedError",
    "DamagedError",
    "DuplicateNameError",
    "Engine",
    "FunctionFailedError",
    "InputError",
    "LaneStatus",
    "Matcher",
    "Matches",
    "MistakesError",
    "PenstockError",
    "Run",
    "RunStatus",
    "Settings",
    "SinkFailedError",
    "SinkStatus",
    "SqlError",
    "StartStoppedError",
    "StreamFailedError",
    "StreamStatus",
    "Trigger",
    "TypeMismatchError",
    "UnknownNameError",
    "UnsupportedError",
    "ViewStatus",
    "build_session",
]


# type checkers know the names from above, and find those that do not exist
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
