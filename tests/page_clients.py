"""Many clients of a page, as a program of their own: followers of its changes, readers of its pages, and some that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle

#: seconds between two requests of a reader
_PAUSE = 1.0
#: seconds for which anything may take, and after which a slow request must be closed
_PATIENCE, _CLOSED = 60.0, 20.0
#: bytes of a line: an overview is one
_MOST_LINE = 1 << 24
PATHS = (
    *(
        "/",
        "/api/overview",
        "/api/views?sort=rate",
        "/api/views/large",
        "/api/rows/large?limit=100",
        "/metrics",
    ),
    *("/api/windows", "/api/windows/minutes", "/api/plans", "/api/quarantine", "/static/js/main.js"),
)
HUGE = (
    b"GET /api/views?search=%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (b"x" * 150_000),
    b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Large: %s\r\n\r\n"
    % (b"x" * 30_000),
    b"POST /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
    + b"x" * 1_000_000,
)


@dataclass
class Seen:
    """What the clients saw.

    Attributes:
        statuses: answers to readers, by status.
        seconds: how long each took.
        overviews: overviews that each follower got.
        backwards: overviews that were older than the one before.
        huge: answers to requests that are too large, by status; 0: the connection was closed.
        slow: slow requests that the server closed in time.
        left_open: those that it did not.
        failed: what else went wrong, by kind.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    overviews: list[int] = field(default_factory=list)
    backwards: int = 0
    huge: Counter[int] = field(default_factory=Counter)
    slow: int = 0
    left_open: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class Clients:
    """Ask a page on loopback for some time.

    Args:
        port: of the page.
        seconds: how long.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self.seen = Seen()
        self._port = port
        self._end = time.monotonic() + seconds

    async def all(self, followers: int, readers: int, huge: int, slow: int) -> None:
        """Let so many clients of each kind ask."""
        kinds = (
            (self._follow, followers),
            (self._read, readers),
            (self._ask_too_much, huge),
            (self._ask_slowly, slow),
        )
        await asyncio.gather(
            *(self._lasting(kind, number) for kind, count in kinds for number in range(count))
        )

    async def _lasting(self, kind, number: int) -> None:  # type: ignore[no-untyped-def]
        """Repeats what a client does; clients begin one after the other within a second."""
        await asyncio.sleep(number % 100 / 100)
        while time.monotonic() < self._end:
            try:
                await kind(number)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.seen.failed[f"{kind.__name__}: {type(error).__name__}"] += 1
                await asyncio.sleep(_PAUSE)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST_LINE)

    async def _follow(self, _: int) -> None:
        reader, writer = await self._open()
        count, version = 0, -1
        try:
            writer.write(b"GET /api/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while (left := self._end - time.monotonic()) > 0:
                try:
                    line = await asyncio.wait_for(reader.readline(), left)
                except TimeoutError:
                    break
                if not line:
                    raise OSError("the stream ended")
                if line.startswith(b"data: "):
                    found = json.loads(line.removeprefix(b"data: "))["version"]
                    self.seen.backwards += found < version
                    count, version = count + 1, found
        finally:
            self.seen.overviews.append(count)
            writer.close()

    async def _read(self, number: int) -> None:
        for path in cycle(PATHS[number % len(PATHS) :] + PATHS[: number % len(PATHS)]):
            if time.monotonic() >= self._end:
                return
            began = time.monotonic()
            request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            status = await asyncio.wait_for(self._status(request.encode()), _PATIENCE)
            self.seen.statuses[status] += 1
            self.seen.seconds.append(time.monotonic() - began)
            await asyncio.sleep(_PAUSE)

    async def _status(self, request: bytes) -> int:
        """The status of an answer, once all of it was read; 0: none."""
        reader, writer = await self._open()
        try:
            writer.write(request)
            await writer.drain()
            line = await reader.readline()
            while await reader.read(1 << 16):
                pass
            return int(line.split()[1]) if line else 0
        finally:
            writer.close()

    async def _ask_too_much(self, number: int) -> None:
        try:
            status = await asyncio.wait_for(self._status(HUGE[number % len(HUGE)]), _PATIENCE)
        except ConnectionError:
            status = 0
        self.seen.huge[status] += 1
        await asyncio.sleep(_PAUSE)

    async def _ask_slowly(self, _: int) -> None:
        reader, writer = await self._open()
        began = time.monotonic()
        try:
            for byte in b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 1_000:
                writer.write(bytes([byte]))
                try:
                    await asyncio.wait_for(reader.read(), 1.0)
                except TimeoutError:
                    if time.monotonic() - began < _CLOSED:
                        continue
                    self.seen.left_open += 1
                    return
                except ConnectionError:
                    pass
                self.seen.slow += 1
                return
        finally:
            writer.close()


def main() -> None:
    """Print what the clients saw, as JSON; arguments: the port, seconds, and how many clients of each kind."""
    port, seconds, *counts = map(int, sys.argv[1:])
    # clients are on other machines: the run and its page come first
    os.nice(5)
    clients = Clients(port, seconds)
    asyncio.run(clients.all(*counts))
    print(json.dumps(vars(clients.seen)))


if __name__ == "__main__":
    main()
