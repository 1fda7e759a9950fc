"""Processes that get killed.

A program of `chaos/` starts Spark, and leads a session of its own, which ends with it. A function needs no Spark: it runs in a
process that is forked, in some milliseconds, from one that has loaded what writes files and logs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from penstock.spark.storage import failpoints

#: a start takes some 15 s, many times that on a machine that does other things too
MOST_SECONDS = 900
#: the names of all failpoints
_PLACES = {name for of, names in vars(failpoints).items() if of.endswith("NAMES") for name in names}
#: what the process has loaded that others are forked from
_LOADED = ["pytest", "warmed"]


def forked(
    function: Callable[..., object], *arguments: object, failpoint: str = "", log: Path | None = None
) -> int:
    """Calls a function in a process of its own, and ends what it has left behind; the exit code, -9 where it was killed.

    Args:
        function: one that the process can import.
        arguments: of the function.
        failpoint: where it is to kill itself, see `penstock.spark.storage.failpoints`.
        log: what it says is added to it.
    """
    process = forking(function, *arguments, failpoint=failpoint, log=log)
    try:
        process.join(MOST_SECONDS)
    finally:
        _end_session(process)
    assert process.exitcode is not None, "in time"
    return process.exitcode


def forking(
    function: Callable[..., object], *arguments: object, failpoint: str = "", log: Path | None = None
) -> ForkServerProcess:
    """Begins such a call; the arguments are those of `forked`."""
    name = failpoint.partition("@")[0].partition(":")[0]
    assert not name or name in _PLACES, f"there is no place {name} to be killed at"
    process = loaded_context().Process(target=_call, args=(failpoint, log, function, *arguments))
    process.start()
    return process


@cache
def loaded_context() -> ForkServerContext:
    """What starts processes that have loaded what they need; the one they are forked from looks for that where this one does."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def _call(failpoint: str, log: Path | None, function: Callable[..., object], *arguments: object) -> None:
    # what it starts ends with it
    os.setsid()
    if log is not None:
        told = log.open("ab")
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
    os.environ["PENSTOCK_FAILPOINT"] = failpoint
    # a process that is killed loses nothing that it has written
    os.fsync = lambda _: None
    function(*arguments)


def started(
    program: str, *arguments: object, log: Path, failpoint: str = "", prefix: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Starts a program of `chaos/`.

    Args:
        program: the name of its file.
        arguments: of its command line.
        log: what it says is added to it.
        failpoint: where it is to kill itself, see `penstock.spark.storage.failpoints`.
        prefix: a command that runs another one.
    """
    command = [*prefix, sys.executable, str(Path(__file__).parent / "chaos" / program), *map(str, arguments)]
    environment = {**os.environ, "PENSTOCK_FAILPOINT": failpoint}
    with log.open("ab") as told:
        return subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a process and ends what it has left behind, its JVM and Python workers; the exit code."""
    try:
        return process.wait(MOST_SECONDS)
    finally:
        _end_session(process)


def killed(process: subprocess.Popen[bytes]) -> int:
    """Kills a process and all of its session; the exit code, which is another one where it had ended before."""
    process.kill()
    _end_session(process)
    return process.wait()


def _end_session(leader: subprocess.Popen[bytes] | ForkServerProcess) -> None:
    """Kills the processes of a session, and waits until none of them runs."""
    assert leader.pid is not None
    deadline = time.monotonic() + MOST_SECONDS
    while running := running_in(leader.pid):
        assert time.monotonic() < deadline, running
        for each in running:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.01)


def running_in(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # behind the name: state, parent, group, session
            state, _, _, own = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(own) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found
