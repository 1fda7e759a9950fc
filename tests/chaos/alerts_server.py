"""A server of alerts that may be killed: `python alerts_server.py PORT FILE MULTIPLE` adds each request to a file before it answers.

A line is the idempotency key, a tab and the body. A body that has a row whose id is a multiple of a number is refused with 400.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _kept(path: Path) -> int:
    """The file, open to be added to; a line that a kill has cut off is removed."""
    if path.exists():
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def main(port: str, file: str, multiple: str) -> None:
    kept, refused = _kept(Path(file)), int(multiple)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if any(row["id"] % refused == 0 for row in json.loads(body)["rows"]):
                self.send_response(400, "one row is not welcome")
            else:
                os.write(kept, self.headers["Idempotency-Key"].encode() + b"\t" + body + b"\n")
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
