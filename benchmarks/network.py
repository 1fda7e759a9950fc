"""A simulated ad hoc network under three protocols: the comparison that the dual-channel paper's abstract speaks of.

1. Bianchi's saturation throughput, by his fixed point and on the simulated channel.
2. Speed: 100 nodes, ten simulated minutes.
3. On-demand dual-channel routing, single-channel multipath routing and single-path routing against offered load, nodes and
   mobility (random waypoint and Gauss-Markov), sensors to one sink and in pairs; the same movements and packets for all protocols
   under one seed. `dual, equal spectrum` has channels of half the bandwidth, in which everything takes twice as long, and queues of half the length:
   what is left when it has no more spectrum and no more room than the others.
   Pictures with 95 % intervals over five seeds (or `--seeds`) (Student's t), all figures as CSV.
4. The abstract's claims against single-channel multipath routing: more throughput, fewer collisions, less congested route nodes.
   Judged by paired differences over the seeds: holds, holds not (the opposite is significant), or no difference. Five seeds leave
   many a point open, so what is expected of the heavily loaded ones is that a claim holds over all of them together (the mean of their
   relative differences, by seed), and at none does the opposite.
5. Paths of each answered discovery against networkx's maximum flow over who reached whom when it began.

Exits with 1 where an expectation is not met.

Run: python benchmarks/network.py [--small] [--workers N] [--seeds N]
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student

from expectations import Expectations
from penstock_lab.simulate.networks.disjoint import shared_nodes
from penstock_lab.simulate.networks.measures import Measures, measure
from penstock_lab.simulate.networks.routing import FoundPaths
from penstock_lab.simulate.networks.saturation import BIANCHI, analytic, simulated
from penstock_lab.simulate.networks.settings import Mobility, NetworkSettings, Protocol, Traffic
from penstock_lab.simulate.networks.topology import members
from penstock_lab.simulate.networks.trace import simulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from network_paths import disjoint_paths

mpl.use("Agg")
from matplotlib import pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
CONSOLE = Console(width=170)
#: above this offered load one channel of the default network is saturated
HEAVY = 400.0
#: so much leaves no channel full, and so much leaves most of its air empty
QUIET, CALM = 200.0, 50.0

DUAL, EQUAL, MULTIPATH, SINGLE = "dual-channel", "dual, equal spectrum", "multipath", "single-path"
#: protocol, and bandwidth and queue of each channel as shares
SIDES = {
    DUAL: (Protocol.DUAL_CHANNEL, 1.0),
    EQUAL: (Protocol.DUAL_CHANNEL, 0.5),
    MULTIPATH: (Protocol.MULTIPATH, 1.0),
    SINGLE: (Protocol.SINGLE_PATH, 1.0),
}
#: figure, what it is called, its factor for people
PANELS = (
    ("delivery_ratio", "delivery ratio", 1.0),
    ("throughput", "throughput, kbit/s", 1e-3),
    ("mean_delay", "mean delay, ms", 1e3),
    ("p95_delay", "95th percentile of delay, ms", 1e3),
    ("collisions", "collisions a delivered packet", 1.0),
    ("control_overhead", "control bytes a delivered byte", 1.0),
    ("hop_wait", "waiting at a hop, ms", 1e3),
    ("busiest_relays", "packets/s of the busiest tenth of relays", 1.0),
    ("late", "share of packets out of order", 1.0),
)
#: claim, figure, whether more is better
CLAIMS = (
    ("more throughput", "throughput", True),
    ("fewer collisions", "collisions", False),
    ("less congested route nodes", "hop_wait", False),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that is varied.

    Attributes:
        name: of the picture.
        label: of its axis.
        points: settings by value.
    """

    name: str
    label: str
    points: dict[float, NetworkSettings]


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation, whose packets are accounted for or it raises: its figures, and of its answered discoveries how many had two
    disjoint paths to find, how many of these gave two, how many discoveries had no answer and of these how many no path to find."""

    measures: Measures
    two_exist: int
    disjoint: int
    unanswered: int
    unreachable: int


#: by axis, value and side, one run a seed
Runs = dict[tuple[str, float, str], list[Run]]


def axes(seconds: float) -> list[Axis]:
    """What is varied."""
    base = NetworkSettings(seconds=seconds)
    loads, speeds = (50.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0), (0.0, 2.0, 5.0, 10.0, 20.0)

    def by_load(settings: NetworkSettings) -> dict[float, NetworkSettings]:
        return {load: replace(settings, load=load) for load in loads}

    def by_speed(mobility: Mobility, load: float) -> dict[float, NetworkSettings]:
        return {speed: replace(base, max_speed=speed, load=load, mobility=mobility) for speed in speeds}

    still = replace(base, max_speed=0.0)
    return [
        Axis(
            "still",
            "packets/s to one sink, nobody moves",
            {load: replace(still, load=load) for load in (10.0, 25.0, CALM)},
        ),
        Axis("load", "packets/s to one sink", by_load(base)),
        Axis("load-pairs", "packets/s in pairs", by_load(replace(base, traffic=Traffic.PAIRS))),
        Axis(
            "nodes",
            "nodes, 400 packets/s",
            {nodes: replace(base, nodes=nodes, load=400.0) for nodes in (25, 50, 75, 100)},
        ),
        *(
            Axis(
                f"{mobility}-{load:g}",
                f"fastest speed, m/s, {mobility}, {load:g} packets/s",
                by_speed(mobility, load),
            )
            for mobility in Mobility
            for load in (QUIET, HEAVY)
        ),
    ]


def paths_there_were(found: FoundPaths) -> int:
    """Node-disjoint paths between the ends of a discovery when it began."""
    links = ((node, other) for node, reached in enumerate(found.reach) for other in members(reached))
    return disjoint_paths(links, found.source, found.target)


def run(side: str, base: NetworkSettings, seed: int) -> Run:
    """Simulates once."""
    protocol, share = SIDES[side]
    settings = replace(base, protocol=protocol, queue_packets=round(base.queue_packets * share), seed=seed)
    trace = simulate(settings, share)
    answered = [found for found in trace.found if found.paths]
    two = [found for found in answered if len(found.paths) == 2 and paths_there_were(found) >= 2]
    return Run(
        measure(trace),
        len(two),
        sum(shared_nodes(found.paths) == 0 for found in two),
        len(trace.found) - len(answered),
        sum(paths_there_were(found) == 0 for found in trace.found if not found.paths),
    )


def saturation(expect: Expectations, seconds: float) -> None:
    """Bianchi's figures beside ours."""
    table = Table(
        "W",
        "m",
        "stations",
        "throughput, model",
        "simulated",
        "collisions, model",
        "simulated",
        title="Saturation",
    )
    largest = 0.0
    for window, stages in ((32, 3), (32, 5), (128, 3)):
        timing = replace(BIANCHI, least_window=window, largest_window=window << stages)
        for stations in (1, 2, 5, 10, 20, 50):
            model, seen = analytic(stations, timing), simulated(stations, seconds, 1, timing)
            largest = max(largest, abs(seen.throughput / model.throughput - 1))
            table.add_row(
                str(window), str(stages), str(stations), f"{model.throughput:.4f}", f"{seen.throughput:.4f}",
                f"{model.collision:.4f}", f"{seen.collision:.4f}",
            )  # fmt: skip
    CONSOLE.print(table)
    expect.hold("saturation throughput within 5 % of Bianchi's", largest <= 0.05, f"{largest:.2%} at most")


def speed(expect: Expectations, seconds: float) -> None:
    """How long 100 nodes and ten minutes take."""
    for protocol in Protocol:
        begun = time.perf_counter()
        trace = simulate(NetworkSettings(protocol, nodes=100, seconds=seconds))
        took = time.perf_counter() - begun
        sent = sum(channel.transmissions for channel in trace.channels)
        expect.hold(
            f"{protocol}: 100 nodes and {seconds:g} s in under a minute",
            took < 60,
            f"{took:.1f} s, {sent:,} transmissions, {1e6 * took / sent:.0f} µs each",
        )


def compare(varied: Iterable[Axis], workers: int, most_seeds: int) -> Runs:
    """Every side at every point under every seed."""
    places = [
        (axis.name, value, side, seed)
        for axis in varied
        for value in axis.points
        for side in SIDES
        for seed in range(1, most_seeds + 1)
    ]
    points = {axis.name: axis.points for axis in varied}
    sides, bases, seeds = zip(
        *((side, points[name][value], seed) for name, value, side, seed in places), strict=True
    )
    if workers == 1:
        return _gathered(places, map(run, sides, bases, seeds))
    with ProcessPoolExecutor(workers) as pool:
        return _gathered(places, pool.map(run, sides, bases, seeds, chunksize=5))


def _gathered(places: Sequence[tuple[str, float, str, int]], done: Iterable[Run]) -> Runs:
    runs: Runs = {}
    for (name, value, side, _), each in zip(places, done, strict=True):
        runs.setdefault((name, value, side), []).append(each)
    return runs


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95 % interval."""
    spread = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * spread)


def figures(runs: Sequence[Run], figure: str) -> list[float]:
    """One figure of each run."""
    return [getattr(each.measures, figure) for each in runs]


def draw(axis: Axis, runs: Runs) -> None:
    """Table and picture of one axis."""
    table = Table(
        axis.label,
        "protocol",
        *(label for _, label, _ in PANELS),
        title=f"{axis.label}: mean ± half of the 95 % interval",
    )
    picture, panels = plt.subplots(3, 3, figsize=(16, 12))
    for value in axis.points:
        for side in SIDES:
            cells = []
            for figure, _, factor in PANELS:
                mean, half = interval(figures(runs[axis.name, value, side], figure))
                cells.append(f"{factor * mean:.3g} ± {factor * half:.2g}")
            table.add_row(f"{value:g}", side, *cells)
    CONSOLE.print(table)
    for panel, (figure, label, factor) in zip(panels.flat, PANELS, strict=True):
        for side in SIDES:
            at = [interval(figures(runs[axis.name, value, side], figure)) for value in axis.points]
            means, halves = (factor * np.array(each) for each in zip(*at, strict=True))
            panel.errorbar(list(axis.points), means, halves, marker="o", capsize=3, label=side)
        panel.set(xlabel=axis.label, ylabel=label)
        if figure in ("mean_delay", "p95_delay", "hop_wait"):
            panel.set_yscale("log")
    panels.flat[0].legend()
    picture.tight_layout()
    picture.savefig(OUTPUT / f"network-{axis.name}.png", dpi=90)
    plt.close(picture)


def verdict(ours: Sequence[float], theirs: Sequence[float], more: bool) -> tuple[str, str]:
    """Whether a claim holds, and the paired difference in per cent of theirs."""
    mean, half = interval([one - other for one, other in zip(ours, theirs, strict=True)])
    base = float(np.mean(theirs)) or 1.0
    better = mean if more else -mean
    text = "no difference" if abs(mean) <= half else "holds" if better > 0 else "holds not"
    return text, f"{text} ({100 * mean / base:+.0f} ± {100 * half / abs(base):.0f} %)"


def claims(expect: Expectations, varied: Sequence[Axis], runs: Runs) -> None:
    """The abstract's claims, point by point."""
    for side, other in ((DUAL, MULTIPATH), (EQUAL, MULTIPATH), (DUAL, SINGLE)):
        table = Table(
            "varied",
            "value",
            *(claim for claim, _, _ in CLAIMS),
            title=f"{side} against {other}: the abstract's claims",
        )
        heavy: dict[str, list[str]] = {claim: [] for claim, _, _ in CLAIMS}
        shares: dict[str, list[list[float]]] = {claim: [] for claim, _, _ in CLAIMS}
        for axis in varied:
            for value, settings in axis.points.items():
                cells = []
                for claim, figure, more in CLAIMS:
                    ours, theirs = (figures(runs[axis.name, value, each], figure) for each in (side, other))
                    text, cell = verdict(ours, theirs, more)
                    cells.append(cell)
                    if settings.load >= HEAVY and settings.nodes >= 50:
                        heavy[claim].append(text)
                        base = float(np.mean(theirs))
                        shares[claim].append(
                            [(one - other) / base for one, other in zip(ours, theirs, strict=True)]
                        )
                table.add_row(axis.label, f"{value:g}", *cells)
        CONSOLE.print(table)
        if (side, other) == (DUAL, MULTIPATH):
            for claim, _, more in CLAIMS:
                mean, half = interval(np.mean(shares[claim], axis=0))
                expect.hold(
                    f"{claim} than multipath from {HEAVY:g} packets/s and 50 nodes on",
                    (mean if more else -mean) > half and "holds not" not in heavy[claim],
                    f"{100 * mean:+.0f} ± {100 * half:.0f} %, at {heavy[claim].count('holds')} of {len(heavy[claim])} points by itself",
                )


def accounts(expect: Expectations, varied: Sequence[Axis], runs: Runs) -> None:
    """The paths of the discoveries of all runs."""
    by_load: dict[tuple[str, float], list[Run]] = {}
    for axis in varied:
        for value, settings in axis.points.items():
            moves = "moving" if settings.max_speed else "still"
            for side in SIDES:
                by_load.setdefault((moves, settings.load), []).extend(runs[axis.name, value, side])
    table = Table(
        "nodes",
        "packets/s",
        "two exist",
        "two disjoint paths found",
        "no answer in time",
        "of these no path",
        title="Discoveries",
    )
    calm = [0, 0]
    for (moves, load), group in sorted(by_load.items()):
        two, disjoint, unanswered, unreachable = (
            sum(getattr(each, name) for each in group)
            for name in ("two_exist", "disjoint", "unanswered", "unreachable")
        )
        table.add_row(
            moves, f"{load:g}", f"{two:,}", f"{disjoint:,} ({disjoint / max(two, 1):.2%})", f"{unanswered:,}", f"{unreachable:,}",
        )  # fmt: skip
        if load <= CALM and moves == "still":
            calm = [calm[0] + two, calm[1] + disjoint]
    CONSOLE.print(table)
    expect.hold(
        f"up to {CALM:g} packets/s where nobody moves: two disjoint paths where networkx finds a flow of two",
        calm[1] == calm[0] > 0,
        f"{calm[1]:,} of {calm[0]:,}",
    )


def write(runs: Runs) -> None:
    """All figures of all runs."""
    with (OUTPUT / "network.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["varied", "value", "protocol", "seed", *(each.name for each in fields(Measures))])
        for place, group in runs.items():
            for seed, each in enumerate(group, 1):
                out.writerow([*place, seed, *astuple(each.measures)])


def main(small: bool, workers: int, most_seeds: int) -> int:
    """Runs everything; 1 where an expectation is not met."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    expect = Expectations()
    saturation(expect, 20.0 if small else 100.0)
    speed(expect, 60.0 if small else 600.0)
    varied = axes(10.0 if small else 30.0)
    runs = compare(varied, workers, most_seeds)
    for axis in varied:
        draw(axis, runs)
    claims(expect, varied, runs)
    accounts(expect, varied, runs)
    write(runs)
    CONSOLE.print(f"pictures and figures: {OUTPUT}/network*")
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="less simulated time")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="simulations at a time")
    parser.add_argument("--seeds", type=int, default=5, help="simulations of each point, at least two")
    chosen = parser.parse_args()
    sys.exit(main(chosen.small, chosen.workers, chosen.seeds))
