"""What a shard remembers but its panes, and how it is stored: scalars in JSON, what there are many of in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.windows.clocks import StreamTime
from penstock.operators.windows.corrector import Registered
from penstock.operators.windows.judge import Judged, Watched
from penstock.operators.windows.lifecycle import Told, WindowStates
from penstock.operators.windows.operator import OperatorState
from penstock.operators.windows.slack import SlackState, WindowOutcome
from penstock.operators.windows.slack_memory import Ints
from penstock.operators.windows.stored import packed, unpacked
from penstock.operators.windows.view import ViewState


@dataclass(frozen=True, slots=True, eq=False)
class ShardState:
    """What a shard remembers but its panes.

    Attributes:
        version: the plan version of the program it followed last, None before the first one.
        operators: by id.
    """

    version: int | None
    operators: Mapping[int, OperatorState]


def stored_state(state: ShardState) -> bytes:
    """The state in bytes."""
    views = [view for operator in state.operators.values() for view in operator.views.values()]
    header = {
        "plan": state.version,
        "operators": [
            {
                "id": id_,
                "time": asdict(operator.time),
                "is_whole": operator.is_whole,
                "views": [_scalars(name, view) for name, view in operator.views.items()],
            }
            for id_, operator in state.operators.items()
        ],
    }
    tables = {
        "told": _told([view.windows.told for view in views]),
        "watched": _watched([view.judged.watched for view in views]),
        "registered": _registered([view.registered.ends for view in views]),
        "slacks": _slacks([view.slack for view in views]),
    }
    return packed(tables, header)


def read_state(stored: bytes) -> ShardState:
    """The state that was stored.

    Raises:
        CheckpointError: another version of Penstock stored it.
    """
    found = unpacked(stored)
    operators: dict[int, OperatorState] = {}
    views: list[ViewState] = []
    numbers: list[dict[str, float]] = []
    for each in found.header["operators"]:
        own = {}
        for scalars in each["views"]:
            view = ViewState(
                WindowStates(scalars["frontier"], scalars["final"]),
                Judged(scalars["coverage"]),
                Registered(oldest=scalars["oldest"], newest=scalars["newest"]),
            )
            own[scalars["name"]] = view
            views.append(view)
            numbers.append(scalars["slack"])
        operators[each["id"]] = OperatorState(StreamTime(**each["time"]), each["is_whole"], own)
    for number, end, revision, arrival in _rows(found.tables["told"]):
        views[number].windows.told[end] = Told(revision, arrival)
    for number, end in _rows(found.tables["registered"]):
        views[number].registered.ends.add(end)
    _read_watched(found.tables["watched"], views)
    arrays = _read_slacks(found.tables["slacks"], len(views))
    for view, known, remembered in zip(views, numbers, arrays, strict=True):
        view.slack = SlackState(known, remembered)
    return ShardState(found.header["plan"], operators)


def _scalars(name: str, view: ViewState) -> dict[str, Any]:
    return {
        "name": name,
        "frontier": view.windows.frontier,
        "final": view.windows.final,
        "coverage": view.judged.coverage,
        "oldest": view.registered.oldest,
        "newest": view.registered.newest,
        "slack": dict(view.slack.numbers),
    }


def _told(views: list[dict[int, Told]]) -> pa.Table:
    told = list(chain.from_iterable(own.values() for own in views))
    return pa.table(
        {
            "view": _views(views),
            "end": _integers(chain.from_iterable(views)),
            "revision": _integers(each.revision for each in told),
            "arrival": _integers(each.arrival for each in told),
        }
    )


def _watched(views: list[dict[int, Watched]]) -> pa.Table:
    watched = list(chain.from_iterable(own.values() for own in views))
    outcomes = [each.outcome for each in watched]
    required = [each.required if each is not None else np.zeros(0, np.int64) for each in outcomes]
    return pa.table(
        {
            "view": _views(views),
            "end": _integers(chain.from_iterable(views)),
            "slack": _integers(each.slack for each in watched),
            "first": _integers(each.first for each in watched),
            "look": _integers(each.look for each in watched),
            "heard": _integers(each.heard for each in watched),
            "coverage": pa.array([each and each.coverage for each in outcomes], pa.float64()),
            "age": _integers(each.age for each in watched),
            "settled": pa.array([each and each.settled for each in outcomes], pa.int64()),
            "required": _lists(map(len, required), required),
        }
    )


def _read_watched(table: pa.Table, views: list[ViewState]) -> None:
    """The outcomes are those that were heard while the windows were not final."""
    offsets, groups = _of_lists(table.column("required"))
    for row, each in enumerate(_rows(table.drop_columns(["required"]))):
        number, end, slack, first, look, heard, coverage, age, settled = each
        watched = views[number].judged.watched[end] = Watched(slack, first, look, None, heard, age)
        if coverage is not None:
            own = groups[offsets[row] : offsets[row + 1]]
            watched.outcome = WindowOutcome(end, slack, coverage, own, settled)


def _registered(views: list[set[int]]) -> pa.Table:
    ends = [sorted(own) for own in views]
    return pa.table({"view": _views(ends), "end": _integers(chain.from_iterable(ends))})


def _slacks(states: list[SlackState]) -> pa.Table:
    """A row for each array that a policy remembers."""
    arrays = [each for state in states for each in state.arrays.values()]
    return pa.table(
        {
            "view": _views([state.arrays for state in states]),
            "name": pa.array([name for state in states for name in state.arrays], pa.string()),
            "values": _lists(map(len, arrays), arrays),
        }
    )


def _read_slacks(table: pa.Table, views: int) -> list[dict[str, Ints]]:
    offsets, values = _of_lists(table.column("values"))
    found: list[dict[str, Ints]] = [{} for _ in range(views)]
    for row, (number, name) in enumerate(_rows(table.drop_columns(["values"]))):
        found[number][name] = values[offsets[row] : offsets[row + 1]]
    return found


def _lists(lengths: Iterable[int], groups: Sequence[Ints]) -> pa.Array:
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(np.concatenate([np.zeros(0, np.int64), *groups]))
    )


def _of_lists(lists: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Where each list begins, with the end, and what is in them."""
    lengths = pc.list_value_length(lists).to_numpy()
    return np.append(0, np.cumsum(lengths)), pc.list_flatten(lists).to_numpy()


def _views(members: Sequence[Any]) -> pa.Array:
    """The number of its view for each member of each view."""
    return pa.array(np.repeat(np.arange(len(members), dtype=np.int32), [len(own) for own in members]))


def _integers(numbers: Iterable[int]) -> pa.Array:
    return pa.array(np.fromiter(numbers, np.int64))


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
