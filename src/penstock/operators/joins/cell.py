"""A cut of a windowed join in one cell of its grid.

Pairs are told once: what is new of an input meets what is new and old of the inputs behind it and what is old of those
before it (delta queries; Blakeley, Larson and Tompa, "Efficiently updating materialized views", 1986). Each of these terms
follows its probe order, piece by piece, first as ids of rows; columns are decoded at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.kernels.gather import Ids
from penstock.operators.joins.conditions import bounds_of
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure, timing
from penstock.operators.joins.steps import Rows, Step, coalesced
from penstock.operators.joins.tuples import CellTuples, InputRuns, Slot
from penstock.operators.routing.routers import GridRouter
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep

#: joined rows of a piece, unless told otherwise
PIECE_ROWS = 1 << 16
#: bytes of strings in a batch, unless a single row has more
TEXT_BYTES = 64 << 20

_OLDEST, _NEWEST = -(2**63), 2**63 - 1


class CellJoin:
    """The joined rows of a cut in one cell.

    It holds no more than pieces of `piece_rows` joined rows, one a step and one being decoded (8 bytes an input and row,
    with 100 bytes a row for what is searched and the columns that are asked for), 16 bytes for each row of a piece and part searched,
    and the tables of steps by hash or nested loops (32 bytes a tuple within the span of the new ones).

    Args:
        plan: the join. LEFT OUTER is joined as INNER here.
        order: how it is joined.
        cell: number of the cell.
        inputs: of each input its tuples by the key they are sorted by (None: by event time alone); all of these hold
            the same tuples. A step by merge needs the order of its key, others prefer it, and do with any. All runs are dealt
            out by routers of one grid. Event times of static tables are not looked at, but must not be NULL.
        columns: names of the inputs' columns that are told of each joined row, at least one.
        piece_rows: joined rows are made in pieces of about so many.
        text_bytes: a batch of several rows has no more bytes of strings than this.

    Raises:
        ValueError: the order does not fit the join, or tuples are not sorted as it needs them, or not dealt out by a grid.
    """

    def __init__(
        self,
        plan: JoinPlan,
        order: JoinOrder,
        cell: int,
        inputs: Sequence[Mapping[int | None, InputRuns]],
        columns: Sequence[str],
        *,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        _check(plan, order, inputs, columns)
        self._plan, self._order, self._cell, self._inputs = plan, order, cell, inputs
        self._piece_rows, self._text_bytes = piece_rows, text_bytes
        owners = {column.name: number for number, each in enumerate(plan.inputs) for column in each.columns}
        self._columns = [(name, owners[name]) for name in columns]
        self._opened: dict[tuple[int, int | None], CellTuples] = {}
        #: by the input with new tuples what each step of its probe order did so far
        self.steps: dict[int, tuple[StepMeasure, ...]] = {
            each.first: tuple(StepMeasure() for _ in each.steps) for each in order.orders
        }
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The joined rows, in no order, each once over all cells; no batch is empty."""
        if not self._is_responsible():
            return
        for order in self._order.orders:
            tuples = self._chosen(order)
            for rows in self._joined(order, tuples):
                yield from self._decoded(rows, tuples)

    def _is_responsible(self) -> bool:
        """Whether joined rows of this cell are its to tell, if there are any."""
        routers = []
        for orders in self._inputs:
            runs = next((each for each in orders.values() if each.new or each.old), None)
            if runs is None:
                return False
            router = (*runs.new, *runs.old)[0].run.plan.router
            if not isinstance(router, GridRouter):
                raise ValueError(f"join {self._plan.name}: runs are dealt out by {router}, not along a grid")
            routers.append(router)
        return routers[0].grid.is_responsible(self._cell, routers)

    def _chosen(self, order: ProbeOrder) -> dict[int, CellTuples]:
        """By input its tuples, in the order that a probe order reads."""
        chosen = {order.first: self._open(order.first, order.steps[0].key)}
        for step in order.steps:
            key = None if step.method is Method.NESTED and None in self._inputs[step.input] else step.key
            chosen[step.input] = self._open(step.input, key)
        return chosen

    def _open(self, number: int, key: int | None) -> CellTuples:
        orders = self._inputs[number]
        key = key if key in orders else next(iter(orders))
        if (number, key) not in self._opened:
            self._opened[number, key] = CellTuples(orders[key], key, self._cell)
        return self._opened[number, key]

    def _joined(self, order: ProbeOrder, tuples: Mapping[int, CellTuples]) -> Iterator[Rows]:
        slots = tuples[order.first].new
        times = [each.part.summary for each in slots]
        oldest = min((each.oldest for each in times if each.oldest is not None), default=None)
        newest = max((each.newest for each in times if each.newest is not None), default=None)
        if oldest is None or newest is None:
            return
        pieces = coalesced(_new(order.first, slots, self._piece_rows), self._piece_rows)
        joined = [order.first]
        for step, measure in zip(order.steps, self.steps[order.first], strict=True):
            bound = bounds_of(self._plan, step.input, (order.first,))
            span = (oldest + bound[0].lower, newest + bound[0].upper) if bound else (_OLDEST, _NEWEST)
            target = tuples[step.input]
            met = target.slots if step.input > order.first else target.old
            one = Step(self._plan, step, tuples, tuple(joined), met, span, self._piece_rows, measure)
            pieces = coalesced(one.partners(pieces), (self._piece_rows + 1) // 2)
            joined.append(step.input)
        yield from pieces

    def _decoded(self, rows: Rows, tuples: Mapping[int, CellTuples]) -> Iterator[pa.RecordBatch]:
        """Joined rows as record batches, several where their strings have too many bytes."""
        count = len(next(iter(rows.values())))
        with timing(self.decoded):
            columns = [(tuples[number].column(name), rows[number]) for name, number in self._columns]
            ends = [column.ends(ids) if column.is_text else None for column, ids in columns]
            text = sum(int(each[-1]) for each in ends if each is not None)
            if text <= self._text_bytes or count == 1:
                arrays = [column.take(ids, each) for (column, ids), each in zip(columns, ends, strict=True)]
                self.decoded.rows += count
                batch = pa.RecordBatch.from_arrays(arrays, [name for name, _ in self._columns])
        if text <= self._text_bytes or count == 1:
            yield batch
            return
        for part in (slice(0, count // 2), slice(count // 2, count)):
            yield from self._decoded({number: ids[part] for number, ids in rows.items()}, tuples)


def _new(first: int, slots: Sequence[Slot], rows: int) -> Iterator[Rows]:
    """The new tuples of an input, in pieces."""
    for slot in slots:
        ids: Ids = slot.ids()
        for begin in range(0, len(ids), rows):
            yield {first: ids[begin : begin + rows]}


def _check(
    plan: JoinPlan,
    order: JoinOrder,
    inputs: Sequence[Mapping[int | None, InputRuns]],
    columns: Sequence[str],
) -> None:
    """Raises ValueError where an order does not fit its join."""
    what = f"join {plan.name}"
    every = set(range(len(plan.inputs)))
    names = {column.name for each in plan.inputs for column in each.columns}
    if not columns or not set(columns) <= names:
        raise ValueError(f"{what}: columns {', '.join(columns) or 'none'} of {', '.join(sorted(names))}")
    if len(inputs) != len(every) or not all(inputs):
        raise ValueError(f"{what} has {len(every)} inputs; tuples are given of {sum(map(bool, inputs))}")
    ordered = [each.first for each in order.orders]
    missing = [number for number, orders in enumerate(inputs) if any(each.new for each in orders.values())]
    if len(set(ordered)) != len(ordered) or not set(missing) <= set(ordered):
        raise ValueError(f"{what}: orders for inputs {ordered}, new tuples of inputs {missing}")
    for each in order.orders:
        if sorted((each.first, *(step.input for step in each.steps))) != sorted(every):
            raise ValueError(f"{what}: not every input once: {each}")
        for step in each.steps:
            _check_step(what, step, plan, inputs[step.input])


def _check_step(what: str, step: ProbeStep, plan: JoinPlan, orders: Mapping[int | None, InputRuns]) -> None:
    if step.key is not None and plan.keys[step.key].columns[step.input] is None:
        raise ValueError(f"{what}: input {step.input} has no part in the key of {step}")
    if step.method is Method.HASH and step.key is None:
        raise ValueError(f"{what}: no hash without a key: {step}")
    if step.method is Method.MERGE and step.key not in orders:
        raise ValueError(f"{what}: {step} needs runs sorted by its key; there are runs by {list(orders)}")
