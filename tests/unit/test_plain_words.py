"""Plain words in what users read: no phrase that style rules out, no long sentence, no long paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "decisions"),
]

#: phrases that readers had to decode; matched as whole words, whatever their case
PHRASES = (
    "told",
    "said",
    "there is",
    "there are",
    "what comes",
    "comes and goes",
    "goes",
    "stays",
    "at hand",
    "holds",
    "for good",
    "by night",
    "is known of",
    "taken away",
    "what is there",
    "all there is",
    "may be had",
)
LONGEST_SENTENCE_WORDS = 30
LONGEST_PARAGRAPH_LINES = 5

_WORDS = "|".join(PHRASES).replace(" ", r"\s+")
_PHRASE = re.compile(rf"\b(?:{_WORDS})\b", re.IGNORECASE)


def phrases_in(texts: Iterable[str]) -> list[str]:
    """List each ruled-out phrase of texts, with the words around it."""
    return [
        text[max(0, found.start() - 30) : found.end() + 30]
        for text in texts
        for found in _PHRASE.finditer(text)
    ]


def long_sentences_in(texts: Iterable[str]) -> list[str]:
    """List the sentences of texts that have more than `LONGEST_SENTENCE_WORDS` words."""
    sentences = (sentence for text in texts for sentence in re.split(r"(?<=[.?!])\s+", text))
    return [sentence for sentence in sentences if len(sentence.split()) > LONGEST_SENTENCE_WORDS]


def without_code(page: str) -> str:
    """Return a Markdown page without code blocks; inline code is one word, a link its text."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"`[^`]+`", "code", page)
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", page)


def paragraphs(page: str) -> Iterator[str]:
    """Yield paragraphs and list items of a Markdown page, without code blocks, tables and headings."""
    prose = "\n".join("" if line.startswith(("|", "#")) else line for line in without_code(page).splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", prose):
        if block.strip():
            yield block.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_no_ruled_out_phrase(page: Path) -> None:
    assert phrases_in([without_code(page.read_text())]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_short_sentences_and_paragraphs(page: Path) -> None:
    found = list(paragraphs(page.read_text()))
    assert long_sentences_in(found) == []
    assert [each for each in found if len(each.splitlines()) > LONGEST_PARAGRAPH_LINES] == []


def test_phrases_are_found_as_words() -> None:
    assert phrases_in(["It stays.", "A by-\nstander; for\ngood"]) == [
        "It stays.",
        "A by-\nstander; for\ngood",
    ]
    assert phrases_in(["thresholds, and what came at handover"]) == []


def test_sentences_end_at_stops_alone() -> None:
    words = "word " * LONGEST_SENTENCE_WORDS
    assert long_sentences_in([f"{words.strip()}. {words.strip()}."]) == []
    assert long_sentences_in([f"{words}word."]) == [f"{words}word."]
    page = f"# Title\n\n| {words * 2}|\n\n- one\n- `{words * 2}`\n\n```\n{words * 2}\n```\n"
    assert list(paragraphs(page)) == ["- one", "- code"]
