"""The virtual-time runner of window views: recorded arrivals through the real operator, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.clocks import StreamTime
from penstock.operators.windows.content import Content
from penstock.operators.windows.grouping import group_codes
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.slack import SlackPolicy
from penstock.operators.windows.slack_policies import FixedSlack
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import WindowPlan
from penstock_lab.simulate.disorder import SECOND, Arrivals

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: revisions of corrections from the history begin here
_HISTORY = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What a view's windows were told, and when.

    Attributes:
        plan: the view.
        early: one row an early answer and group: keys, `_a0` ..., start, end, answered (arrival clock), slack (from the window's
            end to the event time that the stream had come to then), k (the slack that closed it, which the stream may have jumped beyond, or, where
            K has just fallen, the one that had held it until then).
        final: the final answers: keys, `_a0` ..., start, end.
        closed: windows that end later were open when the stream ended: no slack answered them, and nothing is judged by them.
        latency: seconds between the arrivals of the tuples of a window and its early answer, mean of
            each window.
        coverage: share of each window's tuples that its early answer held.
    """

    plan: WindowPlan
    early: pa.Table
    final: pa.Table
    closed: int
    latency: Floats
    coverage: Floats

    def mean_slack(self, since: int = 0, until: int = AFTER_ALL) -> float:
        """Mean slack in seconds of the early answers of windows that end in [since, until), windows counted once."""
        return self._mean("slack", since, until)

    def mean_k(self, since: int = 0, until: int = AFTER_ALL) -> float:
        """Mean K in seconds that closed the windows that end in [since, until), windows counted once."""
        return self._mean("k", since, until)

    def _mean(self, column: str, since: int, until: int) -> float:
        windows = self.early.group_by(["end"]).aggregate([(column, "max")])
        ends, times = (each.to_numpy() for each in windows.columns)
        return float(np.mean(times[(ends >= since) & (ends < until)])) / SECOND

    def errors(self) -> tuple[Ints, Floats]:
        """End and error of each window and group that a slack has closed: the largest of its aggregates'.

        A group the early answer did not know has an infinite error.
        """
        keys = [name for name, _ in self.plan.keys]
        wanted = ["end", *keys]
        closed = self.final.filter(pa.array(self.final.column("end").to_numpy() <= self.closed))
        codes = group_codes(pa.concat_tables([t.select(wanted) for t in (closed, self.early)]), wanted)
        own, theirs = codes[: closed.num_rows], codes[closed.num_rows :]
        place = np.full(int(codes.max()) + 1, -1)
        place[theirs] = np.arange(len(theirs))
        found = place[own]
        errors = np.zeros(len(own))
        for number in range(len(self.plan.aggregates)):
            final, early = (
                t.column(f"_a{number}").cast(pa.float64()).to_numpy() for t in (closed, self.early)
            )
            with np.errstate(invalid="ignore", divide="ignore"):
                apart = np.abs(early[found] - final)
                if not self.plan.bound.absolute:
                    apart = apart / np.abs(final)
            same = (early[found] == final) | (np.isnan(early[found]) & np.isnan(final))
            apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
            errors = np.maximum(errors, apart)
        return closed.column("end").to_numpy(), np.where(found < 0, np.inf, errors)

    def satisfied(self, since: int = 0, until: int = AFTER_ALL) -> tuple[float, float, float, int]:
        """Share of windows that end in [since, until) whose early error is below epsilon, with the
        95 % Wilson interval and their number."""
        ends, errors = self.errors()
        own = (ends >= since) & (ends < until)
        return wilson(int((errors[own] < self.plan.bound.epsilon).sum()), int(own.sum()))


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float, float, int]:
    """Share, lower and upper end of its Wilson interval, trials."""
    if not trials:
        return float("nan"), 0.0, 1.0, 0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    return share, middle - half, middle + half, trials


def play(
    arrivals: Arrivals,
    plan: WindowPlan,
    policy: SlackPolicy,
    step: int,
    gamma: int,
    horizon: int = 0,
    largest: int = 0,
    idle: int = 0,
) -> tuple[Played, WindowOperator]:
    """Plays a stream through the operator.

    Args:
        arrivals: the stream.
        plan: the window view.
        policy: chooses its slack.
        step: arrival time between two batches, microseconds.
        gamma: see `WindowOperator`.
        horizon: least horizon.
        largest: delay that was seen before the stream begins, microseconds.
        idle: arrival time, microseconds; a stream without a tuple for longer moves on with the clock, as the setting
            `idle_seconds` has it. 0: it stands still.
    """
    operator = WindowOperator([(plan, policy)], gamma, horizon)
    operator.restore(replace(operator.snapshot(), time=StreamTime(largest=largest)))
    clock = arrivals.arrival_time
    delays = arrivals.delays
    answered: list[tuple[Answer, int, int]] = []
    silent = number = 0
    moments = np.arange(clock[0] + step, clock[-1] + 2 * step, step)
    bounds = [0, *np.searchsorted(clock, moments, "left").tolist()]
    for moment, (first, last) in zip(moments.tolist(), pairwise(bounds), strict=True):
        if first == last:
            silent += step
            if idle and silent > idle:
                used = policy.slack
                answers = operator.process(_silence(operator, silent))
                answered += [(answer, moment, used) for answer in answers]
            continue
        silent = 0
        before = operator.newest
        batch = pane_batch(arrivals, operator, first, last, delays)
        answers = operator.process(batch) + _from_history(arrivals, operator, first, last, number)
        operator.panes.take_changes()  # nothing is stored
        assert operator.newest is not None, "tuples came"
        waited = operator.newest - operator.views[plan.name].windows.state.frontier
        answered += [
            (answer, int(clock[last - 1]), waited if before is None else max(waited, before - answer.end))
            for answer in answers
        ]
        number += 1
    closed = operator.views[plan.name].windows.state.frontier
    answered += [(answer, int(clock[-1]), 0) for answer in operator.finish()]
    return _played(arrivals, plan, answered, closed), operator


def exact(arrivals: Arrivals, plan: WindowPlan) -> pa.Table:
    """The results over all tuples at once: keys, `_a0` ..., start, end."""
    operator = WindowOperator([(plan, FixedSlack(0))], 0)
    count = len(arrivals.event_time)
    operator.process(pane_batch(arrivals, operator, 0, count, np.zeros(count, np.int64)))
    answers = operator.finish()
    assert not operator.beyond, "one batch leaves nothing behind"
    return pa.concat_tables([_marked(a, 0, 0) for a in answers if a.final])


def pane_batch(
    arrivals: Arrivals, operator: WindowOperator, first: int, last: int, delays: Ints
) -> PaneBatch:
    """Tuples first .. last - 1 as a batch of partials."""
    event = arrivals.event_time[first:last]
    tuples = arrivals.columns.slice(first, last - first).append_column(
        PANE, pa.array((event - operator.offset) // operator.pane * operator.pane + operator.offset)
    )
    keys = [PANE, *operator.keys]
    values = {name: lift_values(tuples, keys, name) for name in operator.parts.values}
    partials = operator.parts.lift(tuples, keys)
    return PaneBatch(partials, values, int(event.max()), delays[first:last])


def _silence(operator: WindowOperator, silent: int) -> PaneBatch:
    """No tuple has come for so long, microseconds."""
    assert operator.newest is not None, "a stream begins with a tuple"
    return PaneBatch(None, {}, None, np.zeros(0, np.int64), reached=operator.newest + silent)


def _from_history(
    arrivals: Arrivals, operator: WindowOperator, first: int, last: int, number: int
) -> list[Answer]:
    """The batch side: corrects final windows that tuples first .. last - 1 belong to."""
    answers = []
    for name, start in sorted(operator.beyond):
        view = operator.views[name]
        end = start + view.plan.windows.size
        begin = view.plan.windows.begin(end)
        known, now = (_history(arrivals, operator, begin, end, count) for count in (first, last))
        assert now is not None, "the tuples that have just come"
        answer = view.answer_from_history(start, known, now, _HISTORY + number)
        answers += [] if answer is None else [answer]
    operator.beyond.clear()
    return answers


def _history(
    arrivals: Arrivals, operator: WindowOperator, start: int, end: int, count: int
) -> Content | None:
    """The first `count` tuples that lie in a window, None where there are none."""
    event = arrivals.event_time[:count]
    tuples = arrivals.columns.slice(0, count).filter(pa.array((event >= start) & (event < end)))
    if not tuples.num_rows:
        return None
    values = {name: lift_values(tuples, operator.keys, name) for name in operator.parts.values}
    return Content(operator.parts.lift(tuples, operator.keys), values)


def _played(
    arrivals: Arrivals, plan: WindowPlan, answered: list[tuple[Answer, int, int]], closed: int
) -> Played:
    early: list[pa.Table] = []
    final: list[pa.Table] = []
    latency, coverage = [], []
    order = np.argsort(arrivals.event_time, kind="stable")
    event, clock = arrivals.event_time[order], arrivals.arrival_time[order]
    for answer, at, k in answered:
        marked = _marked(answer, at, k)
        if answer.final:
            final.append(marked)
        if not answer.revision and answer.end <= closed:
            early.append(marked)
            own = slice(*np.searchsorted(event, [answer.start, answer.end]))
            held = clock[own] <= at
            latency.append(float(np.mean(at - clock[own][held])) / SECOND if held.any() else 0.0)
            coverage.append(float(held.mean()))
    keys = ["end", *(name for name, _ in plan.keys)]
    return Played(
        plan,
        pa.concat_tables([final[0].slice(0, 0), *early]),
        _newest(pa.concat_tables(final), keys),
        closed,
        np.array(latency),
        np.array(coverage),
    )


def _newest(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The last row of each group."""
    codes = group_codes(rows, keys)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return rows.take(pa.array(last))


def _marked(answer: Answer, answered: int, k: int) -> pa.Table:
    marks = {"start": answer.start, "end": answer.end, "answered": answered, "slack": answer.slack, "k": k}
    rows = answer.rows
    for name, mark in marks.items():
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, mark)))
    return rows
