"""Files that declare views: which exist, what has changed in them, and the rules they have."""

from __future__ import annotations

import csv
import glob
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.sources.listing import is_passed_over
from penstock.spark.sources.patterns import has_signs, is_pattern
from penstock.spark.tasks.parquet_files import local_path
from penstock.sql.script.parsing import RULE_FORMATS
from penstock.sql.script.rules import RefusedRule, Rule, rule_of_text, rules_of_file
from penstock.sql.script.statements import CreateViews

#: when a file was written, nanoseconds, and its bytes
_Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read.

    Attributes:
        stamp: what it was then; None where it could not be read, and is tried again.
        rules: what it declares, in its order, and what it has instead of rules.
    """

    stamp: _Stamp | None
    rules: tuple[Rule | RefusedRule, ...]


class RuleFiles:
    """The files of a CREATE VIEWS statement, each read again once it has changed.

    Args:
        statement: the statement.
        aggregates: names of the user's aggregates.

    Raises:
        ConnectionFailedError: the path does not exist, or is not local.
    """

    def __init__(self, statement: CreateViews, aggregates: Collection[str]) -> None:
        self.statement = statement
        self._aggregates = aggregates
        path = local_path(statement.path)
        if path is None:
            raise ConnectionFailedError(
                f"Rules are read from local files, and {statement.path} is not local.", *statement.at()
            )
        self._path = path
        #: the folder without which the absence of files says nothing
        self._base = _base(path) if is_pattern(path) else Path(path).parent
        if not (self._base if is_pattern(path) else Path(path)).exists():
            raise ConnectionFailedError(f"{statement.path} does not exist.", *statement.at())
        self._files: dict[str, _Read] = {}
        #: what changed files were at the last look; None: they are gone
        self._unsettled: dict[str, _Stamp | None] = {}
        for file, stamp in self._stamps().items():
            self._files[file] = self._read(file, stamp)

    @property
    def is_away(self) -> bool:
        """Whether the folder of the files is gone, so that nothing is known of them."""
        return not self._base.is_dir()

    @property
    def read(self) -> Collection[str]:
        """The files that were read."""
        return self._files.keys()

    def look(self) -> bool:
        """Look at the files again, and read those that have changed since the last look but one and not since the last.

        Returns:
            Whether a file has other rules, or others that cannot be read, than before.
        """
        if self.is_away:
            return False
        stamps = self._stamps()
        unsettled: dict[str, _Stamp | None] = {}
        is_changed = False
        for file in stamps.keys() | self._files.keys():
            stamp, known = stamps.get(file), self._files.get(file)
            if known is not None and stamp is not None and known.stamp == stamp:
                continue
            if file not in self._unsettled or self._unsettled[file] != stamp:
                unsettled[file] = stamp
                continue
            if stamp is None:
                del self._files[file]
                is_changed = True
            else:
                read = self._files[file] = self._read(file, stamp)
                is_changed |= known is None or known.rules != read.rules
        self._unsettled = unsettled
        return is_changed

    def rules(self) -> tuple[dict[str, Rule], list[RefusedRule]]:
        """Return the rules by name, and what the files have instead of rules; of two with one name the second is refused."""
        found: dict[str, Rule] = {}
        names: dict[str, str] = {}
        refused = []
        for file in sorted(self._files):
            for rule in self._files[file].rules:
                if isinstance(rule, RefusedRule):
                    refused.append(rule)
                elif (other := names.get(rule.name.upper())) is not None:
                    message = f"{found[other].place} declares {other} already. Rename one of them."
                    refused.append(rule.refused(InputError(message)))
                else:
                    names[rule.name.upper()] = rule.name
                    found[rule.name] = rule
        return found, refused

    def _stamps(self) -> Mapping[str, _Stamp]:
        """The files there are."""
        found = {}
        for file in self._listed():
            try:
                state = os.stat(file)  # noqa: PTH116, thousands of them each second
            except OSError:
                continue
            found[file] = state.st_mtime_ns, state.st_size
        return found

    def _listed(self) -> Iterator[str]:
        if is_pattern(self._path):
            paths: Iterator[str] = glob.iglob(self._path, recursive=True)  # noqa: PTH207, a path of the user's, as written
        elif os.path.isdir(self._path):  # noqa: PTH112, as above
            ending = {suffix for suffix, form in RULE_FORMATS.items() if form == self.statement.format}
            with os.scandir(self._path) as entries:
                names = [each.path for each in entries if each.name.rpartition(".")[2].lower() in ending]
            paths = iter(names)
        else:
            paths = iter([self._path])
        for path in paths:
            if not is_passed_over(os.path.basename(path)) and os.path.isfile(path):  # noqa: PTH113, PTH119, as above
                yield path

    def _read(self, file: str, stamp: _Stamp) -> _Read:
        try:
            return _Read(stamp, tuple(self._rules(file)))
        except (OSError, ValueError, csv.Error, pa.ArrowException, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = "it is not UTF-8 text"
            elif isinstance(error, RecursionError):
                reason = "it nests too deeply"
            told = f"the file cannot be read: {' '.join(reason.split())}"
            return _Read(
                None if isinstance(error, OSError) else stamp, (RefusedRule(None, file, file, told),)
            )

    def _rules(self, file: str) -> Iterator[Rule | RefusedRule]:
        statement = self.statement
        if statement.format == "sql":
            text = Path(file).read_text(encoding="utf-8-sig")
            yield from rules_of_file(text, file, Path(file).stem, statement.stream, self._aggregates)
            return
        rows = {"csv": self._csv_rows, "json": _json_rows, "parquet": self._parquet_rows}[statement.format]
        for place, row in rows(file):
            name, condition = (row.get(each) for each in (statement.name_column, statement.condition_column))
            if not isinstance(name, str) or not name.strip():
                reason = f"the row has no text in column {statement.name_column}"
                yield RefusedRule(None, file, place, reason)
            elif not isinstance(condition, str):
                reason = f"the row has no text in column {statement.condition_column}"
                yield RefusedRule(name, file, place, reason)
            else:
                yield rule_of_text(condition, file, place, name, statement.stream, self._aggregates)

    def _csv_rows(self, file: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        with Path(file).open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, strict=True)
            self._check_columns(reader.fieldnames or ())
            for row in reader:
                yield f"{file}:{reader.line_num}", row

    def _parquet_rows(self, file: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        with pq.ParquetFile(file) as table:
            self._check_columns(table.schema_arrow.names)
            columns = [self.statement.name_column, self.statement.condition_column]
            rows = table.read(columns=columns).to_pylist()
        yield from ((f"{file} row {number}", row) for number, row in enumerate(rows, 1))

    def _check_columns(self, names: Collection[str]) -> None:
        for name in (self.statement.name_column, self.statement.condition_column):
            if name not in names:
                raise ValueError(
                    f"it has no column {name}. Columns: {', '.join(names) or 'none'}. OPTIONS (name 'column', condition 'column') "
                    "names others"
                )


def _json_rows(file: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    with Path(file).open(encoding="utf-8-sig") as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            yield f"{file}:{number}", row


def _base(pattern: str) -> Path:
    """The folder above the first part of a pattern that has its signs."""
    base = Path(pattern)
    while has_signs(str(base)):
        base = base.parent
    return base
