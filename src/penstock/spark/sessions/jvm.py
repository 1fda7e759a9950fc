"""Starting Spark's JVM: quietly, and with its classes from an archive.

A third of the processor time of a start is reading and verifying classes. Java can keep them in an archive (class data
sharing); one is written when a short command or the demo ends, once per installation, and mapped by later JVMs.
Java checks itself that an archive is of this very Java and class path, and goes without it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from penstock.cache_folder import cache_folder
from penstock.spark.sessions.libraries import merged_submit_arguments
from penstock.spark.sessions.output import OUTPUT

#: what a JVM is for: a `brief` command ends soon, a `whole` one has used all that a run uses and ends, a `run` may last
Purpose = Literal["brief", "whole", "run"]

#: lines that Java, Spark and Spark's Python processes print whatever is configured
_BANNER = re.compile(
    r"WARNING: Using incubator modules: |Setting default log level to |To adjust logging level use |"
    r"Setting Spark log level to |Using Spark's default log4j profile|.* WARN NativeCodeLoader: "
)
#: a class archive is whole once this number is its first, which Java writes last
_MAGIC = bytes.fromhex("a8ab0bf0")
#: what an unfinished archive is given until it is taken to be abandoned
_UNFINISHED_SECONDS = 3600.0
#: a JVM that ends soon is not worth the second compiler, nor parallel garbage collection; without that compiler Java gives compiled
#: code 48 MB in place of 240, which scripts of many views fill
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


def java_options(java: str, purpose: Purpose) -> str:
    """Options of Java for a purpose, with the class archive that there is or shall be.

    Args:
        java: what `java -version` said.
        purpose: what the JVM is for.
    """
    options = [_BRIEF] if purpose == "brief" else []
    folder = cache_folder("classes")
    if folder is not None:
        options += _archive(folder, java, purpose)
    return " ".join(options)


def option(text: str) -> str:
    """One option of Java as Spark reads a list of them: a path may hold spaces and quotes."""
    if not re.search(r"""[\s"'\\]""", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def launch(conf: Mapping[str, str]) -> None:
    """Starts the JVM of this process, unless there is one; what it prints, but for what it prints at every start, is `OUTPUT`'s."""
    if SparkContext._gateway is not None:
        return
    spark_conf = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        spark_conf.set(key, value)
    reader, writer = os.pipe()
    lines = os.fdopen(reader, "rb")
    threading.Thread(
        target=pass_on, args=(lines, OUTPUT.take), daemon=True, name="penstock-jvm-stderr"
    ).start()
    try:
        with merged_submit_arguments(conf):
            gateway = launch_gateway(spark_conf, {"stderr": writer})  # type: ignore[no-untyped-call]
    finally:
        os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway)


def pass_on(lines: Iterable[bytes], take: Callable[[str], None]) -> None:
    """Hands on the lines of the JVM's standard error that are no banner, as they come."""
    for line in lines:
        text = line.decode(errors="replace")
        if not _BANNER.match(text):
            take(text)


def _archive(folder: Path, java: str, purpose: Purpose) -> list[str]:
    versions = repr((java, pyspark.__version__, pyspark.__file__, sys.platform, os.uname().machine))
    stem = hashlib.sha256(versions.encode()).hexdigest()[:16]
    whole, brief = (folder / f"{stem}-{kind}.jsa" for kind in ("whole", "brief"))
    with suppress(OSError):
        _adopt(folder)
    there = next((path for path in (whole, brief) if path.exists()), None)
    missing = not whole.exists() if purpose == "whole" else there is None
    if missing and purpose != "run" and os.access(folder, os.W_OK):
        # Java can neither write the next archive from a JVM that has one, nor rename it when it is whole
        wanted = whole if purpose == "whole" else brief
        unfinished = folder / f"{wanted.name}.{_boot()}.{uuid.uuid4().hex[:8]}"
        return [option(f"-XX:ArchiveClassesAtExit={unfinished}"), "-Xlog:disable"]
    return (
        [] if there is None else [option(f"-XX:SharedArchiveFile={there}"), "-Xshare:auto", "-Xlog:disable"]
    )


def _adopt(folder: Path) -> None:
    """Gives archives that JVMs have finished since the last start their names, and removes what none will finish."""
    for path in folder.glob("*.jsa.*"):
        name, _, rest = path.name.partition(".jsa.")
        with path.open("rb") as file:
            is_whole = file.read(len(_MAGIC)) == _MAGIC and rest.startswith(f"{_boot()}.")
            if is_whole:
                os.fsync(file.fileno())
        if is_whole:
            path.replace(folder / f"{name}.jsa")
        elif time.time() - path.stat().st_mtime > _UNFINISHED_SECONDS:
            path.unlink()


def _boot() -> str:
    """This start of the machine: what was being written when its power went is not trusted."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except OSError:
        return "0"
