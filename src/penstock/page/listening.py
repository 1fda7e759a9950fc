"""The address of the page, and who may ask there."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import quote

from penstock.errors import InputError

LOOPBACK, DEFAULT_PORT = "127.0.0.1", 4088
#: environment variable with the token; a command line can be read by other users of the machine
TOKEN_VARIABLE = "PENSTOCK_PAGE_TOKEN"
#: the like by which a run tells its page the token of the metrics alone
METRICS_TOKEN_VARIABLE = "PENSTOCK_METRICS_TOKEN"
#: connections at a time; those beyond get 503
MOST_CONNECTIONS = 500


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask.

    Attributes:
        token: what a request has to bring; None: nothing.
        is_loopback: whether this machine alone can connect; the Host header must then name it.
    """

    token: str | None
    is_loopback: bool


@dataclass(frozen=True, slots=True)
class Place:
    """An address that the page answers.

    Attributes:
        listening: see `listen`.
        rules: who may ask there.
        metrics_alone: whether /metrics is all that it answers there.
    """

    listening: socket.socket
    rules: Rules
    metrics_alone: bool = False

    @classmethod
    def taken(cls, host: str, port: int, token: str | None, *, metrics_alone: bool = False) -> Place:
        """Take an address.

        Args:
            host, port: see `listen`.
            token: what requests have to bring, if one is given.
            metrics_alone: see above.

        Raises:
            InputError: as `listen`.
        """
        return cls.of(listen(host, port), token, metrics_alone=metrics_alone)

    @classmethod
    def of(cls, listening: socket.socket, token: str | None, *, metrics_alone: bool = False) -> Place:
        """An address that was taken; an interface that other machines reach has a token in any case."""
        local = is_loopback(listening)
        return cls(
            listening, Rules(token or (None if local else secrets.token_urlsafe(24)), local), metrics_alone
        )

    @property
    def address(self) -> str:
        """What a browser opens."""
        host, port = self.listening.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            host = socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        token = self.rules.token
        return f"http://{shown}:{port}/{'metrics' if self.metrics_alone else ''}" + (
            f"?token={quote(token, safe='')}" if token else ""
        )


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
        listening.listen(MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise InputError(
            f"The page cannot use {host}:{port}: {error.strerror}. Name another port, or 0 for a free one."
        ) from None
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Whether this machine alone can connect."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback
