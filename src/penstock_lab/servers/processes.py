"""Server processes of the test surroundings: started, awaited, stopped or killed with their children."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import ConnectionFailedError

LOOPBACK = "127.0.0.1"
#: where Linux keeps the first and the last port that it gives to clients
_CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A TCP port of the loopback address that nothing listens on at the moment, and that no client is given.

    A client could take the port of a server that is down for a while.
    """
    first = int(_CLIENT_PORTS.read_text().split()[0]) if _CLIENT_PORTS.exists() else 32_768
    ports = range(first // 2, first) if first > 2_048 else range(20_000, 32_768)
    while True:
        port = secrets.choice(ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def is_listened_to(port: int) -> bool:
    """Whether a server accepts connections on a TCP port of the loopback address."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=2.0).close()
    except OSError:
        return False
    return True


def java_executable() -> str:
    """The Java that PySpark would start: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


class ServerProcess:
    """One server in a process group of its own, its output in a log file.

    The process id is kept beside the log, so that another program can stop the server later.

    Args:
        name: the server's name, for messages and for its files `<name>.log` and `<name>.pid`.
        command: the command line.
        directory: where those files are kept; created if missing.
        environment: variables to set besides those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = directory / f"{name}.log"
        self.pid_file = directory / f"{name}.pid"
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def recorded(self) -> int | None:
        """The process id of the server, whoever started it; None if it does not run."""
        pid = int(self.pid_file.read_text()) if self.pid_file.exists() else None
        return None if pid is None or not _leads_its_group(pid) else pid

    def start(self, is_ready: Callable[[], bool], timeout_s: float = 300.0) -> None:
        """Starts the server and waits until `is_ready` says so.

        Raises:
            ConnectionFailedError: it runs already, it ended, or it was not ready in time; in the last
                case it is stopped.
        """
        self.refuse_second()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        self.pid_file.write_text(str(self._process.pid))
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_running or time.monotonic() > deadline:
                state = "not ready in time" if self.is_running else f"ended with code {self._process.poll()}"
                self.kill()
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
                raise ConnectionFailedError(f"{self.name}: {state}. The end of its log, {self.log}:\n{tail}")
            time.sleep(0.1)

    def refuse_second(self) -> None:
        """Makes sure that the server does not run.

        Raises:
            ConnectionFailedError: it does.
        """
        if self.recorded is not None:
            raise ConnectionFailedError(f"{self.name} runs already, as process {self.recorded}.")

    def stop(self, timeout_s: float = 30.0) -> None:
        """Asks the server to end, and kills it if it has not in time. No effect if it is not running."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kills the server and its children, as a crash would."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()
        self.pid_file.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def stop_recorded(pid_file: Path, timeout_s: float = 30.0) -> bool:
    """Stops the server that another program started and recorded in `pid_file`.

    Returns:
        Whether there was a running one.
    """
    if not pid_file.exists():
        return False
    pid = int(pid_file.read_text())
    pid_file.unlink()
    if not _leads_its_group(pid):
        return False
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _leads_its_group(pid):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            break
        time.sleep(0.1)
    return True


def _leads_its_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
