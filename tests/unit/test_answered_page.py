"""The page of what is answered has a row for each example, and shows each as it is written."""

from __future__ import annotations

import re

import pytest

import answered_ways
from answered_page import ANSWERED, PAGE, REFUSED, SQL, WAY, queries, queries_of, shows, statements, tables
from answered_ways import NOTHING, REFRESH

QUERIES = queries()
BEHIND = statements(ANSWERED) | statements(REFUSED)


def test_each_row_has_statements() -> None:
    assert sorted(QUERIES) == sorted(BEHIND)
    names = [name for script in (ANSWERED, REFUSED) for name in queries_of(statements(script))]
    assert len(set(names)) == len(names)
    written = sum(script.read_text().count("CREATE VIEW ") for script in (ANSWERED, REFUSED))
    assert len(names) == written


def test_what_is_refused_stands_apart() -> None:
    refused = {query for query, row in QUERIES.items() if row[WAY] in (REFRESH, NOTHING)}
    assert refused == statements(REFUSED).keys()


@pytest.mark.parametrize("query", QUERIES)
def test_the_short_form_is_that_of_the_statements(query: str) -> None:
    forms = re.findall(r"`([^`]+)`", QUERIES[query][SQL])
    texts = list(BEHIND[query].values())
    for form in forms:
        assert any(shows(form, text) for text in texts), form
    for text in texts:
        assert any(shows(form, text) for form in forms), text


def test_every_way_is_explained() -> None:
    explained, *_ = tables(PAGE)
    ways = {row[WAY] for row in explained}
    assert ways == {row[WAY] for row in QUERIES.values()}
    assert ways <= {value for name, value in vars(answered_ways).items() if name.isupper()}


def test_a_form_is_not_that_of_another_statement() -> None:
    assert shows("GROUP BY .. HAVING n > 1", "SELECT a\nFROM t GROUP BY a\nHAVING n > 1")
    assert not shows("HAVING n > 1 .. GROUP BY", "SELECT a FROM t GROUP BY a HAVING n > 1")
    assert not shows("HAVING n > 2", "SELECT a FROM t GROUP BY a HAVING n > 1")
