"""What was said of windows, made again from the rows that had arrived by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content, merged_windows
from penstock.operators.windows.merged_windows import Span, portions
from penstock.operators.windows.required_slack import END
from penstock.operators.windows.rows import lowered
from penstock.plan.windows import WindowPlan

#: a window and when what is told of it had arrived
Told = tuple[Span, int]
#: the rows of a pane that had arrived by a moment, without arrivals, and keys of the groups that got rows later
Parted = tuple[Content, pa.Table]


@dataclass(frozen=True, slots=True, eq=False)
class ToldWindows:
    """What was said of some windows.

    Attributes:
        known: their rows, merged; END is the number of a window among them.
        grown: END and keys of the groups that have got rows since, in any order, maybe several times.
        keys: the grouping columns.
    """

    known: Content
    grown: pa.Table
    keys: Sequence[str]

    def rows(self, plan: WindowPlan) -> pa.Table:
        """END and what a view said."""
        rows = lowered(plan, self.known, self.keys, [END])
        return rows.append_column(END, self.known.partials.column(END))


def told_windows(
    windows: Sequence[Told],
    parts: Parts,
    keys: Sequence[str],
    starts: Callable[[Span], Sequence[int]],
    size: Callable[[Span], int],
    parted: Callable[[int, int], Parted],
) -> Iterator[tuple[ToldWindows, list[Told]]]:
    """What was said of windows, some of them at a time.

    Args:
        windows: ascending; some pane of each has rows that arrived later.
        parts: what is kept of each group.
        keys: the grouping columns.
        starts: gives the panes of a window.
        size: gives the bytes of these.
        parted: gives the rows of a pane that had arrived by a moment, and the groups that got rows later.
    """
    for several in portions(windows, lambda told: size(told[0])):
        held = [[(start, arrival) for start in starts(span)] for span, arrival in several]
        known = {pane: parted(*pane) for pane in sorted(set(chain.from_iterable(held)))}
        contents = {pane: content for pane, (content, _) in known.items()}
        grown = [known[pane][1] for own in held for pane in own]
        numbers = np.repeat(
            np.arange(len(held)), [sum(known[pane][1].num_rows for pane in own) for own in held]
        )
        yield (
            ToldWindows(
                merged_windows(parts, contents, list(enumerate(held)), [END, *keys]),
                pa.concat_tables(grown).append_column(END, pa.array(numbers)),
                keys,
            ),
            several,
        )
