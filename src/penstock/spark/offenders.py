"""Files that stop Spark's readers: whether a failure is the files' fault, and which of them it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from penstock.spark.causes import cause_of, trace_of

#: what Spark says where a file's content, or its absence, is at fault
_OF_FILES = re.compile(
    r"FAILED_READ_FILE|PATH_NOT_FOUND|CANNOT_READ_FILE_FOOTER|INCONSISTENT_BEHAVIOR_CROSS_VERSION"
)
#: causes that leave the files at fault: all others say what else is
_LEFT = ("failed", "file_missing")


def fault_of_files(error: BaseException) -> str | None:
    """Why Spark could not read files, or None where something else than the files is at fault."""
    cause = cause_of(error)
    return cause.told if cause.kind in _LEFT and _OF_FILES.search(trace_of(error)) else None


def offenders(paths: Sequence[str], why_not: Callable[[Sequence[str]], str | None]) -> dict[str, str]:
    """The files that cannot be read, by halving the list.

    Args:
        paths: the files.
        why_not: reads files together: the reason why that fails, or None.

    Returns:
        The reason of each.
    """
    reason = why_not(paths) if paths else None
    if reason is None:
        return {}
    if len(paths) == 1:
        return {paths[0]: reason}
    middle = len(paths) // 2
    return {**offenders(paths[:middle], why_not), **offenders(paths[middle:], why_not)}
