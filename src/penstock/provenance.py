"""Answers of `Engine.why` and `Engine.backtest`, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: what a condition is for a tuple; NULL and an error are no match
Verdict = Literal["true", "false", "NULL", "error"]
#: where a tuple is in the windows of a view
Fate = Literal["early", "corrected", "final", "withdrawn", "missed", "not due", "no row", "unknown"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a condition compares.

    Attributes:
        text: the column or expression, Spark SQL.
        value: as JSON has it; a number that no float has exactly is text.
        error: why Spark cannot compute it; None if it can.
    """

    text: str
    value: Any
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A condition, or a part of one, and what Spark makes of it.

    Attributes:
        text: Spark SQL.
        kind: `and`, `or`, `not`, `is`, or `test` for one that compares values.
        verdict: true, false, NULL; error where Spark cannot compute it and the parts that it can compute do not decide it.
        error: why Spark cannot compute it; None if it can.
        values: what a test compares.
        parts: the conditions within it.
    """

    text: str
    kind: str
    verdict: Verdict
    error: str | None = None
    values: tuple[Value, ...] = ()
    parts: tuple[Judged, ...] = ()


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A condition that must be true of a tuple.

    Attributes:
        view: the view that states it: the one asked about, or one that it selects from.
        judged: what Spark makes of it.
    """

    view: str
    judged: Judged


@dataclass(frozen=True, slots=True)
class Revision:
    """One published revision of a row of a window view.

    Attributes:
        revision: its number.
        coverage: expected share of the tuples that it has seen, 0 to 1.
        is_final: whether it is final.
        op: `upsert`, or `delete` where the row was withdrawn.
        row: the view's columns.
    """

    revision: int
    coverage: float | None
    is_final: bool
    op: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """A window that a tuple belongs to.

    Attributes:
        start, end: ISO 8601, the end exclusive.
        keys: the tuple's grouping keys: expression -> value.
        fate: what became of the row of this window and these keys; `unknown` without a results folder.
        reason: more about it; empty: nothing.
        revisions: the published revisions, oldest first.
    """

    start: str
    end: str
    keys: Mapping[str, Any]
    fate: Fate = "unknown"
    reason: str = ""
    revisions: tuple[Revision, ...] = ()


@dataclass(frozen=True, slots=True)
class Partners:
    """The tuples of another input of a join view that the tuple meets.

    Attributes:
        input: how the query calls the input.
        relation: the stream or static table.
        read: how many tuples of the relation were read; None: its source cannot be read again.
        count: how many of them satisfy the conditions of this input and those on it and the tuple.
        rows: some of these, with the columns that the view uses.
        reason: why the source cannot be read; empty if it can.
    """

    input: str
    relation: str
    read: int | None
    count: int | None
    rows: tuple[Mapping[str, Any], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a tuple is in the rows of a view, or is not.

    Attributes:
        view: the view.
        kind: `selection`, `window`, `deadline` or `join`.
        relation: the stream or table that the tuple is of.
        input: of a join view how the query calls this input; empty otherwise.
        values: the tuple's columns as queries see them; empty if its record cannot be decoded.
        missing: columns that the given row lacks; they are NULL.
        unknown: fields of the given row that are no columns; they are ignored.
        set_aside: why the tuple is in the quarantine, or would be; empty if it is not.
        conjuncts: the conditions on the tuple, the innermost view's first.
        windows: of a window view the windows that the tuple belongs to, by start.
        partners: of a join view the partners from each other input.
        joined: of a join view how many rows the tuple is part of; None: unknown.
        notes: what else must be known to read the answer.
    """

    view: str
    kind: str
    relation: str
    input: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    set_aside: str = ""
    conjuncts: tuple[Conjunct, ...] = ()
    windows: tuple[TupleWindow, ...] = ()
    partners: tuple[Partners, ...] = ()
    joined: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return whether the conditions on the tuple alone are true, by three-valued logic; a view without any takes all tuples."""
        found = [each.judged.verdict for each in self.conjuncts]
        order: tuple[Verdict, ...] = ("false", "error", "NULL")
        return next((each for each in order if each in found), "true")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that `json.dumps` takes."""
        return {"verdict": self.verdict, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Count:
    """How many tuples or rows of a backtest one hour, file or window has.

    Attributes:
        of: the hour or the start of the window, ISO 8601, or the file; empty: none is known.
        tuples: tuples read; of window and join views those that the counted rows were made of are unknown: None.
        matches: matching tuples; of window and join views rows.
    """

    of: str
    tuples: int | None
    matches: int


@dataclass(frozen=True, slots=True)
class Passed:
    """How many of the tuples that were read a part of a condition lets through by itself.

    Attributes:
        text: Spark SQL; a tuple must pass all parts to match.
        tuples: for how many it is true.
    """

    text: str
    tuples: int


@dataclass(frozen=True, slots=True)
class Backtest:
    """What a view would have answered over stored tuples.

    Attributes:
        view: its name.
        sql: its text.
        over: the folder, file or results folder of each stream and table that was read, by name.
        tuples: how many tuples of each were read.
        set_aside: records that were read and do not fit the columns.
        matches: matching tuples; of window and join views rows.
        errors: tuples whose condition raises an error: they are no match.
        by: what `counts` are by: `hour`, `window` or `file`.
        counts: in ascending order.
        rows: some rows, with the view's columns.
        parts: of a selection whose condition has several parts what each lets through, those of the innermost view first.
        notes: what else must be known to read the answer.
    """

    view: str
    sql: str
    over: Mapping[str, str]
    tuples: Mapping[str, int]
    set_aside: int
    matches: int
    errors: int
    by: Literal["hour", "window", "file"]
    counts: tuple[Count, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    parts: tuple[Passed, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that `json.dumps` takes."""
        return asdict(self)
