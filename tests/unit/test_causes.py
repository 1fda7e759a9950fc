"""What stopped something is found in the traces that Spark wraps it in; what can pass is told from what cannot."""

from __future__ import annotations

import errno
import subprocess
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from penstock.errors import CheckpointError, SinkFailedError, StoreFailedError, StreamFailedError
from penstock.settings import Settings
from penstock.spark.lanes.deadlines.failures import window_cause
from penstock.spark.recovery.causes import cause_of, cause_of_text
from penstock.spark.recovery.messages import first_line, first_sentence
from penstock.spark.recovery.retries import Retries
from penstock.spark.storage.events import EventLog

STAGE = (
    "An error occurred while calling o640.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
    "stage failure: Task 0 in stage 17.0 failed 4 times, most recent failure: Lost task 0.3 in stage 17.0 (TID 23) "
    "(localhost executor driver): "
)
PYTHON = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "/lib/pyspark/worker.py", line 4327, in invoke_udf\n    run_process()\n'
)
TEXTS = {
    "function": (
        PYTHON
        + "penstock.errors.FunctionFailedError: function rate raised: ValueError: no rate\n SQLSTATE: 38000\n",
        ("function_failed", False, "function rate raised: ValueError: no rate"),
    ),
    "worker killed": (
        STAGE
        + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting\n"
        + "\tat org.apache.spark.api.python.BasePythonRunner.apply(PythonRunner.scala:1136)\n"
        + "Caused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n",
        ("worker_lost", True, "a Python worker process ended unexpectedly"),
    ),
    "a run that was taken over wrote to the checkpoint": (
        "org.apache.spark.SparkConcurrentModificationException: Multiple streaming queries are concurrently using "
        "file:/out/_penstock/checkpoint/orders/spark/sources/0.\n\tat x.Y.z(Y.scala:1)\n"
        "Caused by: org.apache.spark.SparkFileAlreadyExistsException: [FAILED_RENAME_PATH] Failed to rename a to b\n",
        ("checkpoint_shared", True, "another run wrote to Spark's checkpoint of the stream"),
    ),
    "worker slow": (
        STAGE
        + "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x.Y.z(Y.scala:1)\n",
        ("slow_start", True, "a Python process did not start in time; the machine is busy"),
    ),
    "executor killed": (
        STAGE
        + "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Worker lost\n",
        ("executor_lost", True, "an executor was lost"),
    ),
    "an exception of Java's that came too often for a trace": (
        STAGE + "java.lang.ArrayIndexOutOfBoundsException\n\nDriver stacktrace:\n\tat x.Y.z(Y.scala:1)\n"
        "Caused by: java.lang.ArrayIndexOutOfBoundsException\n",
        ("failed", False, "ArrayIndexOutOfBoundsException"),
    ),
    "no pyarrow": (
        STAGE + "org.apache.spark.SparkException: \nError from python worker:\n"
        "  Traceback (most recent call last):\n  ModuleNotFoundError: No module named 'pyarrow'\n",
        ("worker_unusable", False, "No module named 'pyarrow'"),
    ),
    "broker away": (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Timed out SQLSTATE: XXKST\n"
        "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1] terminated\n"
        "\tat org.apache.spark.A.b(A.scala:1)\nCaused by: java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listOffsets\n"
        "\tat java.base/x.Y.z(Y.java:1)\n"
        "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.\n",
        ("source_unreachable", True, "TimeoutException: Timed out waiting for a node assignment."),
    ),
    "broker away from its admin client": (
        "An error occurred while calling o123.get.\n: java.util.concurrent.TimeoutException\n"
        "\tat java.base/java.util.concurrent.CompletableFuture.timedGet(CompletableFuture.java:1960)\n",
        ("source_unreachable", True, "the broker does not answer: TimeoutException"),
    ),
    "Spark waited for itself": (
        "An error occurred while calling o9.count.\n: java.util.concurrent.TimeoutException: Futures timed out\n"
        "\tat x.Y.z(Y.scala:1)\n",
        ("failed", False, "TimeoutException: Futures timed out"),
    ),
    "refused": (
        STAGE + "java.net.ConnectException: Connection refused\n\tat x.Y.z(Y.java:1)\n",
        ("source_unreachable", True, "the broker does not answer: ConnectException: Connection refused"),
    ),
    "malformed address": (
        STAGE
        + "java.net.URISyntaxException: Illegal character in path at index 3: a b\n\tat x.Y.z(Y.java:1)\n",
        ("failed", False, "URISyntaxException: Illegal character in path"),
    ),
    "records gone": (
        "java.lang.IllegalStateException: Partition orders-0's offset was changed from 5 to 0, some data may have been"
        " missed.\n\tat x.Y.z(Y.scala:1)\n",
        ("data_lost", False, "offset was changed from 5 to 0"),
    ),
    "permission": (
        STAGE + "java.io.FileNotFoundException: /data/in/a.csv (Permission denied)\n\tat x.Y.z(Y.scala:1)\n",
        ("file_unreadable", False, "/data/in/a.csv (Permission denied)"),
    ),
    "file gone": (
        STAGE
        + "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading\n"
        "\tat x.Y.z(Y.scala:1)\nCaused by: java.io.FileNotFoundException: File file:/data/in/a.csv does not exist\n",
        ("file_missing", True, "File file:/data/in/a.csv does not exist"),
    ),
    "disk": (
        PYTHON + "OSError: [Errno 28] Error writing bytes to file. Detail: No space left on device\n",
        ("disk_full", True, "No space left on device"),
    ),
    "disk of a ledger": (
        PYTHON
        + "penstock.errors.StoreFailedError: [Errno 28] the disk is full: '/out/_penstock/ledger.db'\n",
        ("disk_full", True, "the disk is full"),
    ),
    "read-only disk": (
        PYTHON + "OSError: [Errno 30] Read-only file system: '/out/_penstock/manifests/s/.3.json'\n",
        ("storage_failed", True, "Read-only file system"),
    ),
    "stopped": (
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n",
        ("session_ended", False, "spark.stop() was called"),
    ),
    "a log that was set back": (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR]  SQLSTATE: XXKST\n"
        'Traceback (most recent call last):\n  File "/lib/penstock/spark/log/stream_log.py", line 123, in ahead\n'
        "penstock.errors.CheckpointError: reader windows of stream s goes on with entry 7\n",
        ("checkpoint_refused", False, "reader windows of stream s goes on with entry 7"),
    ),
    "anything": (
        PYTHON + "KeyError: 'x'\n",
        ("failed", False, "KeyError: 'x'"),
    ),
}


@pytest.mark.parametrize("name", list(TEXTS))
def test_a_trace_has_one_cause(name: str) -> None:
    text, (kind, is_transient, told) = TEXTS[name]
    cause = cause_of_text(text)
    assert (cause.kind, cause.is_transient) == (kind, is_transient)
    assert told in cause.told
    assert "\n" not in cause.told
    assert "An error occurred while" not in cause.told
    assert "An exception was thrown" not in cause.told


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "storage_failed")],
)
def test_a_full_disk_beneath_the_ledger_is_told_from_other_failures(code: int, kind: str) -> None:
    cause = cause_of(StoreFailedError(code, "it failed", "/out/_penstock/ledger.db"))
    assert (cause.kind, cause.is_transient) == (kind, True)


def test_what_the_trace_names_is_named() -> None:
    assert cause_of_text(TEXTS["function"][0]).function == "rate"
    assert cause_of_text(TEXTS["permission"][0]).file == "/data/in/a.csv"
    assert cause_of_text(TEXTS["file gone"][0]).file == "/data/in/a.csv"


def _raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "is_transient"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "session_ended", False),
        (Py4JError("An error occurred while calling o270.stop"), "session_ended", False),
        (ConnectionRefusedError(111, "Connection refused"), "session_ended", False),
        (_raised(StreamFailedError("stopped"), CheckpointError("another run")), "checkpoint_refused", False),
        (
            _raised(SinkFailedError("alerts", "large"), RuntimeError(TEXTS["broker away"][0])),
            "sink_failed",
            True,
        ),
        (
            _raised(SinkFailedError("write", "large"), FileNotFoundError("No such file or directory: 'x'")),
            "sink_failed",
            False,
        ),
        (
            _raised(
                SinkFailedError("post", "large"),
                _raised(RuntimeError("not posted"), ConnectionRefusedError(111, "Connection refused")),
            ),
            "sink_failed",
            True,
        ),
        (
            _raised(SinkFailedError("post", "large"), RuntimeError("SessionEndedError: log in again")),
            "sink_failed",
            False,
        ),
        (
            _raised(SinkFailedError("post", "large"), Py4JNetworkError("Answer from Java side is empty")),
            "session_ended",
            False,
        ),
    ],
)
def test_an_exception_has_the_cause_of_what_it_came_from(
    error: Exception, kind: str, is_transient: bool
) -> None:
    cause = cause_of(error)
    assert (cause.kind, cause.is_transient) == (kind, is_transient)
    if kind == "sink_failed":
        assert cause.view == "large"
        assert cause.told.startswith("sink ")


@pytest.mark.parametrize(
    "told",
    [
        PYTHON + "penstock.errors.CheckpointError: the tuples in /log cannot be read; put back\n",
        PYTHON + "OSError: [Errno 28] Error writing bytes to file. Detail: No space left on device\n",
        PYTHON + "OSError: [Errno 5] Input/output error\n",
        PYTHON + "FileNotFoundError: [Errno 2] No such file or directory: '/log/run'\n",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext\n",
    ],
)
def test_what_any_window_would_meet_is_no_matter_of_one(told: str) -> None:
    error = RuntimeError(told)
    with pytest.raises(RuntimeError) as raised:
        window_cause(error)
    assert raised.value is error


@pytest.mark.parametrize(
    ("told", "is_transient"),
    [
        (STAGE + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", True),
        (PYTHON + "MemoryError\n", True),
        (PYTHON + "ZeroDivisionError: division by zero\n", False),
    ],
)
def test_what_a_window_may_have_brought_about_is_its_matter(told: str, is_transient: bool) -> None:
    assert window_cause(RuntimeError(told)).is_transient == is_transient


def test_that_a_stream_stopped_is_said_once() -> None:
    error = _raised(StreamFailedError("the windows of stream s stopped: KeyError: 'x'"), KeyError("x"))
    assert cause_of(error).told == "KeyError: 'x'"


class Attempts:
    """Attempts that fail with one error, some times or always; success is reported before some of them."""

    def __init__(self, error: Exception, failures: int, success_before: int = 0) -> None:
        self.error, self.failures, self.success_before, self.made = error, failures, success_before, 0
        self.retries: Retries | None = None

    def __call__(self) -> None:
        self.made += 1
        if self.made == self.success_before and self.retries is not None:
            self.retries.succeeded()
        if self.made <= self.failures:
            raise self.error


def _try(path: Path, attempts: Attempts, most: int) -> EventLog:
    events = EventLog(path / "events.jsonl")
    settings = Settings(retry_attempts=most, retry_seconds=0.001)
    attempts.retries = Retries("s", "ingest", settings, events)
    attempts.retries.run(attempts, threading.Event())
    return events


def test_attempts_are_bounded_wait_longer_and_are_counted_anew_after_success(tmp_path: Path) -> None:
    lost = RuntimeError("Python worker exited unexpectedly")
    attempts = Attempts(lost, failures=5, success_before=4)
    events = _try(tmp_path, attempts, most=3)
    assert attempts.made == 6
    told = [(event["attempt"], event["wait_seconds"]) for event in events.recent]
    assert told == [(1, 0.001), (2, 0.002), (3, 0.004), (1, 0.001), (2, 0.002)]
    with pytest.raises(StreamFailedError, match=r"stream s stopped: a Python worker.*; retried 3 times"):
        _try(tmp_path, Attempts(lost, failures=99), most=3)


def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    attempts = Attempts(KeyError("x"), failures=99)
    with pytest.raises(StreamFailedError, match="stream s stopped: KeyError: 'x'"):
        _try(tmp_path, attempts, most=3)
    assert attempts.made == 1
    assert '"kind":"run_failed"' in (tmp_path / "events.jsonl").read_text()


def test_spark_s_advice_to_turn_its_errors_off_is_left_out() -> None:
    trace = (
        "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor "
        'being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012'
    )
    for told in (cause_of_text(trace).told, first_line(ValueError(trace)), first_sentence(trace)):
        assert "Use `try_divide`" in told
        assert "return NULL instead." in told
        assert "ansi" not in told


class _Jvm:
    """A JVM that has ended, or that lives on."""

    def __init__(self, code: int | None) -> None:
        self.proc = self
        self._code = code

    def wait(self, seconds: float) -> int:
        if self._code is None:
            raise subprocess.TimeoutExpired("java", seconds)
        return self._code


@pytest.mark.parametrize(
    ("code", "told"), [(52, "its memory was full"), (-9, "was killed"), (None, "spark.stop() was called")]
)
def test_a_java_process_whose_memory_is_used_up_is_told_from_others(
    monkeypatch: pytest.MonkeyPatch, code: int | None, told: str
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", _Jvm(code))
    cause = cause_of(Py4JNetworkError("Answer from Java side is empty"))
    assert (cause.kind, cause.is_transient) == ("session_ended", False)
    assert told in cause.told
