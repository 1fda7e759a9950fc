"""Names of files and folders as Spark's readers take them, which are patterns.

A reader that is told not to take them so (`__globPaths__`, as Spark's own file streams do) reads all files of its list
once more for each name with a sign of a pattern. Names are escaped instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.sources.listing import is_passed_over
from penstock.spark.tasks.parquet_files import local_path

_SIGNS = re.compile(r"[{}\[\]*?\\]")


def has_signs(name: str) -> bool:
    """Whether a name holds a sign that means something in a pattern."""
    return _SIGNS.search(name) is not None


def by_name(paths: Iterable[str]) -> list[str]:
    """Paths for Spark's readers of files that were listed: each stands for itself."""
    return [_SIGNS.sub(r"\\\g<0>", path) for path in paths]


def is_pattern(path: str) -> bool:
    """Whether the path of a table is a pattern: it has its signs, and nothing local has that name."""
    local = local_path(path)
    return has_signs(path) and (local is None or not Path(local).exists())


def listed_part(path: str) -> str:
    """The path of a table up to the folder whose names its pattern is about; all of it if it is no pattern."""
    return _SIGNS.split(path)[0].rpartition("/")[0] if is_pattern(path) else path


def table_path(path: str) -> str:
    """The path of a table for Spark's readers: a pattern, or one name."""
    return path if is_pattern(path) else by_name([path])[0]


def files_among_others(path: str) -> list[str] | None:
    """The files of a local folder, if it has anything that is neither file nor folder, which Spark would open to learn the columns.

    Args:
        path: of a table.

    Returns:
        Their paths; None where all is plain, or where nobody can look.
    """
    local = local_path(path)
    if local is None or not Path(local).is_dir():
        return None
    files: list[str] = []
    is_plain = True
    folders = [local]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if is_passed_over(entry.name):
                        continue
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif entry.is_file():
                        files.append(entry.path)
                    else:
                        is_plain = False
    except OSError:  # Spark looks at the same and tells it
        return None
    return None if is_plain else sorted(files)


def base_path(path: str) -> Mapping[str, str]:
    """The option from which Spark knows partition folders below a table's path; nothing of a pattern, or of one file."""
    if is_pattern(path):
        return {}
    local = local_path(path)
    return {} if local is not None and not Path(local).is_dir() else {"basePath": path}


def absolute(path: str) -> str:
    """A path as Spark needs it, whose JVM may have another working folder, and which has names of its own for object stores."""
    return hadoop_path(path) if "://" in path else str(Path(path).resolve())
