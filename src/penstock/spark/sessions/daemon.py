"""The Python worker daemon, with the workers' modules loaded and the kernels compiled before it forks.

Named by `spark.python.daemon.module`; without it everything works, the first batches slower. It and its workers do not end by SIGTERM
or SIGINT, which `timeout` and systemd send to every process there is: a run that stops still needs them. Java ends the daemon by closing
its standard input, and the daemon a worker by SIGHUP or SIGKILL.
"""

from __future__ import annotations

import gc
import os
import signal
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pyspark import daemon

from penstock.operators.ingest import json_decode
from penstock.operators.rules import matcher as rules
from penstock.operators.selection import selector as selection
from penstock.operators.windows import required_slack, spreading
from penstock.operators.wire import value_decoder
from penstock.spark.sessions.acknowledged import acknowledge_tasks

_PASSED_OVER = (signal.SIGTERM, signal.SIGINT)


def _pass_over(*_: object) -> None:
    """Does nothing. What a worker's function starts by a command gets the signals as ever, which it would not if they were ignored."""


def _put(number: int, handler: Any) -> Any:
    """As `signal.signal`, but for the signals that are passed over."""
    if number not in _PASSED_OVER:
        return signal.signal(number, handler)
    before = signal.signal(number, _pass_over)
    # calls of C libraries go on behind it
    signal.siginterrupt(number, False)
    return before


def _be_deaf() -> None:
    """Has this process and its workers pass over the signals, whatever pyspark sets; processes that a worker forks do not."""
    daemon.signal = SimpleNamespace(**{**vars(signal), "signal": _put})  # type: ignore[assignment, attr-defined]
    own = os.getpid()
    for number in _PASSED_OVER:
        _put(number, _pass_over)

    def hear() -> None:
        if os.getppid() != own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    os.register_at_fork(after_in_child=hear)


if __name__ == "__main__":
    _be_deaf()
    acknowledge_tasks(daemon)
    for module in ("windows.shard_task", "deadlines.orders"):
        import_module(f"penstock.spark.lanes.{module}")
    for module in ("json_files", "json_stage", "scan_stage", "dataframe_stage", "value_stage"):
        import_module(f"penstock.spark.tasks.{module}")
    selection.warm_up()
    rules.warm_up()
    json_decode.warm_up()
    value_decoder.warm_up()
    required_slack.warm_up()
    spreading.warm_up()
    # a worker collects garbage after every task: let it pass over all that is loaded here
    gc.freeze()
    daemon.manager()
