"""What is told of derived windows: the groups as they are now beside what was told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import shared_codes
from penstock.spark.results.published_rows import moments
from penstock.spark.results.revisions import newest_rows, without_withdrawn
from penstock.spark.results.window_schemas import (
    COVERAGE,
    DELETE,
    FINAL,
    FIRST_REVISION,
    MARKS,
    OP,
    REVISION,
    ROW,
    SLACK,
    UPSERT,
    marks_in,
)
from penstock.spark.results.window_staging import ViewCounts

_SECOND = 1_000_000
#: less than any coverage
_UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class Worth:
    """What is known of the rows that a window is made of.

    Attributes:
        coverage: the least of them; None where one is not known.
        reached: the event time that the stream had come to when the newest of them was told, microseconds.
    """

    coverage: float | None
    reached: int

    def with_(self, other: Worth) -> Worth:
        """That of the rows of both."""
        known = [each for each in (self.coverage, other.coverage) if each is not None]
        return Worth(min(known) if len(known) == 2 else None, max(self.reached, other.reached))


def worth_of(rows: pa.Table, ends: Mapping[int, range]) -> dict[int, Worth]:
    """The worth of each window, by its end.

    Args:
        rows: the newest rows of the view beneath with MARKS and ROW, those withdrawn among them.
        ends: the ends of the windows that a row is in, by the end of the row's own window.
    """
    own, marks = moments(rows, f"{ROW}.end"), marks_in(rows.column_names)
    told = pa.table(
        {
            "end": own,
            COVERAGE: pc.fill_null(rows.column(marks[COVERAGE]), _UNKNOWN),
            "reached": own + np.round(rows.column(marks[SLACK]).to_numpy() * _SECOND).astype(np.int64),
        }
    )
    beneath = told.group_by("end", use_threads=False).aggregate([(COVERAGE, "min"), ("reached", "max")])
    found: dict[int, Worth] = {}
    for row in beneath.to_pylist():
        least = row[f"{COVERAGE}_min"]
        own_worth = Worth(None if least == _UNKNOWN else least, row["reached_max"])
        for end in ends[row["end"]]:
            found[end] = own_worth if end not in found else own_worth.with_(found[end])
    return found


def revised(
    now: pa.Table, told: pa.Table, worth: Mapping[int, Worth], final: Set[int], cut: int
) -> tuple[pa.Table, ViewCounts]:
    """The rows that tell how windows differ from what was told of them.

    A window that becomes final is told whole.

    Args:
        now: the groups of the windows: own columns and ROW.
        told: all that was told of them: own columns, MARKS and ROW.
        worth: by end of window.
        final: ends of the windows that are final now.
        cut: number of the cut, which numbers corrections of windows that were told as final.

    Returns:
        Own columns, MARKS and ROW, and what they say, counted.
    """
    names = marks_in(told.column_names)
    own = [name for name in told.column_names if name not in (*names.values(), ROW)]
    revisions, were_final = _told_windows(told)
    newest = newest_rows(told)
    differs, gone = _compared(now, newest, own)
    ends = moments(now, f"{ROW}.end")
    becomes = np.array([end in final and end not in were_final for end in ends.tolist()], bool)
    upserts = now.filter(pa.array(differs | becomes))
    deletes = newest.filter(pa.array(gone)).select([*own, ROW])
    rows = pa.concat_tables([upserts.select([*own, ROW]), deletes])
    marks: dict[str, list[object]] = {name: [] for name in MARKS.names}
    shown_before = without_withdrawn(newest).num_rows
    counts = ViewCounts(rows=rows.num_rows, revised_rows=rows.num_rows - (now.num_rows - shown_before))
    windows: dict[int, int] = {}
    for number, end in enumerate(moments(rows, f"{ROW}.end").tolist()):
        known = worth.get(end)
        is_final = end in final or end in were_final
        if end in were_final:
            revision = FIRST_REVISION + cut
        else:
            revision = revisions[end] + 1 if end in revisions else 0
        windows[end] = revision
        counts.final_corrected_rows += end in were_final
        marks[REVISION].append(revision)
        marks[COVERAGE].append(1.0 if is_final else None if known is None else known.coverage)
        marks[SLACK].append(None if known is None else (known.reached - end) / _SECOND)
        marks[FINAL].append(is_final)
        marks[OP].append(UPSERT if number < upserts.num_rows else DELETE)
    for end, revision in windows.items():
        counts.early += revision == 0
        counts.final += end in final and end not in were_final
        counts.final_corrected += end in were_final
        counts.corrected += revision > 0 and end not in final and end not in were_final
    columns = {name: rows.column(name) for name in own}
    columns |= {names[mark.name]: pa.array(marks[mark.name], mark.type) for mark in MARKS}
    return pa.table({**columns, ROW: rows.column(ROW)}, schema=told.schema), counts


def revised_whole(
    now: pa.Table, told: pa.Table, cut: int, *, is_final: bool, tells_all: bool
) -> tuple[pa.Table, ViewCounts]:
    """The rows that tell how the groups of a running view differ from what was told of them.

    Args:
        now: the groups: own columns and ROW.
        told: all that was told: own columns, MARKS and ROW.
        cut: number of the cut, the revision.
        is_final: whether no row beneath changes any more.
        tells_all: whether groups that do not differ are told too.

    Returns:
        Own columns, MARKS and ROW, those that are withdrawn first, and what they say, counted.
    """
    names = marks_in(told.column_names)
    own = [name for name in told.column_names if name not in (*names.values(), ROW)]
    newest = newest_rows(told)
    differs, gone = _compared(now, newest, own)
    upserts = now if tells_all else now.filter(pa.array(differs))
    deletes = newest.filter(pa.array(gone)).select([*own, ROW])
    rows = pa.concat_tables([deletes, upserts.select([*own, ROW])])
    shown_before = without_withdrawn(newest).num_rows
    counts = ViewCounts(rows=rows.num_rows, revised_rows=rows.num_rows - (now.num_rows - shown_before))
    marks: dict[str, Sequence[object]] = {
        REVISION: [cut] * rows.num_rows,
        COVERAGE: [1.0 if is_final else None] * rows.num_rows,
        SLACK: [0.0] * rows.num_rows,
        FINAL: [is_final] * rows.num_rows,
        OP: [DELETE] * deletes.num_rows + [UPSERT] * upserts.num_rows,
    }
    columns = {name: rows.column(name) for name in own}
    columns |= {names[mark.name]: pa.array(marks[mark.name], mark.type) for mark in MARKS}
    return pa.table({**columns, ROW: rows.column(ROW)}, schema=told.schema), counts


def _told_windows(told: pa.Table) -> tuple[dict[int, int], set[int]]:
    """The newest revision of each window by its end, and the ends of those that were told as final."""
    revisions: dict[int, int] = {}
    final = set()
    names = marks_in(told.column_names)
    marks = zip(
        moments(told, f"{ROW}.end").tolist(),
        told.column(names[REVISION]).to_pylist(),
        told.column(names[FINAL]).to_pylist(),
        strict=True,
    )
    for end, revision, is_final in marks:
        revisions[end] = max(revision, revisions.get(end, 0))
        if is_final:
            final.add(end)
    return revisions, final


def _compared(
    now: pa.Table, newest: pa.Table, own: list[str]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each group whether it differs from what was told of it; for each group that was told whether it is there no more."""
    flat_now, flat_told = flattened(now.select([ROW])), flattened(newest.select([ROW]))
    groups, told_groups = shared_codes([flat_now, flat_told], flat_now.column_names)
    contents, told_contents = _contents(now.select(own), newest.select(own))
    op = marks_in(newest.column_names)[OP]
    is_there = pc.equal(newest.column(op), UPSERT).to_numpy().astype(bool)
    place = np.full(int(max(groups.max(initial=-1), told_groups.max(initial=-1))) + 1, -1, np.int64)
    place[told_groups[is_there]] = np.flatnonzero(is_there)
    found = place[groups]
    differs = found < 0
    known = ~differs
    differs[known] = contents[known] != told_contents[found[known]]
    gone = is_there & ~np.isin(told_groups, groups)
    return differs, gone


def _contents(now: pa.Table, told: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number for each row of both, equal where all columns are."""
    flat = [flattened(table) for table in (now, told)]
    codes = shared_codes(flat, flat[0].column_names)
    return codes[0], codes[1]
