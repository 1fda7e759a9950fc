"""The page behind an address: uvicorn with limits that it does not have itself."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import InputError
from penstock.page.folder import FolderReader
from penstock.page.guard import HEADERS, Rules
from penstock.page.routes import Routes

LOOPBACK, DEFAULT_PORT = "127.0.0.1", 4088
#: environment variable with the token; a command line can be read by other users of the machine
TOKEN_VARIABLE = "PENSTOCK_PAGE_TOKEN"
#: connections at a time; those beyond get 503
_MOST_CONNECTIONS = 500
#: bytes of a request's line and headers
_MOST_HEAD = 131_072
#: seconds until a request must be whole, until a client must take what it is sent, and that an idle connection remains
_REQUEST_SECONDS, _TAKING_SECONDS, _IDLE_SECONDS = 10.0, 30.0, 15


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose requests or readers are too slow."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection."""
        super().connection_made(transport)
        self._limit(_REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Takes bytes; the time for a request is not prolonged by them."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unlimit()
        elif self._timer is None:
            self._limit(_REQUEST_SECONDS)

    def pause_writing(self) -> None:
        """Waits for a client that does not read."""
        super().pause_writing()
        self._limit(_TAKING_SECONDS)

    def resume_writing(self) -> None:
        """Goes on."""
        super().resume_writing()
        self._unlimit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._unlimit()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request of HTTP, or one whose head is too large."""
        content = json.dumps({"error": f"This is no request that the page answers: {msg}"}).encode()
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

    def _limit(self, seconds: float) -> None:
        self._unlimit()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _unlimit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def listen(host: str, port: int) -> socket.socket:
    """Take an address; connections wait until `serve` answers them.

    Args:
        host: a name or address of this machine.
        port: 0 for a free one.

    Raises:
        InputError: the host has no address, or is none of this machine's; or the port is in use, or not allowed.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError, OverflowError):
        raise InputError(f"Page address {host}:{port}: {host} is not a host name or address.") from None
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise InputError(
            f"The page cannot use {host}:{port}: {error.strerror}. Name another port, or 0 for a free one."
        ) from None
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Whether this machine alone can connect."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def rules_of(listening: socket.socket, token: str | None) -> Rules:
    """Who may ask; an interface that other machines reach has a token in any case.

    Args:
        listening: see `listen`.
        token: what requests have to bring, if one is given.
    """
    local = is_loopback(listening)
    return Rules(token or (None if local else secrets.token_urlsafe(24)), local)


def address_of(listening: socket.socket, token: str | None) -> str:
    """The address that a browser opens.

    Args:
        listening: see `listen`.
        token: see `Rules`.
    """
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def serve(folder: Path, listening: socket.socket, rules: Rules, *, is_child: bool = False) -> None:
    """Serve the page of a results folder until a signal ends it.

    Args:
        folder: the results folder.
        listening: see `listen`.
        rules: who may ask.
        is_child: whether a run started this process: the folder may not exist yet, and the end of standard input ends the page.

    Raises:
        InputError: it is no results folder.
    """
    reader = FolderReader(folder, awaits=is_child)
    routes = Routes(reader)
    server = _Server(routes, rules)
    if is_child:
        threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    with listening:
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, routes: Routes, rules: Rules) -> None:
        self._routes = routes
        super().__init__(
            uvicorn.Config(
                routes.app(rules),
                http=BoundedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=list(HEADERS.items()),
                limit_concurrency=_MOST_CONNECTIONS,
                h11_max_incomplete_event_size=_MOST_HEAD,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=2,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the open streams first."""
        self._routes.close()
        await super().shutdown(sockets)


def _end_with_parent(server: uvicorn.Server) -> None:
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    server.should_exit = True
