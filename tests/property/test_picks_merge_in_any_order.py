"""MAX_BY and MIN_BY by partials: whatever the pieces and their order, the answer is that of all tuples at once, worked out in Python."""

from __future__ import annotations

from decimal import Decimal
from math import copysign, isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from merged_pieces import merged_pieces
from penstock.operators.windows.aggregates import Parts, lower
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.plan.windows import Aggregate, ErrorBound

_REALS = [-0.0, 0.0, 1.5, -2.0, float("nan"), float("inf"), float("-inf"), None]
#: types with few values, so that there are ties
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "real": (pa.float64(), _REALS),
    "float": (pa.float32(), _REALS),
    "whole": (pa.int64(), [-(2**63), 2**63 - 1, 0, 3, None]),
    "small": (pa.int8(), [-1, 0, 1, None]),
    "text": (pa.string(), ["", "a", "b", "é", None]),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff", None]),
    "short": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-3.00"), None]),
    "long": (pa.decimal128(38, 2), [Decimal("1.25"), Decimal("-3.00"), Decimal(10) ** 35, None]),
    "logical": (pa.bool_(), [True, False, None]),
    "time": (pa.timestamp("us", "UTC"), [0, 1_700_000_000_000_000, -5, None]),
    "day": (pa.date32(), [0, 20_000, -5, None]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "pair": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": 1, "b": "y"}, None],
    ),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [None], None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("a", 2)], None]),
}


def _key(value: Any) -> Any:
    """What orders a value: NULL first, NaN last, -0.0 equal to 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, isnan(value), 0.0 if isnan(value) else value + 0.0)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, *(_key(each) for each in value.values()))
    return (1, repr(value) if isinstance(value, list) else value)


def _signed(value: Any) -> Any:
    zero = isinstance(value, float) and value == 0
    return (*_key(value), copysign(1.0, value)) if zero else (*_key(value), 0)


def _expected(function: str, rows: list[tuple[Any, Any]]) -> Any:
    known = [(x, by) for x, by in rows if by is not None]
    if not known:
        return None
    choose = max if function == "max_by" else min
    best = choose(_key(by) for _, by in known)
    return max((x for x, by in known if _key(by) == best), key=_signed)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return (isnan(found) and isnan(wanted)) or (
            found == wanted and copysign(1.0, found) == copysign(1.0, wanted)
        )
    return bool(found == wanted)


@settings(max_examples=examples(150))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([*KINDS, *NESTED]),
    st.sampled_from([*KINDS]),
    st.booleans(),
)
def test_any_pieces_in_any_order(seed: int, of: str, by: str, keyed: bool) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    kind, values = {**KINDS, **NESTED}[of]
    by_kind, by_values = KINDS[by]
    xs = [values[place] for place in rng.integers(0, len(values), count)]
    bys = [by_values[place] for place in rng.integers(0, len(by_values), count)]
    keys = rng.choice(["a", "b", "c"], count) if keyed else np.array(["a"] * count)
    tuples = pa.table({"k": keys, "x": pa.array(xs, kind), "by": pa.array(bys, by_kind)})
    # values as they are read back: float32 rounds
    xs, bys = (tuples.column(name).to_pylist() for name in ("x", "by"))
    if by in ("time", "day"):
        bys = tuples.column("by").cast(pa.int32() if by == "day" else pa.int64()).to_pylist()
    aggregates = [Aggregate(function, "x", kind, by="by") for function in ("max_by", "min_by")]
    aggregates.append(Aggregate("max_by", "by", by_kind, by="by"))
    parts = Parts.of(aggregates)
    partials = merged_pieces(parts, tuples, rng)
    merged = parts.merge(partials, ["k"])
    found = [lower(each, merged, None, ["k"]).to_pylist() for each in aggregates[:2]]
    for row, key in enumerate(merged.column("k").to_pylist()):
        own = [(x, b) for x, b, k in zip(xs, bys, keys, strict=True) if k == key]
        for function, answers in zip(("max_by", "min_by"), found, strict=True):
            wanted = _expected(function, own)
            assert _same(answers[row], wanted), (function, key, own, answers[row], wanted)
    without = parts.merge(partials.drop_columns(["k"]), []) if not keyed else None
    if without is not None:
        assert _same(lower(aggregates[0], without, None, []).to_pylist()[0], found[0][0])


def test_what_decides_needs_an_order() -> None:
    tuples = pa.table({"k": [1], "x": [1], "by": pa.array([{"a": 1}])})
    with pytest.raises(pa.ArrowNotImplementedError):
        Parts.of([Aggregate("max_by", "x", pa.int64(), by="by")]).lift(tuples, ["k"])


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["max_by", "min_by"]),
    st.sampled_from(["whole", "text", "pair"]),
    st.sampled_from([(0.05, False), (2.0, True)]),
)
def test_the_required_slack_is_that_of_each_answer_by_itself(
    seed: int, function: str, of: str, epsilon: tuple[float, bool]
) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    kind, values = (pa.int64(), [1, 2, 3, 100, None]) if of == "whole" else {**KINDS, **NESTED}[of]
    xs = [values[place] for place in rng.integers(0, len(values), count)]
    bys = [None if rng.random() < 0.2 else int(rng.integers(0, 9)) for _ in range(count)]
    bound, aggregate = ErrorBound(epsilon[0], 0.05, epsilon[1]), Aggregate(function, "x", kind, by="by")
    tuples = pa.table(
        {
            END: np.sort(rng.choice([20, 40], count)),
            "k": rng.integers(0, 3, count),
            ARRIVAL: rng.integers(0, 70, count),
            "x": pa.array(xs, kind),
            "by": pa.array(bys, pa.int64()),
        }
    )
    partials = Parts.of([aggregate]).lift(tuples, [END, "k", ARRIVAL]).sort_by([(END, "ascending")])
    history = WindowHistory(partials, {}, [END, "k"])
    (found,) = history.required_slack([aggregate], bound)
    groups = partials.select([END, "k"]).group_by([END, "k"], use_threads=False).aggregate([])
    rows = tuples.to_pylist()
    for group, slack in zip(groups.to_pylist(), found.tolist(), strict=True):
        own = [row for row in rows if (row[END], row["k"]) == (group[END], group["k"])]
        final = _expected(function, [(row["x"], row["by"]) for row in own])
        needed = 0
        for arrival in {row[ARRIVAL] for row in own}:
            early = _expected(function, [(row["x"], row["by"]) for row in own if row[ARRIVAL] < arrival])
            if early == final:
                continue
            error = float("inf")
            if of == "whole" and early is not None and final is not None:
                error = abs(early - final) / (1 if bound.absolute else abs(final))
            if not error < bound.epsilon:
                needed = max(needed, arrival - group[END] + 1)
        assert slack == needed
