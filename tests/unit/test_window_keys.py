"""The key of a window view's rows in a sink: its group keys and what tells its windows apart."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.insertions import view_of
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from plain_windows import WINDOW

COUNT = Aggregate("count", None, pa.int64())
START, END = ("_w.start", "begun"), ("_w.end", "until")


@pytest.mark.parametrize(
    ("is_cumulating", "outputs", "key"),
    [
        (False, [START, END], ("shop", "begun")),
        (False, [("_w", "w"), START, END], ("shop", "w")),
        (True, [START, END], ("shop", "until")),
        (True, [("_w", "w"), START], ("shop", "w")),
        (True, [START], None),
    ],
)
def test_cumulating_windows_are_told_apart_by_their_end(
    is_cumulating: bool, outputs: list[tuple[str, str]], key: tuple[str, ...] | None
) -> None:
    windows = Windows(60, 10, is_cumulating=is_cumulating)
    plan = WindowPlan("v", "t", windows, (("shop", pa.int64()),), (COUNT,), ErrorBound(0.1, 0.1))
    made = tuple(
        BoundOutput(expression, name, pa.int64()) for expression, name in [("_k0", "shop"), *outputs]
    )
    bound = BoundWindow(plan, (), None, WINDOW, made, None)
    view = cast(Any, type("View", (), {"definition": None, "derived": type("D", (), {"bound": bound})()})())
    declared = cast(Declared, type("Declared", (), {"views": {"v": view}})())
    assert view_of(declared, "v").key == key
