"""What processes of the page leave to the run beside them, and what remains of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_NICE = 5


def step_back(process: int) -> None:
    """Give a process, which leads a session of its own, a small share of busy processors.

    Linux shares processors between sessions first; the number of a session then counts, not that of its processes (sched(7), autogroup).

    Args:
        process: its number.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, _NICE)
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(_NICE), encoding="ascii")


def attend(command: Sequence[str]) -> int:
    """Run a command in the background, until it ends or the standard input of this process is closed.

    A process closes its end of a pipe however it ends, so the command ends with whoever asked for it. The JVM and workers of the command end with it,
    and their temporary files, those of Spark too, are removed.

    Args:
        command: the program and its arguments.

    Returns:
        The command's exit code; negative: the signal that ended it.
    """
    step_back(os.getpid())
    with tempfile.TemporaryDirectory(prefix="penstock-question-", ignore_cleanup_errors=True) as folder:
        java = f'"-Djava.io.tmpdir={folder}"'
        own = {
            "TMPDIR": folder,
            "SPARK_LOCAL_DIRS": folder,
            "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {java}".strip(),
        }
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env={**os.environ, **own}, process_group=0
        )
        threading.Thread(target=_end_with_input, args=(process.pid,), daemon=True).start()
        return process.wait()


def _end_with_input(group: int) -> None:
    os.read(sys.stdin.fileno(), 1)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(attend(sys.argv[1:]))
