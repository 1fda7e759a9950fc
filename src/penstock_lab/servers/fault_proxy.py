"""A proxy on loopback between a store and its clients that fails as networks and servers do."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from penstock_lab.servers.http_server import LoopbackHttpServer

#: what is done to a request: nothing, an answer 503, no connection, an answer that is lost although the request was carried out
PASS, REFUSED, DROPPED, REPLY_LOST = "pass", "503", "dropped", "reply lost"
#: answers of a server that would not do what it was asked for, however often it was
DENIED, REDIRECTED = "denied", "redirected"
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
_ANSWERS = {
    REFUSED: (503, "SlowDown"),
    DENIED: (403, "AccessDenied"),
    REDIRECTED: (301, "PermanentRedirect"),
}


class FaultProxy(LoopbackHttpServer):
    """Forwards HTTP requests to a server.

    Args:
        endpoint: address of the server, such as `http://127.0.0.1:8333`.

    Attributes:
        fault: given method and path of a request, what is done to it; called from many threads.
        delay: each reply waits so many seconds.
        is_unconditional: whether conditions of writes are ignored, as simple servers do.
        requests: how many requests came, by method.
        bytes_in, bytes_out: of all requests and all replies.
    """

    def __init__(self, endpoint: str) -> None:
        self.fault: Callable[[str, str], str] = lambda *_: PASS
        self.delay = 0.0
        self.is_unconditional = False
        self.requests: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = 0
        self._target = urlsplit(endpoint).netloc
        self._guard = threading.Lock()
        super().__init__(self._handler())

    @property
    def endpoint(self) -> str:
        """The address of the proxy."""
        return self.url

    def first(self, fault: str, matches: Callable[[str, str], bool], times: int = 1) -> None:
        """Does something to the first requests that match, and passes all others."""
        left = [times]

        def faulty(method: str, path: str) -> str:
            with self._guard:
                if not left[0] or not matches(method, path):
                    return PASS
                left[0] -= 1
                return fault

        self.fault = faulty

    def _forwarded(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy._guard:
                    proxy.requests[self.command] += 1
                    proxy.bytes_in += len(body)
                fault = proxy.fault(self.command, self.path)
                time.sleep(proxy.delay)
                if fault in _ANSWERS:
                    status, code = _ANSWERS[fault]
                    self._reply(
                        status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                    )
                    return
                if fault != DROPPED:
                    status, headers, content = proxy._forwarded(self.command, self.path, self.headers, body)
                if proxy.is_unconditional and status == 412:
                    status, content = 200, b""
                    headers["ETag"] = '"1"'
                if fault != PASS:
                    self.close_connection = True
                    return
                self._reply(status, headers, content)

            def _reply(self, status: int, headers: Any, content: bytes) -> None:
                with proxy._guard:
                    proxy.bytes_out += len(content)
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler
