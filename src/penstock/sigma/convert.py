"""Files of Sigma rules to conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from sigma.collection import SigmaCollection
from sigma.exceptions import SigmaError
from sigma.policy.profiles import TrustedPolicy
from sigma.processing.pipeline import ProcessingPipeline
from sigma.rule import SigmaRule
from sigma.rule.base import SigmaYAMLLoader

from penstock.errors import ConnectionFailedError, InputError
from penstock.sigma.backend import SparkSqlBackend
from penstock.sigma.log_sources import is_known, renamed, windows
from penstock.sigma.script import ConvertedRule, UnconvertedRule

#: the endings of files of rules
_ENDINGS = (".yml", ".yaml")


class _UnconvertedError(Exception):
    """A rule cannot be converted; the text says why."""


@dataclass(slots=True)
class Converted:
    """What became of the rules of a folder.

    Attributes:
        rules: those that are conditions now, in the order of their files.
        failed: those that are not, each with the reason.
    """

    rules: list[ConvertedRule] = field(default_factory=list)
    failed: list[UnconvertedRule] = field(default_factory=list)


def convert_folder(
    folder: Path,
    fields: Mapping[str, str],
    pipelines: Sequence[Path] = (),
    keywords: Sequence[str] = (),
    numbers: Collection[str] = (),
) -> Converted:
    """Convert every Sigma rule below a folder.

    Args:
        folder: the folder, or one file.
        fields: the column of each field that has another name.
        pipelines: files of pySigma pipelines, applied after the log sources of Windows and before `fields`.
        keywords: columns that keywords are searched in.
        numbers: columns of a numeric type.

    Raises:
        InputError: the folder has no file of rules, or a pipeline is not one.
        ConnectionFailedError: a file cannot be read.
    """
    files = [folder] if folder.is_file() else sorted(each for each in folder.rglob("*") if _is_rules(each))
    if not files:
        raise InputError(f"{folder} has no Sigma rules: files that end in {' or '.join(_ENDINGS)}.")
    pipeline = windows()
    for path in pipelines:
        pipeline += _pipeline(path)
    backend = SparkSqlBackend(pipeline + renamed(fields), keywords, numbers)
    found = Converted()
    taken: set[str] = set()
    for file in files:
        place = file.name if file == folder else str(file.relative_to(folder))
        try:
            collection = _collection(file)
        except (_UnconvertedError, SigmaError, yaml.YAMLError) as error:
            found.failed.append(UnconvertedRule(place, _reason(error)))
            continue
        found.failed += [UnconvertedRule(place, _reason(error)) for error in collection.errors]
        found.failed += [
            UnconvertedRule(place, "filters of other rules are not converted") for each in collection.filters
        ]
        for rule in collection.rules:
            try:
                if not isinstance(rule, SigmaRule):
                    raise _UnconvertedError("rules that correlate others are not converted")
                name = _free_name(file.stem, rule, taken)
                where = _condition(rule, backend, bool(pipelines))
            except (_UnconvertedError, SigmaError, NotImplementedError) as error:
                found.failed.append(UnconvertedRule(place, _reason(error)))
                continue
            taken.add(name.upper())
            found.rules.append(ConvertedRule(name, where, _about(rule)))
    return found


def _collection(file: Path) -> SigmaCollection:
    """The rules of a file; mistakes in one are in its `errors`."""
    documents = list(yaml.load_all(_text(file), SigmaYAMLLoader))
    if not all(isinstance(each, dict) for each in documents):
        raise _UnconvertedError("the file is no Sigma rule")
    return SigmaCollection.from_dicts(
        documents, collect_errors=True, resolve_references=False, policy=TrustedPolicy
    )


def _condition(rule: SigmaRule, backend: SparkSqlBackend, has_pipelines: bool) -> str:
    """The condition of a rule; one with several conditions matches where any of them does."""
    if rule.errors:
        raise rule.errors[0]
    if not (has_pipelines or is_known(rule.logsource)):
        parts = ("product", "category", "service")
        told = ", ".join(f"{part} {value}" for part in parts if (value := getattr(rule.logsource, part)))
        raise _UnconvertedError(
            f"Penstock does not know which events are of the log source {told}. Describe them in a pySigma pipeline, a YAML file "
            "with a transformation of type add_condition, and pass it with --pipeline FILE"
        )
    queries = [str(each) for each in backend.convert_rule(rule)]
    return queries[0] if len(queries) == 1 else " OR ".join(f"({each})" for each in queries)


def _free_name(stem: str, rule: SigmaRule, taken: Collection[str]) -> str:
    """The name of a rule's view: its file's, with the rule's id where that is taken."""
    names = (stem, *((f"{stem}_{rule.id}",) if rule.id else ()))
    free: str | None = next((each for each in names if each.upper() not in taken), None)
    if free is None:
        raise _UnconvertedError("another rule has the same name, and no id tells them apart")
    return free


def _about(rule: SigmaRule) -> dict[str, str]:
    return {
        "title": rule.title,
        "id": str(rule.id or ""),
        "author": rule.author or "",
        "level": rule.level.name.lower() if rule.level else "",
        "licence": rule.license or "",
    }


def _is_rules(file: Path) -> bool:
    return file.suffix in _ENDINGS and file.is_file()


def _pipeline(path: Path) -> ProcessingPipeline:
    try:
        return ProcessingPipeline.from_yaml(_text(path), source_path=str(path))
    except (SigmaError, yaml.YAMLError, TypeError) as error:
        raise InputError(f"--pipeline {path}: not a pySigma pipeline: {_reason(error)}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise ConnectionFailedError(f"Cannot read {path}: {reason}.") from error


def _reason(error: Exception) -> str:
    """An error as one line."""
    return " ".join(str(error).split()) or type(error).__name__
