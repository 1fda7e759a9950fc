"""A process that is killed as it is about to make a system call: at each of those that change files, one run after the other."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import traceback
from collections.abc import Callable

#: requests of ptrace
_TRACE_ME, _PEEK_USER, _CONTINUE_TO_CALL, _KILL_WITH_ME = 0, 3, 24, 0x100000
_SET_OPTIONS, _MARK_CALLS, _FOLLOW_THREADS = 0x4200, 1, 8
#: of waiting: threads count as children too
_THREADS_TOO = 0x40000000
_CALL = signal.SIGTRAP | 0x80
#: where the number of the call is among the registers of x86-64, and the numbers of the calls that change files: write, pwrite,
#: writev, pwritev, fsync, fdatasync, truncate, ftruncate, rename, mkdir, link, unlink, openat, mkdirat, unlinkat, renameat,
#: linkat, renameat2
_NUMBER = 120
_CHANGING = {1, 18, 20, 296, 74, 75, 76, 77, 82, 83, 86, 87, 257, 258, 263, 264, 265, 316}


def killed_before(call: int, function: Callable[[], object]) -> bool:
    """Run a function in a forked process that is killed before one of its calls.

    Args:
        call: which, counted from 0 over those of all its threads that change files.
        function: ends by itself where it makes fewer calls.

    Returns:
        Whether the process was killed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    child = os.fork()
    if not child:
        # a group of its own: whoever waits for its threads waits for no other child
        os.setpgid(0, 0)
        libc.ptrace(_TRACE_ME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
    if libc.ptrace(_SET_OPTIONS, child, None, _MARK_CALLS | _FOLLOW_THREADS | _KILL_WITH_ME) < 0:
        raise OSError(ctypes.get_errno(), "processes cannot be traced here")
    seen = 0
    within: set[int] = set()
    libc.ptrace(_CONTINUE_TO_CALL, child, None, None)
    while True:
        thread, status = os.waitpid(-child, _THREADS_TOO)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread != child:
                continue
            assert status == 0, "the process failed"
            return False
        if os.WSTOPSIG(status) == _CALL and thread in within:
            within.remove(thread)
        elif os.WSTOPSIG(status) == _CALL:
            within.add(thread)
            if _changes(libc, thread):
                if seen == call:
                    os.kill(child, signal.SIGKILL)
                    while os.waitpid(-child, _THREADS_TOO)[0] != child:
                        pass
                    return True
                seen += 1
        libc.ptrace(_CONTINUE_TO_CALL, thread, None, None)


def _changes(libc: ctypes.CDLL, child: int) -> bool:
    """Whether a process is about to change a file; where calls have other numbers, whether it is about to make a call."""
    return platform.machine() != "x86_64" or libc.ptrace(_PEEK_USER, child, _NUMBER, None) in _CHANGING


def can_trace() -> bool:
    """Whether this machine lets processes be traced."""
    try:
        killed_before(1 << 30, lambda: None)
    except OSError:
        return False
    return True
