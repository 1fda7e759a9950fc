"""`penstock-lab`: simulations, as files for a replay."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from penstock.cli.given import named_values
from penstock.cli.screen import run_app
from penstock.cli.tables import table_console
from penstock.errors import ConnectionFailedError, InputError
from penstock_lab.simulate.networks.settings import Mobility, NetworkSettings, Protocol, Traffic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock_lab.simulate.networks.trace import NetworkTrace

_DEFAULT = NetworkSettings()

app = typer.Typer(
    name="penstock-lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Simulate what streams are tested with."""


class Simulated(StrEnum):
    """What is simulated."""

    NETWORK = "network"


@app.command()
def simulate(
    what: Annotated[  # noqa: ARG001 - there is one
        Simulated, typer.Argument(help="A wireless network of sensors.", metavar="network")
    ],
    output: Annotated[Path, typer.Option(help="Parquet file for the packets that arrived.", metavar="FILE")],
    lost: Annotated[
        Path | None, typer.Option(help="Parquet file for all other packets, with their fate.", metavar="FILE")
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="How sources find and use routes.")] = _DEFAULT.protocol,
    nodes: Annotated[int, typer.Option(help="Number of nodes.", metavar="N")] = _DEFAULT.nodes,
    load: Annotated[
        float, typer.Option(help="Packets a second of all sensors together.", metavar="RATE")
    ] = _DEFAULT.load,
    seconds: Annotated[float, typer.Option(help="Simulated time.", metavar="SECONDS")] = _DEFAULT.seconds,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.", metavar="N")] = _DEFAULT.seed,
    mobility: Annotated[Mobility, typer.Option(help="How nodes move.")] = _DEFAULT.mobility,
    max_speed: Annotated[
        float, typer.Option(help="Metres a second; 0: nodes do not move.", metavar="SPEED")
    ] = _DEFAULT.max_speed,
    traffic: Annotated[
        Traffic, typer.Option(help="Where sensors send packets: to one node, or each to its own.")
    ] = _DEFAULT.traffic,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Another option of the network; repeat the option for several.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Start of the simulated time, in UTC.", metavar="MOMENT")
    ] = None,
) -> None:
    """Simulate a wireless network and write the arrived packets to a file for a replay."""
    chosen = {
        **{"protocol": protocol, "nodes": nodes, "load": load, "seconds": seconds, "seed": seed},
        **{"mobility": mobility, "max_speed": max_speed, "traffic": traffic},
    }
    given = named_values("--set", "NAME=VALUE", more)
    twice = next((name for name in given if name in chosen), None)
    if twice is not None:
        raise InputError(f"--set {twice}: use its own option, --{twice.replace('_', '-')}")
    settings = NetworkSettings.from_options({**{name: str(value) for name, value in chosen.items()}, **given})
    from penstock_lab.simulate.networks.readings import (
        BEGINNING,
        arrived_readings,
        beginning_of,
        lost_readings,
    )

    beginning = BEGINNING if start is None else beginning_of(start, settings.seconds)
    _check_places(output, lost)
    from penstock_lab.simulate.networks.trace import simulate as simulated

    trace = simulated(settings)
    _write(arrived_readings(trace.packets, beginning), "--output", output)
    if lost is not None:
        _write(lost_readings(trace.packets, beginning), "--lost", lost)
    table_console().print(_summary(trace))


def _check_places(output: Path, lost: Path | None) -> None:
    """Makes sure that there is room for the files, before time is spent on what they hold."""
    for name, path in (("--output", output), ("--lost", lost)):
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{name} {path} is a folder; name a file.")
        if not path.parent.is_dir():
            raise InputError(f"{name} {path}: folder {path.parent} does not exist.")
    if lost is not None and lost.resolve() == output.resolve():
        raise InputError(f"--lost {lost} is also the file of --output; name another file.")


def _write(rows: pa.Table, name: str, path: Path) -> None:
    import pyarrow.parquet as pq

    beside = path.with_name(f".{path.name}.unfinished")
    try:
        pq.write_table(rows, beside)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConnectionFailedError(f"{name} {path}: cannot write: {error.strerror or error}.") from error


def _summary(trace: NetworkTrace) -> Table:
    """What became of the packets, how long they took, and what it cost."""
    from penstock_lab.simulate.networks.measures import measure

    settings, measures, created = trace.settings, measure(trace), max(trace.packets.num_rows, 1)
    title = (
        f"{settings.protocol}, {settings.nodes} nodes, {settings.load:g} packets/s, {settings.seconds:g} s"
    )
    table = Table("measure", "value", title=title)
    table.add_row("packets created", f"{trace.packets.num_rows:,}")
    for fate, count in trace.fates().items():
        table.add_row(f"  {fate}", f"{count:,} ({count / created:.1%})")
    table.add_row("throughput", f"{measures.throughput / 1e3:,.1f} kbit/s of payload")
    if not math.isnan(measures.mean_delay):
        delays = f"mean {_seconds(measures.mean_delay)}, 95th percentile {_seconds(measures.p95_delay)}"
        table.add_row("delay", delays)
        late = f"{measures.late:.1%}, by up to {_seconds(measures.largest_lateness)}"
        table.add_row("arrived after a younger one", late)
    table.add_row(
        "collisions",
        f"{measures.collisions:.3f} for each packet that arrived, {measures.collision_share:.1%} of unicast transmissions",
    )
    table.add_row(
        "control overhead", f"{measures.control_overhead:.3f} bytes for each payload byte that arrived"
    )
    table.add_row("wait in a radio for each hop", _seconds(measures.hop_wait))
    table.add_row(
        "busiest tenth of the nodes",
        f"{measures.busiest_relays:,.1f} packets/s forwarded by each, {measures.relay_share:.1%} of all",
    )
    table.add_row("route discoveries", f"{measures.discoveries:,.1f} a minute")
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def main() -> None:
    """Entry point of the `penstock-lab` command."""
    run_app(app)
