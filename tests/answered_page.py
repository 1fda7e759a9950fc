"""The tables of a reference page, and the statements behind "What is answered, and how"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGE = REFERENCE / "answered.md"
ANSWERED, REFUSED = REFERENCE / "answered.sql", REFERENCE / "refused.sql"
#: columns of the page
QUERY, SQL, WAY, OVER, CORRECTED, STATE = "query", "SQL", "answered by", "over", "corrected", "state"
_COMMENT = re.compile(r"^-- (.*)$", re.MULTILINE)
_VIEW = re.compile(r"CREATE VIEW (\w+) AS\s+(.*?);$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def tables(page: Path) -> Iterator[list[dict[str, str]]]:
    """The tables of a page: of each its rows, by the names of the columns, links as their text."""
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        names, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        yield [dict(zip(names, (_LINK.sub(r"\1", cell) for cell in row), strict=True)) for row in rows]


def queries() -> dict[str, dict[str, str]]:
    """The rows of the page that are about queries, by query."""
    rows = [row for table in tables(PAGE) for row in table if QUERY in row]
    found = {row[QUERY]: row for row in rows}
    assert len(found) == len(rows), "a query stands in one row"
    return found


def statements(script: Path) -> dict[str, dict[str, str]]:
    """The views of a script, name -> SELECT, by the comment that stands before them."""
    _, *parts = _COMMENT.split(script.read_text())
    found = dict(zip(parts[::2], (dict(_VIEW.findall(text)) for text in parts[1::2]), strict=True))
    return {comment: views for comment, views in found.items() if views}


def declared_tables() -> str:
    """What the script of the answered queries declares before its views."""
    text, _, _ = ANSWERED.read_text().partition("CREATE VIEW")
    return _COMMENT.sub("", text)


def queries_of(statements_: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """All views of some statements: name -> SELECT."""
    return {name: text for views in statements_.values() for name, text in views.items()}


def shows(form: str, statement: str) -> bool:
    """Whether a short form is that of a statement: its pieces, with `..` between them, stand there in this order."""
    pieces = (re.escape(" ".join(piece.split())) for piece in form.split("..") if piece.strip())
    return re.search(".*".join(pieces), " ".join(statement.split())) is not None
