"""Stands before every answer of the page: methods, Host, token, sizes; and the headers that every answer has."""

from __future__ import annotations

import hmac
import html
from collections.abc import Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.page.answers import encoded
from penstock.page.listening import Rules

_COOKIE = "penstock_token"
#: bytes of an address with its parameters: names may have 10,000 characters, each of up to nine bytes
MOST_ADDRESS = 100_000
#: bytes of all headers
_MOST_HEADERS = 16_384
#: the headers of every answer; uvicorn adds them, so that its own errors have them too
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


#: a page in words
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock</title>'
    '<link rel="stylesheet" href="/static/css/system.css"></head>'
    '<body><main><h1>Penstock cannot show this</h1><p>{sentence}</p><p><a href="/">Open the overview</a></p></main></body></html>'
)


class Guard:
    """Refuses what the page does not answer, before anything looks at it.

    Args:
        app: answers the rest.
        rules: who may ask.
    """

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        # names in addresses may have slashes: what is between two slashes of the address is decoded afterwards
        await self._app({**scope, "path": scope["raw_path"].decode("ascii")}, receive, sent)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return Refusal(405, "The page is read-only: it answers GET and HEAD.", {"allow": "GET, HEAD"})
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_ADDRESS:
            return Refusal(413, f"The address is longer than {MOST_ADDRESS:,} characters.")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            return Refusal(413, f"The headers have more than {_MOST_HEADERS:,} bytes.")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return Refusal(413, "The page answers no request with a body.", {"connection": "close"})
        if self._rules.is_loopback and not _is_loopback(headers.get("host", "")):
            return Refusal(
                400,
                "The Host header must name this machine: localhost or a loopback address, as 127.0.0.1 or [::1].",
            )
        return None if self._rules.token is None else self._unless_known(scope, headers, self._rules.token)

    def _unless_known(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == "token" and _same(value, token) for name, value in query):
            # the token leaves the address, which is shown, kept in histories and sent to others
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            location = scope["raw_path"].decode("ascii") + (f"?{rest}" if rest else "")
            # two slashes at the beginning would name another host
            response = Response(status_code=303, headers={"location": f"/{location.lstrip('/')}"})
            response.set_cookie(_COOKIE, token, httponly=True, samesite="strict", path="/")
            return response
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), token):
            return None
        if any(_same(value, token) for value in _cookies(headers)):
            return None
        return Refusal(
            401,
            "This page wants its token: open the address that was printed at the start, or send it as a Bearer token.",
            {"www-authenticate": "Bearer"},
        )


class Refusal(Response):
    """An error: JSON for programs, a page in words for a browser.

    Args:
        status: of HTTP.
        sentence: what is wrong.
        headers: beside the usual ones.
    """

    def __init__(self, status: int, sentence: str, headers: MutableMapping[str, str] | None = None) -> None:
        super().__init__(encoded({"error": sentence}), status, headers, "application/json")
        self._sentence = sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request in the form that it accepts."""
        if not is_browser(Headers(scope=scope)):
            await super().__call__(scope, receive, send)
            return
        kept = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        words = _PAGE.format(sentence=html.escape(self._sentence)).encode("utf-8", "replace")
        await HTMLResponse(words, self.status_code, kept)(scope, receive, send)


def is_browser(headers: Headers) -> bool:
    """Whether a request asks for a page, as the address bar of a browser does."""
    return "text/html" in headers.get("accept", "")


def _is_loopback(header: str) -> bool:
    """Whether a Host header has localhost or a loopback address; any other name may lead here from a foreign page."""
    name, colon, port = header.strip().lower().rpartition(":")
    host = name if colon and port.isdigit() else header.strip().lower()
    if host == "localhost":
        return True
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        return False
    return address.is_loopback and is_bracketed == (address.version == 6)


def _cookies(headers: Headers) -> Iterable[Any]:
    for header in headers.getlist("cookie"):
        try:
            cookie = SimpleCookie(header)
        except CookieError:
            continue
        if _COOKIE in cookie:
            yield cookie[_COOKIE].value


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
