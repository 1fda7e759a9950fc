"""Random joins of a few tuples: plans, orders, how tuples come in entries and cuts, and what the answer is."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.operators.hashing import key_hashes
from penstock.operators.joins.as_of import CellAsOfJoin
from penstock.operators.joins.cell import CellJoin
from penstock.operators.joins.changes import DELETE, INSERT, Due
from penstock.operators.joins.left import CellLeftJoin
from penstock.operators.joins.tuples import InputRuns, RunSlice, Stripe
from penstock.operators.routing.routers import Dimension, Grid, GridRouter
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run
from penstock.plan.joins import (
    Comparison,
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOrder,
    JoinPlan,
    Method,
    Operator,
    OptionalJoin,
    ProbeOrder,
    ProbeStep,
    TimeBound,
)

TIME = pa.timestamp("us", "UTC")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: types of keys and some values of each
KEYS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -(2**63), 2**63 - 1],
    pa.int32(): [0, 1, -1, 2**31 - 1],
    pa.string(): ["", "a", "ä", "no longer a word", "no longer a wore"],
    pa.decimal128(12, 2): [Decimal("0.00"), Decimal("1.10"), Decimal("-9999999999.99")],
    pa.float64(): [0.0, -0.0, math.nan, 1.5, math.inf],
    pa.float32(): [0.0, -0.0, math.nan, 1.5],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)],
    TIME: [EPOCH, EPOCH + datetime.timedelta(microseconds=1), EPOCH - datetime.timedelta(days=1)],
    pa.bool_(): [True, False],
    pa.binary(): [b"", b"\0", b"\0\0", b"\xff"],
    pa.int8(): [0, 1, -128],
}


@dataclass(frozen=True)
class Tuple:
    """A tuple of an input.

    Attributes:
        entry: the log entry it comes with; 0 in static tables.
        keys: its value of each key.
        time: event time, microseconds; None is NULL.
        value: what comparisons are of.
    """

    entry: int
    keys: tuple[Any, ...]
    time: int | None
    value: Any


@dataclass(frozen=True)
class Case:
    """A join and its tuples.

    Attributes:
        plan: the join.
        grid: its cells.
        tuples: by input, in no order.
        merges: by input entries from which a merged run begins: those up to the next one are in it.
        cuts: by cut and input the last entry of the cut.
        orders: by cut how it is joined.
        keyless: whether there are runs by event time alone too.
        piece_rows: of `CellJoin`.
    """

    plan: JoinPlan
    grid: Grid
    tuples: tuple[tuple[Tuple, ...], ...]
    merges: tuple[frozenset[int], ...]
    cuts: tuple[tuple[int, ...], ...]
    orders: tuple[JoinOrder, ...]
    keyless: bool
    piece_rows: int


def name(number: int, column: str) -> str:
    """The column of an input."""
    return f"{column}_{number}"


ENTRIES = 6


@st.composite
def cases(draw: st.DrawFn, *, optional: str = "", kind: OptionalJoin = OptionalJoin.LEFT) -> Case:
    """Random joins; outer ones have an optional input behind others, which is a "stream" or a static "table"."""
    count = 2 if kind is OptionalJoin.FULL else draw(st.integers(2, 4))
    others = count - 1 - bool(optional)
    static = [False, *(draw(st.sampled_from([False, False, False, True])) for _ in range(others))]
    static = [*draw(st.permutations(static)), *([optional == "table"] if optional else [])]
    types = draw(st.lists(st.sampled_from(list(KEYS)), max_size=2))
    value_kind = draw(st.sampled_from([pa.float64(), pa.int32(), pa.string(), pa.decimal128(12, 2)]))
    keys = []
    for place, key_type in enumerate(types):
        members = draw(st.sets(st.integers(0, count - 1), min_size=2))
        columns = tuple(name(each, f"k{place}") if each in members else None for each in range(count))
        keys.append(JoinKey(columns, key_type))
    every = tuple(
        JoinInput(
            f"i{number}", f"r{number}", static[number], None,
            (
                *(JoinColumn(name(number, f"k{place}"), "", each) for place, each in enumerate(types)),
                JoinColumn(name(number, "t"), "", TIME),
                JoinColumn(name(number, "v"), "", value_kind),
                JoinColumn(name(number, "n"), "", pa.int64()),
            ),
            None if static[number] else name(number, "t"),
        )
        for number in range(count)
    )  # fmt: skip
    bounds = []
    for left in range(count):
        for right in range(left + 1, count):
            if not static[left] and not static[right]:
                low, high = sorted(draw(st.tuples(st.integers(-12, 3), st.integers(-3, 12))))
                bounds.append(TimeBound(left, right, low, high))
    comparisons = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        left, right = draw(st.permutations(range(count)))[:2]
        operator = draw(st.sampled_from(list(Operator)))
        comparisons.append(Comparison(name(left, "v"), operator, name(right, "v")))
    last = (count - 1,) if optional else ()
    plan = JoinPlan("j", every, tuple(keys), tuple(bounds), tuple(comparisons), (), (), last, kind=kind)
    grid = Grid(
        tuple(
            Dimension(f"k{place}", (str(key.type),), draw(st.integers(1, 3)))
            for place, key in enumerate(keys)
        )
    )
    random = Random(draw(st.integers(0, 1 << 32)))
    few = [random.sample(KEYS[each], min(len(KEYS[each]), random.randint(1, 4))) for each in types]
    tuples = tuple(
        tuple(
            tuple_of(random, static[number], few, KEYS[value_kind])
            for _ in range(draw(st.integers(0, 30 if count == 2 else 60 // count)))
        )
        for number in range(count)
    )
    merges = tuple(frozenset(draw(st.sets(st.integers(0, ENTRIES - 1)))) | {0} for _ in range(count))
    ends = [
        [ENTRIES - 1] * 4
        if static[number]
        else [*sorted(draw(st.lists(st.integers(-1, ENTRIES - 1), min_size=3, max_size=3))), ENTRIES - 1]
        for number in range(count)
    ]
    keyless = draw(st.booleans())
    return Case(
        plan, grid, tuples, merges, tuple(zip(*ends, strict=True)),
        tuple(draw(orders(plan, keyless)) for _ in range(4)), keyless,
        draw(st.sampled_from([1, 3, 8, 1 << 16])),
    )  # fmt: skip


def tuple_of(random: Random, is_static: bool, keys: Sequence[Sequence[Any]], values: Sequence[Any]) -> Tuple:
    """A random tuple of an input: now and then something of it is NULL."""

    def one(options: Sequence[Any]) -> Any:
        return None if random.random() < 0.06 else random.choice(options)

    return Tuple(
        0 if is_static else random.randrange(ENTRIES),
        tuple(one(options) for options in keys),
        0 if is_static else one(range(-10, 11)),
        one(values),
    )


@st.composite
def orders(draw: st.DrawFn, plan: JoinPlan, keyless: bool) -> JoinOrder:
    """Random probe orders: any input next, by any key that is known by then, or by none."""
    found = []
    for first, each in enumerate(plan.inputs):
        if each.is_static:
            continue
        joined, steps = [first], []
        for target in draw(st.permutations([n for n in range(len(plan.inputs)) if n != first])):
            options: list[tuple[Method, int | None]] = [(Method.NESTED, None)]
            if None in sort_keys(plan, target, keyless):
                options.append((Method.MERGE, None))
            for number, key in enumerate(plan.keys):
                if key.columns[target] is not None and any(
                    key.columns[other] is not None for other in joined
                ):
                    options += [(method, number) for method in Method]
            method, chosen = draw(st.sampled_from(options))
            steps.append(ProbeStep(target, method, chosen))
            joined.append(target)
        found.append(ProbeOrder(first, tuple(steps)))
    return JoinOrder(tuple(found))


def looks_up(plan: JoinPlan) -> bool:
    """Whether the last input is an optional static table: rows without a partner stay."""
    return bool(plan.optional) and not plan.has_optional_stream


def sort_keys(plan: JoinPlan, number: int, keyless: bool = False) -> list[int | None]:
    """By what an input is sorted; first by what no tuple is left out for lack of that may be in a row.

    Args:
        plan: the join.
        number: of the input.
        keyless: whether there are runs by event time alone in any case.
    """
    every = [key for key, each in enumerate(plan.keys) if each.columns[number] is not None]
    left_out: list[int | None] = []
    if plan.optional and number not in plan.optional and (looks_up(plan) or len(plan.inputs) > 2):
        others = [other for other in range(len(plan.inputs)) if other not in (number, *plan.optional)]
        left_out += [key for key in every if not any(plan.keys[key].columns[other] for other in others)]
    whole: list[int | None] = [key for key in every if key not in left_out]
    by_time: list[int | None] = [None] if keyless or not whole else []
    return [*whole, *by_time, *([] if looks_up(plan) else left_out)]


def table_of(plan: JoinPlan, number: int, tuples: Sequence[Tuple], numbers: Sequence[int]) -> pa.Table:
    """Tuples of an input; their numbers are a column."""
    columns = plan.inputs[number].columns
    values = [[each.keys[place] for each in tuples] for place in range(len(columns) - 3)]
    values += [[each.time for each in tuples], [each.value for each in tuples], list(numbers)]
    arrays = [
        pa.array(own, pa.int64()).cast(TIME)
        if column.name == name(number, "t")
        else pa.array(own, column.type)
        for column, own in zip(columns, values, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema([(column.name, column.type) for column in columns]))


def written(table: pa.Table, plan: RunPlan) -> Run:
    """A run in memory."""
    sink = pa.BufferOutputStream()
    write_run(table, plan, sink)
    return Run(sink.getvalue())


def router_of_input(case: Case, number: int) -> GridRouter:
    """How an input is dealt out."""
    columns = (key.columns[number] for key in case.plan.keys)
    return GridRouter(case.grid, tuple(() if column is None else (column,) for column in columns))


def runs_of(case: Case, number: int, key: int | None) -> list[tuple[range, Run]]:
    """An input's runs in one order, each with its entries."""
    column = None if key is None else case.plan.keys[key].columns[number]
    plan = RunPlan(() if column is None else (column,), name(number, "t"), router_of_input(case, number))
    singles: list[list[tuple[int, Run]]] = []
    own = list(enumerate(case.tuples[number]))
    for entry in range(ENTRIES):
        chosen = [(place, each) for place, each in own if each.entry == entry]
        run = written(
            table_of(case.plan, number, [each for _, each in chosen], [place for place, _ in chosen]), plan
        )
        if entry in case.merges[number]:
            singles.append([])
        singles[-1].append((entry, run))
    found = []
    for group in singles:
        entries = range(group[0][0], group[-1][0] + 1)
        if len(group) == 1:
            found.append((entries, group[0][1]))
        else:
            sink = pa.BufferOutputStream()
            merge_runs(group, sink)
            found.append((entries, Run(sink.getvalue())))
    return found


def slices(runs: Sequence[tuple[range, Run]], after: int, until: int) -> tuple[RunSlice, ...]:
    """The tuples of the entries behind one and up to another."""
    return tuple(
        RunSlice(run, after, until)
        for entries, run in runs
        if after < until and entries.start <= until and entries.stop - 1 > after
    )


def cuts_of(case: Case) -> Iterator[tuple[JoinOrder, list[dict[int | None, InputRuns]]]]:
    """Of each cut how it is joined, and its tuples."""
    plan = case.plan
    runs = {}
    for number in range(len(plan.inputs)):
        for key in sort_keys(plan, number, case.keyless):
            runs[number, key] = runs_of(case, number, key)
    before = [ENTRIES - 1 if each.is_static else -1 for each in plan.inputs]
    for until, order in zip(case.cuts, case.orders, strict=True):
        inputs: list[dict[int | None, InputRuns]] = [{} for _ in plan.inputs]
        for (number, key), own in runs.items():
            new = slices(own, before[number], until[number])
            inputs[number][key] = InputRuns(new, slices(own, -1, before[number]))
        yield order, inputs
        before = list(until)


def tasks_of(case: Case) -> list[tuple[int, Stripe]]:
    """The tasks of a cut: its cells, some of them in stripes."""
    return [
        (cell, Stripe(number, of))
        for cell in range(case.grid.cells)
        for of in (1 + (cell + len(case.cuts)) % 3,)
        for number in range(of)
    ]


def joined(case: Case) -> Counter[str]:
    """All rows that all cells of all cuts tell."""
    columns = [column.name for each in case.plan.inputs for column in each.columns]
    found: Counter[str] = Counter()
    for order, inputs in cuts_of(case):
        for cell, stripe in tasks_of(case):
            join = CellJoin(
                case.plan,
                order,
                cell,
                inputs,
                columns,
                stripe=stripe,
                piece_rows=case.piece_rows,
                text_bytes=8,
            )
            found.update(texts_of(join.batches()))
    return found


def left_joined(case: Case, limits: Sequence[int]) -> Iterator[Counter[str]]:
    """After each cut the rows of the outer join, those whose names were withdrawn left out."""
    columns = [column.name for each in case.plan.inputs for column in each.columns]
    told: list[tuple[Any, ...]] = []
    gone: set[bytes] = set()
    after = -(2**62)
    for (order, inputs), until in zip(cuts_of(case), limits, strict=True):
        for cell, stripe in tasks_of(case):
            due = Due(after, until) if case.plan.withdraws else None
            halves = [(case.plan, order, inputs, False)]
            if case.plan.kind is OptionalJoin.FULL:
                halves.append((case.plan.turned(), order.turned(), inputs[::-1], True))
            rows = []
            for plan, followed, own, turned in halves:
                cell_join = CellAsOfJoin if plan.is_as_of else CellLeftJoin
                join = cell_join(
                    plan,
                    followed,
                    cell,
                    own,
                    columns,
                    due,
                    0,
                    stripe=stripe,
                    piece_rows=case.piece_rows,
                    text_bytes=8,
                    **({"turned": True} if turned else {}),
                )
                half = [row for batch in sound(join.batches()) for row in rows_of(batch)]
                lasts = [measures[-1] for measures in join.steps.values()]
                if not plan.withdraws:
                    half = [(*row, INSERT, None) for row in half]
                if plan.kind in (OptionalJoin.LEFT, OptionalJoin.FULL):
                    counted = sum(each.pairs + each.alone for each in lasts)
                    assert counted == sum(row[-2] == INSERT for row in half), (
                        "what the steps say they put out"
                    )
                rows += half
            taken_back = Counter(repr(row[:-2]) for row in rows if row[-2] == DELETE)
            assert taken_back <= Counter(repr(row[:-2]) for row in told if row[-1] is not None), (
                "what was told"
            )
            gone |= {row[-1] for row in rows if row[-2] == DELETE}
            told += [row for row in rows if row[-2] != DELETE]
        yield Counter(repr(row[:-2]) for row in told if row[-1] not in gone)
        after = until


def expected_left_joined(case: Case, limits: Sequence[int]) -> Iterator[Counter[str]]:
    """After each cut the rows among the tuples so far, and those that are due and have no partner, filled with NULL."""
    plan, right = case.plan, len(case.plan.inputs) - 1
    own = {column.name for column in plan.inputs[right].columns}
    before = replace(
        plan,
        inputs=plan.inputs[:right],
        keys=tuple(replace(key, columns=key.columns[:right]) for key in plan.keys),
        bounds=tuple(each for each in plan.bounds if each.right < right),
        comparisons=tuple(each for each in plan.comparisons if not own & {each.left, each.right}),
    )
    every = [
        list(zip(tuples, rows_of(table_of(plan, number, tuples, range(len(tuples)))), strict=True))
        for number, tuples in enumerate(case.tuples)
    ]
    for until, limit in zip(case.cuts, limits, strict=True):
        there = [
            [each for each in own if each[0].entry <= last] for own, last in zip(every, until, strict=True)
        ]
        found: Counter[str] = Counter()
        for combination in product(*there[:right]):
            tuples = [each for each, _ in combination]
            if not (right == 1 and plan.withdraws) and not is_joined(before, tuples):
                continue
            row = tuple(value for _, own in combination for value in own)
            partners = [known for each, known in there[right] if matches(plan, [*tuples, each])]
            time = tuples[plan.anchor].time
            is_due = looks_up(plan) or time is None or time <= limit
            nothing = (None,) * len(plan.inputs[right].columns)
            if plan.is_as_of:
                alone = [nothing] if plan.kind is OptionalJoin.LEFT_AS_OF else []
                told = (newest(plan, partners) if partners else alone) if is_due else []
            elif plan.kind is OptionalJoin.SEMI:
                told = [nothing] if partners else []
            elif plan.kind is OptionalJoin.ANTI:
                told = [nothing] if is_due and not partners else []
            else:
                told = partners or ([nothing] if is_due else [])
            found.update(repr((*row, *partner)) for partner in told)
        if plan.kind is OptionalJoin.FULL:
            nothing = (None,) * len(plan.inputs[0].columns)
            for each, own in there[right]:
                is_due = each.time is None or each.time <= limit
                if is_due and not any(matches(plan, [one, each]) for one, _ in there[0]):
                    found.update([repr((*nothing, *own))])
        yield found


def newest(plan: JoinPlan, partners: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The newest of some tuples of the last input, as a list; among several of one event time the one with the largest hash."""
    columns = plan.inputs[-1].columns
    schema = pa.schema([(column.name, column.type) for column in columns])
    table = pa.table(
        [pa.array(own, each.type) for own, each in zip(zip(*partners, strict=True), schema, strict=True)],
        schema=schema,
    )
    times = [row[schema.get_field_index(plan.inputs[-1].time or "")] for row in partners]
    hashes = key_hashes(table, schema.names).tolist()
    best = max(range(len(partners)), key=lambda place: (times[place], hashes[place]))
    return [partners[best]]


def is_joined(plan: JoinPlan, tuples: Sequence[Tuple]) -> bool:
    """Whether a row satisfies everything; a key of one input alone says nothing."""
    keys = tuple(key for key in plan.keys if sum(column is not None for column in key.columns) > 1)
    places = [plan.keys.index(key) for key in keys]
    kept = [replace(each, keys=tuple(each.keys[place] for place in places)) for each in tuples]
    return matches(replace(plan, keys=keys), kept)


def texts_of(batches: Iterator[pa.RecordBatch]) -> Counter[str]:
    """Rows as texts."""
    return Counter(repr(row) for batch in sound(batches) for row in rows_of(batch))


def sound(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, all of them sound and with rows."""
    for batch in batches:
        assert batch.num_rows
        batch.validate(full=True)
        yield batch


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    """Rows as tuples."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def expected(case: Case, until: Sequence[int] | None = None) -> Counter[str]:
    """The join of all tuples, or of those up to some entries, by looking at every combination."""
    plan = case.plan
    every = []
    for number, tuples in enumerate(case.tuples):
        table = table_of(plan, number, tuples, range(len(tuples)))
        last = ENTRIES if until is None else until[number]
        every.append(
            [(each, row) for each, row in zip(tuples, rows_of(table), strict=True) if each.entry <= last]
        )
    found: Counter[str] = Counter()
    for combination in product(*every):
        if matches(plan, [each for each, _ in combination]):
            found[repr(tuple(value for _, row in combination for value in row))] += 1
    return found


def matches(plan: JoinPlan, tuples: Sequence[Tuple]) -> bool:
    """Whether a joined row satisfies everything."""
    for place, key in enumerate(plan.keys):
        values = [each.keys[place] for each, column in zip(tuples, key.columns, strict=True) if column]
        if any(value is None for value in values) or len({same(value) for value in values}) > 1:
            return False
    for bound in plan.bounds:
        left, right = tuples[bound.left].time, tuples[bound.right].time
        if left is None or right is None or not bound.lower <= right - left <= bound.upper:
            return False
    for each, one in zip(plan.inputs, tuples, strict=True):
        if not each.is_static and one.time is None:
            return False
    for comparison in plan.comparisons:
        left, right = (
            tuples[int(side.rpartition("_")[2])].value for side in (comparison.left, comparison.right)
        )
        if left is None or right is None or not holds(order_of(left), comparison.operator, order_of(right)):
            return False
    return True


def same(value: Any) -> Any:
    """What equal values have in common."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def order_of(value: Any) -> Any:
    """Where a value lies among others: NaN is the largest."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def holds(left: Any, operator: Operator, right: Any) -> bool:
    """A comparison of values that are no NULL."""
    match operator:
        case Operator.LESS:
            return bool(left < right)
        case Operator.LESS_EQUAL:
            return bool(left <= right)
        case Operator.GREATER:
            return bool(left > right)
        case Operator.GREATER_EQUAL:
            return bool(left >= right)
        case Operator.NOT_EQUAL:
            return bool(left != right)
