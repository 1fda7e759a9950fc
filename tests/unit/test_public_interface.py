"""What `penstock` exports, what `Run` shows, and what decorators read from annotations."""

from __future__ import annotations

import datetime
import inspect
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock import Matches, Run, Settings
from penstock.settings import Tuning
from penstock.spark.declaring.functions import aggregate_type, function_type
from penstock.spark.declaring.view_list import Views


def test_everything_exported_is_documented_and_every_error_has_one_root() -> None:
    for name in penstock.__all__:
        exported = getattr(penstock, name)
        assert inspect.getdoc(exported), name
        if name.endswith("Error"):
            assert issubclass(exported, penstock.PenstockError), name


def test_a_run_shows_twelve_members_all_documented() -> None:
    shown = [name for name in dir(Run) if not name.startswith("_")]
    assert shown == [
        "active",
        "await_termination",
        "changes",
        "events",
        "explain",
        "matches",
        "misses",
        "output",
        "results",
        "state",
        "status",
        "stop",
    ]
    assert all(inspect.getdoc(getattr(Run, name)) for name in shown)


def test_the_keywords_of_an_engine_are_the_settings() -> None:
    assert list(get_type_hints(Tuning)) == list(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        assert get_type_hints(Tuning)[name] == field.annotation, name


def test_matches_as_arrow_are_the_names_of_each_tuple_without_a_copy() -> None:
    matches = Matches(["far", "ua"], np.array([0, 2, 2, 3]), np.array([0, 1, 0], np.int32), None)
    found = matches.to_arrow()
    assert found.to_pylist() == [["far", "ua"], [], ["far"]]
    assert found.values.indices.buffers()[1].address == matches.queries.ctypes.data
    empty = Matches([], np.array([0]), np.array([], np.int32), None).to_arrow()
    assert empty.to_pylist() == []


def _half(values: pa.Array) -> pa.DoubleArray:
    return values


def _none(values: pa.Array):  # type: ignore[no-untyped-def]
    return values


def _list(values: pa.Array) -> list[int]:
    return values


class _Newest:
    def result(self) -> datetime.date | None:
        return None


def test_types_are_read_from_annotations() -> None:
    assert function_type("half", _half) == "DOUBLE"
    assert aggregate_type("newest", _Newest) == "DATE"
    for name, given in (("none", _none), ("list", _list), ("len", len)):
        with pytest.raises(
            penstock.InputError, match=f"^function {name}: its Spark SQL type is missing.*BooleanArray"
        ):
            function_type(name, given)
    with pytest.raises(penstock.InputError, match=r"^aggregate half: .* one of bool, int, float, str, date"):
        aggregate_type("half", _half)


def test_views_are_a_mapping_and_calling_them_warns() -> None:
    added = []
    views = Views({"large": "SELECT 1"}, added.append)  # type: ignore[arg-type]
    assert dict(views) == {"large": "SELECT 1"}
    assert "large" in views
    assert repr(views) == "Views({'large': 'SELECT 1'})"
    with pytest.warns(DeprecationWarning, match=r"use Engine\.add_views\(\{\.\.\.\}\)") as warned:
        views({"small": "SELECT 2"})
    assert added == [{"small": "SELECT 2"}]
    assert warned[0].filename == __file__
