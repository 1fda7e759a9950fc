"""What is declared: names, what selects from what, and what a change touches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import InputError, UnknownNameError
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.script.queries import parse_query
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import union_name


def view(name: str, source: str, text: str = "") -> View:
    definition = ViewDefinition(name, f"{name}:{text}", text, "TRUE", None)
    return View("t", parse_query(f"SELECT * FROM {source}"), definition)


def chain() -> Declared:
    """base <- left, right; left, right <- top; a view beside them."""
    declared = Declared()
    for name, source in (
        ("base", "t"),
        ("left", "Base"),
        ("right", "BASE"),
        ("top", "Left"),
        ("beside", "t"),
    ):
        declared.put(name, view(name, source))
    return declared.copy()


def test_names_are_found_in_any_case() -> None:
    assert chain().view_name("BESIDE") == "beside"
    with pytest.raises(UnknownNameError, match=r"View x does not exist\. Existing views: base, beside"):
        chain().view_name("x")
    assert chain().queries["TOP"] == chain().views["top"].query
    assert "top" not in chain().queries


def test_messages_list_no_views_that_nobody_has_declared() -> None:
    declared = chain()
    text = "SELECT * FROM t UNION ALL SELECT * FROM t"
    inner = union_name(text)
    declared.put(inner, replace(view(inner, "t"), definition=UnionDefinition(inner, "id", text, (), ())))
    selection = parse_query("SELECT * FROM nothing")
    assert isinstance(selection, SelectQuery)
    with pytest.raises(UnknownNameError) as of_view:
        declared.view_name(inner[:-1])
    with pytest.raises(UnknownNameError) as of_stream:
        declared.stream_name(selection)
    for error in (of_view.value, of_stream.value, declared.unknown("nothing")):
        assert sorted(error.known) == ["base", "beside", "left", "right", "top"]
        assert error.near is None
    assert declared.view_name(inner) == inner


def test_dependents_follow_what_they_select_from() -> None:
    declared = chain()
    assert declared.dependents(["base"]) == ["left", "top", "right"]
    declared.put("left", view("left", "right"))
    assert declared.dependents(["base"]) == ["right", "left", "top"]
    assert declared.dependents(["base", "left"]) == ["right", "top"]
    assert declared.dependents(["top", "beside"]) == []


def test_what_is_beneath_a_query() -> None:
    beneath = chain().beneath(parse_query("SELECT * FROM top"))
    assert [name for name, _ in beneath] == ["top", "left", "base"]
    assert chain().beneath(parse_query("SELECT * FROM t")) == ()


def test_a_dropped_view_that_others_select_from_is_a_loose_end() -> None:
    declared = chain()
    declared.drop("left")
    with pytest.raises(InputError, match=r"^View top selects from Left\. Drop top too\.$"):
        declared.refuse_loose_ends()
    declared.drop("top")
    declared.refuse_loose_ends()
    declared.drop("base")
    with pytest.raises(InputError, match="View right selects from BASE"):
        declared.refuse_loose_ends()
    declared.put("BASE", view("BASE", "t"))
    declared.refuse_loose_ends()
    assert declared.dependents(["BASE"]) == ["right"]


def test_a_copy_changes_nothing() -> None:
    before = chain()
    staged = before.copy()
    staged.drop("top")
    staged.drop("left")
    assert before.dependents(["base"]) == ["left", "top", "right"]
    assert before.spelled["TOP"] == "top"
    assert not before.touched


def test_changes_are_those_of_touched_views() -> None:
    before = chain()
    staged = before.copy()
    staged.drop("top")
    staged.put("beside", view("beside", "t"))
    staged.put("right", view("right", "base", "other"))
    staged.put("new", view("new", "t"))
    staged.put("fleeting", view("fleeting", "t"))
    staged.drop("fleeting")
    changed, dropped = staged.changes(before, "t")
    assert (list(changed), dropped) == (["right", "new"], ["top"])
    assert staged.changes(before, "u") == ({}, [])
    assert staged.touches(before, ViewDefinition)
    assert not staged.touches(before, WindowDefinition)


def test_what_a_view_had_in_from_stays_for_a_view_that_is_declared_with_the_change() -> None:
    text = "SELECT a FROM t UNION ALL SELECT b FROM t"
    inner = union_name(text)
    declared = Declared()
    declared.put(inner, replace(view(inner, "t"), definition=UnionDefinition(inner, "id", text, (), ())))
    declared.put("v", view("v", inner))
    declared.put("v", view("v", "t"))
    declared.put("w", view("w", inner))
    declared.drop_unread()
    assert inner in declared.views
    declared.put("w", view("w", "t"))
    declared.drop_unread()
    assert inner not in declared.views
