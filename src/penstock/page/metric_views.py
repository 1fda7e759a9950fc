"""The metrics of window views, join views and views with a deadline: what each is called and where the status has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.page.metric_families import Family, counter, counts, plain, seconds

#: what became of windows with a deadline
OUTCOMES = ("released", "shed", "missed", "failed", "approximated")
#: kinds of answers of window views
ANSWERS = ("early", "corrected", "final", "final_corrected")


def _standing(*path: str) -> Callable[[Mapping[str, Any]], Any]:
    """What the standing of a view has under a name, or a name in a name; None where it has not."""

    def found(view: Mapping[str, Any]) -> Any:
        value: Any = view.get("standing")
        for name in path:
            value = None if value is None else value.get(name)
        return value

    return found


def _moment(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda view: seconds(_standing(name)(view))


def _slack(view: Mapping[str, Any]) -> float | None:
    # negative where the end of a run answered windows before their end
    slack = view.get("slack_us")
    return seconds(_standing("slack")(view) if slack is None else max(0, slack))


def _batches_behind(view: Mapping[str, Any]) -> float:
    if "backlog" in view:
        return float(sum(view["backlog"].values()))
    first, last = view.get("not_answered") or (1, 0)
    return float(last - first + 1)


def _rates(view: Mapping[str, Any]) -> Iterable[tuple[tuple[str, ...], float | None]]:
    return [((source,), _standing(f"{source}_rate")(view)) for source in ("predicted", "measured")]


def _late(view: Mapping[str, Any]) -> Iterable[tuple[tuple[str, ...], float | None]]:
    return [
        ((outcome,), view.get(what)) for outcome, what in (("answered", "late"), ("abandoned", "abandoned"))
    ]


#: the metrics of all views but selections
VIEWS = (
    counter("penstock_result_rows", "Rows of a view's results, with every revision.", "rows"),
    Family(
        "penstock_view_batches_behind",
        "Batches of its streams that a view has not answered.",
        plain(_batches_behind),
        is_of_now=True,
    ),
    Family(
        "penstock_view_behind_seconds",
        "Time that the oldest batch a view has not answered waits, or that its newest answer took where none waits.",
        plain(lambda view: view.get("waiting_seconds" if _batches_behind(view) else "behind_seconds")),
        is_of_now=True,
    ),
    Family(
        "penstock_window_slack_seconds",
        "How long a view waits for late tuples before it answers.",
        plain(_slack),
    ),
    Family(
        "penstock_window_promise_active",
        "1 once the MAX_ERROR promise of a view applies, 0 before.",
        plain(_standing("promised")),
    ),
)

#: the metrics of window views without a deadline
WINDOWS = (
    Family(
        "penstock_window_answers",
        "Windows that a view answered early, corrected, made final, or corrected after they were final.",
        counts(*ANSWERS),
        ("answer",),
        is_counter=True,
    ),
    counter(
        "penstock_promised_windows",
        "Early answers of a view that its MAX_ERROR promise applies to.",
        "promised",
    ),
    counter(
        "penstock_overflowed_rows",
        "Rows with NULL for a SUM or AVG that does not fit its type.",
        "overflowed",
    ),
    Family(
        "penstock_window_horizon_seconds",
        "How long after its end a window of a view becomes final.",
        plain(_moment("horizon")),
    ),
    Family(
        "penstock_window_coverage_ratio",
        "Share of a window's tuples that an early answer of a view contains, as expected.",
        plain(_standing("coverage")),
    ),
    Family(
        "penstock_window_max_error",
        "The error that the MAX_ERROR promise of a view allows; kind: a share of the value (relative) or an amount.",
        lambda view: [
            (
                ("absolute" if _standing("bound", "absolute")(view) else "relative",),
                _standing("bound", "epsilon")(view),
            )
        ],
        ("kind",),
    ),
    Family(
        "penstock_window_max_error_probability",
        "The share of early answers that may exceed the allowed error.",
        plain(_standing("bound", "delta")),
    ),
    Family(
        "penstock_open_windows",
        "Windows of a view that are not final.",
        plain(_standing("open")),
        is_of_now=True,
    ),
    Family(
        "penstock_oldest_open_window_timestamp_seconds",
        "End of the oldest window that is not final, event time.",
        plain(_moment("oldest")),
        is_of_now=True,
    ),
    Family(
        "penstock_window_reached_timestamp_seconds",
        "Event time up to which a view has answered.",
        plain(_moment("reached")),
    ),
)

#: the metrics of join views
JOINS = (
    counter("penstock_join_condition_errors", "Joined rows left out because a condition failed.", "raised"),
    counter(
        "penstock_join_late_tuples",
        "Tuples that arrived after partners may have been deleted.",
        "beyond_history",
    ),
    counter(
        "penstock_join_pairs_beyond_ttl",
        "Pairs left out by STATE_TTL, of those up to twice as far apart.",
        "beyond_ttl",
    ),
    counter(
        "penstock_join_withdrawn_rows", "Rows withdrawn, because a partner was found later.", "withdrawn"
    ),
    Family(
        "penstock_join_rows_per_second",
        "Joined rows in a second of the streams, as predicted for the running order and as measured.",
        _rates,
        ("source",),
        is_of_now=True,
    ),
    Family(
        "penstock_join_load_ratio",
        "Seconds of a core that a second of the streams takes in the running order, as predicted.",
        plain(_standing("seconds")),
        is_of_now=True,
    ),
    Family(
        "penstock_lost_static_tables",
        "Static tables of a view that are deleted or unreadable: their last versions remain in use.",
        plain(lambda view: sum(bool(table.get("lost")) for table in (view.get("tables") or {}).values())),
        is_of_now=True,
    ),
)

#: the metrics of views with a deadline
DEADLINES = (
    Family(
        "penstock_deadline_windows",
        "Windows of a view by outcome: released in time, shed, missed, failed or approximated.",
        counts(*OUTCOMES),
        ("outcome",),
        is_counter=True,
    ),
    Family(
        "penstock_deadline_late_windows",
        "Lost windows of a view that were answered late, or whose late answer was abandoned.",
        _late,
        ("outcome",),
        is_counter=True,
    ),
    Family(
        "penstock_broken_loss_promises",
        "Runs of consecutive windows that lost more than the LOSS promise of a view allows.",
        plain(lambda view: _standing("violations")(view) or 0),
        is_counter=True,
    ),
    Family(
        "penstock_deadline_rho",
        "Factor by which predicted costs of a view are multiplied.",
        plain(_standing("rho")),
    ),
    Family(
        "penstock_loss_allowance",
        "Windows that a view may still lose of the next penstock_loss_allowance_windows.",
        plain(_standing("constraint", "k")),
    ),
    Family(
        "penstock_loss_allowance_windows",
        "Windows ahead that penstock_loss_allowance applies to.",
        plain(_standing("constraint", "m")),
    ),
    Family(
        "penstock_deadline_waiting_windows",
        "Windows of a view that wait for a core.",
        plain(_standing("waiting")),
        is_of_now=True,
    ),
    Family(
        "penstock_deadline_owed_windows",
        "Lost windows of a view that are still to be answered late.",
        plain(lambda view: view.get("owed")),
        is_of_now=True,
    ),
    Family(
        "penstock_deadline_overloaded",
        "1 while most windows of a view miss their deadline.",
        plain(_standing("overloaded")),
        is_of_now=True,
    ),
    Family(
        "penstock_deadline_failing",
        "1 while most windows of a view fail.",
        plain(_standing("failing")),
        is_of_now=True,
    ),
)
