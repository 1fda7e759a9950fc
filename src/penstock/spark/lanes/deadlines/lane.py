"""The deadline lane: window instances of all views with a deadline, worked out in time or given up.

What is in the logs says which windows are created, and when; the clock says what becomes of them. Each is worked out by an order, a small
stateless Spark job, chosen by the policy across all views. What orders have released and what became of the other instances is
published together, so that a crash leaves each instance with one outcome or with none: of those with none, the ones that are overdue are
accounted at the next start, and the others are tried.

Source: Wu, Gu, Lyu, Yu; the policy is `control/policies/deadlines`.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.control.actions import (
    Action,
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    ReportViolation,
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    Event,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cuts import Reach, newest_reach, refuse_another_log
from penstock.spark.lanes.deadlines.following import FollowedView, ViewStands
from penstock.spark.lanes.deadlines.ledger import (
    FAILED,
    MISSED,
    RELEASED,
    SHED,
    Outcome,
    counts_of,
    staged_misses,
    told_outcome,
)
from penstock.spark.lanes.deadlines.orders import FAILED as USER_FAILED
from penstock.spark.lanes.deadlines.orders import OVER
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrders
from penstock.spark.lanes.deadlines.working import ViewOrders
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import make_folder

#: the longest time between two looks at the logs and at the clock, seconds
_LOOK_SECONDS = 0.1
#: entries of a log that are followed at once
_MOST_ENTRIES = 64
#: an order whose result will be late, but is carried on from, is abandoned after so many deadlines
_LATE_DEADLINES = 10
#: what the last publication took counts for, in the time the next one is taken to take
_FADING = 0.5
#: of a publication: how far each view has come
_VIEWS = "stands"
#: of a reader's mark: likewise
_STANDS = "stands"


#: by action, the kind of event that tells it
_KINDS: Mapping[type[Action], str] = {
    ReportViolation: "losses_exceeded",
    AdjustPrediction: "prediction_adjusted",
    RaiseOverload: "overloaded",
}


class DeadlineLane(Lane):
    """Answers all views with a deadline.

    Args:
        views: the run's.
        context: the run's.
        streams: the keepers of the logs of their streams, which have been asked for their tuples.
    """

    part = "deadlines"

    def __init__(self, views: DeadlineViews, context: LaneContext, streams: Sequence[LogKeeper]) -> None:
        super().__init__(DEADLINE_LANE, context, streams)
        self.registered = views.views
        self._bound = {each.number: views.bound(each) for each in self.registered}
        self._logs = {each.stream: LogReader(context.layout.log(each.stream)) for each in streams}
        self._plans = {each.ingest.stream: each.ingest.plans for each in streams}
        self.publisher = Publisher(context.layout, self.name, (), owner=self.name, failpoints="order_")
        self._orders = ViewOrders(
            context, {each.number: (each, self._bound[each.number]) for each in self.registered}
        )
        self._names = {each.definition.name: each.number for each in self.registered}
        self._cores = context.spark.sparkContext.defaultParallelism
        self._running: RunningOrders | None = None
        #: when what the policy is told has happened, seconds since the epoch
        self._now = time.time()
        self._publish_seconds = 0.0
        #: replaced as a whole by the lane's thread
        self._told: Mapping[str, Any] = {}
        # what `started` looks for
        make_folder(context.layout.cuts(self.name))

    @property
    def reader(self) -> str:
        """The lane's name."""
        return self.name

    def recount(self, status: StatusFile) -> None:
        """What became of instances."""
        status.begin_lane(self.name)

    def status(self) -> dict[str, Any]:
        """How each view stands, by the lane's name."""
        return {"lanes": {self.name: {"active": self.active, **self._told}}}

    def explain(self) -> list[str]:
        """What each view computes, by when, and what it may lose."""
        lines = [f"{self.name}: views with a deadline, policy {self.context.settings.deadline_policy}"]
        for each in self.registered:
            loss = each.query.constraint
            lines.append(
                f"    {each.definition.name} on {each.stream}: within {each.query.deadline:g} s, at most {loss.k} of {loss.m} lost, "
                f"{'carried' if each.query.incremental else 'worked out afresh'}"
            )
        return lines

    def _details(self) -> dict[str, Any]:
        return {"lane": DEADLINE_LANE}

    def _halt(self) -> None:
        self.context.appended.tell()
        running = self._running
        if running is not None:
            running.cancel()

    def _attempt(self) -> None:
        self._begin()
        self._running = running = RunningOrders(
            self.context.spark, self.name, self._cores, self.context.appended.tell
        )
        try:
            while not self._stopping.is_set():
                seen = self.context.appended.count
                is_over = self._is_to_end or not self._is_fed
                is_behind = self._follow()
                outcomes, staged = self._judged(running.ended())
                outcomes += self._schedule(running)
                if outcomes:
                    self._publish(outcomes, staged)
                elif not is_behind:
                    if (
                        is_over
                        and running.idle == self._cores
                        and not any(each.open for each in self._views.values())
                    ):
                        return
                    self.context.appended.wait(seen, self._pause(running))
        finally:
            running.close()
            self._running = None

    def _pause(self, running: RunningOrders) -> float:
        now = time.time()
        ends = [each.deadline for view in self._views.values() for each in view.open.values()]
        if running.next_end is not None:
            ends.append(running.next_end)
        later = [each - now for each in ends if each > now]
        return min([_LOOK_SECONDS, *later])

    def _begin(self) -> None:
        """Goes on where what is published ends."""
        for each in self.registered:
            shutil.rmtree(self.context.layout.staging(DEADLINES_NAME, each.number), ignore_errors=True)
        newest = newest_reach(read_published(self.context.layout, self.name).batches)
        self._number = 0 if newest is None else newest[0] + 1
        published = {} if newest is None else newest[1]
        stands: dict[str, Any] = {}
        self._reach: dict[str, Reach] = {}
        for stream, log in self._logs.items():
            if stream in published:
                refuse_another_log(self.name, stream, log, published[stream])
            mark = log.mark(self.name)
            if mark is None:
                mark = log.join(self.name)
            stands |= log.readers()[self.name].get(_STANDS, {})
            self._reach[stream] = Reach(mark)
        if newest is not None:
            figures = self.publisher.published(newest[0])
            assert figures is not None, "it is the newest one"
            for number, settled in figures.figures[_VIEWS].items():
                stands[number] = _further(stands.get(number), settled)
        self._policy = chosen_policy(self.context.settings.deadline_policy, lambda: self._now)
        self._views: dict[int, FollowedView] = {}
        for each in self.registered:
            known = stands.get(str(each.number))
            bound = self._bound[each.number]
            demand = self._plans[each.stream].demand(each.demand)
            self._views[each.number] = FollowedView(
                each,
                bound.plan.windows,
                self._logs[each.stream],
                demand,
                _first_batch(self._plans[each.stream], demand),
                None if known is None else ViewStands(**known),
            )
            self._handle(DeadlineBound(each.definition.name, 0, each.query))

    def _follow(self) -> bool:
        """Takes in what is new in the logs; whether there may be more."""
        is_behind = False
        for stream, log in self._logs.items():
            before = self._reach[stream].entry
            until = log.ahead(f"reader {self.name} of stream {stream}", before, _MOST_ENTRIES)
            for entry in log.between(before, until):
                for view in self._views.values():
                    if view.registered.stream != stream:
                        continue
                    for instance, span in view.take_in(entry):
                        name = view.registered.definition.name
                        self._handle(InstanceCreated(name, 0, instance.end, instance.created, span))
                self._reach[stream] = Reach.at(entry)
            is_behind |= until > before
        return is_behind

    def _handle(self, event: Event) -> list[StartOrder | GiveUpInstance]:
        """Tells the policy; what it says of its own accord is told."""
        actions = self._policy.handle(event)
        found: list[StartOrder | GiveUpInstance] = []
        for each in actions:
            if isinstance(each, StartOrder | GiveUpInstance):
                found.append(each)
            else:
                fields = {
                    name: value
                    for name, value in each.fields().items()
                    if name not in ("action", "stream", "version")
                }
                self.context.events.record(_KINDS[type(each)], lane=self.name, view=each.stream, **fields)
        return found

    def _schedule(self, running: RunningOrders) -> list[Outcome]:
        """Begins orders, and gives instances up."""
        self._now = time.time()
        outcomes: list[Outcome] = []
        for action in self._handle(ProcessorsIdle(running.idle)):
            view = self._views[self._names[action.stream]]
            instance = view.open[action.number]
            predicted = _number(action.figures.get("predicted_seconds"))
            if isinstance(action, GiveUpInstance):
                del view.open[action.number]
                outcomes.append(
                    Outcome(instance, SHED if action.shed else MISSED, predicted, None, action.reason)
                )
                continue
            until = instance.deadline if action.firm else self._now + _LATE_DEADLINES * view.query.deadline
            failpoint("order_started", self._number)
            running.start(instance, action, until, self._orders.work(view, instance, action, until))
        return outcomes

    def _judged(self, ended: Sequence[EndedOrder]) -> tuple[list[Outcome], list[MadeResults]]:
        """What became of the instances of orders, and what is published of them."""
        outcomes: list[Outcome] = []
        staged: list[MadeResults] = []
        for each in ended:
            if each.error is not None:
                raise each.error
            order, instance = each.order, each.order.instance
            view = self._views[instance.view]
            name, seconds = view.registered.definition.name, time.time() - order.began
            # visible is what has been published
            self._now = time.time() + self._publish_seconds
            predicted = _number(order.action.figures.get("predicted_seconds"))
            told: tuple[str, str | None]
            worked = each.worked
            if worked is None or worked.report.outcome == OVER:
                self._handle(OrderAbandoned(name, 0, instance.end, seconds))
                told = MISSED, "its deadline passed while it was worked on"
            elif worked.report.outcome == USER_FAILED:
                self._handle(OrderFailed(name, 0, instance.end, worked.report.error))
                told = FAILED, worked.report.error
            else:
                report = worked.report
                self._handle(
                    OrderEnded(
                        name,
                        0,
                        instance.end,
                        seconds + self._publish_seconds,
                        report.adding_seconds,
                        report.removing_seconds,
                    )
                )
                self._orders.carry(view, instance, report)
                told = RELEASED, None
                if self._now > instance.deadline:
                    late = self._now - instance.deadline
                    told = MISSED, f"it was worked out {late:.3f} s after its deadline"
                    for file in worked.files:
                        Path(file.path).unlink()
                else:
                    staged.append(MadeResults(instance.view, 0, worked.files))
            del view.open[instance.end]
            outcomes.append(Outcome(instance, told[0], predicted, seconds, told[1]))
        return outcomes, staged

    def _publish(self, outcomes: Sequence[Outcome], staged: Sequence[MadeResults]) -> None:
        """Makes outcomes and what was released visible."""
        began = time.perf_counter()
        number, staging = self._number, self.context.layout.staging(self.name, self._number)
        by_view: defaultdict[int, list[Outcome]] = defaultdict(list)
        for each in outcomes:
            by_view[each.instance.view].append(each)
        files = list(staged)
        counts: dict[str, dict[str, int]] = {}
        told: list[dict[str, Any]] = []
        for view, own in by_view.items():
            name = self._views[view].registered.definition.name
            files += staged_misses(name, view, own, staging)
            rows = sum(file.rows for each in staged if each.job == view for file in each.files)
            counts[name] = {**counts_of(own), "rows": rows}
            told += [{"view": name, **told_outcome(each, self._policy.standing(name))} for each in own]
        figures = {
            "batch": number,
            "until": {stream: asdict(reach) for stream, reach in self._reach.items()},
            "views": counts,
            "outcomes": told,
            _VIEWS: dict(self._stands()),
        }
        failpoint("order_judged", number)
        published = self.publisher.publish(number, files, figures)
        failpoint("order_published", number)
        seconds = time.perf_counter() - began
        self._publish_seconds += _FADING * (seconds - self._publish_seconds)
        self._number += 1
        self.retries.succeeded()
        self._tell(number, counts, seconds)
        for sink in self.context.sinks():
            changes = self._orders.rows(sink.view, number, published)
            if changes is not None:
                sink.take(changes, number)
        self._mark()
        failpoint("order_marked", number)
        self.publisher.compact_if_due(
            number, self.context.settings.compact_every_batches, self.context.events
        )

    def _stands(self) -> Iterator[tuple[str, dict[str, int]]]:
        for number, view in self._views.items():
            if (stands := view.stands) is not None:
                yield str(number), asdict(stands)

    def _mark(self) -> None:
        """Says which entries are needed no more: whoever goes on reads the others again."""
        stands = dict(self._stands())
        for stream, log in self._logs.items():
            until = self._reach[stream].entry
            views = [each for each in self._views.values() if each.registered.stream == stream]
            needed = min((each.first_needed(until) for each in views), default=until + 1)
            own = {str(each.registered.number) for each in views}
            log.put_mark(
                self.name,
                needed - 1,
                **{_STANDS: {name: each for name, each in stands.items() if name in own}},
            )

    def _tell(self, number: int, counts: Mapping[str, Mapping[str, int]], seconds: float) -> None:
        streams = {stream: reach.entry for stream, reach in self._reach.items()}
        self._told = {"cut": number, "streams": streams, "standing": dict(self._standings())}
        self.context.events.record(
            "cut",
            lane=self.name,
            cut=number,
            streams=streams,
            figures={"views": counts, "standing": dict(self._standings())},
            publish_seconds=round(seconds, 4),
        )

    def _standings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in self._names:
            standing = self._policy.standing(name)
            found = asdict(standing)
            del found["outcomes"]
            yield name, found


def _further(known: Mapping[str, int] | None, published: Mapping[str, int]) -> Mapping[str, int]:
    """The later one of how far a view stands by its reader's mark and by what is published."""
    return published if known is None or published["settled"] > known["settled"] else known


def _first_batch(plans: Any, demand: int) -> Callable[[], int | None]:
    return lambda: plans.begun(demand)


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None
