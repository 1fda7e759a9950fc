"""Messages of mistakes name the rule that was broken, in the words of the script."""

from __future__ import annotations

import pytest

from penstock.errors import InputError, MistakesError, SqlError, meant
from penstock.sql.script.script import parse_script
from penstock.sql.text.intervals import length_text

TABLES = "CREATE TABLE t USING parquet OPTIONS (path 'x'); CREATE TABLE u USING parquet OPTIONS (path 'x');"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'CREATE VIEW "quoted" AS SELECT * FROM t',
            "A string cannot be a name. Quote names with backticks: `quoted`.",
        ),
        (
            "CREATE VIEW v AS SELECT t.a FROM t ASOF JOIN u MATCH_CONDITION (t.x >= u.x)",
            "An ASOF JOIN needs ON with an equality, as in ON t.key = u.key: the newest row is that of a key.",
        ),
        (
            "CREATE VIEW v AS SELECT t.a FROM t LEFT ASOF JOIN u MATCH_CONDITION (t.x >= u.x)",
            "A LEFT ASOF JOIN needs ON with an equality, as in ON t.key = u.key: the newest row is that of a key.",
        ),
        (
            "CREATE VIEW v AS SELECT /*+ CUMULATE('25 minutes') */ window(x, '10 minutes') AS w, count(*) AS n FROM t GROUP BY w",
            "CUMULATE: the length of time must be a multiple of the window's 10 minutes, and longer.",
        ),
    ],
)
def test_a_mistake_is_named_by_its_rule(text: str, told: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse_script(TABLES + text)
    assert refused.value.message == told


def test_lengths_of_time_are_in_the_units_of_scripts() -> None:
    lengths = (600_000_000, 5_400_000_000, 1_500_000, 0, -20_000_000, 3_600_000_000)
    assert [length_text(each) for each in lengths] == [
        *("10 minutes", "1 hour 30 minutes", "1.5 seconds", "0 seconds", "-20 seconds", "1 hour"),
    ]


def test_letters_that_changed_places_are_a_near_name() -> None:
    assert meant("cvs", ["json", "csv"]) == "; did you mean csv?"
    assert meant("xyz", ["json", "csv"]) == "."


def test_a_file_gets_every_mistake_and_a_screen_the_first_ones() -> None:
    error = MistakesError([InputError(f"mistake {number}") for number in range(28)])
    assert str(error).endswith("mistake 19\n\nand 8 more")
    assert error.whole.split("\n\n") == [
        "The script has 28 mistakes.",
        *(f"mistake {number}" for number in range(28)),
    ]
