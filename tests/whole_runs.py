"""Runs over what is there."""

from __future__ import annotations

from pathlib import Path

from penstock import Engine, Run, Trigger


def run_to_end(
    engine: Engine, output: Path | str, *, ended: bool = False, seconds: float | None = 300
) -> Run:
    """A run that has answered what is there, and is stopped.

    Args:
        engine: its engine.
        output: the results folder.
        ended: whether the input is complete.
        seconds: how long it may take; None: as long as a test may.
    """
    run = engine.start(output, trigger=Trigger.available_now(ended=ended))
    assert run.await_termination(seconds)
    run.stop()
    return run
