"""Spark sessions: what the command line builds, and what an engine accepts."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.recovery.messages import first_line
from penstock.spark.sessions.acknowledged import acknowledge_answers
from penstock.spark.sessions.connector import kafka_connector
from penstock.spark.sessions.file_systems import SCHEMES, file_system, file_systems
from penstock.spark.sessions.jvm import Purpose, java_options, launch, option
from penstock.spark.sessions.libraries import PACKAGES, find_libraries
from penstock.spark.sessions.output import OUTPUT
from penstock.spark.sessions.store_access import REDACTION
from penstock.spark.sessions.submitted import submitted_conf

_LEAST_JAVA = 17
#: a local master runs a task once only unless it is told so, whatever spark.task.maxFailures says
_TASK_ATTEMPTS = 4
_LOG4J2 = Path(__file__).with_name("log4j2.properties")
#: Spark settings that change what a condition means, with the one value under which Penstock and Spark agree
_MEANING = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
#: Spark setting: as many files of a source are listed without a job
LISTED = "spark.sql.sources.parallelPartitionDiscovery.threshold"
#: Spark settings under which streaming queries cost less: without the manager Spark starts some ten `readlink` processes a batch
#: (docs/decisions/0012). In an object store a file gets its name by a copy, which is as whole (docs/decisions/0072)
STREAMING = {
    # a query with nothing to do looks at its source so often; a look lists all files of a folder
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # every so many batches Spark writes the list of all files it ever read anew
    "spark.sql.streaming.fileSource.log.compactInterval": "100",
    # Spark looks at each file of a batch again, by a job where there are more: it takes as long as some thousand local files
    # (docs/decisions/0146)
    LISTED: "256",
}


def build_session(
    master: str | None,
    conf: Mapping[str, str],
    name: str = "penstock",
    purpose: Purpose = "run",
    *,
    kafka: bool = False,
    stores: Collection[str] = (),
) -> SparkSession:
    """Build a quiet session, on the loopback address where the master is local.

    Args:
        master: a Spark master URL; None is that of spark-submit, else `local[*]`. A local one tries a task four times, as others do.
        conf: further Spark settings; they win over those of spark-submit, and these over the defaults here.
        name: the application's name.
        purpose: what a JVM that is started for it is for.
        kafka: whether the session reads or writes Kafka. If it does, the session gets Spark's Kafka connector:
            see `kafka_connector`.
        stores: addresses of object stores that the session reads or writes, such as `s3://bucket`. The session gets Hadoop's
            file systems for them: see `file_system`.

    Raises:
        ConnectionFailedError: no usable Java, the master does not answer, or Spark could not fetch a package.
        InputError: PENSTOCK_JARS names a folder without the jars.
    """
    name = conf.get("spark.app.name", name)
    conf = {**submitted_conf(), **conf}
    needed = file_systems(stores)
    if kafka:
        needed.append(kafka_connector())
    for each in find_libraries(needed, conf):
        OUTPUT.take(f"{each}\n")
        conf = {**conf, **each.conf}
    java = check_java()
    _quiet_py4j()
    master = master or conf.get("spark.master", f"local[*,{_TASK_ATTEMPTS}]")
    if cores := re.fullmatch(r"local(?:\[(\*|\d+)\])?", master):
        master = f"local[{cores.group(1) or 1},{_TASK_ATTEMPTS}]"
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.streaming.metricsEnabled": "false",
        # lanes have pools of their own beside the ingest's; within a pool jobs take turns as ever
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "penstock.spark.sessions.daemon",
        # Spark does not pass it on to stateful processors, and starts a daemon for each difference
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        **STREAMING,
        # in an object store many looks at a time are the faster way
        **({LISTED: "32"} if stores else {}),
        **REDACTION,
        # Spark tells an interruption from an error by a recursive pattern over Python's whole message
        "spark.driver.extraJavaOptions": f"{option(f'-Dlog4j2.configurationFile={_LOG4J2}')} -Xss16m {java_options(java, purpose)}".strip(),
    }
    if master.startswith("local"):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    together = {**defaults, **conf, "spark.master": master, "spark.app.name": name}
    builder = SparkSession.builder
    for key, value in together.items():
        builder = builder.config(key, value)
    try:
        launch(together)
        session = builder.getOrCreate()
    except Exception as error:
        said = OUTPUT.reason()
        if "unresolved dependency" in said:
            raise ConnectionFailedError(
                f"Spark could not fetch {together[PACKAGES]}: no repository that answers has it. "
                f"{_remedy(together[PACKAGES])}"
            ) from error
        told = f"Cannot start Spark on master {master}: {first_line(error)}"
        raise ConnectionFailedError(f"{told}; Java printed: {said}" if said else told) from error
    acknowledge_answers()
    # it prints a traceback when the JVM goes away
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    return session


def _remedy(packages: str) -> str:
    """What helps where Spark cannot fetch packages."""
    known = (kafka_connector(), *map(file_system, SCHEMES))
    return " ".join(library.remedy for library in known if library.packages[0] in packages)


def _quiet_py4j() -> None:
    """Keeps py4j from logging the traceback of every call that fails: what fails is told by its cause.

    It does so by a logger of its own and by the root logger.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root = logging.getLogger()
    if _is_not_py4j not in root.filters:
        root.addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def warm_workers(spark: SparkSession) -> None:
    """Starts the Python worker daemon now, in the background, so that the first batch need not wait."""
    job = spark.range(1).mapInArrow(lambda batches: batches, "id BIGINT")

    def run() -> None:
        with suppress(Exception):  # a batch will say what is wrong
            job.collect()

    threading.Thread(target=run, daemon=True, name="penstock-warm").start()


def check_java() -> str:
    """Makes sure that a Java new enough for Spark is there.

    Returns:
        Its version as it tells it.

    Raises:
        ConnectionFailedError: it is not.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = (
        f"Penstock needs Java {_LEAST_JAVA} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
    )
    if java is None:
        raise ConnectionFailedError(
            f"Java is missing: no java on the PATH, and JAVA_HOME is not set. {wanted}"
        )
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConnectionFailedError(f"Cannot run {java} ({error}). {wanted}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found.group(1)) < _LEAST_JAVA:
        version = found.group(1) if found else told.splitlines()[0]
        raise ConnectionFailedError(f"{java} is Java {version}. {wanted}")
    return told


def require_classic(spark: SparkSession) -> None:
    """Refuses a Spark Connect session.

    Raises:
        InputError: the session is not a classic one.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InputError(
            "Penstock runs inside the Spark driver and cannot use a Spark Connect session; "
            "use a classic session (SparkSession.builder.master(...), not .remote(...))"
        )


def require_meaning(spark: SparkSession) -> None:
    """Refuses a session in which conditions mean something else than Penstock's kernels take them for.

    Raises:
        InputError: a setting has another value than the one that is allowed, or one that Spark does not know.
    """
    for name, allowed in _MEANING.items():
        try:
            found = spark.conf.get(name, allowed)
        except IllegalArgumentException as error:
            # Spark reads the values of all settings when it is first asked for one
            raise InputError(f"Spark refuses a setting: {first_line(error)}") from error
        if found is not None and found.upper() != allowed.upper():
            raise InputError(
                f"{name} is {found} in this Spark session, which changes the meaning of conditions. Set it to {allowed}"
            )
