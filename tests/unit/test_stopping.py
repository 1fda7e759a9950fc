"""The word to stop: what a first signal does, one just behind it, and a later one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from penstock.cli.stopping import StopSignals
from penstock.errors import StartStoppedError, StreamFailedError
from penstock.settings import Settings
from penstock.spark.recovery import retries as retrying
from penstock.spark.recovery.retries import Retries
from penstock.spark.storage.events import EventLog, newest_events

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@BOTH
def test_a_signal_before_anything_is_written_breaks_off(number: signal.Signals) -> None:
    reached = []

    def work() -> None:
        with StopSignals(lambda: 0.0):
            signal.raise_signal(number)
            reached.append("its end")

    with pytest.raises(StartStoppedError):
        work()
    assert reached == []


@pytest.mark.parametrize("is_told", [True, False])
def test_a_fault_that_comes_of_breaking_off_is_part_of_the_stop(is_told: bool) -> None:
    def work() -> None:
        with StopSignals(lambda: 0.0):
            try:
                if is_told:
                    signal.raise_signal(signal.SIGTERM)
            finally:
                raise ZeroDivisionError

    with pytest.raises(StartStoppedError if is_told else ZeroDivisionError):
        work()


@BOTH
def test_later_signals_are_noted_and_one_just_behind_is_the_same(number: signal.Signals) -> None:
    now = [0.0]
    heard: list[int] = []
    signal.signal(number, lambda number, _: heard.append(number))
    with StopSignals(lambda: now[0]) as signals:
        signals.take_note()
        assert not signals.are_told()
        signal.raise_signal(number)
        assert signals.are_told()
        now[0] = 0.9
        signal.raise_signal(number)
        assert heard == []
        now[0] = 1.1
        signal.raise_signal(number)
        assert heard == [number]
    signal.raise_signal(number)
    assert heard == [number] * 2


def test_a_second_signal_behind_the_block_is_the_same_too() -> None:
    now = [0.0]
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    with StopSignals(lambda: now[0]) as signals:
        signals.take_note()
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert heard == []
    now[0] = 2.0
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_a_session_that_ends_just_before_a_stop_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    events = EventLog(tmp_path / "events.jsonl")
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    Retries("s", "ingest", Settings(), events).run(fail, stopping)
    assert newest_events(tmp_path / "events.jsonl") == []

    monkeypatch.setattr(retrying, "_STOP_SECONDS", 0.1)
    with pytest.raises(StreamFailedError, match="the Spark session has ended"):
        Retries("s", "ingest", Settings(), events).run(fail, threading.Event())
    assert [event["kind"] for event in newest_events(tmp_path / "events.jsonl")] == ["run_failed"]
    events.close()


WORKERS = """
import os, signal, subprocess, time
from penstock.spark.sessions import daemon

def end_of(start):
    own = start()
    os.kill(own, signal.SIGTERM)
    return os.waitpid(own, 0)[1]

def forked():
    reader, writer = os.pipe()
    own = os.fork()
    if own == 0:
        os.write(writer, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(reader, 1)
    return own

daemon._be_deaf()
if os.fork() == 0:
    # as a worker of pyspark does
    daemon.daemon.signal.signal(signal.SIGTERM, signal.SIG_DFL)
    daemon.daemon.signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    print("outlasts", end_of(forked), end_of(lambda: subprocess.Popen(["sleep", "60"]).pid), flush=True)
    os._exit(7)
os.kill(os.getpid(), signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_workers_outlast_the_signals_and_what_their_functions_start_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKERS], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["outlasts", "15", "15", "7"], done.stderr
