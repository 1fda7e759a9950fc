"""Whether a process of this machine still runs; by the files of Linux, without which a number alone counts."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: seconds by which the start of a process and a moment on the clock may differ
_ACCURACY = 1.0


def is_running(process: int, moment: float) -> bool:
    """Return whether a process still runs that ran at a moment, and not another one that got its number later.

    Args:
        process: its number on this machine.
        moment: seconds since the epoch.
    """
    try:
        # the name of the program, in parentheses, may have any character
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return not Path("/proc/self/stat").exists() and _exists(process)
    state, ticks = fields[0], int(fields[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return state not in "ZX" and booted + ticks / os.sysconf("SC_CLK_TCK") <= moment + _ACCURACY


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
