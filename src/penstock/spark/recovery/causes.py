"""Why something on Spark failed: from exceptions and their Java and Python traces to one cause in words.

Spark wraps what happened in several layers, the innermost of which says it; which layer matters, and whether the
condition can pass by itself, is a table here.
"""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.errors import (
    CheckpointError,
    DamagedError,
    FencedError,
    FunctionFailedError,
    FunctionRaisedError,
    InputError,
    SinkFailedError,
    StoppedOutsideError,
    StoreFailedError,
    StreamFailedError,
)
from penstock.spark.recovery.messages import COLON, COLON_TOLD, first_line, without_bypass

SESSION_ENDED = "session_ended"
STOPPED_OUTSIDE = "stopped_outside"
TAKEN_OVER = "taken_over"
SLOW_START = "slow_start"
SOURCE_UNREACHABLE = "source_unreachable"
DATA_LOST = "data_lost"
_ENDED = "the Spark session has ended: spark.stop() was called, or its Java process was killed"
_HEAP_USED_UP = (
    "Spark's Java process has ended, because its memory was full. Give it more (--conf spark.driver.memory=4g), "
    "or use smaller records or batches"
)
#: with what a JVM ends in which Spark met that its memory is used up, and how long its last steps may take
_HEAP_EXIT = 52
_EXIT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed.

    Attributes:
        kind: a name for the condition, one of those in docs/reference/events.md.
        told: the condition and its innermost reason, in one line.
        is_transient: whether it can pass by itself, so that it is worth while to try again.
        function: the user's function that it happened in, where known.
        file: the file or folder it is about, where known.
        view: the view it is about, where known.
        topic: the topic it is about, where known.
    """

    kind: str
    told: str
    is_transient: bool = False
    function: str | None = None
    file: str | None = None
    view: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    """A condition recognised by what the traces say; where it is detailed, the innermost reason is told with it."""

    kind: str
    pattern: re.Pattern[str]
    is_transient: bool
    told: str
    is_detailed: bool


def _rule(kind: str, pattern: str, is_transient: bool, told: str, *, is_detailed: bool = True) -> _Rule:
    return _Rule(kind, re.compile(pattern), is_transient, told, is_detailed)


#: the first that fits
_RULES = (
    _rule(
        SESSION_ENDED,
        r"stopped SparkContext|SparkContext (?:was shut down|has been shutdown|is stopped)|SessionEndedError"
        r"|Py4JNetworkError|Answer from Java side is empty",
        False,
        _ENDED,
        is_detailed=False,
    ),
    _rule(
        "checkpoint_shared",
        r"CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log|streaming queries are concurrently using",
        True,
        "another run wrote to Spark's checkpoint of the stream",
        is_detailed=False,
    ),
    _rule(
        "worker_unusable",
        r"No module named|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH"
        r"|Cannot run program",
        False,
        "the Python of the workers lacks a module (PYSPARK_PYTHON or spark.pyspark.python selects that Python)",
    ),
    _rule(
        DATA_LOST,
        r"may have been (?:missed|lost)|DATA_LOSS|failOnDataLoss|OffsetOutOfRange",
        False,
        "the source has deleted data that was not read yet",
    ),
    _rule(
        SLOW_START,
        r"Python worker failed to connect back",
        True,
        "a Python process did not start in time; the machine is busy",
        is_detailed=False,
    ),
    _rule(
        "worker_lost",
        r"Python worker exited unexpectedly|Python daemon|Python worker .*crashed",
        True,
        "a Python worker process ended unexpectedly (killed, out of memory, or ended by a function)",
        is_detailed=False,
    ),
    _rule(
        "executor_lost",
        r"ExecutorLostFailure|Lost executor|Executor \S+ (?:lost|removed)|Failed to get broadcast"
        r"|FetchFailed|Executor heartbeat timed out|executor .{0,40}(?:exited|lost|removed)",
        True,
        "an executor was lost",
        is_detailed=False,
    ),
    _rule("topic_recreated", r"TopicRecreatedError", True, "the stream continues with the new topic"),
    _rule("topic_missing", r"UnknownTopicOrPartition", True, "the topic does not exist"),
    _rule(
        SOURCE_UNREACHABLE,
        r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|\w*NotAvailable|Retriable|NotLeader"
        r"|Coordinator)\w*|org\.apache\.kafka\.common\.KafkaException|Cannot fetch (?:record|offset)"
        r"|org\.apache\.kafka\.common\.config\.ConfigException: No resolvable"
        r"|java\.net\.(?:Connect|UnknownHost|SocketTimeout|NoRouteToHost|Socket)Exception"
        # Spark's own waits say what they waited for
        r"|(?m:java\.util\.concurrent\.TimeoutException$)",
        True,
        "the broker does not answer",
    ),
    _rule(SOURCE_UNREACHABLE, r"SchemaRegistryError", True, "the schema registry does not answer"),
    _rule(
        "file_unreadable",
        r"Permission denied|AccessControlException|Operation not permitted",
        False,
        "no permission to read a file",
    ),
    _rule(
        "disk_full",
        r"No space left on device|Disk quota exceeded|StoreFailedError: \[Errno 28\]",
        True,
        "the disk is full",
    ),
    _rule(
        "file_name",
        COLON.pattern,
        False,
        COLON_TOLD,
    ),
    _rule(
        "file_missing",
        r"FileNotFoundException|FILE_NOT_EXIST|No such file or directory|PATH_NOT_FOUND",
        True,
        "a file or folder does not exist any more",
    ),
    _rule(
        "storage_failed",
        r"Input/output error|Stale (?:NFS )?file handle|Too many open files|Remote I/O error"
        r"|Transport endpoint is not connected|Host is down|Too many levels of symbolic links"
        r"|Read-only file system|StoreFailedError",
        True,
        "the file system failed",
    ),
    _rule("memory_short", r"\b(?:Arrow)?MemoryError\b|OutOfMemoryError", True, "out of memory"),
)
#: what a sink's own code says of sessions is about its own
_SINK_RULES = tuple(rule for rule in _RULES if rule.kind != SESSION_ENDED)
#: what a sink's own code may say without meaning Spark or its surroundings
_PASSES_IN_SINKS = frozenset({SLOW_START, "worker_lost", "executor_lost", SOURCE_UNREACHABLE, "disk_full"})
_JAVA = re.compile(r"^(?:Caused by: |: )?((?:[a-z][\w$]*\.)+[A-Z][\w$.]*)(?:: (.*))?$")
_PYTHON = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_PENSTOCK = re.compile(r"^penstock\.errors\.(\w+): (.+)$", re.MULTILINE)
_FILE = re.compile(r"(?:file:)?(/[^\s:'\"()\[\],#]+)")
_OF_FUNCTIONS = (FunctionFailedError.__name__, FunctionRaisedError.__name__)
_FUNCTION = re.compile(r"^function (\w+)")
_QUALIFIED = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])")
#: a stage's failure begins with its tasks'
_TASK = re.compile(r"most recent failure: Lost task [^\n]*?\(\S+ executor \S+\): ")
_LAYERS = ("penstock.errors.StreamFailedError", "py4j.protocol.Py4JJavaError")
#: layers that name where something happened and not what
_SAYS_NOTHING = re.compile(
    r"^(?:An exception was (?:thrown|raised)|An error occurred while|\[?PYTHON_EXCEPTION|Job aborted"
    r"|\[STREAM_FAILED\]|Task \d+ in stage|Query \[id)"
)


def cause_of(error: BaseException) -> Cause:
    """The cause of an exception, found in it and in what it was raised from.

    Asks the JVM for Java's traces; where that is gone, says so, and why as far as its exit code tells.
    """
    cause = _cause_of(error)
    if cause.kind == SESSION_ENDED and _exit_code() == _HEAP_EXIT:
        return replace(cause, told=_HEAP_USED_UP)
    return cause


def _exit_code() -> int | None:
    """The exit code of the JVM that this process has started; None while it runs, or where another process started it."""
    process = getattr(SparkContext._gateway, "proc", None)
    # where spark.stop() was called, the JVM lives on
    seconds = 0.0 if SparkContext._active_spark_context is None else _EXIT_SECONDS
    try:
        return None if process is None else process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _cause_of(error: BaseException) -> Cause:
    chain = list(_chain(error))
    sink = next((each for each in chain if isinstance(each, SinkFailedError)), None)
    if sink is not None and sink.__cause__ is not None:
        return _cause_in_sink(sink, list(_chain(sink.__cause__)))
    for each in chain:
        if isinstance(each, StoppedOutsideError):
            return Cause(STOPPED_OUTSIDE, str(each))
        if isinstance(each, FencedError):
            return Cause(TAKEN_OVER, str(each))
        if isinstance(each, StoreFailedError):
            kind = "disk_full" if each.errno in (errno.ENOSPC, errno.EDQUOT) else "storage_failed"
            return Cause(kind, first_line(each), is_transient=True)
        if isinstance(each, InputError):
            kind = "checkpoint_refused" if isinstance(each, CheckpointError) else "input_refused"
            return Cause(kind, first_line(each))
    if any(isinstance(each, Py4JNetworkError | ConnectionError) or _is_unanswered(each) for each in chain):
        return Cause(SESSION_ENDED, _ENDED)
    # what only says that a stream stopped says less than what it was raised from
    says = [each for each in chain if not (isinstance(each, StreamFailedError) and each.__cause__)] or chain
    return cause_of_text("\n".join(trace_of(each) for each in says))


def cause_of_text(text: str) -> Cause:
    """The cause that a trace speaks of, Java's or Python's or one within the other."""
    return _cause_by(_RULES, without_bypass(text))


def _cause_in_sink(sink: SinkFailedError, chain: list[BaseException]) -> Cause:
    """The cause of a sink's failure: its own server may be away while Spark's JVM is there."""
    if any(map(_is_session_gone, chain)):
        return Cause(SESSION_ENDED, _ENDED)
    inner = _cause_by(_SINK_RULES, "\n".join(map(trace_of, chain)))
    # the batch is handed over again, once the server answers
    passes = inner.kind in _PASSES_IN_SINKS or any(
        isinstance(each, ConnectionError | TimeoutError) for each in chain
    )
    return Cause("sink_failed", f"{sink}: {inner.told}", passes, view=sink.view)


#: names of the errors by which a checkpoint is refused
_REFUSED = (CheckpointError.__name__, DamagedError.__name__)


def _cause_by(rules: Sequence[_Rule], text: str) -> Cause:
    own = _PENSTOCK.findall(text)
    failed = [told for kind, told in own if kind in _OF_FUNCTIONS]
    if failed:
        named = _FUNCTION.match(failed[-1])
        return Cause("function_failed", failed[-1], function=named.group(1) if named else None)
    if own and own[-1][0] == FencedError.__name__:
        return Cause(TAKEN_OVER, own[-1][1])
    reason = _innermost(text)
    for rule in rules:
        hit = rule.pattern.search(text)
        if hit is None:
            continue
        if not rule.is_detailed:
            return Cause(rule.kind, rule.told, rule.is_transient)
        line = text[text.rfind("\n", 0, hit.start()) + 1 :].partition("\n")[0]
        says = reason if rule.pattern.search(reason) else line.strip().removeprefix(": ")
        if rule.pattern.groups:
            says = hit.group(1)
        found = _FILE.search(says) if rule.kind.startswith("file_") else None
        file = found.group(1) if found else None
        return Cause(rule.kind, f"{rule.told}: {_QUALIFIED.sub('', says)}", rule.is_transient, file=file)
    if not own:
        return Cause("failed", _QUALIFIED.sub("", reason))
    error, told = own[-1]
    return Cause("checkpoint_refused" if error in _REFUSED else "failed", told)


def _is_unanswered(error: BaseException) -> bool:
    """Whether a call into the JVM failed and the JVM said nothing of why: it is not there."""
    return type(error) is Py4JError and "Trace:" not in str(error)


def _is_session_gone(error: BaseException) -> bool:
    """Whether an exception of py4j's or Spark's says that the session has ended."""
    if isinstance(error, Py4JNetworkError) or _is_unanswered(error):
        return True
    return isinstance(error, Py4JJavaError | PySparkException) and bool(
        _RULES[0].pattern.search(trace_of(error))
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def trace_of(error: BaseException) -> str:
    """An exception as a trace shows it, with Java's own trace where it comes from there."""
    try:
        message = str(error)
    except Exception as gone:  # Py4JJavaError asks the JVM for its text
        return f"{type(gone).__name__}: Answer from Java side is empty"
    if isinstance(error, Py4JJavaError):
        return message
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    trace = getattr(error, "_stackTrace", None)
    return f"Traceback (most recent call last):\n{name}: {message}\n" + (trace or "")


def _innermost(text: str) -> str:
    """What the last layer of a trace says: of Python's exceptions in it the last, else of Java's."""
    python: list[str] = []
    java: list[str] = []
    bare: list[str] = []
    is_python = False
    for line in _TASK.sub("\nCaused by: ", text).splitlines():
        if line.startswith("Traceback (most recent call last)"):
            is_python = True
        elif is_python and not line.startswith((" ", "\t")):
            is_python = False
            found = _PYTHON.match(line)
            if found and not _SAYS_NOTHING.match(found.group(2) or ""):
                python.append(_said(found))
        elif (found := _JAVA.match(line)) and not _SAYS_NOTHING.match(found.group(2) or ""):
            (java if found.group(2) else bare).append(_said(found))
    told = [each for each in python if not each.startswith(_LAYERS)] or python
    # a trace of Python's that only carries Java's says what Java said
    carried = [
        each for each in told if any(each.partition(": ")[2] == said.partition(": ")[2] for said in java)
    ]
    if java and (not told or told == carried):
        return java[-1]
    if said := told or bare:
        return said[-1]
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _said(found: re.Match[str]) -> str:
    return f"{found.group(1)}: {found.group(2)}" if found.group(2) else found.group(1)
