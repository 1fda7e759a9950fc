"""The two forms of the tests: `make test` runs the short one, `make test-all` (`PENSTOCK_TESTS=all`) all of them.

Tests marked `long` are of the second form alone; others may try more there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def is_all(value: str) -> bool:
    """Whether a value of `PENSTOCK_TESTS` asks for all tests.

    Raises:
        ValueError: it is neither empty nor `all`.
    """
    if value not in ("", "all"):
        raise ValueError(f"PENSTOCK_TESTS is {value!r}. Set it to 'all', or unset it for the short form.")
    return value == "all"


ALL = is_all(os.environ.get("PENSTOCK_TESTS", ""))

#: configuration of Spark's sessions: queries that are each another one are not worth Java of their own and plans made anew, a fifth of
#: the time of the short form. Each sort, aggregation and table of a join takes a page of memory in each task, by default 32 MB; those of
#: joins remained, 1 GB after ten tests
INTERPRETED = (
    {}
    if ALL
    else {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.buffer.pageSize": "256k",
    }
)

#: environment of commands that start Spark and end soon: Java without its second compiler and its parallel collector
SOON_OVER = (
    {}
    if ALL
    else {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"}
)


def examples(full: int) -> int:
    """The number of random examples to try: so many, a quarter of them in the short form."""
    return full if ALL else max(1, full // 4)


def thinned(cases: Sequence[Any], step: int, names: int = 1) -> list[Any]:
    """Parameters of a test: the short form has every so-manieth from the first one on, the long form has all.

    Args:
        cases: the values of one name, or tuples with those of several.
        step: how many stand for one.
        names: of parameters.
    """
    values = [case if names > 1 else (case,) for case in cases]
    return [
        pytest.param(*each, marks=[pytest.mark.long] if place % step else [])
        for place, each in enumerate(values)
    ]


#: bytes that tests write, some times what they were seen to, and that two workers take
_FILES, _WORKERS = 3 << 30, 8 << 30


def memory_folder() -> Path | None:
    """A folder that lies in memory, where a file is written in microseconds; None where memory is not there to spare."""
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < _FILES:
        return None
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return folder if available and int(available[1]) * 1024 > _WORKERS + _FILES else None
