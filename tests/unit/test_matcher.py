"""The public matcher: what goes in and comes out, and that it needs no Spark."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock import Matcher
from penstock.errors import InputError, UnsupportedError

SCHEMA = pa.schema({"distance": pa.int32(), "carrier": pa.string(), "seen": pa.timestamp("ns")})


def test_matches_row_by_row() -> None:
    matcher = Matcher(
        {"far": "distance > 2000", "ua": "carrier LIKE 'U%'", "all": "TRUE", "late": "seen > '1970-01-01'"},
        SCHEMA,
    )
    table = pa.table(
        {
            "carrier": pa.array(["UA", None, "B6"]).dictionary_encode(),
            "seen": pa.array([1, 0, None], pa.timestamp("ns")),
            "distance": pa.array([2500, None, 2001], pa.int64()),
        }
    )
    matches = matcher.match(table)
    assert matches.names == ["far", "ua", "all", "late"]
    rows = [
        matches.queries[start:end].tolist()
        for start, end in zip(matches.offsets, matches.offsets[1:], strict=False)
    ]
    assert rows == [[0, 1, 2, 3], [2], [0, 2]]


def test_a_batch_that_does_not_fit_is_refused() -> None:
    matcher = Matcher({"far": "distance > 2000"}, SCHEMA)
    with pytest.raises(InputError, match="no column distance"):
        matcher.match(pa.table({"carrier": ["UA"]}))
    with pytest.raises(InputError, match="does not fit"):
        matcher.match(pa.table({"distance": ["UA"]}))


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("declared", "condition", "column"),
    [
        (pa.decimal128(10, 2), "x > 5", pa.array([600])),
        (pa.int64(), "x > 5", pa.array([Decimal(6)], pa.decimal128(10, 0))),
        (pa.timestamp("us"), "x > '2013-01-01'", pa.array([20_000], pa.date32())),
        (pa.date32(), "x > '2013-01-01'", pa.array([20_000], pa.timestamp("us"))),
        (pa.timestamp("us", "UTC"), "x > '2013-01-01'", pa.array([20_000], pa.timestamp("us"))),
        (pa.timestamp("us"), "x > '2013-01-01'", pa.array([20_000], pa.timestamp("us", "UTC"))),
        (pa.bool_(), "x", pa.array([1])),
        (pa.int32(), "x > 0", pa.array([True])),
        (pa.float64(), "x > 0", pa.array([1])),
        (pa.int8(), "x > 200", pa.array([300])),
        (pa.int64(), "x > 200", pa.array([2**63], pa.uint64())),
        (pa.decimal128(10, 2), "x > 2.5D", pa.array([Decimal("2.505")], pa.decimal128(10, 3))),
        (pa.float32(), "x = 0.1", pa.array([0.5, None, 0.1])),
        (pa.float32(), "x > 1", pa.array([1e300])),
        (pa.decimal128(4, 2), "x > 500", pa.array([Decimal(600)], pa.decimal128(10, 2))),
    ],
)
def test_a_batch_of_another_type_than_the_schema_is_refused(
    declared: pa.DataType, condition: str, column: pa.Array
) -> None:
    matcher = Matcher({"q": condition}, pa.schema({"x": declared}))
    with pytest.raises(InputError, match=r"does not fit the matcher's schema: column 'x'.*[^.]\.$"):
        matcher.match(batch_of(x=column))


def test_a_refusal_ends_in_one_full_stop() -> None:
    matcher = Matcher({"q": "x RLIKE 'a+'"}, pa.schema({"x": pa.string()}))
    with pytest.raises(InputError, match=r"does not fit the matcher's schema: .*[^.]\.$"):
        matcher.match(batch_of(x=pa.array([1])))


@pytest.mark.parametrize(
    ("declared", "condition", "column"),
    [
        (pa.int64(), "x > 5", pa.array([6, 5, None], pa.int8())),
        (pa.int32(), "x > 5", pa.array([6, 5, None], pa.uint64())),
        (pa.int32(), "x > 5", pa.array([6, 5, None]).dictionary_encode()),
        (
            pa.decimal128(10, 2),
            "x > 2.5",
            pa.array([Decimal("2.6"), Decimal("2.5"), None], pa.decimal128(20, 1)),
        ),
        (pa.date32(), "x > '1970-01-01'", pa.array([1, 0, None], pa.date32()).cast(pa.date64())),
        (pa.float32(), "x > 0.5", pa.array([0.75, 0.5, None], pa.float64())),
        (pa.float32(), "x > 0.5", pa.array([float("nan"), -0.0, None]).dictionary_encode()),
        (pa.float64(), "x > 0.5", pa.array([0.6, 0.5, None], pa.float32())),
        (pa.string(), "x > 'a'", pa.array(["b", "a", None], pa.large_string())),
        (pa.int32(), "x > 5", pa.chunked_array([pa.array([6]), pa.array([5, None])])),
    ],
)
def test_other_types_of_the_same_values_fit(declared: pa.DataType, condition: str, column: pa.Array) -> None:
    matches = Matcher({"q": condition}, pa.schema({"x": declared})).match(pa.table({"x": column}))
    assert matches.offsets.tolist() == [0, 1, 1, 1]


def test_a_column_that_is_there_twice_is_refused() -> None:
    matcher = Matcher({"q": "distance > 2"}, SCHEMA)
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["distance", "distance"])
    with pytest.raises(InputError, match="2 columns distance"):
        matcher.match(twice)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_compared_in_full(zone: str | None) -> None:
    kind = pa.timestamp("ns", zone)
    matcher = Matcher({"after": "x > '2013-01-01'", "at": "x = '2013-01-01'"}, pa.schema({"x": kind}))
    start = 1_356_998_400 * 10**9
    moments = pa.array([start - 1, start, start + 1, start + 1_000, None], pa.int64()).cast(kind)
    matches = matcher.match(batch_of(x=moments))
    assert matches.offsets.tolist() == [0, 0, 1, 2, 3, 3]
    assert matches.queries.tolist() == [1, 0, 0]
    fraction = Matcher({"q": "x >= '2013-01-01 00:00:00.000000999'"}, pa.schema({"x": kind}))
    assert fraction.match(batch_of(x=moments)).offsets.tolist() == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize(("zone", "hour"), [("+08:00", 8), ("GMT+8", 8), ("Z", 0)])
def test_zones_as_spark_spells_them(zone: str, hour: int) -> None:
    schema = pa.schema({"x": pa.timestamp("us", "UTC")})
    texts = {"session": f"x = '1970-01-02 0{hour}:00:00'", "own": f"x = '1970-01-02 0{hour}:00:00 {zone}'"}
    for name, zoned in (("session", zone), ("own", "Asia/Tokyo")):
        matches = Matcher({name: texts[name]}, schema, zoned).match(
            batch_of(x=pa.array([86_400_000_000], schema.field("x").type))
        )
        assert len(matches.queries) == 1
    with pytest.raises(InputError, match="nowhere is not a time zone"):
        Matcher(texts, schema, "nowhere")


def test_one_matcher_serves_many_threads() -> None:
    rng = np.random.default_rng(1)
    schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
    matcher = Matcher(
        {f"q{i}": f"a >= {i} AND b < {2 * i}" if i % 2 else f"a = {i}" for i in range(300)}, schema
    )
    sizes = [1, 50, 5_000, 60_000]
    batches = [
        pa.record_batch({"a": rng.integers(0, 300, size), "b": rng.integers(0, 600, size)}, schema)
        for size in sizes
    ]
    expected = [matcher.match(batch) for batch in batches]

    def look(number: int) -> bool:
        found, wanted = matcher.match(batches[number % 4]), expected[number % 4]
        return np.array_equal(found.offsets, wanted.offsets) and np.array_equal(found.queries, wanted.queries)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(look, range(60)))


def test_a_matcher_survives_pickling() -> None:
    matcher = Matcher({"far": "distance > 2000"}, SCHEMA)
    batch = batch_of(distance=pa.array([2500, 100]))
    matcher.match(batch)
    copy = pickle.loads(pickle.dumps(matcher))
    assert copy.match(batch).offsets.tolist() == [0, 1, 1]


def test_no_spark_is_imported() -> None:
    code = "import sys, penstock; penstock.Matcher; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_refusal_names_what_is_allowed_and_all_of_it_is() -> None:
    schema = pa.schema({"s": pa.string(), "b": pa.bool_()})
    with pytest.raises(
        UnsupportedError, match="LIKE and ILIKE, also ANY and ALL, with constant patterns; RLIKE"
    ):
        Matcher({"reversed": "reverse(s) > 'a'"}, schema)
    allowed = {
        "functions": "lower(s) = 'xazb' AND contains(s, 'az') AND length(s) = 4",
        "like": "s LIKE '%a_b'",
        "ilike": "s ILIKE ANY ('%AB', 'c%')",
        "all": "NOT s LIKE ALL ('x%', '%y')",
        "rlike": "s RLIKE '^xa.b$'",
        "flag": "b OR s IS NULL",
    }
    matches = Matcher(allowed, schema).match(pa.record_batch({"s": ["xazb"], "b": [True]}, schema))
    assert [matches.names[query] for query in matches.queries.tolist()] == [
        *("functions", "like", "all", "rlike", "flag")
    ]
