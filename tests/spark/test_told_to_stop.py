"""A signal to every process of a run, as `timeout` and systemd send it, is the word to stop: nothing fails by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine_cases import expected, rows, script, write_orders
from forms import ALL, SOON_OVER
from killing import killed, running_in
from penstock.spark.results.read import results
from penstock.spark.storage.events import newest_events
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.spark

VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "minutes": "SELECT name, window(seen, '1 minute') AS w, count(*) AS n FROM orders GROUP BY name, window(seen, '1 minute')",
}
#: what is no part of a stop
FAILURES = {
    f"{part}_{what}"
    for part in ("run", "stream", "lane", "view", "sink", "backfill")
    for what in ("failed", "retried")
}
MOST_SECONDS = 300
STOPPING = "Stopping. Run the same command again to continue.\n"
STOPPED_STARTING = "Stopped during the start. Run the same command again to start.\n"


def _to_the_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    os.killpg(process.pid, number)


def _to_every_process(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As systemd does: also to the Python workers, which are a group of their own."""
    for each in running_in(process.pid):
        with suppress(ProcessLookupError):
            os.kill(each, number)


def _twice(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As `timeout` does."""
    process.send_signal(number)
    time.sleep(0.05)
    os.killpg(process.pid, number)


class Command:
    """`penstock run` in a process group of its own, over a folder with `script.sql`."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.events = Layout.of(folder / "out", None).events
        self._known = len(newest_events(self.events)) if self.events.exists() else 0
        command = [sys.executable, "-m", "penstock.cli.main", "run", "script.sql", "--output", "out", *more]
        self.process = subprocess.Popen(
            [*command, "--master", "local[2]"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **SOON_OVER},
            start_new_session=True,
        )

    def has_begun_java(self) -> bool:
        """Whether the process of Java is there, at first as a shell."""
        return any(b"deploy.SparkSubmit" in _command_line(each) for each in running_in(self.process.pid))

    def has_told(self, kind: str) -> Callable[[], bool]:
        """Whether the run has recorded such an event."""
        return lambda: any(event["kind"] == kind for event in self._new())

    def _new(self) -> list[dict[str, object]]:
        return newest_events(self.events)[self._known :] if self.events.exists() else []

    def wait(self, is_there: Callable[[], bool]) -> None:
        """Waits for a moment of the run."""
        deadline = time.monotonic() + MOST_SECONDS
        while not is_there():
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)

    def ended(self) -> str:
        """What it has printed, once it has ended well and all that it had started too."""
        said, errors = self.process.communicate(timeout=MOST_SECONDS)
        assert (self.process.returncode, errors) == (0, ""), said
        deadline = time.monotonic() + MOST_SECONDS
        while running_in(self.process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not FAILURES & {event["kind"] for event in self._new()}
        return said


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (_to_every_process, signal.SIGTERM),
        *(
            pytest.param(send, number, marks=pytest.mark.long)
            for send, number in (
                (_to_the_group, signal.SIGTERM),
                (_to_the_group, signal.SIGINT),
                (_to_every_process, signal.SIGINT),
                (_twice, signal.SIGTERM),
            )
        ),
    ],
)
def test_a_signal_to_all_processes_stops_a_run_at_any_time(
    spark: SparkSession,
    tmp_path: Path,
    send: Callable[[subprocess.Popen[str], signal.Signals], None],
    number: signal.Signals,
) -> None:
    # more than a run answers until it is stopped
    write_orders(tmp_path / "in", 40 if ALL else 12, 500)
    (tmp_path / "script.sql").write_text(script(tmp_path / "in", VIEWS, options=", maxFilesPerTrigger '1'"))
    layout = Layout.of(tmp_path / "out", None)
    moments = (
        ("java", "run_started", "stream_started", "batch", "batch")
        if ALL
        else ("java", "run_started", "batch")
    )
    for moment in moments:
        command = Command(tmp_path)
        try:
            command.wait(command.has_begun_java if moment == "java" else command.has_told(moment))
            send(command.process, number)
            said = command.ended()
        finally:
            killed(command.process)  # type: ignore[arg-type]
        # the start may be over by then
        assert (STOPPING in said and moment != "java") or (STOPPED_STARTING in said and moment != "batch")
        if layout.events.exists():
            assert "FAILED" not in _status(tmp_path)

    command = Command(tmp_path, "--available-now")
    command.ended()
    wanted = expected(spark, spark.read.parquet(str(tmp_path / "in")), VIEWS)
    for view, bag in wanted.items():
        assert rows(results(spark, layout, view).select(spark.sql(VIEWS[view]).columns)) == bag, view


def _command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _status(folder: Path) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", "status", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
