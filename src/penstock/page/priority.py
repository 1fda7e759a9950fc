"""What processes of the page leave to the run beside them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_NICE = 10


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
