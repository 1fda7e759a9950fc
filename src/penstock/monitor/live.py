"""A reporter for terminals: one line a stream and lane, renewed in place; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.errors import StreamFailedError
from penstock.monitor.snapshot import LaneSnapshot, StreamSnapshot
from penstock.monitor.troubles import AGAIN_SECONDS, TroubleSnapshot

_PLAIN_SECONDS = 5.0
Snapshot = StreamSnapshot | LaneSnapshot | TroubleSnapshot


def follow(
    console: Console,
    read: Callable[[], Sequence[Snapshot]],
    wait: Callable[[float], bool],
    news: Callable[[], Sequence[str]] = tuple,
    every_seconds: float = 0.5,
) -> None:
    """Shows snapshots until the run has ended.

    Args:
        console: where to.
        read: takes a snapshot.
        wait: waits at most that many seconds for the end; True once it has come.
        news: what has happened since the last call and is to be read, a line each.
        every_seconds: time between two snapshots on a terminal.

    Raises:
        StreamFailedError: what `wait` raises, after the last snapshot.
    """
    if not console.is_terminal:
        _follow_plainly(console, read, wait, news)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:

        def show() -> None:
            _tell(console, news)
            lines = "\n".join(stream.line() for stream in read())
            live.update(Text(lines, overflow="ellipsis"), refresh=True)

        while not _has_ended(wait, every_seconds, show):
            show()
        show()


def _follow_plainly(
    console: Console,
    read: Callable[[], Sequence[Snapshot]],
    wait: Callable[[float], bool],
    news: Callable[[], Sequence[str]],
) -> None:
    shown: list[str] = []
    failing: dict[str, float] = {}
    last = time.monotonic()

    def show() -> None:
        nonlocal shown, failing, last
        _tell(console, news)
        last = now = time.monotonic()
        snapshots = list(read())
        troubles = [each for each in snapshots if isinstance(each, TroubleSnapshot)]
        due = [each for each in troubles if now - failing.get(each.key, -AGAIN_SECONDS) >= AGAIN_SECONDS]
        failing = {each.key: failing.get(each.key, now) for each in troubles}
        failing |= {each.key: now for each in due}
        lines = [each.line() for each in snapshots if each not in troubles]
        changed = [line for line in lines if line not in shown]
        for line in (*(each.line() for each in due), *changed):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        shown = lines

    while not _has_ended(wait, 0.5, show):
        if time.monotonic() - last >= _PLAIN_SECONDS:
            show()
        else:
            _tell(console, news)
    show()


def _has_ended(wait: Callable[[float], bool], seconds: float, show: Callable[[], None]) -> bool:
    """What `wait` says; where it raises that something failed, the rest has ended and is shown first."""
    try:
        return wait(seconds)
    except StreamFailedError:
        show()
        raise


def _tell(console: Console, news: Callable[[], Sequence[str]]) -> None:
    for line in news():
        console.print(line, style="yellow", soft_wrap=True, highlight=False, markup=False)
