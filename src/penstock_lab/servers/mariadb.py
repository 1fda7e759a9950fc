"""A real MariaDB on the loopback address: one server process, from Debian's package `mariadb-server`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Self

from penstock.errors import ConnectionFailedError
from penstock_lab.servers.processes import LOOPBACK, ServerProcess, free_port, is_listened_to

_NAME = "mariadb"
#: it refuses to run as root
_USER = "mysql"
_OWNER, _PASSWORD, _DATABASE = "penstock", "penstock-secret", "penstock"
_PREPARED = (
    f"CREATE DATABASE IF NOT EXISTS {_DATABASE};\n"
    f"CREATE USER IF NOT EXISTS '{_OWNER}'@'%' IDENTIFIED BY '{_PASSWORD}';\n"
    f"GRANT ALL ON {_DATABASE}.* TO '{_OWNER}'@'%';\n"
)


class MariaDBServer:
    """A server with the database `penstock`, which the user `penstock` may do anything with.

    Args:
        data: folder for its files and log.

    Attributes:
        user, password: who may write.

    Raises:
        ConnectionFailedError: MariaDB is not installed.
    """

    user, password = _OWNER, _PASSWORD

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        self._data = data.absolute()
        self._files = self._data / "files"
        self._prepared = self._data / "prepared.sql"
        self._installer = _program("mariadb-install-db")
        settings = {
            "datadir": self._files,
            "port": self.port,
            "bind-address": LOOPBACK,
            "socket": self._files / "socket",
            "pid-file": self._files / "pid",
            "init-file": self._prepared,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [_program("mariadbd"), "--no-defaults", *options, "--skip-name-resolve", *_as_user()]
        self._server = ServerProcess(_NAME, command, data)

    @property
    def url(self) -> str:
        """The address of the database for its JDBC driver, without user and password."""
        return f"jdbc:mariadb://{LOOPBACK}:{self.port}/{_DATABASE}"

    def start(self) -> Self:
        """Start the server, with a new database where it has none, and wait until it answers.

        Raises:
            ConnectionFailedError: it runs already, or it could not be started.
        """
        if not self._files.exists():
            self._initialize()
        self._server.start(lambda: is_listened_to(self.port))
        return self

    def kill(self) -> None:
        """End the server as a crash would; its data remain."""
        self._server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _initialize(self) -> None:
        self._files.mkdir(parents=True)
        self._prepared.write_text(_PREPARED)
        if os.geteuid() == 0:
            known = pwd.getpwnam(_USER)
            for each in (self._files, self._prepared):
                os.chown(each, known.pw_uid, known.pw_gid)
        self._prepared.chmod(0o600)
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", *_as_user()]
        done = subprocess.run(
            [self._installer, "--no-defaults", f"--datadir={self._files}", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(self._files)
            raise ConnectionFailedError(f"mariadb-install-db: {done.stderr.strip() or done.stdout.strip()}")


def _as_user() -> list[str]:
    return [f"--user={_USER}"] if os.geteuid() == 0 else []


def _program(name: str) -> str:
    """A program of the server.

    Raises:
        ConnectionFailedError: it is not installed.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        raise ConnectionFailedError("MariaDB is not installed: apt-get install mariadb-server")
    return found
