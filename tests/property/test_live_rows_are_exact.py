"""Views over rows that are replaced and withdrawn: whatever changes, and however often they are stored and read, they are computed from the live rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.running.live import LIVE, LiveRows
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.rankings import KEPT, PLACE_TYPE, RANKINGS, ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound, WindowPlan

IDS = (("_r0", pa.int64()), ("_r1", pa.string()))
NUMBER = pa.int64()
BOUND = ErrorBound(0.1, 0.1)
ARGUMENTS = (("_x0", NUMBER), ("_x1", NUMBER))
SMALL = st.sampled_from([None, 0, 1, 2])
#: of an id: partition and two values, or that the row is gone
CHANGES = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b"])),
    st.one_of(st.none(), st.tuples(SMALL, SMALL, SMALL)),
    max_size=8,
)
CUTS = st.lists(
    st.tuples(CHANGES, st.booleans(), st.sampled_from(["", "", "", "whole", "ended"])), min_size=1, max_size=6
)

Id = tuple[int, str | None]
Row = tuple[int | None, int | None, int | None]


def changes_of(rows: dict[Id, Row | None], has_keys: bool) -> pa.Table:
    """A table of changes."""
    schema = pa.schema([*IDS, *([("_k0", NUMBER)] if has_keys else []), *ARGUMENTS, (LIVE, pa.bool_())])
    found = []
    for (first, second), row in rows.items():
        key, x, y = row or (None, None, None)
        own = {"_r0": first, "_r1": second, "_k0": key, "_x0": x, "_x1": y, LIVE: row is not None}
        found.append({name: own[name] for name in schema.names})
    return pa.Table.from_pylist(found, schema)


def ranking_of(function: str, limit: int, has_keys: bool, is_descending: bool) -> RunningPlan:
    ranking = Ranking(function, (OrderKey("_x0", is_descending, not is_descending),), limit)
    keys = [("_k0", NUMBER)] if has_keys else []
    if not ranking.is_one_row:
        keys.append((f"_k{len(keys)}", PLACE_TYPE))
    kept = [Aggregate(KEPT, name, kind) for name, kind in ARGUMENTS]
    kept.append(Aggregate(function, None, PLACE_TYPE))
    view = RankedPlan("v", "", ALL_TIME, tuple(keys), tuple(kept), BOUND, ranking=ranking)
    return RunningPlan(0, (view,), RankedParts(ranking, ("_x0", "_x1")), ARGUMENTS)


def ranked(
    rows: list[Row], function: str, limit: int, has_keys: bool, is_descending: bool
) -> set[tuple[Any, ...]]:
    """Partition, values and place of the first rows, from the beginning."""

    def by(row: Row) -> tuple[int, int]:
        value = row[1]
        if value is None:
            return (1 if is_descending else -1), 0
        return 0, -value if is_descending else value

    def ties(row: Row) -> tuple[bool, int]:
        return row[2] is not None, row[2] or 0

    found = set()
    for key in {row[0] for row in rows} if has_keys else {None}:
        own = sorted(
            (row for row in rows if row[0] == key or not has_keys), key=lambda row: (by(row), ties(row))
        )
        rank = dense = 0
        for number, row in enumerate(own, 1):
            if number == 1 or by(own[number - 2]) != by(row):
                rank, dense = number, dense + 1
            place = dict(zip(RANKINGS, (number, rank, dense), strict=True))[function]
            if place <= limit:
                found.add((*([key] if has_keys else []), number, row[1], row[2], place))
    return found


def run(plan: RunningPlan, cuts: list[Any], reference: Any, *, has_keys: bool, key_columns: int) -> None:
    """Takes in all cuts; after each the published rows are `reference` of the live ones."""
    rows, pieces = LiveRows(plan, IDS), list[bytes]()
    there: dict[Id, Row] = {}
    told: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number, (changes, is_restored, kind) in enumerate(cuts):
        whole, ended = kind == "whole" or not number, kind == "ended"
        if whole:
            there = {}
        for id_, row in changes.items():
            if row is None:
                there.pop(id_, None)
            else:
                there[id_] = row
        for answer in rows.take_in(changes_of(changes, has_keys), number, whole=whole, ended=ended):
            assert answer.final == (ended and not answer.withdrawn)
            for row in answer.rows.drop_columns(["_overflowed"]).to_pylist():
                values = tuple(row.values())
                key, rest = values[:key_columns], values[key_columns:]
                if answer.withdrawn:
                    assert told.pop(key) == rest, "what is withdrawn was told"
                else:
                    assert ended or told.get(key) != rest, "only what differs is published"
                    told[key] = rest
        if (change := rows.take_change()) is not None:
            pieces = pieces[: change[0]] + change[1]
        if is_restored:
            rows = LiveRows(plan, IDS, pieces, has_begun=True)
        assert {(*key, *rest) for key, rest in told.items()} == reference(list(there.values()))


@settings(deadline=None, max_examples=examples(60))
@given(
    cuts=CUTS,
    function=st.sampled_from(RANKINGS),
    limit=st.integers(1, 3),
    has_keys=st.booleans(),
    is_descending=st.booleans(),
)
def test_rankings(cuts: list[Any], function: str, limit: int, has_keys: bool, is_descending: bool) -> None:
    plan = ranking_of(function, limit, has_keys, is_descending)
    (view,) = plan.views
    has_number = not (function == ROW_NUMBER and limit == 1)

    def reference(rows: list[Row]) -> set[tuple[Any, ...]]:
        found = ranked(rows, function, limit, has_keys, is_descending)
        if has_number:
            return found
        place = int(has_keys)
        return {(*row[:place], *row[place + 1 :]) for row in found}

    run(plan, cuts, reference, has_keys=has_keys, key_columns=len(view.keys))


@settings(deadline=None, max_examples=examples(60))
@given(cuts=CUTS, has_keys=st.booleans())
def test_aggregations(cuts: list[Any], has_keys: bool) -> None:
    """A maximum and distinct values have no inverse: the rows are there."""
    aggregates = (
        Aggregate("count", None, NUMBER),
        Aggregate("max", "_x0", NUMBER),
        Aggregate("count_distinct", "_x1", NUMBER),
    )
    keys = (("_k0", NUMBER),) if has_keys else ()
    view = WindowPlan("v", "", ALL_TIME, keys, aggregates, BOUND)
    plan = RunningPlan(0, (view,), Parts.of(aggregates), ARGUMENTS)

    def reference(rows: list[Row]) -> set[tuple[Any, ...]]:
        found = set()
        for key in {row[0] for row in rows} if has_keys else {None}:
            own = [row for row in rows if row[0] == key or not has_keys]
            largest = max((row[1] for row in own if row[1] is not None), default=None)
            distinct = len({row[2] for row in own if row[2] is not None})
            found.add((*([key] if has_keys else []), len(own), largest, distinct))
        return found

    run(plan, cuts, reference, has_keys=has_keys, key_columns=len(keys))


@settings(deadline=None, max_examples=examples(100))
@example(
    cuts=[
        ({0: 0.2, 1: 0.8}, False),
        ({3: 0.2, 2: 0.8, 1: 0.1, 0: 0.7}, False),
        ({0: 0.4, 2: 0.2, 1: 0.6, 3: 0.1}, False),
    ]
)
@given(
    cuts=st.lists(
        st.tuples(
            st.dictionaries(
                st.integers(0, 5),
                st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.4, 0.6, 0.7, 0.8])),
                max_size=6,
            ),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_sums_of_doubles_are_taken_back_as_they_were_told(
    cuts: list[tuple[dict[int, float | None], bool]],
) -> None:
    """Whatever order the rows have come in since: conditions on groups judge both."""
    double, ids = pa.float64(), (("_r0", NUMBER),)
    aggregates = (Aggregate("sum", "_x0", double), Aggregate("avg", "_x0", double))
    view = WindowPlan("v", "", ALL_TIME, (("_k0", NUMBER),), aggregates, BOUND)
    plan = RunningPlan(0, (view,), Parts.of(aggregates), (("_x0", double),))
    schema = pa.schema([*ids, ("_k0", NUMBER), ("_x0", double), (LIVE, pa.bool_())])
    rows, pieces = LiveRows(plan, ids), list[bytes]()
    told: dict[int, tuple[Any, ...]] = {}
    # at the end all are gone, so that all is withdrawn
    for number, (changes, is_restored) in enumerate([*cuts, (dict.fromkeys(range(6)), False)]):
        columns = (
            list(changes),
            [0] * len(changes),
            list(changes.values()),
            [each is not None for each in changes.values()],
        )
        table = pa.table(
            [pa.array(each, kind.type) for each, kind in zip(columns, schema, strict=True)], schema
        )
        for answer in rows.take_in(table, number, whole=not number, ended=False):
            for key, *values in (
                row.values() for row in answer.rows.drop_columns(["_overflowed"]).to_pylist()
            ):
                if answer.withdrawn:
                    assert told.pop(key) == tuple(values)
                else:
                    told[key] = tuple(values)
        if (change := rows.take_change()) is not None:
            pieces = pieces[: change[0]] + change[1]
        if is_restored:
            rows = LiveRows(plan, ids, pieces, has_begun=True)
    assert not told


def test_rows_that_are_gone_are_forgotten() -> None:
    """The state has about as many rows as are live, whatever came and went."""
    plan = ranking_of(ROW_NUMBER, 2, has_keys=True, is_descending=True)
    rows = LiveRows(plan, IDS)
    for number in range(60):
        new: dict[Id, Row | None] = {(100 * number + each, "a"): (each % 3, each, 0) for each in range(100)}
        old: dict[Id, Row | None] = {
            (100 * (number - 1) + each, "a"): None for each in range(100 * bool(number))
        }
        rows.take_in(changes_of({**new, **old}, True), number, whole=not number, ended=False)
    assert rows.rows < 1500
