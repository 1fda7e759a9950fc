"""What is kept of versions: whatever goes, the newest partner of a left row from some moment on remains."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.joins.newest import Identities
from penstock.operators.joins.standing import standing
from penstock.plan.joins import JoinColumn, JoinInput, JoinKey, JoinPlan, OptionalJoin, TimeBound
from penstock.plan.times import BEFORE_ALL

TIME = pa.timestamp("us", "UTC")
TYPES = {"a": pa.string(), "b": pa.float64(), "t": TIME, "v": pa.int64()}
VERSIONS = tuple(JoinColumn(name, name, kind) for name, kind in TYPES.items())
PLAN = JoinPlan(
    "v",
    (
        JoinInput("l", "l", False, None, (JoinColumn("lt", "lt", TIME),), "lt"),
        JoinInput("r", "r", False, None, VERSIONS, "t"),
    ),
    (JoinKey((None, "a"), pa.string()),),
    (TimeBound(0, 1, BEFORE_ALL, 0),),
    (),
    (),
    (),
    (1,),
    kind=OptionalJoin.AS_OF,
)
Version = tuple[str | None, float | None, int, int]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["x", "y", "", None]),
        st.sampled_from([0.0, 1.5, None]),
        st.integers(-5, 5),
        st.integers(0, 3),
    ),
    max_size=30,
)


def table_of(rows: Sequence[Version]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(TYPES)
    moments = pa.array(columns[2], pa.int64()).cast(TIME)
    arrays = [
        pa.array(columns[0], pa.string()),
        pa.array(columns[1], pa.float64()),
        moments,
        pa.array(columns[3], pa.int64()),
    ]
    return pa.table(arrays, names=list(TYPES))


def newest(versions: pa.Table, keys: Sequence[str], key: tuple[object, ...], moment: int) -> object:
    """The newest version of a key up to a moment."""
    hashes = Identities(PLAN).of_rows(versions).tolist()
    times = versions.column("t").cast(pa.int64()).to_pylist()
    rows = versions.to_pylist()
    found = [
        (time, number, row)
        for time, number, row in zip(times, hashes, rows, strict=True)
        if time <= moment and tuple(row[name] for name in keys) == key
    ]
    return max(found, key=lambda each: each[:2])[2] if found else None


@settings(deadline=None, max_examples=examples(100))
@given(rows=ROWS, until=st.integers(-6, 6), keys=st.sampled_from([("a",), ("a", "b")]))
def test_the_newest_version_from_a_moment_on_remains(
    rows: list[Version], until: int, keys: tuple[str, ...]
) -> None:
    versions = table_of(rows)
    kept = standing(versions, keys, "t", until, Identities(PLAN))
    found = {tuple(row[name] for name in keys) for row in versions.to_pylist()}
    found = {key for key in found if None not in key}
    for key in found:
        for moment in range(until, 7):
            assert newest(kept, keys, key, moment) == newest(versions, keys, key, moment)
    times = kept.column("t").cast(pa.int64()).to_pylist()
    assert sum(time <= until for time in times) <= len(found), "one of a key"
    assert all(None not in [row[name] for name in keys] for row in kept.to_pylist())
