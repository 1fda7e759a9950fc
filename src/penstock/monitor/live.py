"""A reporter for terminals: one line a stream, renewed in place; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.monitor.snapshot import StreamSnapshot

_PLAIN_SECONDS = 5.0


def follow(
    console: Console,
    read: Callable[[], Sequence[StreamSnapshot]],
    wait: Callable[[float], bool],
    every_seconds: float = 0.5,
) -> None:
    """Shows snapshots until the run has ended.

    Args:
        console: where to.
        read: takes a snapshot.
        wait: waits at most that many seconds for the end; True once it has come.
        every_seconds: time between two snapshots on a terminal.
    """
    if not console.is_terminal:
        _follow_plainly(console, read, wait)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        ended = False
        while not ended:
            ended = wait(every_seconds)
            live.update(
                Text("\n".join(stream.line() for stream in read()), overflow="ellipsis"), refresh=True
            )


def _follow_plainly(
    console: Console, read: Callable[[], Sequence[StreamSnapshot]], wait: Callable[[float], bool]
) -> None:
    shown: list[StreamSnapshot] = []
    last = time.monotonic()
    ended = False
    while not ended:
        ended = wait(0.5)
        now = time.monotonic()
        if ended or now - last >= _PLAIN_SECONDS:
            last = now
            snapshots = list(read())
            if snapshots != shown:
                shown = snapshots
                for stream in snapshots:
                    console.print(stream.line(), soft_wrap=True, highlight=False, markup=False)
