"""Grouping sets: how GROUP BY has them, and that each gets the partials that it would get alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SqlError, UnsupportedError
from penstock.operators.windows import held_partials
from penstock.operators.windows.aggregates import ROWS, SELECTION, Parts, extreme_of, sum_of
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.moments import Moments
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import PARTIALS
from penstock.operators.windows.sketches import Sketch, estimates
from penstock.plan.windows import ALL_TIME, Aggregate, GroupingSet
from penstock.sql.script.queries import parse_query
from penstock.sql.windows.query import WindowQuery

W = "window(ts, '1 hour')"


def query(text: str) -> WindowQuery:
    found = parse_query(text)
    assert isinstance(found, WindowQuery)
    return found


@pytest.mark.parametrize(
    ("grouping", "sets"),
    [
        ("ROLLUP (a, b)", {0: "ab", 1: "a", 3: ""}),
        ("a, b WITH ROLLUP", {0: "ab", 1: "a", 3: ""}),
        ("cube(a, b)", {0: "ab", 1: "a", 2: "b", 3: ""}),
        ("a, (b) WITH CUBE", {0: "ab", 1: "a", 2: "b", 3: ""}),
        ("GROUPING SETS ((a, b), a)", {0: "ab", 1: "a"}),
        ("a, b GROUPING SETS ((b), ())", {2: "b", 3: ""}),
        ("b GROUPING SETS (b, (a))", {1: "b", 2: "a"}),
        ("b, ROLLUP (a)", {0: "ab", 1: "b"}),
        ("ROLLUP (a), t.b", {0: "ab", 2: "b"}),
        ("ROLLUP (a), CUBE (b)", {0: "ab", 1: "a", 2: "b", 3: ""}),
        ("ROLLUP ((a, b), c)", {0: "abc", 1: "ab", 7: ""}),
        ("GROUPING SETS (ROLLUP (a, b), GROUPING SETS ((c), (a, c)))", {1: "ab", 3: "a", 7: "", 6: "c", 2: "ac"}),
        ("CUBE (A, `b`), (a)", None),
        ("GROUPING SETS ((1, 3), x)", {0: "ac", 1: "a"}),
        (f"{W}, ROLLUP (a)", {0: "a", 1: ""}),
        (f"ROLLUP (a), {W}", {0: "a", 2: ""}),
        (f"GROUPING SETS (({W}, a), {W})", {0: "a", 1: ""}),
        (f"a, GROUPING SETS (({W}, b), ({W}))", {0: "ab", 1: "a"}),
        ("session_window(ts, '5 minutes'), a, CUBE (b)", {0: "ab", 1: "a"}),
    ],
)  # fmt: skip
def test_the_sets_of_group_by(grouping: str, sets: dict[int, str] | None) -> None:
    text = f"SELECT a AS x, count(*) AS n, c FROM t GROUP BY {grouping}"
    if "c" not in (sets or {}).get(0, "") and not any("c" in each for each in (sets or {}).values()):
        text = text.replace(", c FROM", " FROM")
    if sets is None:
        with pytest.raises(UnsupportedError, match=r"Grouping set \(`b`, \(a\)\) occurs twice"):
            query(text)
        return
    found = query(text)
    names = [key.expression for key in found.keys]
    assert {each.id: "".join(sorted(names[key] for key in each.keys)) for each in found.sets} == sets
    assert found.grouping_id == f"_k{len(names)}"


@pytest.mark.parametrize(
    ("item", "expression"),
    [
        ("grouping_id()", "_k2"),
        ("grouping_id(a, B)", "_k2"),
        ("GROUPING__ID", "_k2"),
        ("grouping(t.a) + 1", "CASE WHEN (_k2 & 2L) = 0L THEN 0Y ELSE 1Y END + 1"),
        (
            "if(grouping((b)) = 1, 'all', b)",
            "if(CASE WHEN (_k2 & 1L) = 0L THEN 0Y ELSE 1Y END = 1, 'all', _k1)",
        ),
    ],
)
def test_the_grouping_id_is_a_key(item: str, expression: str) -> None:
    found = query(f"SELECT {item} AS g, a, count(*) FROM t GROUP BY ROLLUP (a, b) HAVING g > 0")
    assert found.outputs[0].expression == expression
    assert found.having[0].expression == f"{expression if expression == '_k2' else f'({expression})'} > 0"


@pytest.mark.parametrize(
    ("text", "kind", "marked", "told"),
    [
        ("SELECT a FROM t GROUP BY ROLLUP (a, ())", SqlError, "ROLLUP", "has the empty set by itself"),
        ("SELECT a FROM t GROUP BY CUBE ()", SqlError, ")", "Expected a grouping expression"),
        ("SELECT a FROM t GROUP BY ROLLUP (a,)", SqlError, ")", "Expected a grouping expression"),
        ("SELECT a FROM t GROUP BY with rollup", SqlError, "with", "Expected a grouping expression"),
        ("SELECT a FROM t GROUP BY ROLLUP a", SqlError, "ROLLUP", "ROLLUP needs parentheses"),
        ("SELECT a FROM t GROUP BY GROUPING SETS", SqlError, "GROUPING SETS", "needs parentheses"),
        ("SELECT a FROM t GROUP BY ROLLUP (a", SqlError, "(", "This parenthesis is not closed"),
        ("SELECT a FROM t GROUP BY ROLLUP (a) b", SqlError, "b", "Nothing may follow ROLLUP"),
        ("SELECT a FROM t GROUP BY a + ROLLUP (b)", SqlError, "ROLLUP", "cannot be part of an expression"),
        ("SELECT a FROM t GROUP BY ROLLUP (a), b WITH CUBE", SqlError, "ROLLUP", "cannot be part of an expression"),
        ("SELECT a FROM t GROUP BY a WITH ROLLUP, b", SqlError, "WITH", "cannot be part of an expression"),
        ("SELECT a FROM t GROUP BY a, ROLLUP (a, b)", UnsupportedError, "a", "Grouping set (a) occurs twice"),
        ("SELECT 1 FROM t GROUP BY GROUPING SETS (())", UnsupportedError, "GROUP BY", "have no key"),
        ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e, f, g, h, i)", UnsupportedError,
         "CUBE (a, b, c, d, e, f, g, h, i)", "These are 512 grouping sets"),
        ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e), CUBE (f, g, h, i)", UnsupportedError,
         "CUBE (a, b, c, d, e), CUBE (f, g, h, i)", "These are 512 grouping sets"),
        (f"SELECT 1 FROM t GROUP BY ROLLUP ({W}, a)", UnsupportedError, f"ROLLUP ({W}, a)", "without the window"),
        (f"SELECT 1 FROM t GROUP BY {W}, a WITH CUBE", UnsupportedError, f"{W}, a WITH CUBE", "without the window"),
        ("SELECT grouping(a) FROM t GROUP BY a", SqlError, "grouping(a)", "grouping() needs grouping sets"),
        ("SELECT grouping_id() FROM t", SqlError, "grouping_id()", "grouping_id() needs grouping sets"),
        ("SELECT grouping(c) FROM t GROUP BY ROLLUP (a)", SqlError, "grouping(c)", "takes one grouping expression"),
        ("SELECT grouping_id(b, a) FROM t GROUP BY ROLLUP (a, b)", SqlError, "grouping_id(b, a)", "in the order"),
        ("SELECT b FROM t GROUP BY ROLLUP (a)", SqlError, "b", "neither grouped nor aggregated"),
        ("SELECT 1 FROM t GROUP BY ROLLUP (grouping_id())", SqlError, "grouping_id()", "cannot use an aggregate"),
        (f"SELECT /*+ DEADLINE('1 second') */ a FROM t GROUP BY {W}, CUBE (a)", UnsupportedError,
         "DEADLINE('1 second')", "DEADLINE is not supported with GROUPING SETS"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, kind: type[SqlError], marked: str, told: str) -> None:
    with pytest.raises(kind) as raised:
        query(text)
    error = raised.value
    assert told in error.message
    assert error.text[error.start : error.end] == marked


DISTINCT = Aggregate("approx_count_distinct", "kept", pa.int64(), accuracy=0.05)
COUNTED = Sketch.of(DISTINCT)
ARGUMENTS = {"whole": pa.int64(), "exact": pa.decimal128(30, 2), "text": pa.string(), "moment": pa.float64(), "kept": pa.int32()}  # fmt: skip
PARTS = Parts(
    sums=("whole", "exact"),
    extremes=(("max", "whole"), ("min", "text")),
    moments=(Moments.of(Aggregate("stddev_samp", "moment", pa.float64())),),
    values=("kept",),
    sketches=(COUNTED,),
)
KEYS = {"name": pa.string(), "number": pa.int64(), "real": pa.float64()}
#: (names of the keys, grouping ID)
SETS = (("name", "number", "real"), 0), (("name",), 3), (("number", "real"), 4), (("real",), 6), ((), 7)
CONDITIONS = 3
GAP = 40


def batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    def some(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.2 else value for value in values], kind)

    wholes = rng.integers(-(2**62), 2**62, rows).tolist()
    return pa.record_batch(
        {
            "ts": some(rng.integers(0, 300, rows).tolist(), pa.timestamp("us", "UTC")),
            "name": some(rng.choice(["a", "b", ""], rows).tolist(), pa.string()),
            "number": some(rng.integers(0, 3, rows).tolist(), pa.int64()),
            "real": some(rng.choice([0.0, -0.0, math.nan], rows).tolist(), pa.float64()),
            "whole": some(wholes, pa.int64()),
            "exact": some([Decimal(each).scaleb(-2) for each in wholes], ARGUMENTS["exact"]),
            "text": some(rng.choice(["x", "", "yy"], rows).tolist(), pa.string()),
            "moment": some(rng.integers(0, 9, rows).astype(float).tolist(), pa.float64()),
            "kept": some(rng.integers(0, 5, rows).tolist(), pa.int32()),
        }
    )  # fmt: skip


def plan_of(keys: Sequence[str], kind: str, conditions: int) -> PanePlan:
    return PanePlan(
        id=0,
        selections=tuple(range(conditions)),
        keys=tuple(PaneColumn(name, name, KEYS[name]) for name in keys),
        arguments=tuple(PaneColumn(name, name, each) for name, each in ARGUMENTS.items()),
        raising=(),
        parts=PARTS,
        pane=100 if kind == "windows" else ALL_TIME.pane,
        offset=0,
        gap=GAP if kind == "sessions" else None,
    )


def rows_of(table: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in table.to_pylist():
        if COUNTED.column in row:
            row[COUNTED.column] = estimates(DISTINCT, pa.chunked_array([[row[COUNTED.column]]])).to_pylist()
        told = sorted(
            (name, round(value, 9) if isinstance(value, float) else value) for name, value in row.items()
        )
        found[str(told)] += 1
    return found


def envelopes(stage: PaneStage, seed: int, *, steps: bool) -> dict[str, pa.Table]:
    """The rows of each kind, with their shards."""
    rng = np.random.default_rng(seed)
    stage.begin(has_steps=steps)
    for rows in (0, 1, 90, 60):
        tuples = batch(rng, rows)
        holds = rng.random((rows, CONDITIONS)) < 0.5
        satisfied = Satisfied.by_row(
            np.append(0, np.cumsum(holds.sum(1))), np.nonzero(holds)[1].astype(np.int32), CONDITIONS
        )
        numbers = rng.integers(0, 2, rows).astype(np.int32)
        stage.add(tuples, event_times(tuples.column("ts"), 10_000), satisfied, numbers if steps else None)
    found: dict[str, list[pa.Table]] = {}
    for shard, envelope in stage.envelopes():
        table = pa.ipc.open_stream(envelope.payload).read_all()
        found.setdefault(envelope.kind, []).append(
            table.append_column("shard", pa.array([shard] * len(table)))
        )
    return {kind: pa.concat_tables(tables) for kind, tables in found.items()}


@pytest.mark.parametrize("held", [1 << 20, 30])
@pytest.mark.parametrize(
    ("kind", "conditions", "steps"),
    [
        ("running", 0, False),
        ("running", 1, False),
        ("windows", 0, True),
        ("windows", 3, False),
        ("windows", 3, True),
        ("sessions", 0, False),
    ],
)
def test_each_set_gets_what_it_would_get_alone(
    monkeypatch: pytest.MonkeyPatch, held: int, kind: str, conditions: int, steps: bool
) -> None:
    monkeypatch.setattr(held_partials, "_HELD_ROWS", held)
    monkeypatch.setattr(held_partials, "_LOOSE_ROWS", held)
    names = list(KEYS)
    sets = tuple(GroupingSet(tuple(map(names.index, keys)), id_) for keys, id_ in SETS)

    def found(plan: PanePlan) -> dict[str, pa.Table]:
        return envelopes(PaneStage(PaneProgram("ts", (plan,), 3)), held, steps=steps)

    together = found(replace(plan_of(names, kind, conditions), sets=sets, set_key="id"))
    homes: dict[str, set[int]] = {}
    for keys, id_ in SETS:
        alone = found(plan_of(keys, kind, conditions))
        assert alone.keys() == together.keys()
        for envelope, table in together.items():
            own = table.filter(pa.compute.field("id") == id_)
            for row in own.select([*names, "id", "shard"]).to_pylist():
                homes.setdefault(str([row[name] for name in (*names, "id")]), set()).add(row["shard"])
            missing = [name for name in names if name not in keys]
            assert all(own.column(name).null_count == len(own) for name in missing)
            assert table.column_names.index("id") == table.column_names.index("real") + 1
            assert rows_of(own.drop_columns([*missing, "id", "shard"])) == rows_of(
                alone[envelope].drop_columns(["shard"])
            ), (envelope, keys)
    assert all(len(shards) == 1 for shards in homes.values()), "a group has one shard"
    assert SELECTION in together[PARTIALS].column_names or conditions < 2


def test_the_sets_are_those_of_duckdb() -> None:
    rng = np.random.default_rng(5)
    tuples = [batch(rng, 200) for _ in range(3)]
    found = query("SELECT name, count(*) FROM t GROUP BY name, CUBE (number, real)")
    plan = replace(plan_of(list(KEYS), "running", 0), sets=found.sets, set_key="id")
    stage = PaneStage(PaneProgram("ts", (plan,), 3))
    for each in tuples:
        stage.add(each, event_times(each.column("ts"), 10_000), Satisfied.none(each.num_rows))
    own = [
        pa.ipc.open_stream(envelope.payload).read_all()
        for _, envelope in stage.envelopes()
        if envelope.kind == PARTIALS
    ]
    columns = [*KEYS, "id", ROWS, sum_of("exact"), extreme_of("min", "text")]
    ours = pa.concat_tables(own).select(columns)
    orders = pa.Table.from_batches(tuples)
    text = (
        "SELECT name, number, real + 0.0, grouping_id(name, number, real), count(*), sum(exact), min(text) FROM orders "
        "GROUP BY GROUPING SETS ((name, number, real), (name, number), (name, real), (name))"
    )
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        theirs = connection.sql(text).fetchall()
    assert sorted(map(repr, map(tuple, (row.values() for row in ours.to_pylist())))) == sorted(
        map(repr, theirs)
    )
