"""Warnings of several views, printed by the command line."""

from __future__ import annotations

from penstock.cli.common import merged_warnings

STATE = "the state keeps every group; only disk space limits it."


def test_equal_warnings_of_several_views_are_one_line() -> None:
    found = merged_warnings([f"a: {STATE}", "b: x: y", f"c: {STATE}"])
    assert list(found) == [f"a, c: {STATE}", "b: x: y"]


def test_names_behind_the_eighth_are_counted() -> None:
    (nine,) = merged_warnings(f"v{number}: {STATE}" for number in range(9))
    assert nine.startswith("v0, v1, v2, v3, v4, v5, v6, v7, v8: ")
    (many,) = merged_warnings(f"v{number}: {STATE}" for number in range(30))
    assert many.startswith("v0, v1, v2, v3, v4, v5, v6, v7, 22 more: ")
