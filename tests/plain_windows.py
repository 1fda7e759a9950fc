"""A stream with one window view of counts whose windows are final at once, logged and answered without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, OperatorPlan, WindowProgram
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.windows.programs import BoundProgram
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import write_envelopes
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.results.bound_views import store_views
from penstock.spark.storage.bindings import RegisteredWindow, WindowDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from window_cases import stream_of

STREAM, SIZE, EACH = "s", 20, 10
MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
VIEW = WindowPlan(
    "v", "t", Windows(SIZE, SIZE), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
OUTPUTS = (BoundOutput("_w", "w", WINDOW), BoundOutput("_a0", "n", pa.int64()))
BOUND = BoundWindow(VIEW, (), None, WINDOW, OUTPUTS, None)
PARTS = Parts.of(VIEW.aggregates)
PROGRAM = WindowProgram(0, (OperatorPlan(0, (VIEW,), PARTS, SIZE, BEFORE_ALL, ()),), 0, 0)
SENT: Any = SimpleNamespace(value=BoundProgram(PROGRAM, {0: {"v": BOUND}}))


class PlainStream:
    """The stream and its log.

    Args:
        layout: where.

    Attributes:
        log: the log.
        tuples: how many there are, by window.
    """

    def __init__(self, layout: Layout) -> None:
        self.log = StreamLog(layout.log(STREAM))
        self.log.path("partials", "").mkdir(parents=True)
        self.tuples: Counter[int] = Counter()
        definition = WindowDefinition("v", "of the stream", "")
        store_views(layout, STREAM, 0, [BOUND], {"v": RegisteredWindow(definition, 0)})
        store_program(layout, STREAM, PROGRAM)
        self._layout = layout
        self._newest: int | None = None
        self._operator = 0
        self.number = -1

    def redefine(self) -> None:
        """From the next entry on another operator answers the view."""
        self._operator += 1
        definition = WindowDefinition("v", f"of operator {self._operator}", "")
        store_views(
            self._layout, STREAM, self._operator, [BOUND], {"v": RegisteredWindow(definition, self._operator)}
        )
        plan = OperatorPlan(self._operator, (VIEW,), PARTS, SIZE, BEFORE_ALL, ())
        store_program(self._layout, STREAM, WindowProgram(self._operator, (plan,), 0, 0))

    def put(self, times: Sequence[int]) -> Entry:
        """Puts an entry of tuples with these event times."""
        self.tuples.update(time // SIZE * SIZE for time in times)
        self.number += 1
        before = times[0] if self._newest is None else self._newest
        self._newest = max(before, *times)
        name = f"{self.number}.parquet"
        panes = pa.table({PANE: np.array(times) // SIZE * SIZE})
        envelope = Envelope(self._operator, PARTIALS, stream_of(PARTS.lift(panes, [PANE])))
        write_envelopes([(0, envelope)], self.log.path("partials", name))
        entry = Entry(
            self.number,
            self.number,
            self._operator,
            self.number,
            self._newest,
            self._newest,
            (max(0, before - min(times)),),
            {"partials": (name,)},
            True,
        )
        assert self.log.append(entry)
        return entry


class JobsHere:
    """Runs the jobs of a lane in its own thread; those that are to fail raise before.

    Args:
        failures: of the first jobs; None: it succeeds.
    """

    def __init__(self, failures: Sequence[Exception | None] = ()) -> None:
        self._failures = list(failures)
        self.begun = 0

    def run(
        self,
        function: Callable[[Any], Any],
        cells: Sequence[Any],
        *,
        is_light: bool = False,  # noqa: ARG002
    ) -> list[Any]:
        self.begun += 1
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        return [function(cell) for cell in cells]

    def expect(self) -> None:
        """Nobody waits for it."""

    def release(self) -> None:
        """Likewise."""

    def cancel(self) -> None:
        """They are short."""


def no_spark() -> Any:
    """What stands for a session: workers are this process."""
    slots = SimpleNamespace(
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
        maxNumConcurrentTasks=lambda _: 1,
    )
    return SimpleNamespace(
        sparkContext=SimpleNamespace(
            defaultParallelism=1,
            _jsc=SimpleNamespace(sc=lambda: slots),
            broadcast=lambda value: SimpleNamespace(
                value=value, unpersist=lambda: None, destroy=lambda: None
            ),
            cancelJobGroup=lambda _: None,
        )
    )
