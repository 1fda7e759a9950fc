"""The page behind an address: uvicorn with limits that it does not have itself."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Sequence

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.page.asking import Script
from penstock.page.folder import FolderReader
from penstock.page.guard import HEADERS
from penstock.page.listening import MOST_CONNECTIONS, Place
from penstock.page.priority import step_back
from penstock.page.routes import Routes
from penstock.spark.storage.store_paths import StorePath

#: bytes of a request's line and headers
_MOST_HEAD = 131_072
#: seconds until a request must be whole, until a client must take what it is sent, and that an idle connection remains
_REQUEST_SECONDS, _TAKING_SECONDS, _IDLE_SECONDS = 10.0, 30.0, 15


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose requests or readers are too slow."""

    _arriving: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection."""
        super().connection_made(transport)
        self._arriving = self._limit(_REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Takes bytes; they prolong neither the time for a request nor that for taking an answer."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            _cancel(self._arriving)
            self._arriving = None
        elif self._arriving is None:
            self._arriving = self._limit(_REQUEST_SECONDS)

    def pause_writing(self) -> None:
        """Waits for a client that does not read."""
        super().pause_writing()
        self._taking = self._limit(_TAKING_SECONDS)

    def resume_writing(self) -> None:
        """Goes on."""
        super().resume_writing()
        _cancel(self._taking)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        _cancel(self._arriving)
        _cancel(self._taking)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request of HTTP, or one whose head is too large."""
        content = json.dumps({"error": f"The page cannot read this request: {msg}"}).encode()
        headers = {
            **HEADERS,
            "content-type": "application/json",
            "cache-control": "no-store",
            "connection": "close",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(
            f"HTTP/1.1 400 Bad Request\r\n{head}content-length: {len(content)}\r\n\r\n".encode() + content
        )
        self.transport.close()

    def _limit(self, seconds: float) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _app(routes: Routes, places: Sequence[Place]) -> ASGIApp:
    """What answers at each address; the page's own thread is that of the first."""
    apps = [routes.app(place.rules, metrics_alone=place.metrics_alone) for place in places]
    names = [place.listening.getsockname()[:2] for place in places]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        at = tuple(scope.get("server") or ())
        # an interface of all addresses has another one in each connection
        here = (
            names.index(at)
            if at in names
            else next((n for n, name in enumerate(names) if name[1:] == at[1:]), 0)
        )
        await apps[here](scope, receive, send)

    return app


class PageServer(uvicorn.Server):
    """The server of one page; `run(sockets=[...])`, with those of its places, serves until `should_exit` is set.

    Args:
        folder: the results folder.
        places: its addresses, at least one.
        awaits: whether the folder may not exist yet, because its run is starting.
        script: by which it answers what needs Spark; None: it does not.

    Raises:
        InputError: it is no results folder, and is not awaited.
    """

    def __init__(
        self,
        folder: str | StorePath,
        places: Sequence[Place],
        *,
        awaits: bool = False,
        script: Script | None = None,
    ) -> None:
        self._routes = Routes(FolderReader(folder, awaits=awaits), script)
        super().__init__(
            uvicorn.Config(
                _app(self._routes, places),
                http=BoundedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=list(HEADERS.items()),
                limit_concurrency=MOST_CONNECTIONS,
                h11_max_incomplete_event_size=_MOST_HEAD,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=2,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the open streams first."""
        self._routes.close()
        await super().shutdown(sockets)


def serve(
    folder: str | StorePath,
    places: Sequence[Place],
    *,
    is_child: bool = False,
    script: Script | None = None,
) -> None:
    """Serve the page of a results folder until a signal ends it.

    Args:
        folder: the results folder.
        places: its addresses, at least one.
        is_child: whether a run started this process: the folder may not exist yet, and the end of standard input ends the page.
        script: by which it answers what needs Spark; None: it does not.

    Raises:
        InputError: it is no results folder.
    """
    server = PageServer(folder, places, awaits=is_child, script=script)
    if is_child:
        # not before: until then the run waits for nothing of it, and its reader does
        step_back(os.getpid())
        threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    server.run(sockets=[place.listening for place in places])


def _end_with_parent(server: uvicorn.Server) -> None:
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    server.should_exit = True
