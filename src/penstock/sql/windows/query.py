"""Window views: `SELECT keys, aggregates FROM one_stream WHERE ... GROUP BY window(...), keys HAVING ...`.

A selection over a window view is one too, with its condition among those on groups. A running view is one without a window.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from penstock.plan.windows import ALL_TIME, GroupingSet, Windows
from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints
from penstock.sql.text.ordering import OrderEntry
from penstock.sql.text.query import Output, SelectQuery
from penstock.sql.windows.aggregate_calls import AggregateCall

#: the window's name in the expressions over groups; a struct of `start` and `end`
WINDOW_NAME = "_w"
#: in the place of `start` and `end`, of a running view: the only field of that struct, always true
WHOLE = "all"


def key_name(number: int) -> str:
    """The name of a grouping key in the expressions over groups."""
    return f"_k{number}"


def aggregate_name(number: int) -> str:
    """The name of an aggregate in the expressions over groups."""
    return f"_a{number}"


def groups_name(text: str) -> str:
    """Name of the view that an aggregation in FROM becomes, by its text."""
    return f"groups_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Key:
    """A grouping key other than the window.

    Attributes:
        expression: Spark SQL text over the source's columns.
        name: its name in the expressions over groups: `_k0`, `_k1`, ...
        clause: where the expression was written: in GROUP BY, or in the SELECT list if GROUP BY names that.
    """

    expression: str
    name: str
    clause: Clause


@dataclass(frozen=True, slots=True)
class GroupExpression:
    """An expression over groups: an item of the SELECT list, or a condition.

    Attributes:
        expression: Spark SQL text over `_w`, `_k0`, ... and `_a0`, ...
        name: its alias, or that of the column it is; None where Spark makes a name, and for conditions.
        clause: where it was written, an alias included.
    """

    expression: str
    name: str | None
    clause: Clause


@dataclass(frozen=True, slots=True)
class Beneath:
    """The window view or running view whose rows another one aggregates.

    Attributes:
        windows: its windows; `ALL_TIME` of a running view.
        moment: which moment of its window is a row's time: "start", "end", or "last", the last microsecond.
    """

    windows: Windows
    moment: str

    @property
    def is_running(self) -> bool:
        """Whether it is a running view: its rows are kept while they are live."""
        return self.windows == ALL_TIME


@dataclass(frozen=True, slots=True)
class BeneathJoin:
    """The join view or UNION ALL whose rows a window view aggregates.

    Attributes:
        column: its column that is a row's time; "" for a running view.
        kind: what it is, in words.
    """

    column: str
    kind: str = "join view"


@dataclass(frozen=True, slots=True)
class RankingClause:
    """What makes a running view a ranking.

    Attributes:
        function: one of `penstock.plan.rankings.RANKINGS`.
        order: what tuples of a partition are ordered by.
        limit: the largest place that is kept.
        items: the SELECT list as it was written.
        inner: that of the query in FROM that ranks, as Spark may analyse it; None: the ranking is in the query itself.
        aliases: names of the SELECT list in QUALIFY, where they were written.
        condition: that on the place, over what `inner` puts out; None as `inner` is.
    """

    function: str
    order: tuple[OrderEntry, ...]
    limit: int
    items: tuple[Clause, ...]
    inner: tuple[Clause, ...] | None
    aliases: tuple[Clause, ...] = ()
    condition: Clause | None = None


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """A window view on one table or view, or a running view.

    Attributes:
        source: name after FROM.
        source_clause: where that name was written.
        time: Spark SQL text of the event time; "" of a running view whose rows are groups.
        time_clause: where it was written.
        windows: which windows; a negative or large start time is brought into [0, slide). `ALL_TIME` of a running view.
        window_clause: the call of `window` in GROUP BY, or in the SELECT list if GROUP BY names that; of a running view where
            it says that it aggregates.
        group_by: the grouping expressions as they were written, the window's too; of SELECT DISTINCT its items.
        grouped: all that stands behind GROUP BY, what its commas part.
        keys: the grouping keys but the window, in order, each once.
        aggregates: each distinct one once, in order of appearance; the n-th is `_an`.
        outputs: the SELECT list.
        having: the conditions on groups: HAVING, and WHERE of selections over the view. A group is kept where all
            of them are true.
        conditions: as in `SelectQuery`.
        below: what the view beneath puts out, in a flattened view on views; None for all columns.
            The texts of `group_by` and of the clauses are over these columns, all others
            over the source's.
        selected: of a selection over a window view, flattened: that view, and the selection as it was written.
        over: of an aggregation over a window, running or join view or a UNION ALL, that one; it is the source, and all texts are over its columns.
        inner: the query in FROM, a `statements.Query`, whose name `source` is; None: FROM names a table or view, or it is flattened.
        inner_text: the text of a UNION ALL, aggregation or join there, which is a view of its own; "" where there is none.
        ranking: what makes it a ranking: its `keys` are those of the partition, its `aggregates` columns of the kept tuples and the place, and
            its `outputs` may be `*`. None: it aggregates.
        columns: of the source, what `*` stands for in a ranking; (): all that it has now.
        hints: Penstock's hints.
        gap: of a running view whose rows are sessions: how long after its newest tuple one ends, microseconds.
        sets: the grouping sets; none: all keys together are the one way to group.
        before_window: of a view with grouping sets, how many keys are before its window in the grouping ID.
    """

    source: str
    source_clause: Clause
    time: str
    time_clause: Clause
    windows: Windows
    window_clause: Clause
    group_by: tuple[Clause, ...]
    grouped: tuple[Clause, ...]
    keys: tuple[Key, ...]
    aggregates: tuple[AggregateCall, ...]
    outputs: tuple[GroupExpression, ...]
    having: tuple[GroupExpression, ...] = ()
    conditions: tuple[Clause, ...] = ()
    below: tuple[Output, ...] | None = None
    selected: tuple[WindowQuery, SelectQuery] | None = None
    over: Beneath | BeneathJoin | None = None
    inner: Any = None
    inner_text: str = ""
    ranking: RankingClause | None = None
    columns: tuple[str, ...] = ()
    hints: Hints = field(default_factory=Hints)
    gap: int | None = None
    sets: tuple[GroupingSet, ...] = ()
    before_window: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it is an aggregation without a window, or by sessions."""
        return self.windows == ALL_TIME

    @property
    def grouping_id(self) -> str | None:
        """The name of the grouping ID in the expressions over groups; None without grouping sets."""
        return key_name(len(self.keys)) if self.sets else None

    @property
    def is_over_running(self) -> bool:
        """Whether it is over a running view."""
        return isinstance(self.over, Beneath) and self.over.is_running

    @property
    def has_open_star(self) -> bool:
        """Whether it is a ranking whose columns are those of its source, whatever these are."""
        below = self.below
        is_open = below is None or any(output.is_star for output in below)
        return self.ranking is not None and is_open and any(each.expression == "*" for each in self.outputs)

    @property
    def items(self) -> tuple[Clause, ...]:
        """The SELECT list as it was written; () for `*` alone."""
        if self.ranking is not None and self.selected is None:
            return self.ranking.items
        if self.selected is None:
            return tuple(output.clause for output in self.outputs)
        return tuple(output.clause for output in self.selected[1].projection or ())

    @property
    def selection(self) -> SelectQuery:
        """The selection of the tuples that the windows are made of."""
        return SelectQuery(self.source, self.source_clause, self.conditions)

    @property
    def where(self) -> str | None:
        """The condition as one text, None if every tuple is selected."""
        return self.selection.where
