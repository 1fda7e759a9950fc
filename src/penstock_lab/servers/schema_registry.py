"""A schema registry on loopback that keeps the REST contract of Confluent's: subjects, versions and the numbers of schemas."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock_lab.servers.http_server import LoopbackHttpServer

_TYPE = "application/vnd.schemaregistry.v1+json"
#: what the registry has not: subject, version, schema
_SUBJECT, _VERSION, _SCHEMA = 40401, 40402, 40403
_BY_NUMBER = re.compile(r"/schemas/ids/(\d+)")
_VERSIONS = re.compile(r"/subjects/([^/]+)/versions")
_ONE_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)")


@dataclass(frozen=True, slots=True)
class _Registered:
    number: int
    kind: str
    text: str
    references: tuple[dict[str, Any], ...]

    def told(self) -> dict[str, Any]:
        """As answers have it: the type is left out of Avro, as Confluent's registry does."""
        kind = {} if self.kind == "AVRO" else {"schemaType": self.kind}
        references = {"references": list(self.references)} if self.references else {}
        return {"schema": self.text, **kind, **references}


class SchemaRegistryServer(LoopbackHttpServer):
    """A registry in memory. Of Protobuf it takes and gives serialized FileDescriptorProtos in base 64, not their source.

    Args:
        user_info: `user:password` that requests need; None: none.

    Attributes:
        is_failing: whether each request is answered with 500.
        requests: how many there were, by path.
    """

    def __init__(self, user_info: str | None = None) -> None:
        self.is_failing = False
        self.requests: Counter[str] = Counter()
        self._token = None if user_info is None else base64.b64encode(user_info.encode()).decode()
        self._subjects: dict[str, list[_Registered]] = {}
        self._schemas: list[_Registered] = []
        self._guard = threading.Lock()
        super().__init__(self._handler())

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: tuple[dict[str, Any], ...] = ()
    ) -> int:
        """Add a version to a subject, unless it has this schema, and return the schema's number."""
        with self._guard:
            known = next(
                (each for each in self._schemas if (each.kind, each.text) == (kind, text)),
                None,
            )
            if known is None:
                known = _Registered(len(self._schemas) + 1, kind, text, references)
                self._schemas.append(known)
            versions = self._subjects.setdefault(subject, [])
            if known not in versions:
                versions.append(known)
            return known.number

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """The status and the document that answer a request."""
        path = urlsplit(target).path
        self.requests[path] += 1
        if self.is_failing:
            return 500, {"error_code": 50001, "message": "Error in the backend data store"}
        if method == "POST" and (found := _VERSIONS.fullmatch(path)):
            given = json.loads(body)
            number = self.register(
                unquote(found[1]),
                given["schema"],
                given.get("schemaType", "AVRO"),
                tuple(given.get("references", ())),
            )
            return 200, {"id": number}
        if path == "/subjects":
            return 200, list(self._subjects)
        if found := _BY_NUMBER.fullmatch(path):
            number = int(found[1])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": _SCHEMA, "message": f"Schema {number} not found"}
            return 200, self._schemas[number - 1].told()
        if found := _VERSIONS.fullmatch(path) or _ONE_VERSION.fullmatch(path):
            return self._of_subject(unquote(found[1]), found[2] if found.lastindex == 2 else None)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _of_subject(self, subject: str, version: str | None) -> tuple[int, Any]:
        versions = self._subjects.get(subject)
        if versions is None:
            return 404, {"error_code": _SUBJECT, "message": f"Subject '{subject}' not found."}
        if version is None:
            return 200, list(range(1, len(versions) + 1))
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return 404, {"error_code": _VERSION, "message": f"Version {number} not found."}
        found = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": found.number, **found.told()}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply("GET")

            def do_POST(self) -> None:
                self._reply("POST")

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

            def _reply(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if (
                    server._token is not None
                    and self.headers.get("Authorization") != f"Basic {server._token}"
                ):
                    status, told = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, told = server.answer(method, self.path, body)
                content = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        return Handler
