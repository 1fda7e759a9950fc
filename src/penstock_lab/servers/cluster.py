"""A real standalone Spark cluster on the loopback address, started from the PySpark package itself."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import urllib.request
from pathlib import Path
from typing import Self

from penstock.errors import ConnectionFailedError
from penstock_lab.servers.processes import LOOPBACK, ServerProcess, free_port, stop_recorded

_MASTER = "master"


class StandaloneCluster:
    """A master and workers; workers can be killed and started again.

    Attributes:
        work: each worker's folder; its executors run in `<folder>/<application>/<executor>`.

    Args:
        data: folder for logs and for the workers' files.
        workers: how many workers.
        port: the master's TCP port on 127.0.0.1; a free one by default.
        cores: cores a worker offers.
        memory: memory a worker offers, as Spark writes sizes.
    """

    def __init__(
        self, data: Path, workers: int = 2, port: int | None = None, cores: int = 1, memory: str = "1g"
    ) -> None:
        self.port = port or free_port()
        self._webui_port = free_port()
        environment = {
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(data.absolute() / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        spark_class = str(_spark_home() / "bin" / "spark-class")
        ports = ["--port", str(self.port), "--webui-port", str(self._webui_port)]
        self._master = ServerProcess(
            _MASTER,
            [spark_class, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, *ports],
            data,
            environment,
        )
        self.work = [data.absolute() / "work" / f"worker-{number}" for number in range(workers)]
        offer = ["--host", LOOPBACK, "--cores", str(cores), "--memory", memory, "--webui-port", "0"]
        worker = [spark_class, "org.apache.spark.deploy.worker.Worker", *offer]
        self._workers = [
            ServerProcess(folder.name, [*worker, "--work-dir", str(folder), self.url], data, environment)
            for folder in self.work
        ]

    @property
    def url(self) -> str:
        """What `spark.master` is set to."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def alive_workers(self) -> int:
        """Workers that the master counts as alive; it notices a killed one at once."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._webui_port}/json/", timeout=30) as answer:
            count: int = json.load(answer)["aliveworkers"]
            return count

    def start(self) -> Self:
        """Starts the master and its workers and waits until all have joined.

        Raises:
            ConnectionFailedError: one of them could not be started; none is left running.
        """
        try:
            self._master.start(lambda: self._has_workers(0))
            for number in range(len(self._workers)):
                self.start_worker(number)
        except ConnectionFailedError:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends workers and master."""
        for server in (*self._workers, self._master):
            server.stop()

    def start_worker(self, number: int) -> None:
        """Starts a worker that is not running and waits until the master counts it."""
        before = self.alive_workers
        self._workers[number].start(lambda: self._has_workers(before + 1))

    def kill_worker(self, number: int) -> None:
        """Kills a worker with its executors and their Python workers, as a crash would."""
        self._workers[number].kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _has_workers(self, least: int) -> bool:
        try:
            return self.alive_workers >= least
        except (OSError, json.JSONDecodeError):  # its page answers before its figures do
            return False


def _spark_home() -> Path:
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise ConnectionFailedError("A standalone cluster needs the package `pyspark`, which is missing.")
    return Path(package.origin).parent


def main() -> None:
    """Starts a cluster that outlives this program, or stops it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, default=7077)
    options = parser.parse_args()
    if options.action == "stop":
        pid_files = [*sorted(options.data.glob("worker-*.pid")), options.data / f"{_MASTER}.pid"]
        stopped = [pid_file.stem for pid_file in pid_files if stop_recorded(pid_file)]
        print(f"stopped: {', '.join(stopped)}" if stopped else "The cluster was not running")
        return
    try:
        cluster = StandaloneCluster(options.data, port=options.port).start()
    except ConnectionFailedError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print(f"The cluster answers on {cluster.url}")


if __name__ == "__main__":
    main()
