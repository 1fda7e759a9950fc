"""What declared views with a deadline are estimated to ask of the processors before anything is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pyspark.sql import SparkSession

from penstock.control.policies.deadlines.admission import ViewLoad, admission
from penstock.monitor.admission import asked_words, broken_lines
from penstock.plan.deadlines import DeadlineView
from penstock.spark.lanes.deadlines.floor import job_floor, order_floor
from penstock.spark.sessions.slots import order_slots

#: a window of built-in aggregates takes so much beside its job, and a lot as much of it at most, seconds (docs/decisions/0089)
_OWN_SECONDS, _LOT_SECONDS = 0.004, 0.25
#: about what a job takes that does nothing, seconds: it is measured if views ask for more than this share of the processors by it
_JOB_SECONDS, _MEASURED_FROM = 0.07, 0.5
#: an order takes less on any machine that is not swamped: longer deadlines are not held against it
_SHORT_SECONDS = 1.0


def estimated_loads(views: Mapping[str, DeadlineView], job_seconds: float) -> dict[str, ViewLoad]:
    """Return the least that views ask for: windows that are due together share a job, and aggregates of the user's take no time.

    Args:
        views: by name.
        job_seconds: what a job takes whatever it computes.
    """
    rates = {name: 1e6 / view.plan.windows.slide for name, view in views.items()}
    windows = sum(rates.values())
    jobs = max([*rates.values(), windows * _OWN_SECONDS / _LOT_SECONDS], default=0.0)
    each = _OWN_SECONDS + (job_seconds * jobs / windows if windows else 0.0)
    loads = {}
    for name, view in views.items():
        loss, asked = view.query.constraint, each * rates[name]
        loads[name] = ViewLoad(
            loss.k,
            loss.m,
            asked,
            asked * (1 - loss.factor),
            _OWN_SECONDS + job_seconds,
            view.query.deadline,
        )
    return loads


def estimated_lines(
    views: Mapping[str, DeadlineView], job_seconds: float, processors: int
) -> tuple[str, Iterator[str]]:
    """Return what is asked for by estimate, and the promises that cannot be kept.

    Args:
        views: by name.
        job_seconds: what a job takes whatever it computes.
        processors: that orders may take.
    """
    loads = estimated_loads(views, job_seconds)
    found = admission(loads.items(), processors)
    rate = sum(1e6 / view.plan.windows.slide for view in views.values())
    own = ", without the time of your own aggregates" if any(view.calls for view in views.values()) else ""
    told = (
        f"views with a deadline {asked_words(found)} (estimated for {rate:.4g} windows a second and {job_seconds:.2f} s for each job"
        f"{own}; `penstock status` has measured figures)"
    )
    return told, broken_lines(found, loads)


def explain_asked(spark: SparkSession, views: Mapping[str, DeadlineView]) -> Iterator[str]:
    """Yield what `explain` says of the processors that views ask for; nothing if there are no views.

    Args:
        spark: the session.
        views: by name.
    """
    if views:
        told, broken = estimated_lines(views, job_floor(spark), order_slots(spark))
        yield told
        yield from (f"    {each}" for each in broken)


def deadline_warnings(
    spark: SparkSession, views: Mapping[str, DeadlineView], new: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield warnings of deadlines that no window can meet, and of promises that cannot be kept, each with the name of a new view.

    Args:
        spark: the session.
        views: all that are declared, by name.
        new: names of those that are declared now.
    """
    short = {name: views[name].query.deadline for name in new}
    short = {name: seconds for name, seconds in short.items() if seconds < _SHORT_SECONDS}
    floor = order_floor(spark) if short else 0.0
    for name, seconds in short.items():
        if seconds <= floor:
            yield (
                name,
                f"the deadline of view {name}, {seconds:g} s, is too short: on this machine an answer takes at least "
                f"{floor:.2f} s. All of its windows will miss it; use a longer deadline.",
            )
    slots = order_slots(spark) if new else 1
    if sum(each.asked for each in estimated_loads(views, _JOB_SECONDS).values()) > _MEASURED_FROM * slots:
        told, broken = estimated_lines(views, job_floor(spark), slots)
        for number, line in enumerate(broken):
            yield next(iter(new)), line if number else f"{line}; {told}"
