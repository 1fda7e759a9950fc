"""Window views with deadlines in the virtual-time runner: the paper's pictures, and how far policies are from a clairvoyant.

Arrivals: the Bellcore trace of August 1989 and the DEC wide-area trace (UDP), read from a folder beside the project, and a simulated
sensor network whose links break (`network_streams.py`); costs are drawn with a fixed seed and scaled to the load. Load is the share of the processor's time that working out every instance takes;
1 is sustainable. Exits with 1 where an expectation is not met.

Nine queries in three deadline groups (0.5, 1 and 1.5 s), windows of 1.5 s that slide by 0.3 s, C = 1/4, 1/6, 1/8 within each.
Half of the time of an instance goes to its tuples, half is Pm. Twice: worked out afresh (a function of the window), so that
instances do not depend on each other; and carried from the last processed one, removing a tuple taking a quarter of adding it.
There shedding an instance saves its Pm alone, as the next one has its tuples to work out: losing as much as the allowances let saves
9 % of the time. So how few violations are expected of ours is expected where instances are worked out afresh, and how many in time
in both; carried, violations are reported.

Run: python benchmarks/deadlines.py [--small] [--networks] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table

from deadline_workloads import CONSTRAINTS, DEADLINE, HOP, SIZE, TRACES, arrivals, doubled, nine, one
from expectations import Expectations
from network_streams import bursts
from penstock.control.controller import Controller
from penstock.control.policies.deadlines.disciplines import (
    BEST_EFFORT,
    DBP,
    DWCS,
    EDF,
    PAPER,
    PAPER_TIGHTER,
    PREDICTIVE,
    Discipline,
    RankedDiscipline,
    earliest_deadline,
)
from penstock.control.policies.deadlines.feedback import PAPER_FEEDBACK, FeedbackSettings
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import PredictionSettings
from penstock.optimizer.averages import AveragingSettings
from penstock.plan.deadlines import LossConstraint
from penstock_lab.simulate.deadline_bound import least_violations, satisfied_bound
from penstock_lab.simulate.deadlines import (
    Floats,
    PlayedDeadlines,
    SimulatedQuery,
    load,
    play,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "out" / "bench"
CONSOLE = Console(width=170)
#: monitoring period, seconds
PERIOD = 1.0

MEASURED = PredictionSettings(AveragingSettings(seconds=PERIOD / 2))
OURS = DeadlineSettings(feedback=FeedbackSettings(period=PERIOD), prediction=MEASURED)
#: an abandoned order counts for what it took: the paper has rho instead
AS_PRINTED = replace(
    OURS, feedback=replace(PAPER_FEEDBACK, period=5 * PERIOD), prediction=replace(MEASURED, bound_factor=1.0)
)
NO_FEEDBACK = replace(AS_PRINTED, feedback=FeedbackSettings(period=PERIOD))
PLANNED = PlannedDiscipline()
EDF_PREDICTIVE = RankedDiscipline("EDF with prediction", earliest_deadline, predicts=True)


@dataclass(frozen=True, slots=True)
class Side:
    """A policy that is compared."""

    name: str
    discipline: Discipline
    settings: DeadlineSettings = NO_FEEDBACK


SIDES = [
    Side("EDF", EDF),
    Side("DBP", DBP),
    Side("DWCS", DWCS),
    Side("the paper's", PAPER, AS_PRINTED),
    Side("the paper's, rho = 1", PAPER),
    Side("ours", PLANNED, OURS),
]


def run(queries: Sequence[SimulatedQuery], side: Side, processors: int = 1) -> PlayedDeadlines:
    """Plays a policy."""

    def control(clock: Callable[[], float]) -> Controller:
        return Controller([DeadlinePolicy(side.discipline, side.settings, clock)], clock)

    return play(queries, processors, control)


def pictures(expect: Expectations, folder: Path, seconds: float) -> None:
    """DSR against window size, hop and deadline: best effort beside prediction. D > H throughout: else nothing waits, and there
    is nothing to predict for."""
    sides = [
        Side("best effort", BEST_EFFORT),
        Side("predictive, the paper's rho", PREDICTIVE, AS_PRINTED),
        Side("predictive, rho = 1", PREDICTIVE),
        Side("ours", PLANNED, OURS),
    ]
    axes: dict[str, tuple[list[float], Callable[[float], tuple[float, float, float]]]] = {
        "window size ms": ([0.9, 1.2, 1.5, 1.8, 2.1, 2.4], lambda x: (x, HOP, DEADLINE)),
        "hop ms": ([0.15, 0.2, 0.25, 0.3, 0.35, 0.4], lambda x: (SIZE, x, DEADLINE)),
        "deadline ms": ([0.35, 0.4, 0.5, 0.75, 1.0, 1.5], lambda x: (SIZE, HOP, x)),
    }
    figure, panels = plt.subplots(len(TRACES), 3, figsize=(15, 8), sharey=True)
    for row, name in zip(panels, TRACES, strict=True):
        packets = arrivals(folder, name, seconds)
        for panel, (axis, (values, shape)) in zip(row, axes.items(), strict=True):
            table = Table(
                axis,
                *(side.name for side in sides),
                title=f"DSR, {name}, Z = 1500, H = 300, D = 500 ms, load 1",
            )
            ratios = np.array(
                [
                    [run(one(packets, seconds, *shape(x), 1.0), side).satisfaction for side in sides]
                    for x in values
                ]
            )
            for x, each in zip(values, ratios, strict=True):
                table.add_row(f"{1000 * x:.0f}", *(f"{ratio:.4f}" for ratio in each))
            CONSOLE.print(table)
            panel.plot([1000 * x for x in values], ratios, marker="o", label=[side.name for side in sides])
            panel.set(xlabel=axis, ylabel="DSR", title=name)
            least = float((ratios[:, 1] - ratios[:, 0]).min())
            expect.hold(
                f"{name}, {axis}: predictive >= best effort", least >= 0, f"least difference {least:.4f}"
            )
            rising = axis == "deadline ms"
            steps = np.diff(ratios[:, 1]) * (1 if rising else -1)
            expect.hold(
                f"{name}, {axis}: DSR {'rises' if rising else 'falls'}",
                bool((steps >= -0.005).all()),
                f"{ratios[0, 1]:.4f} to {ratios[-1, 1]:.4f}",
            )
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(OUTPUT / "deadlines.png")


def compare(
    expect: Expectations,
    packets: Floats,
    seconds: float,
    title: str,
    loads: Sequence[float],
    incremental: bool = False,
    processors: int = 1,
    judged: bool = True,
) -> None:
    """Nine queries under every policy."""
    for at_load in loads:
        queries = nine(packets, seconds, at_load, incremental, processors=processors)
        instances = sum(len(each.created) for each in queries)
        bound = satisfied_bound(queries, processors)
        fewest = least_violations(queries, processors)
        table = Table(
            "policy", "DSR", "of the bound", "violations", "Jain", "time lost", *(f"q{n + 1}" for n in range(9)),
            title=f"{title}, load {load(queries, processors):.3f}: {instances:,} instances; at most {bound:,.0f} in time, "
            f"so at least {fewest:,.0f} violations",
        )  # fmt: skip
        found = {side.name: run(queries, side, processors) for side in SIDES}
        for name, each in found.items():
            table.add_row(
                name,
                f"{each.satisfaction:.4f}",
                f"{each.released / bound:.3f}",
                f"{each.violations:,}",
                f"{each.fairness:.3f}",
                f"{each.wasted / each.busy:.1%}",
                *(f"{own.satisfaction:.3f}" for own in each.queries.values()),
            )
        CONSOLE.print(table)
        if at_load in (1.1, 1.2):
            in_order_of_constraints(expect, f"{title}, load {at_load}", found["the paper's, rho = 1"])
        in_time(expect, f"{title}, load {at_load}", found["ours"], bound, at_load)
        if judged and at_load <= 1.2:
            few_violations(expect, f"{title}, load {at_load}", found)


def in_time(expect: Expectations, where: str, ours: PlayedDeadlines, bound: float, at_load: float) -> None:
    """What is expected of ours at three loads."""
    if at_load in (1.0, 1.5, 2.0):
        share = ours.released / bound
        expect.hold(f"{where}: ours has at least 95 % of the bound", share >= 0.95, f"{share:.1%}")


def few_violations(expect: Expectations, where: str, found: dict[str, PlayedDeadlines]) -> None:
    """What is expected of ours up to 1.2 times the sustainable load."""
    counts = {name: each.violations for name, each in found.items()}
    expect.hold(
        f"{where}: ours violates at most a tenth as often as EDF",
        10 * counts["ours"] <= counts["EDF"],
        f"{counts['ours']:,} and {counts['EDF']:,}",
    )
    for other in ("DBP", "DWCS"):
        held = counts["ours"] < counts[other] or counts["ours"] == 0
        expect.hold(
            f"{where}: and less often than {other}", held, f"{counts['ours']:,} and {counts[other]:,}"
        )


def in_order_of_constraints(expect: Expectations, where: str, found: PlayedDeadlines) -> None:
    """The paper's last picture."""
    ratios = [each.satisfaction for each in found.queries.values()]
    groups = [ratios[first : first + 3] for first in (0, 3, 6)]
    held = all(group == sorted(group) for group in groups)
    text = "; ".join(" ".join(f"{ratio:.3f}" for ratio in group) for group in groups)
    expect.hold(f"{where}: the paper's rule satisfies in the order of C within each group", held, text)


def rules(packets: Floats, seconds: float) -> None:
    """Which rule costs what."""
    unweighted = replace(PLANNED, violation=0.0, tightness=0.0)
    sides = [
        Side("the paper's", PAPER, AS_PRINTED),
        Side("... rho = 1", PAPER),
        Side("... and the smaller k' first", PAPER_TIGHTER),
        Side("... and by deadline in place of the expiration factor", replace(DWCS, predicts=True)),
        Side("... and by DBP's distance in place of it", replace(DBP, predicts=True)),
        Side("EDF with prediction", EDF_PREDICTIVE),
        Side("ours", PLANNED, OURS),
        Side("... with the paper's rho", PLANNED, replace(OURS, feedback=AS_PRINTED.feedback)),
        Side("... without a margin", replace(PLANNED, largest_margin=0.0), OURS),
        Side("... without the allowances' weights", unweighted, OURS),
    ]
    mixed = (LossConstraint(1, 4), LossConstraint(2, 8), LossConstraint(3, 12))
    table = Table("rule", title="Which rule costs what: DSR, violations, time lost on what was not in time")
    runs = []
    for title, at_load, incremental, constraints in [
        ("afresh, 1.2", 1.2, False, CONSTRAINTS),
        ("carried, 1.2", 1.2, True, CONSTRAINTS),
        ("afresh, 2", 2.0, False, CONSTRAINTS),
        ("afresh, 1.2, (1, 4) (2, 8) (3, 12)", 1.2, False, mixed),
    ]:
        table.add_column(title)
        runs.append(nine(packets, seconds, at_load, incremental, constraints))
    for side in sides:
        found = [run(queries, side) for queries in runs]
        table.add_row(
            side.name,
            *(
                f"{each.satisfaction:.4f} {each.violations:6,} {each.wasted / each.busy:6.1%}"
                for each in found
            ),
        )
    CONSOLE.print(table)


def doubling(expect: Expectations, packets: Floats, seconds: float) -> None:
    """Costs double in the midst: how soon are predictions right again, and how much is in time?"""
    change = seconds / 2
    for incremental in (False, True):
        queries = nine(packets, seconds, 0.8, incremental)
        changed = [replace(each, costs=doubled(each, packets, change)) for each in queries]
        found = run(changed, Side("ours", PLANNED, OURS))
        known = run(nine(packets, seconds, 1.6, incremental), Side("ours", PLANNED, OURS))
        table = Table(
            "monitoring period", "median error of predictions", "DSR", "DSR where costs were as high all along",
            title=f"{'carried' if incremental else 'afresh'}: costs double, load 0.8 to 1.6, periods of {PERIOD:g} s",
        )  # fmt: skip
        errors = []
        for period in range(-2, 6):
            begin, end = (change + PERIOD * at for at in (period, period + 1))
            own = (queries[0].created >= begin) & (queries[0].created < end)
            predicted, took = (
                np.concatenate([getattr(each, what)[own] for each in found.queries.values()])
                for what in ("predicted", "took")
            )
            done = ~np.isnan(took)
            errors.append(float(np.median(np.abs(predicted[done] / took[done] - 1))))
            ratios = [
                1 - np.mean([each.lost[own].mean() for each in played.queries.values()])
                for played in (found, known)
            ]
            table.add_row(str(period + 1), f"{errors[-1]:.1%}", *(f"{ratio:.3f}" for ratio in ratios))
        CONSOLE.print(table)
        expect.hold(
            f"{'carried' if incremental else 'afresh'}: from the third period on predictions are off by at most 10 %",
            max(errors[4:]) <= 0.1,
            f"{max(errors[4:]):.1%}",
        )


def over_networks(expect: Expectations, seconds: float) -> None:
    """The arrivals of a simulated sensor network."""
    compare(expect, bursts(seconds), seconds, "simulated network, afresh", (1.0, 1.2, 2.0))


def main(folder: Path, small: bool = False) -> int:
    """Runs everything; 1 where an expectation is not met."""
    if not all((folder / file).is_file() for file in TRACES.values()):
        CONSOLE.print(
            f"Skipped: there are no traces in {folder} (--data FOLDER); needed: {', '.join(TRACES.values())}."
        )
        return 0
    OUTPUT.mkdir(parents=True, exist_ok=True)
    expect = Expectations()
    seconds = 60.0 if small else 300.0
    pictures(expect, folder, seconds)
    packets = {name: arrivals(folder, name, seconds) for name in TRACES}
    loads = (0.8, 1.0, 1.1, 1.2, 1.5, 2.0)
    compare(expect, packets["DEC"], seconds, "DEC, afresh", loads)
    compare(expect, packets["DEC"], seconds, "DEC, carried", loads, incremental=True, judged=False)
    compare(expect, packets["DEC"], seconds, "DEC, afresh, 2 processors", (1.0, 1.2, 2.0), processors=2)
    loads = (1.0, 1.2, 1.5, 2.0)
    compare(expect, packets["Bellcore"], seconds, "Bellcore, afresh", loads)
    compare(expect, packets["Bellcore"], seconds, "Bellcore, carried", loads, incremental=True, judged=False)
    over_networks(expect, seconds)
    rules(packets["DEC"], seconds)
    doubling(expect, packets["DEC"], 60.0)
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a minute of each trace")
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the traces"
    )
    parser.add_argument("--networks", action="store_true", help="the simulated network alone")
    chosen = parser.parse_args()
    if chosen.networks:
        expectations = Expectations()
        over_networks(expectations, 60.0 if chosen.small else 300.0)
        sys.exit(expectations.exit_code)
    sys.exit(main(chosen.data, chosen.small))
