"""How declared views are answered, and over what, in the words of the reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.plan.rankings import RankedPlan
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.engine import Engine
from penstock.spark.ingest.explaining import state_words
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.publication.kinds import is_running_name
from penstock.spark.storage.bindings import RunningDefinition, ViewDefinition, WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.script.views import flatten
from penstock.sql.windows.query import WindowQuery

SELECTION, WINDOW, DEADLINE, RUNNING = "selection", "window", "deadline", "running view"
RANKING, JOIN, UNION = "ranking", "join", "UNION ALL"
CHANGED_WINDOWS, ALL_ROWS, REFRESH = "rows of windows", "all rows", "refresh"
#: neither by lanes nor by REFRESH
NOTHING = "nothing"
TUPLES, TABLES = "tuples", "tables"


@dataclass(frozen=True, slots=True)
class Answered:
    """How a view is answered.

    Attributes:
        way: by what.
        over: the kinds of rows that it is computed from.
        is_bounded: whether something besides disk space bounds its state.
    """

    way: str
    over: frozenset[str]
    is_bounded: bool = True


def answered(engine: Engine, name: str) -> Answered:
    """How the engine answers a view that it has declared."""
    declared = engine._declared
    view = declared.views[name]
    definition = view.definition
    if view.derived is not None:
        below = frozenset((_rows(declared, view.derived.view),))
        is_ranking = isinstance(view.derived.bound.plan, RankedPlan)
        if isinstance(definition, RunningDefinition) and not is_running_name(view.derived.stream):
            return Answered(RANKING if is_ranking else ALL_ROWS, below)
        way = RUNNING if isinstance(definition, RunningDefinition) else WINDOW
        return Answered(RANKING if is_ranking else way, below, _is_bounded(declared, view))
    match definition:
        case ViewDefinition():
            return Answered(SELECTION, frozenset((TUPLES,)))
        case DeadlineDefinition():
            return Answered(DEADLINE, frozenset((TUPLES,)))
        case RunningDefinition():
            flat = flatten(view.query, declared.queries)
            way = RUNNING if isinstance(flat, WindowQuery) and flat.ranking is None else RANKING
            return Answered(way, frozenset((TUPLES,)), _is_bounded(declared, view))
        case WindowDefinition():
            return Answered(WINDOW, frozenset((TUPLES,)))
        case UnionDefinition():
            return Answered(UNION, frozenset((TUPLES,)))
        case JoinDefinition():
            return Answered(JOIN, _with_tables({TUPLES}, definition))
        case RefreshedDefinition() if definition.views:
            kinds = {_rows(declared, each.view, is_stream=bool(each.time)) for each in definition.views}
            way = CHANGED_WINDOWS if definition.by_window else ALL_ROWS
            return Answered(way, _with_tables(kinds, definition))
        case RefreshedDefinition():
            return Answered(REFRESH, _with_tables({TUPLES}, definition), is_bounded=False)
    raise AssertionError(definition)


def _with_tables(kinds: Iterable[str], definition: JoinDefinition | RefreshedDefinition) -> frozenset[str]:
    return frozenset((*kinds, TABLES) if definition.tables else kinds)


def _rows(declared: Declared, name: str, *, is_stream: bool = False) -> str:
    """What the rows of a view are."""
    match declared.views[name].definition:
        case RunningDefinition():
            return "groups"
        case WindowDefinition():
            return "windows"
        case JoinDefinition():
            return "joins"
        case UnionDefinition():
            return TUPLES if is_stream else "UNION ALL"
    return "refreshed views"


def _is_bounded(declared: Declared, view: View) -> bool:
    words = state_words(flatten(view.query, declared.queries))
    return words is None or "only disk space limits" not in words
