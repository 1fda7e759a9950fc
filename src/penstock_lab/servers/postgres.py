"""A real PostgreSQL on the loopback address: one server process, from Debian's package `postgresql`."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from penstock.errors import ConnectionFailedError, PenstockError
from penstock_lab.servers.processes import LOOPBACK, ServerProcess, free_port, is_listened_to, stop_recorded

_NAME = "postgres"
#: it refuses to run as root
_USER = "postgres"
_OWNER, _PASSWORD, _DATABASE = "penstock", "penstock-secret", "penstock"
_INSTALLED = Path("/usr/lib/postgresql")
_MOST_SECONDS = 30.0


class PostgresServer:
    """A server with the database `penstock`, which the user `penstock` owns.

    Args:
        data: folder for its files and log.
        port: TCP port on 127.0.0.1; a free one by default.

    Attributes:
        user, password: who owns the database.

    Raises:
        ConnectionFailedError: PostgreSQL is not installed.
    """

    user, password = _OWNER, _PASSWORD

    def __init__(self, data: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self._is_known = port is not None
        self._programs = _programs()
        self._data = data.absolute()
        self._files = self._data / "files"
        options = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": "",
        }
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._files), *settings]
        self._server = ServerProcess(_NAME, [*_as_user(), *command], data)

    @property
    def url(self) -> str:
        """The address of the database, without user and password."""
        return f"postgresql://{LOOPBACK}:{self.port}/{_DATABASE}"

    @property
    def is_recorded(self) -> bool:
        """Whether a server with this data still runs, whoever started it, and answers on this port."""
        return self._server.recorded is not None and self._answers()

    def start(self) -> Self:
        """Start the server, with a new database where it has none, and wait until it answers.

        Raises:
            ConnectionFailedError: it runs already, another program has the port, or it could not be started.
        """
        self._server.refuse_second()
        if self._is_known and is_listened_to(self.port):
            raise ConnectionFailedError(
                f"Port {self.port} of {LOOPBACK} is taken by another program: end it, or choose another port "
                f"(make postgres POSTGRES_PORT={self.port + 1})."
            )
        is_new = not (self._files / "PG_VERSION").exists()
        if is_new:
            self._initialize()
        self._server.start(self._answers)
        if is_new:
            self._createdb()
        return self

    def kill(self) -> None:
        """End the server as a crash would; its data remain. Its processes end as they notice."""
        server = self._server.recorded
        own = [] if server is None else _children(server)
        self._server.kill()
        deadline = time.monotonic() + _MOST_SECONDS
        while any(Path(f"/proc/{each}").exists() for each in own) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server in good order."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _initialize(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        self._files.mkdir(exist_ok=True)
        secret = self._files.parent / "password"
        secret.write_text(_PASSWORD)
        if os.geteuid() == 0:
            known = pwd.getpwnam(_USER)
            for each in (self._files, secret):
                os.chown(each, known.pw_uid, known.pw_gid)
        self._run(
            "initdb",
            *("--username", _OWNER, "--auth", "scram-sha-256", "--pwfile", str(secret)),
            *("--encoding", "UTF8", "--no-locale", "--no-sync", "-D", str(self._files)),
        )
        secret.unlink()

    def _createdb(self) -> None:
        self._run("createdb", "-h", LOOPBACK, "-p", str(self.port), "-U", _OWNER, _DATABASE)

    def _answers(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_as_user(), str(self._programs / program), *arguments],
            env={**os.environ, "PGPASSWORD": _PASSWORD},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ConnectionFailedError(f"{program}: {done.stderr.strip()}")


def _children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in found.split()]


def _as_user() -> list[str]:
    return ["setpriv", "--reuid", _USER, "--regid", _USER, "--clear-groups"] if os.geteuid() == 0 else []


def _programs() -> Path:
    """The folder of PostgreSQL's programs: the newest of Debian's, else those on the path.

    Raises:
        ConnectionFailedError: it is not installed.
    """
    versions = sorted(_INSTALLED.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3].split(".")[0]))
    if versions:
        return versions[-1].parent
    found = shutil.which("postgres")
    if found is None:
        raise ConnectionFailedError("PostgreSQL is not installed: apt-get install postgresql")
    return Path(found).parent


def main() -> None:
    """Start a server that outlives this program, or stop it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, default=5433)
    options = parser.parse_args()
    if options.action == "stop":
        stopped = stop_recorded(options.data / f"{_NAME}.pid")
        print("PostgreSQL stopped" if stopped else "PostgreSQL was not running")
        return
    try:
        server = PostgresServer(options.data, options.port)
        if not server.is_recorded:
            server.start()
    except PenstockError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print(f"PostgreSQL answers on {server.url}")
    print(f"user {server.user}, password {server.password}")


if __name__ == "__main__":
    main()
