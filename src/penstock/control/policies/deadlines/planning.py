"""Plans all that waits: what cannot all be in time loses what saves the most time for the least harm to the allowances.

Source: Moore and Hodgson's algorithm for the fewest late jobs on one machine, with weights. What differs: a shed instance's
tuples count for the next one of its query, so that costs hang together, and the weight of an instance is the harm that losing it
does to the (k, m) constraint, which depends on what else is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace, nsmallest
from itertools import groupby, takewhile
from math import inf

from penstock.control.policies.deadlines.disciplines import (
    MISSES,
    Backlog,
    Choice,
    Instance,
    Processor,
    is_hopeless,
    tried_again,
)
from penstock.control.policies.deadlines.prediction import expiration_factor
from penstock.control.policies.deadlines.sample_costs import SampleCost
from penstock.plan.deadlines import WindowSpan

#: a plan holds so many of the instances that wait, those due first: more would not begin before the next decision anyway
_PLANNED = 100
#: seconds: the next instance of any query is due before
_HORIZON = 1e6


@dataclass(slots=True, eq=False)
class _Link:
    """An instance in the plan."""

    instance: Instance
    chain: _Chain
    place: int
    seconds: float = 0.0
    #: without the job that it shares
    own: float = 0.0
    #: the time that giving it up saves; that by unit of harm is `merit`
    saved: float = 0.0
    #: see `is_spare`, as of the newest harms
    spare: bool = False
    kept: bool = True
    #: that takes its place; None: it is exact
    sample: SampleCost | None = None
    #: the next smaller one, for an answer of so many seconds
    smaller: SampleCost | None = None
    smaller_for: float = -1.0

    @property
    def merit(self) -> float:
        """The time that giving it up, or its exact answer, saves a unit of harm."""
        smaller = self.chain.smaller(self)
        if smaller is not None:
            return (self.saved - smaller.seconds) / self.chain.degraded
        return self.saved / self.chain.harms[self.place]

    @property
    def is_spare(self) -> bool:
        """Whether its loss leaves no run of m with more than k losses; where k = m there is none to be taken early, and no sample is lost so."""
        return self.sample is None and bool(self.chain.harms) and self.spare


class _Chain:
    """The instances of a query that wait and that are expected, each worked out from the last one before it that is kept exact."""

    def __init__(
        self, backlog: Backlog, last: Instance, now: float, weights: PlannedDiscipline, *, samples: bool
    ) -> None:
        self.backlog, self.degraded = backlog, weights.degraded
        self._now, self._samples = now, samples
        self.beside, self.job = backlog.beside, backlog.job
        waiting = list(takewhile(lambda each: _urgency(each) <= _urgency(last), backlog.instances))
        self.waiting = len(waiting)
        instances = [*waiting, *backlog.expected(last.deadline, now)]
        self.links = [_Link(each, self, place) for place, each in enumerate(instances)]
        self._violation = weights.violation * backlog.demand.alone**2
        self._tightness = weights.tightness
        self._harms: list[float] | None = None
        self._predict()

    def drop(self, link: _Link) -> None:
        """Gives an instance up, or its exact answer first where a sample can take its place: the next one has its tuples to work out too."""
        smaller = self.smaller(link)
        if smaller is None:
            link.kept = False
        else:
            link.sample, link.own = smaller, smaller.own
            link.seconds = link.saved = smaller.seconds
        self._harms = None
        self._predict()

    def smaller(self, link: _Link) -> SampleCost | None:
        """The sample that can take the place of an exact answer, or of a larger one; None where none is allowed or saves time."""
        if not self._samples:
            return None
        if link.smaller_for != link.seconds:
            begin = max(self._now, link.instance.noticed)
            link.smaller = self.backlog.sample_of(link.instance, begin, self._now, link.seconds)
            link.smaller_for = link.seconds
        found = link.smaller
        return found if found is not None and found.seconds < link.saved else None

    def _predict(self) -> None:
        """Predicts what is kept, and what giving up one more of it saves."""
        predict = self.backlog.predict
        before: WindowSpan | None = None
        base = self.backlog.base
        last: _Link | None = None
        for link in self.links:
            if not link.kept or link.sample is not None:
                continue
            link.seconds = predict(link.instance.span, base)[0]
            link.own = max(0.0, link.seconds - self.beside)
            if last is not None:
                made_up_for = predict(link.instance.span, before)[0] - link.seconds
                last.saved = last.seconds - made_up_for
            last, before, base = link, base, link.instance.span
        if last is not None:
            last.saved = last.seconds

    @property
    def harms(self) -> list[float]:
        """What giving up each one more does to the allowance, should nothing that comes later be lost: 1, and more for each run
        of m consecutive instances that then has more than k losses, or has none left. Where all fit nobody asks."""
        if self._harms is None:
            self._harms = self._weighed()
        return self._harms

    def _weighed(self) -> list[float]:
        history = self.backlog.history
        k, m = history.constraint.k, history.constraint.m
        lost = [*history.recent, *(not each.kept for each in self.links), *([False] * m)]
        of_losses = {k: self._violation, k - 1: self._tightness}
        losses, sums, without = sum(lost[: m - 1]), [0.0], [0]
        for place in range(len(self.links) + m):
            losses += lost[place + m - 1]
            sums.append(sums[-1] + of_losses.get(losses, 0.0))
            without.append(without[-1] + (losses >= k))
            losses -= lost[place]
        for link in self.links:
            link.spare = k < m and without[link.place + m] == without[link.place]
        return [1 + sums[place + m] - sums[place] for place in range(len(self.links))]


@dataclass(frozen=True, slots=True)
class PlannedDiscipline:
    """Drops instances from the order of deadlines until predictions say that the rest is in time, and runs its first.

    At each instance that would be late, of it and those before it the one goes that saves most seconds a unit of harm: 1 for the
    instance, `violation` for each run of m that it violates, `tightness` for each that it leaves no loss to. A query that is in
    violation already is harmed little by one more loss; so under heavy overload few queries lose much, and not all a little. The
    less a loss saves as the next instance has to make up for it, the more is gained so: `violation` counts by the square of it.
    Where a sample can take the place of the exact answer, or of a larger sample, it does so first, at a harm of `degraded`. The instance
    goes only if this is not enough.

    A loss that is allowed and not taken is of no use later. So where more is asked than the processors can do, instances whose loss
    violates nothing are dropped until the others can be begun in the first half of their deadlines: little waits when more
    comes. Not where the allowances cannot be kept by far: there it would only be one loss more.

    Attributes:
        violation: weight of a violation, instances.
        tightness: weight of a run of m without a loss left, instances.
        degraded: weight of an instance that is answered by a sample, instances.
        early_from: losses are taken early where more than so many times what the processors can do is asked; what it is above 1
            counts by the square of what a loss saves, too: by 4 where that is a half of an instance's time,
        early_up_to: and no more than so many times that were all lost that the allowances let.
        largest_margin: predictions are taken to be longer by their relative spread, but by no more than this share.
        probe_seconds: a query of which no instance would be in time even if it were begun at its creation, and whose costs were
            not measured for so long, has its newest instance worked out to the end where nothing else can be in time; and
            the next ones at once, as long as each takes clearly less. Otherwise predictions that shed everything would never be
            corrected, and a query that has fallen behind so far would never come back.
        probe_share: of a processor, for such a query whose instances are worked out afresh: it has nothing to come nearer by.
        trial_share: of a processor, for such queries where others leave none idle: the newest instance is tried until its deadline.
        idle_share: likewise where a processor is idle.
    """

    violation: float = 1.0
    tightness: float = 0.2
    degraded: float = 0.5
    early_from: float = 1.05
    early_up_to: float = 1.2
    largest_margin: float = 0.1
    probe_seconds: float = 2.0
    probe_share: float = 0.1
    trial_share: float = 0.05
    idle_share: float = 0.5
    name: str = "planned"
    predicts: bool = True

    def choose(
        self, backlogs: Sequence[Backlog], now: float, processors: Sequence[Processor], together: float
    ) -> Choice:
        """Chooses for one idle processor; see `Discipline.choose`."""
        tried = tried_again(backlogs, now, self.trial_share)
        if tried is not None:
            return tried
        last = nsmallest(_PLANNED, (each for backlog in backlogs for each in backlog.instances), _urgency)[-1]
        chains = [_Chain(each, last, now, self, samples=together > 0) for each in backlogs]
        kept = sorted(
            (link for chain in chains for link in chain.links),
            key=lambda link: _urgency(link.instance),
        )
        while (late := self._first_late(kept, processors, together)) is not None:
            _drop(max(kept[: late + 1], key=lambda link: link.merit), kept)
        if self._takes_losses_early(backlogs, len(processors)):
            while (late := self._first_late(kept, processors, together, early=True)) is not None:
                spare = [link for link in kept[: late + 1] if link.is_spare]
                if not spare:
                    break
                _drop(max(spare, key=lambda link: link.merit), kept)
        startable = [
            link for link in kept if link.place < link.chain.waiting and link.chain.backlog.busy_until is None
        ]
        if startable:
            first, *others = startable
            passed_over = (first.chain.backlog, first.place, "its time is better spent on other windows")
            shed = [passed_over] if first.place else []
            # where all fit, be it as samples, they still do once the first one is begun
            fit = all(link.kept for chain in chains for link in chain.links)
            behind = [(link.chain.backlog, link.sample) for link in others if fit]
            reason = f"earliest deadline of {len(kept)} that fit"
            return Choice(first.chain.backlog, shed, reason, behind=behind, sample=first.sample)
        return self._nothing_fits(backlogs, now)

    def _takes_losses_early(self, backlogs: Sequence[Backlog], processors: int) -> bool:
        """Whether more is asked than can be done, and not too much for the allowances to be nearly kept."""
        asked = sum(each.demand.whole for each in backlogs) / processors
        alone = sum(each.demand.whole * each.demand.alone for each in backlogs) / processors
        least = asked - sum(each.demand.allowed for each in backlogs) / processors
        excess = (asked - 1) * alone**2 / asked**2 if asked else 0.0
        return excess > self.early_from - 1 and least <= self.early_up_to

    def _first_late(
        self,
        kept: Sequence[_Link],
        processors: Sequence[Processor],
        together: float,
        early: bool = False,
    ) -> int | None:
        """Works the plan out in its order, each instance on the processor that is free first, behind others of a lot where there is room;
        the place of the first late one, or of the first that waits into the second half of its deadline, and for longer than the longest
        order takes."""
        free = [(each.end, each.room) for each in sorted(processors)]
        longest = max((link.seconds for link in kept), default=0.0) if early else inf
        ready = {link.chain: link.chain.backlog.busy_until or -inf for link in kept}
        for place, link in enumerate(kept):
            chain, (idle, room) = link.chain, free[0]
            own = link.own
            joins = 0 < own <= room
            seconds = (own if joins else own + chain.job) * (
                1 + min(chain.backlog.spread, self.largest_margin)
            )
            noticed, deadline = link.instance.noticed, link.instance.deadline
            begin = max(idle, ready[chain])
            end = begin + seconds
            latest = max((noticed + deadline) / 2, noticed + longest)
            if end > deadline or begin > latest:
                return place
            heapreplace(free, (end, (room if joins else together) - own))
            ready[chain] = end
        return None

    def _nothing_fits(self, every: Sequence[Backlog], now: float) -> Choice:
        """The processor would be idle: an instance with a chance is tried, or a query that is behind is brought nearer."""
        backlogs = [each for each in every if each.instances and each.busy_until is None]
        chances = [
            (
                expiration_factor(backlog.predict(each.span, backlog.base)[0], each.deadline, now),
                number,
                place,
            )
            for number, backlog in enumerate(backlogs)
            for place, each in enumerate(backlog.instances)
        ]
        factor, number, place = min(chances)
        if factor <= 1:
            hopeless = [
                place if other == number else sum(1 for _ in takewhile(lambda chance: chance[0] > 1, own))
                for other, own in groupby(chances, key=lambda chance: chance[1])
            ]
            return _only(backlogs, number, hopeless, "fits, though with less than the margin", firm=True)
        tried = tried_again(backlogs, now, self.idle_share)
        if tried is not None and tried.run is not None and not _is_wanted(every, tried.run, now):
            return tried
        behind = [
            (
                -inf if each.catching_up else each.measured_at + self._rests(each, is_only=len(every) == 1),
                number,
            )
            for number, each in enumerate(backlogs)
            if is_hopeless(each)
        ]
        due, number = min(behind, default=(inf, 0))
        if now < due:
            shed = [(each, len(each.instances), MISSES) for each in backlogs]
            return Choice(None, shed, "")
        hopeless = [len(each.instances) - (other == number) for other, each in enumerate(backlogs)]
        return _only(backlogs, number, hopeless, "no prediction fits: measured again", firm=False)

    def _rests(self, backlog: Backlog, *, is_only: bool) -> float:
        """Seconds from one measurement of a hopeless query to the next; that of an only query keeps nobody waiting."""
        if is_only or backlog.demand.alone < 1:
            return self.probe_seconds
        newest = backlog.instances[-1]
        seconds = backlog.predict(newest.span, backlog.base)[0]
        return max(self.probe_seconds, seconds / self.probe_share)


def _is_wanted(backlogs: Sequence[Backlog], tried: Backlog, now: float) -> bool:
    """Whether another query is expected to have a window to begin before the newest one of a query is due."""
    due = tried.instances[-1].deadline
    coming = (
        each.expected(now + _HORIZON, now)
        for each in backlogs
        if each is not tried and each.busy_until is None
    )
    return any(each[0].noticed < due for each in coming if each)


def _drop(link: _Link, kept: list[_Link]) -> None:
    link.chain.drop(link)
    if not link.kept:
        kept.remove(link)


def _urgency(instance: Instance) -> tuple[float, int]:
    return instance.deadline, instance.arrival


def _only(
    backlogs: Sequence[Backlog], number: int, hopeless: Sequence[int], reason: str, firm: bool
) -> Choice:
    """Runs an instance of a backlog; of each backlog, so many of the oldest instances are shed."""
    shed = [(each, count, MISSES) for each, count in zip(backlogs, hopeless, strict=True) if count]
    return Choice(backlogs[number], shed, reason, firm)
