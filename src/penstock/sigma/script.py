"""The script of converted rules: a view for each, and who wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.sigma.literals import name


@dataclass(frozen=True, slots=True)
class ConvertedRule:
    """A rule as a condition.

    Attributes:
        name: of its view.
        where: the condition.
        about: title, id, author and what else its comments say, by what it is; empty values are left out.
    """

    name: str
    where: str
    about: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnconvertedRule:
    """A rule that is no condition.

    Attributes:
        file: its file, relative to the folder.
        reason: why it was not converted.
    """

    file: str
    reason: str


def script(rules: Sequence[ConvertedRule], table: str, licences: Mapping[str, str]) -> Iterator[str]:
    """Yield the script that declares a view for each rule, in pieces.

    Args:
        rules: the rules.
        table: the stream of their events.
        licences: the text of each licence file, by its name; it becomes a comment.
    """
    yield f"-- {len(rules)} rules converted from Sigma by `penstock import sigma`.\n"
    yield "-- Keep title, id, author and licence with each rule that you share.\n"
    for file, text in licences.items():
        yield f"--\n-- {file}:\n"
        yield from (f"--   {line}".rstrip() + "\n" for line in text.splitlines())
    for rule in rules:
        yield "\n"
        for what, value in rule.about.items():
            if value:
                yield f"-- {what}: {' '.join(value.split())}\n"
        yield f"CREATE VIEW {name(rule.name)} AS SELECT * FROM {name(table)} WHERE {rule.where};\n"


def licence_texts(folder: Path) -> dict[str, str]:
    """Return the text of each licence file directly in a folder, by its name."""
    files = sorted(folder.glob("LICEN[CS]E*")) if folder.is_dir() else []
    return {each.name: each.read_text(encoding="utf-8", errors="replace") for each in files}
