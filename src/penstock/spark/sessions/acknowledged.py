"""What Java sends this process or a Python worker, acknowledged at once.

What Java writes in several pieces waits: it holds the second one back until the first is acknowledged (Nagle's algorithm), and Linux acknowledges late, to
save packets. That took 44 ms for each answer of more than 8 KB, such as the tree of a query, and 41 ms for each task of a worker
(docs/decisions/0143).
"""

from __future__ import annotations

import io
import os
import socket
import stat
from types import ModuleType, SimpleNamespace
from typing import Any

from pyspark import SparkContext

#: systems without it do not acknowledge late, or cannot be asked not to
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)


class Acknowledged(io.RawIOBase):
    """What comes by a connection. Linux forgets that it was asked to acknowledge at once, so it is asked before each read.

    Args:
        connected: the socket.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._is_late = _QUICK is not None and connected.family != socket.AF_UNIX

    def readable(self) -> bool:
        """True."""
        return True

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()

    def readinto(self, buffer: Any) -> int:
        """Waits for what comes next; 0 at the end.

        Raises:
            OSError: the connection is broken.
        """
        if self._is_late:
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)  # type: ignore[arg-type]
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Closes the socket as well."""
        if not self.closed:
            self._socket.close()
        super().close()


class _Connected:
    """What py4j calls with the connection of a thread, once it has one.

    Args:
        before: what it called before.
    """

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, connection: Any) -> None:
        _read_promptly(connection)
        self._before(connection)


def acknowledge_answers() -> None:
    """Lets every thread of this process read Java's answers so, once there is a session; to be called again does no harm."""
    client = getattr(SparkContext._gateway, "_gateway_client", None)
    connected = getattr(client, "set_thread_connection", None)
    if client is None or connected is None or isinstance(connected, _Connected):
        return
    client.set_thread_connection = _Connected(connected)
    own = client.get_thread_connection()
    if own is not None:
        _read_promptly(own)


def acknowledge_tasks(daemon: ModuleType) -> None:
    """Lets the workers that a daemon forks read their tasks so.

    Args:
        daemon: pyspark's, which opens what comes by a worker's socket with `os.fdopen`.
    """

    def fdopen(number: int, mode: str = "r", buffering: int = -1, *others: Any, **named: Any) -> Any:
        if mode != "rb" or not stat.S_ISSOCK(os.fstat(number).st_mode):
            return os.fdopen(number, mode, buffering, *others, **named)
        return io.BufferedReader(Acknowledged(socket.socket(fileno=number)), buffering)

    daemon.os = SimpleNamespace(**{**vars(os), "fdopen": fdopen})  # type: ignore[attr-defined]


def _read_promptly(connection: Any) -> None:
    """Nothing that has come by the connection is unread: it is new, or waits for a command."""
    connection.stream = io.BufferedReader(Acknowledged(connection.socket))
