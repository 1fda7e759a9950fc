"""What is stored of window views and read back is equal: plans of any shape, and every type there is."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.windows.aggregates import FUNCTIONS, Parts
from penstock.operators.windows.shard import OperatorPlan, WindowProgram
from penstock.plan.expressions import Derived
from penstock.plan.scalar_trees import ColumnValue, Computation, Constant, Scalar
from penstock.plan.windows import PICKING, Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.storage.codec import Codec
from penstock.sql.windows.bind import BoundOutput, BoundWindow

PLAIN = st.sampled_from(
    [
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.date32(),
        pa.time64("ns"),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "Europe/Zurich"),
        pa.timestamp("ns"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
    ]
) | st.integers(1, 38).flatmap(lambda digits: st.integers(0, digits).map(lambda s: pa.decimal128(digits, s)))
TEXTS = st.text(max_size=8)


def _field(name: str, kind: pa.DataType, *, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable or pa.types.is_null(kind), {"by": "a test"})


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.builds(_field, TEXTS, inner, nullable=st.booleans())
    return (
        st.lists(fields, max_size=3).map(pa.struct)
        | fields.map(pa.list_)
        | st.builds(pa.map_, st.just(pa.string()), inner)
    )


TYPES = st.recursive(PLAIN, _nested, max_leaves=3)
LONGS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=False)
WINDOW_PLANS = st.builds(
    WindowPlan,
    TEXTS,
    TEXTS,
    st.builds(Windows, LONGS, LONGS, LONGS),
    st.lists(st.tuples(TEXTS, TYPES), max_size=3).map(tuple),
    st.lists(
        st.builds(
            Aggregate,
            st.sampled_from(sorted(FUNCTIONS - PICKING)),
            TEXTS,
            TYPES,
            st.none() | REALS,
            st.floats(1e-3, 1e3),
        )
        | st.builds(Aggregate, st.sampled_from(sorted(PICKING)), TEXTS, TYPES, by=TEXTS),
        max_size=4,
    ).map(tuple),
    st.builds(ErrorBound, REALS, REALS, st.booleans()),
)


@st.composite
def programs(draw: st.DrawFn) -> WindowProgram:
    operators = []
    for id_ in range(draw(st.integers(0, 2))):
        views = tuple(draw(st.lists(WINDOW_PLANS, max_size=2)))
        parts = Parts.of(each for view in views for each in view.aggregates)
        floors = tuple((view.name, draw(LONGS)) for view in views)
        operators.append(OperatorPlan(id_, views, parts, draw(LONGS), draw(st.none() | LONGS), floors))
    return WindowProgram(draw(LONGS), tuple(operators), draw(LONGS), draw(LONGS), draw(LONGS))


SCALARS: st.SearchStrategy[Scalar] = st.recursive(
    st.builds(ColumnValue, TEXTS, PLAIN, st.lists(st.integers(0, 9), max_size=2).map(tuple))
    | st.builds(
        Constant,
        st.none()
        | st.booleans()
        | LONGS
        | REALS
        | TEXTS
        | st.dates()
        | st.decimals(allow_nan=False, allow_infinity=False),
        PLAIN,
    ),
    lambda inner: st.builds(Computation, TEXTS, st.lists(inner, max_size=2).map(tuple), PLAIN),
    max_leaves=4,
)
VIEWS = st.lists(
    st.builds(
        BoundWindow,
        WINDOW_PLANS,
        st.lists(st.builds(Derived, TEXTS, TEXTS, TYPES, st.none() | TEXTS), max_size=2).map(tuple),
        st.none() | TEXTS,
        TYPES,
        st.lists(st.builds(BoundOutput, TEXTS, TEXTS, TYPES, st.none() | SCALARS), max_size=2).map(tuple),
        st.none() | TEXTS,
        st.none() | SCALARS,
    ),
    max_size=2,
).map(tuple)


def _again(value: object, codec: Codec[object]) -> object:
    return codec.value(json.loads(json.dumps(codec.document(value))))


@given(programs())
def test_programs_come_back_equal(program: WindowProgram) -> None:
    assert _again(program, Codec(WindowProgram)) == program


@given(VIEWS)
def test_bound_views_come_back_equal(views: tuple[BoundWindow, ...]) -> None:
    assert _again(views, Codec(tuple[BoundWindow, ...])) == views


@given(TYPES)
def test_types_come_back_with_all_they_say(kind: pa.DataType) -> None:
    codec = Codec(WindowPlan)
    document = codec.document(WindowPlan("v", "t", Windows(1, 1), (("k", kind),), (), ErrorBound(0.1, 0.1)))
    ((_, found),) = codec.value(json.loads(json.dumps(document))).keys
    assert found.equals(kind, check_metadata=True)


@dataclass(frozen=True)
class _Older:
    name: str
    kind: pa.DataType
    since: int = 7


def test_a_document_of_other_fields_is_no_value() -> None:
    codec = Codec(_Older)
    document = codec.document(_Older("a", pa.int8()))
    assert document == {"name": "a", "kind": {"$arrow": document["kind"]["$arrow"]}, "since": 7}
    del document["since"]
    assert codec.value(document) == _Older("a", pa.int8())
    for other in (
        {**document, "more": 1},
        {"name": "a"},
        {**document, "kind": "int8"},
        {**document, "name": 1},
    ):
        with pytest.raises(ValueError, match="validation error"):
            codec.value(other)


def test_the_form_of_a_type_never_changes() -> None:
    """Written by pyarrow 26: what checkpoints hold must stay readable whatever version is installed."""
    written = (
        "/////3gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAEAAAAUAAAAEAAUAAgABgAHAAwAAAAQABAAAAAA"
        "AAEHEAAAABwAAAAEAAAAAAAAAAAAAAAAAAAACAAMAAQACAAIAAAACQAAAAIAAAA="
    )
    assert Codec(_Older).value({"name": "a", "kind": {"$arrow": written}}).kind == pa.decimal128(9, 2)
