"""A sample of the files of a table, read without Spark."""

from __future__ import annotations

import glob
import gzip
import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import IO

from penstock.spark.sources.listing import is_passed_over
from penstock.spark.sources.patterns import is_pattern
from penstock.sql.script.statements import Column, CreateTable

#: files that are looked at, entries of folders among which they are found, records a file, characters of a record
FILES = 3
_ENTRIES = 1000
RECORDS = 200
CHARACTERS = 1 << 20
#: names that a message lists
_NAMED = 8


def sample(path: str) -> list[Path]:
    """The first files of a path, by name where they are few; of another file system none."""
    return list(islice(_files(path), FILES))


def has_no_files(path: str) -> bool:
    """Whether a path is there and no file that Spark would read is below it, as far as is looked."""
    if "://" in path or not (is_pattern(path) or Path(path).exists()):
        return False
    return next(_named(path), None) is None


def partition_columns(path: str, files: Iterable[Path]) -> dict[str, str]:
    """The columns that folders `name=value` between a path and its files give, by name in lower case."""
    root = len(Path(path).parts)
    return {
        name.lower(): name
        for file in files
        for name, sign, _ in (part.partition("=") for part in file.parts[root:-1])
        if sign and name
    }


def stored_columns(table: CreateTable, files: Iterable[Path]) -> list[Column]:
    """The declared columns that stand in the files: those of partition folders left out."""
    partitions = partition_columns(table.options["path"], files)
    return [column for column in table.columns if column.name.lower() not in partitions]


def open_text(file: Path, encoding: str) -> IO[str]:
    """A file of text, its characters that are no such text replaced; it may be compressed."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding=encoding, errors="replace", newline="")
    return file.open(encoding=encoding, errors="replace", newline="")


def lines(text: IO[str]) -> Iterator[str]:
    """The first lines, of long ones the beginning."""
    return islice(iter(lambda: text.readline(CHARACTERS), ""), RECORDS)


def absent(columns: Iterable[Column], names: set[str], where: str, *, folded: bool = False) -> list[str]:
    """A warning of columns that are not among the names of a sample; no sample, no word.

    Args:
        columns: those that should be there.
        names: those that are.
        where: what was looked at.
        folded: whether names that differ in case only are the same.
    """
    if not names:
        return []
    known = {name.lower() for name in names} if folded else names
    missing = [each.name for each in columns if (each.name.lower() if folded else each.name) not in known]
    if not missing:
        return []
    slips = [get_close_matches(name.lower(), {each.lower(): each for each in names}, 1) for name in missing]
    meant = [_original(names, near[0]) for near in slips if near]
    hint = f"; did you mean {', '.join(meant)}?" if meant else "."
    return [f"{where} have no {listed(missing)}, which will be NULL{hint} They have: {listed(sorted(names))}"]


def listed(names: list[str]) -> str:
    """Names in a message, the first of many."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _original(names: Iterable[str], lower: str) -> str:
    return next(name for name in names if name.lower() == lower)


def _files(path: str) -> Iterator[Path]:
    if "://" in path:
        return
    yield from (file for file in _named(path) if file.is_file() and file.stat().st_size)


def _named(path: str) -> Iterator[Path]:
    """What is below a path and would be read as a file if it is one."""
    found = islice(glob.iglob(path), _ENTRIES) if is_pattern(path) else [path]  # noqa: PTH207, may be absolute
    for folder in map(Path, sorted(found)):
        for entry in sorted(islice(_below(folder), _ENTRIES)) if folder.is_dir() else [folder]:
            if not is_passed_over(entry.name) and not entry.is_dir():
                yield entry


def _below(folder: Path) -> Iterator[Path]:
    """All that is in a folder and its folders, in no order, read as it is asked for."""
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir() and not is_passed_over(entry.name):
                    folders.append(entry.path)
                yield Path(entry.path)
