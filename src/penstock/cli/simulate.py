"""`penstock simulate`: makes streams whose disorder and losses are known."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from penstock.cli.common import named_values
from penstock.cli.tables import table_console
from penstock.errors import ConnectionFailedError, InputError
from penstock.simulate.networks.settings import Mobility, NetworkSettings, Protocol, Traffic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.simulate.networks.trace import NetworkTrace

_DEFAULT = NetworkSettings()


class Simulated(StrEnum):
    """What is simulated."""

    NETWORK = "network"


def simulate(
    what: Annotated[  # noqa: ARG001 - there is one
        Simulated, typer.Argument(help="A wireless network of sensors.", metavar="network")
    ],
    output: Annotated[
        Path, typer.Option(help="Parquet file of the packets that came through.", metavar="FILE")
    ],
    lost: Annotated[
        Path | None, typer.Option(help="Parquet file of those that never came.", metavar="FILE")
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="How sources find and use routes.")] = _DEFAULT.protocol,
    nodes: Annotated[int, typer.Option(help="How many nodes.", metavar="N")] = _DEFAULT.nodes,
    load: Annotated[
        float, typer.Option(help="Packets a second of all sensors together.", metavar="RATE")
    ] = _DEFAULT.load,
    seconds: Annotated[float, typer.Option(help="Simulated time.", metavar="SECONDS")] = _DEFAULT.seconds,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.", metavar="N")] = _DEFAULT.seed,
    mobility: Annotated[Mobility, typer.Option(help="How nodes move.")] = _DEFAULT.mobility,
    max_speed: Annotated[
        float, typer.Option(help="Metres a second; 0: nobody moves.", metavar="SPEED")
    ] = _DEFAULT.max_speed,
    traffic: Annotated[Traffic, typer.Option(help="Where packets go.")] = _DEFAULT.traffic,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another option of the network; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Moment at which the network begins, in UTC.", metavar="MOMENT")
    ] = None,
) -> None:
    """Simulate a network and write what came through, for a replay."""
    chosen = {
        **{"protocol": protocol, "nodes": nodes, "load": load, "seconds": seconds, "seed": seed},
        **{"mobility": mobility, "max_speed": max_speed, "traffic": traffic},
    }
    given = named_values("--set", "NAME=VALUE", more)
    twice = next((name for name in given if name in chosen), None)
    if twice is not None:
        raise InputError(f"--set {twice}: it has an option of its own, --{twice.replace('_', '-')}")
    settings = NetworkSettings.from_options({**{name: str(value) for name, value in chosen.items()}, **given})
    from penstock.simulate.networks.readings import BEGINNING, arrived_readings, beginning_of, lost_readings

    beginning = BEGINNING if start is None else beginning_of(start)
    _check_places(output, lost)
    from penstock.simulate.networks.trace import simulate as simulated

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
            raise InputError(f"{name} {path} is a folder; allowed: the name of a file")
        if not path.parent.is_dir():
            raise InputError(f"{name} {path}: there is no folder {path.parent}")
    if lost is not None and lost.resolve() == output.resolve():
        raise InputError(f"--lost {lost} is the file of --output; name another one")


def _write(rows: pa.Table, name: str, path: Path) -> None:
    import pyarrow.parquet as pq

    beside = path.with_name(f".{path.name}.unfinished")
    try:
        pq.write_table(rows, beside)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConnectionFailedError(f"{name} {path}: cannot be written: {error.strerror or error}") from error


def _summary(trace: NetworkTrace) -> Table:
    """What became of the packets, how long they took, and what it cost."""
    from pyarrow import compute as pc

    settings, arrivals = trace.settings, trace.arrivals()
    took = pc.subtract(arrivals["arrived"], arrivals["created"])
    mean, longest = pc.mean(took).as_py(), pc.quantile(took, q=0.95)[0].as_py()
    table = Table(
        "measure", "value", title=f"{settings.protocol}, {settings.nodes} nodes, {settings.seconds:g} s"
    )
    created = trace.packets.num_rows
    table.add_row("packets created", f"{created:,}")
    for fate, count in trace.fates().items():
        table.add_row(f"  {fate}", f"{count:,}" + (f" ({count / created:.1%})" if created else ""))
    table.add_row("throughput", f"{len(took) / settings.seconds:,.1f} packets/s")
    if mean is not None:
        table.add_row("mean delay", f"{mean / 1e3:,.1f} ms")
        table.add_row("95th percentile of the delay", f"{longest / 1e3:,.1f} ms")
    for number, channel in enumerate(trace.channels):
        table.add_row(
            f"channel {number}", f"{channel.transmissions:,} transmissions, {channel.collisions:,} collisions"
        )
    table.add_row("route discoveries", f"{trace.routing.discoveries:,}")
    return table
