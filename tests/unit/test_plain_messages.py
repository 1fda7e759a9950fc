"""No text that reaches users has a word of the inside, or one that the style asks writers to leave out.

Collected are the string constants of `src` that are sentences or parts of them: of errors, warnings, events, help and reports. Docstrings,
comments, SQL texts and patterns are none.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
#: what only builds SQL or inputs, or is a list of names
NOT_MESSAGES = (
    "penstock/spark/analysis/functions.py",
    "penstock/spark/analysis/raising.py",
    "penstock_lab/generators",
    "penstock_lab/servers",
)
#: what users should not meet, and what to write instead
FORBIDDEN = {
    r"\b(?:is|are|was|were|be|been) told\b": "is reported, is logged",
    r"\b(?:is|was|been|be) said\b": "is reported",
    r"\bsays? (?:of|so|which|how|when)\b": "reports, names",
    r"\bgo(?:es)? on\b": "continues",
    r"\bgoes with\b|\bgo with\b": "exclude each other",
    r"\bat hand\b": "current, in progress",
    r"\bof late\b": "newest",
    r"\bfor good\b": "permanently",
    r"\bby night\b": "while the stream is idle",
    r"\bstays?\b": "remains",
    r"\b(?:comes?|came)\b": "arrives",
    r"\bthere (?:is|are) no\b": "does not exist",
    r"\b(?:is|are) there\b": "exists",
    r"\bis gone\b|\bare gone\b": "does not exist any more, was deleted",
    r"\bput (?:it|them|that) back\b": "restore",
    r"\bset back\b": "restored from an older copy",
    r"\b(?:anew|afresh|beneath|beforehand)\b": "again, from scratch, below, in advance",
    r"\bwork(?:s|ed)? out\b": "compute",
    r"\btaken away\b|\btakes? away\b": "delete",
    r"\bturned away\b": "refused",
    r"\bis no (?!more\b)[a-z]": "is not a ...",
    r"\bstands? (?:twice|alone|in|for)\b": "appears, is allowed, represents",
    r"\ban aggregate of yours\b|\bof the user's\b": "your aggregate",
    r"\bpassed over\b": "skipped",
    r"\blast word\b": "report",
    r"p-attribute|micro-arrow|behind the DataFrame|map stage|version 0\b": "words of the inside",
    r"\b1 (?:rows|files|records|tuples|windows|batches|views|places)\b": "singular",
}


def test_no_message_has_a_forbidden_word() -> None:
    # one search for all patterns: nearly no text has one
    some = re.compile("|".join(FORBIDDEN))
    found = [
        f"{place}: {match.group(0)!r} in {text!r}; write: {better}"
        for place, text in _texts()
        if some.search(text) is not None
        for pattern, better in FORBIDDEN.items()
        if (match := re.search(pattern, text)) is not None
    ]
    assert not found, "\n".join(found)


def test_the_collection_finds_messages() -> None:
    texts = [text for _, text in _texts()]
    assert len(texts) > 800
    assert any(text.startswith("STATE_TTL is by event time") for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "the batch at hand",
        "its rows stay",
        "that is told alone",
        "{} is no column",
        "the run goes on",
        "1 rows",
    ],
)
def test_forbidden_words_are_found(text: str) -> None:
    assert any(re.search(pattern, text) for pattern in FORBIDDEN)


@functools.cache
def _texts() -> tuple[tuple[str, str], ...]:
    return tuple(_messages())


def _messages() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(NOT_MESSAGES):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            skipped = set(map(id, _docstrings(tree))) - set(map(id, _help_texts(name, tree)))
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    skipped.update(map(id, node.values))
            for node in ast.walk(tree):
                text = _text(node) if id(node) not in skipped else None
                if text is not None and _is_sentence(text):
                    yield f"{name}:{getattr(node, 'lineno', 0)}", text


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
    return None


def _is_sentence(text: str) -> bool:
    """Whether a text is words for people: not SQL, not a pattern, not the text of an assertion of ours."""
    return text.count(" ") >= 1 and re.search(r"[a-z]{2} [a-z(]|[a-z] \{|\} [a-z]", text) is not None


def _help_texts(name: str, tree: ast.Module) -> Iterator[ast.AST]:
    """The docstrings of commands, which `--help` prints."""
    for node in tree.body if name.startswith(("penstock/cli/", "penstock_lab/cli")) else ():
        if isinstance(node, ast.FunctionDef) and node.name in (
            Path(name).stem,
            "quarantine",
            "_options",
            "_commands",
            "simulate",
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value


def _docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            yield from ast.walk(node.msg)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value
