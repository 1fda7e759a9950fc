"""The page explains its words by the sentences of the glossary."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "src" / "penstock" / "page" / "static" / "js"


def test_the_words_of_the_page_mean_what_the_glossary_says() -> None:
    rows = re.findall(
        r"^\| ([^|]+?) \| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    meanings = {re.sub(r" \(.*", "", term): meaning.replace("`", "") for term, meaning in rows}
    told = re.findall(r'^  "?([a-z ]+)"?: "(.*)",$', (SCRIPTS / "glossary.js").read_text(), re.MULTILINE)
    assert {"lane", "cut", "rho", "horizon", "slack"} <= {term for term, _ in told}
    assert {term: meanings.get(term) for term, _ in told} == dict(told)


def test_a_page_explains_words_of_the_glossary_alone() -> None:
    known = set(re.findall(r'^  "?([a-z ]+)"?:', (SCRIPTS / "glossary.js").read_text(), re.MULTILINE))
    used = {
        term
        for script in SCRIPTS.rglob("*.js")
        for pair in re.findall(r'TERMS\.(\w+)|TERMS\["([^"]+)"\]', script.read_text())
        for term in pair
        if term
    }
    assert used == known
