"""Streams over simulated networks, for `disorder.py` and `deadlines.py`: disorder whose cause, loss and true order are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.operators.windows.slack import RequiredSlack, SlackPolicy
from penstock.operators.windows.slack_policies import FixedSlack, LargestDelaySlack
from penstock.plan.windows import ErrorBound, WindowPlan, Windows
from penstock_lab.simulate.disorder import SECOND, Arrivals
from penstock_lab.simulate.networks.settings import NetworkSettings, Protocol
from penstock_lab.simulate.networks.streams import arrived, measured
from penstock_lab.simulate.networks.trace import NetworkTrace, simulate
from penstock_lab.simulate.windows import Played, exact, play

#: where lateness comes from: two paths alone; full queues on both channels; one channel about to be full; links that break and
#: packets that wait for new paths
NETWORKS = {
    "two channels, quiet": NetworkSettings(),
    "two channels, full": NetworkSettings(load=800.0, max_speed=10.0),
    "one channel, multipath, nearly full": NetworkSettings(Protocol.MULTIPATH, load=330.0),
    "two channels, sparse, fast nodes": NetworkSettings(area_metres=1500.0, max_speed=10.0),
}
WINDOWS = Windows(5 * SECOND, SECOND)
GAMMA, STEP = 30 * SECOND, SECOND // 10


def bursts(seconds: float) -> np.ndarray:
    """Arrival times, seconds, where links break: packets that waited for a path come all at once."""
    settings = replace(NETWORKS["two channels, sparse, fast nodes"], seconds=seconds)
    return simulate(settings).arrivals().column("arrived").to_numpy() / 1e6


def shares(played: Played, truth: pa.Table) -> tuple[str, str, str, str]:
    """Windows within the bound: early answers of what came and of what was measured, final ones of that; and the 95 % quantile of the
    early answers' errors against that."""
    of_measured = replace(played, final=truth)
    sides = (played, of_measured, replace(played, early=played.final, final=truth))
    told = [
        f"{share:.4f} ({low:.4f} - {high:.4f})"
        for share, low, high, _ in (each.satisfied() for each in sides)
    ]
    return (told[0], told[1], told[2], f"{np.quantile(of_measured.errors()[1], 0.95):.4f}")


def sides_of(function: str, bound: ErrorBound) -> dict[str, SlackPolicy]:
    """The policies that are compared, the simple ones for SUM alone."""
    simple: dict[str, SlackPolicy] = {
        "zero slack": FixedSlack(0),
        "watermark of 1 s": FixedSlack(SECOND),
        "MP-K-slack": LargestDelaySlack(),
    }
    return {
        "ours": RequiredSlack(bound, WINDOWS.size / WINDOWS.slide),
        **(simple if function == "sum" else {}),
    }


def on_networks(console: Console, plans: dict[str, WindowPlan], seconds: float) -> bool:
    """Windows over each network's stream; prints them and says whether ours kept its bound against all that came.

    Args:
        console: told of it.
        plans: by function, a view over `WINDOWS`.
        seconds: simulated.
    """
    kept = True
    for name, settings in NETWORKS.items():
        trace = simulate(replace(settings, seconds=seconds))
        stream, whole = arrived(name, trace), measured(name, trace)
        table = Table(
            "aggregate", "policy", "mean slack s", "latency s", "within the bound, of all that came", "of all that was measured",
            "final answers, of all measured", "95 % of errors, of all measured", title=_title(trace, stream),
        )  # fmt: skip
        for function, plan in plans.items():
            truth = exact(whole, plan)
            for policy, slack in sides_of(function, plan.bound).items():
                played, _ = play(stream, plan, slack, STEP, GAMMA, GAMMA)
                if policy == "ours":
                    kept &= played.satisfied()[2] >= 1 - plan.bound.delta
                table.add_row(
                    function, policy, f"{played.mean_slack():.3f}", f"{played.latency.mean():.3f}",
                    *shares(played, truth),
                )  # fmt: skip
        console.print(table)
    return kept


def _title(trace: NetworkTrace, stream: Arrivals) -> str:
    figures, fates = stream.figures(), trace.fates()
    lost = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if fate != "delivered" and count)
    return (
        f"{stream.name}: {figures['tuples']:,} tuples came, {figures['late']:.1%} late, by up to {figures['largest_delay']:.1f} s, "
        f"on average {1000 * figures['mean_delay']:.0f} ms; {lost or 'none lost'}"
    )
