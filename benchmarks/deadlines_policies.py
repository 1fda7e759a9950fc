"""Deadline policies in real time, on two cores, at a load that each view's LOSS would just bear.

The stream, the views and their costs are those of `deadlines_spark.py`. Each view allows LOSS(1, 4). With a quarter of all windows lost, the load of
1.2 is one of 0.9, so that a policy which spreads its losses could keep every promise. Each policy runs alone, and so does Spark, which has none. The first
one runs twice, and its first run is not counted: Java is slow until then.

DSR         Share of the windows that are visible in time, by the feed, as there.
violations  Windows of a view with which more than one of the last four is lost, by the feed.
error       Of the predicted order with its publication, as a share of what was predicted wrongly.

Expected, or the exit code is 1: all rows are those of `spark.sql`; the policy `planned` has no less in time than any other, and no more violations a window,
but for 0.05.

    python benchmarks/deadlines_policies.py [--load 1.2] [--seconds 40] [--policies planned paper]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from deadlines_sides import Cell, answered
from deadlines_spark import (
    CORES,
    OURS,
    REST_SECONDS,
    TOLERANCE,
    WARM_SECONDS,
    figures,
    losses,
    measured_costs,
    session,
    two,
)
from expectations import Expectations
from penstock.plan.deadlines import LossConstraint
from penstock.settings import DeadlinePolicyName
from penstock_lab.simulate.deadlines import violations

LOAD, LOSS = 1.2, (1, 4)
SPARK = "Spark"
POLICIES = (*get_args(DeadlinePolicyName), SPARK)


def main() -> int:
    """Measures, prints the table; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--seconds", type=float, default=40.0, help="of event time whose windows are counted")
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=POLICIES, help="in this order")
    given = parser.parse_args()
    # of a larger machine no more than that
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    expected = Expectations()
    in_time: dict[str, float] = {}
    broken: dict[str, int] = {}
    table = Table("policy", "DSR", "1 s", "2 s", "5 s", "violations", "error p50", "p90")
    with tempfile.TemporaryDirectory(prefix="penstock-policies-") as place:
        spark = session(CORES + 1)
        costs = measured_costs(spark, Path(place) / "costs")
        turns = costs.turns(given.load)
        bound = costs.bound(turns)
        for number, policy in enumerate((given.policies[0], *given.policies)):
            cell = Cell(
                turns,
                WARM_SECONDS + given.seconds + REST_SECONDS,
                None if policy == SPARK else policy,
                loss=LOSS,
            )
            seen = answered(spark, Path(place) / str(number), cell)
            if not number:
                continue
            found = figures(given.load, policy, bound, seen)
            lost = losses(seen)
            in_time[policy] = found.by_feed
            broken[policy] = sum(violations(each, LossConstraint(*LOSS)) for each in lost.values())
            errors = two(found.errors) if len(found.errors) else ["", ""]
            shares = [f"{share:.2f}" for share in found.by_view]
            table.add_row(policy, f"{found.by_feed:.3f}", *shares, str(broken[policy]), *errors)
            print(
                f"{policy}: DSR {found.by_feed:.3f}, violations {broken[policy]} of {found.windows}",
                flush=True,
            )
            expected.hold(
                f"{policy}: rows that are not those of spark.sql",
                not found.wrong,
                str(found.wrong),
                always=True,
            )
        spark.stop()
    table.caption = f"load {given.load:g}, LOSS{LOSS}, {found.windows} windows a policy, bound {bound:.3f}"
    Console(width=120).print(table)
    if OURS in in_time:
        for policy in in_time:
            if policy == OURS:
                continue
            ours = in_time[OURS] - in_time[policy]
            expected.at_least(f"DSR of {OURS} above that of {policy}", ours, -TOLERANCE)
            more = (broken[OURS] - broken[policy]) / found.windows
            expected.at_most(f"violations a window of {OURS} above those of {policy}", more, TOLERANCE)
    return expected.exit_code


if __name__ == "__main__":
    sys.exit(main())
