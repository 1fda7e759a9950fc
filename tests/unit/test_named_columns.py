"""Which columns a SELECT list may read."""

from __future__ import annotations

import pytest

from penstock.sql.text.named_columns import named_columns

COLUMNS = ("id", "Price", "url", "extra", "at time", "a`b", "größe", "1st")
#: read by whatever text, for nobody but Spark knows which letters are equal in another case
ALWAYS = "größe"


@pytest.mark.parametrize(
    ("items", "read"),
    [
        (["id"], ["id"]),
        (["PRICE * 2", "b.id"], ["id", "Price"]),
        (["regexp_extract(url, 'x', 1)"], ["url"]),
        (["identity", "urls", "extras"], []),
        (["`at time`"], ["at time"]),
        (["`A``B`"], ["a`b"]),
        (["1st"], ["1st"]),
        (["1 * 2", "(1) * (2)", "m[1] * -1", "id * id"], ["id"]),
        (["id -- url\n"], ["id", "url"]),
    ],
)
def test_columns_that_a_list_names(items: list[str], read: list[str]) -> None:
    assert named_columns(items, COLUMNS) == tuple(name for name in COLUMNS if name in (*read, ALWAYS))


@pytest.mark.parametrize(
    "item",
    [
        "struct(*)",
        "b.*",
        "array( *)",
        "coalesce(id, *)",
        "IDENTIFIER('u' || 'rl')",
        "identifier ('url')",
        "*",
        "struct(/* all */ *)",
        "to_json(struct(-- all\n *))",
        "struct(ALL *)",
        "struct(DISTINCT *)",
        "map('a', /**/*)",
        "f(a => *)",
        "IDENTIFIER /* x */ ('url')",
    ],
)
def test_what_may_stand_for_any_column(item: str) -> None:
    assert named_columns([item], COLUMNS) == COLUMNS
