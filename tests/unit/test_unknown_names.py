"""What an error of an unknown name says is in its fields too, wherever the error is shown."""

from __future__ import annotations

import pickle
from copy import copy

import pytest

from penstock.errors import UngroupedError, UnknownNameError
from penstock.sql.script.script import parse_script
from penstock.sql.text.clauses import Clause

TEXT = "SELECT amont FROM orders"
COLUMNS = ("id", "amount")


def _unknown() -> UnknownNameError:
    return UnknownNameError.among("Column", "amont", COLUMNS, "Existing columns").at(TEXT, 7, 12)


def test_the_message_is_made_from_the_fields() -> None:
    error = _unknown()
    assert error.message == "Column amont does not exist; did you mean amount? Existing columns: id, amount"
    assert (error.name, error.near, error.known) == ("amont", "amount", COLUMNS)


@pytest.mark.parametrize(
    ("error", "message", "near"),
    [
        (UnknownNameError.among("Function", "nofn", ["abs"]), "Function nofn does not exist.", None),
        (UnknownNameError.among("column", "idd", COLUMNS, "Its columns", owner="o"), "o has no column idd; did you mean id? Its columns: id, amount", "id"),
        (UnknownNameError.among("View", "x", "abc", "Existing views", most=2), "View x does not exist. Existing views: a, b and 1 more", None),
        (UnknownNameError.among("View", "x", (), "Existing views", rest="Add one."), "View x does not exist. Existing views: none. Add one.", None),
    ],
    ids=["alone", "owner", "most", "rest"],
)  # fmt: skip
def test_what_a_message_has(error: UnknownNameError, message: str, near: str | None) -> None:
    assert (error.message, error.near) == (message, near)


@pytest.mark.parametrize("moved", [copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_fields_stay_in_copies_and_at_other_places(moved: object) -> None:
    assert callable(moved)
    error = moved(_unknown())
    assert type(error) is UnknownNameError
    assert vars(error) == vars(_unknown())
    assert str(error) == str(_unknown())
    placed = Clause("amont", f"-- {TEXT}", 10).at(error)
    assert (placed.name, placed.near, placed.known) == ("amont", "amount", COLUMNS)
    assert placed.text[placed.start : placed.end] == "amont"
    assert (error.text, error.start) == (TEXT, 7)
    ungrouped = moved(UngroupedError("id is not grouped", TEXT, 0, 2, "id", "orders"))
    assert (ungrouped.column, ungrouped.source) == ("id", "orders")


def test_secrets_of_the_script_where_it_is_shown_are_masked() -> None:
    error = UnknownNameError("there is no s3cr3t", name="s3cr3t")
    shown = error.at("CREATE TABLE t USING x OPTIONS (password 's3cr3t')", 0, 6)
    assert "s3cr3t" not in str(shown) + repr(shown)


def test_a_script_tells_the_table_that_is_meant() -> None:
    with pytest.raises(UnknownNameError) as raised:
        parse_script("CREATE TABLE orders USING csv OPTIONS (path 'x'); CREATE VIEW v AS SELECT * FROM ordrs")
    error = raised.value
    assert (error.name, error.near, error.known) == ("ordrs", "orders", ("orders",))
