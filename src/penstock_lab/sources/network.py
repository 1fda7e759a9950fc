"""A simulated wireless network as a stream: its packets, in the order in which they come through, at a multiple of real speed.

The network is simulated once a checkpoint; from there on it is a replay. What became of packets that never came is kept beside
the chunks, and told as the stream reaches the moments at which they were created.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import CheckpointError, OptionError, SqlError, UnsupportedError
from penstock.spark.publication.manifests import read_published
from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.reader_options import by_plain_name, plain_option
from penstock.spark.sources.replay import Pace, ReplaySource, is_prepared
from penstock.spark.sources.source import BoundBatch, Progress, untold
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import NETWORK
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import read_offset
from penstock.spark.tasks.worker import TaskReport
from penstock.stores.durable import make_folder, sync_file
from penstock_lab.simulate.networks.readings import (
    ARRIVED,
    BEGINNING,
    PacketCounts,
    arrived_readings,
    beginning_of,
    microseconds,
)
from penstock_lab.simulate.networks.settings import NetworkSettings, option_names

#: options that say how packets are played
_PLAYING = ("start", "speed", "rows_per_trigger")


class NetworkSource(ReplaySource):
    """A replay of the packets of a network.

    Args:
        settings: the network.
        beginning: the moment at which it begins.
        event_time: name of the event time column, or None.
        pace: how fast it is played.
        in_scan: False keeps the map stage behind the DataFrame.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        beginning: datetime,
        event_time: str | None,
        pace: Pace,
        in_scan: bool,
    ) -> None:
        schema = from_arrow_schema(ARRIVED, prefer_timestamp_ntz=False)
        super().__init__(schema, self._simulated, event_time, "arrived", pace, in_scan)
        self._settings = settings
        self._beginning = beginning

    def prepare(self, layout: Layout, stream: str, events: EventLog, progress: Progress = untold) -> None:
        """Simulates the network, unless an earlier run has; tells how far it is reached with what is published.

        A process that is killed takes what it has not told with it, and after the last batch nothing else would tell it.

        Raises:
            CheckpointError: the packets of the checkpoint are those of another network.
        """
        self._stream, self._events, self._progress = stream, events, progress
        self._packets = layout.replay(stream) / "packets.parquet"
        super().prepare(layout, stream, events, progress)
        self._counts = PacketCounts(pq.read_table(self._packets, columns=["created", "arrived", "fate"]))
        offset = read_offset(layout.spark(stream), read_published(layout, stream).last)
        if not self._due:
            self._tell(self._end_us)
        elif offset is not None:
            # Spark logs one chunk at a time
            self._tell(self._until_us(int(json.loads(offset)["logOffset"])))

    def _refuse_others(self, stream: str) -> None:
        """Makes sure that the packets of the checkpoint are those of this network; where there are none, says whose will be."""
        told, said = self._folder / "network.json", self._said()
        if is_prepared(self._folder):
            _refuse_other(stream, NETWORK.read(told), said)
        else:
            make_folder(self._folder)
            NETWORK.replace(told, said)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """The Parquet source's jobs; tells what has become of the packets created up to the newest of the batch."""
        reports = super().run(df, batch)
        if batch.checkpoint is not None:
            chunks = [int(Path(unquote(path)).stem) for path in batch.files(df)]
            if chunks:
                self._tell(self._until_us(max(chunks)))
        return reports

    def _simulated(self) -> pa.Table:
        # the simulator loads what no other stream needs
        from penstock_lab.simulate.networks.trace import simulate

        packets = simulate(self._settings, reached=self._reached).packets
        pq.write_table(packets, self._packets)
        sync_file(self._packets)
        return arrived_readings(packets, self._beginning)

    def _reached(self, second: float) -> None:
        self._progress(
            f"stream {self._stream}: simulating the network: {second:,g} s of {self._settings.seconds:,g} s"
        )

    def _said(self) -> dict[str, Any]:
        """What the script says of the network, as the checkpoint keeps it."""
        speed = self._pace.speed
        return {
            **asdict(self._settings),
            "start": self._beginning.isoformat(),
            "speed": speed if math.isfinite(speed) else "max",
            "rows_per_trigger": self._pace.rows_per_trigger,
        }

    def _until_us(self, chunk: int) -> int:
        """How far the simulation is reached with a chunk, microseconds: its newest arrival; with the last one the end."""
        if chunk == len(self._due) - 1:
            return self._end_us
        arrived = pq.read_table(self._released / f"{chunk:08d}.parquet", columns=["arrived"])["arrived"]
        newest: int = pc.max(arrived.cast(pa.int64())).as_py()
        return newest - microseconds(self._beginning)

    @property
    def _end_us(self) -> int:
        """The end of the simulation."""
        return round(self._settings.seconds * 1e6)

    def _tell(self, until_us: int) -> None:
        self._events.record(
            "network_reached",
            stream=self._stream,
            seconds=round(until_us / 1e6, 3),
            of_seconds=self._settings.seconds,
            **self._counts.until(until_us),
        )


class NetworkProvider:
    """What `USING network` opens; the entry point `network` of the group `penstock.sources`."""

    def options(self, given: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG002 - every network has all
        """Return the options of a network, and how its packets are played."""
        return (*option_names(), *_PLAYING)

    def open(self, spark: SparkSession, table: StreamTable) -> NetworkSource:  # noqa: ARG002 - it begins without
        """Open the network that a table declares; without an event time that is `measured`.

        Raises:
            SqlError: columns are declared, or an option is out of range.
            UnsupportedError: simpy is not installed.
        """
        statement = table.statement
        if find_spec("simpy") is None:
            raise UnsupportedError(
                f"table {statement.name}: source network needs the package simpy, which is not installed. Install penstock[lab].",
                *statement.at("using"),
            )
        if table.columns is not None:
            raise SqlError(
                f"table {statement.name}: a network has fixed columns: {', '.join(ARRIVED.names)}. Remove the declared columns",
                *statement.at(statement.columns[0].name),
            )
        names = by_plain_name(self.options(table.options))
        given = {names[plain]: value for plain, value in table.options.items()}
        network = {name: value for name, value in given.items() if name not in _PLAYING}
        try:
            settings = NetworkSettings.from_options(network)
            beginning = beginning_of(given["start"], settings.seconds) if "start" in given else BEGINNING
        except OptionError as error:
            written = {names.get(plain_option(name)): name for name in statement.options}
            place = statement.at(written.get(error.option, error.option))
            raise SqlError(f"table {statement.name}: {error}", *place) from error
        pace = Pace.of(statement, table.options)
        event_time = table.event_time or "measured"
        return NetworkSource(settings, beginning, event_time, pace, table.settings.map_in_scan)


def _refuse_other(stream: str, packets: Mapping[str, Any] | None, said: Mapping[str, Any]) -> None:
    """Makes sure that the packets of a checkpoint are those that the script asks for."""
    if packets is None:
        raise CheckpointError(
            f"stream {stream}: its checkpoint belongs to a replay of a stored table, not to a network. Start with a new output "
            "folder and checkpoint"
        )
    other = [name for name, value in packets.items() if name in said and said[name] != value]
    if other:
        now, then = (", ".join(f"{name} {all_[name]}" for name in other) for all_ in (said, packets))
        raise CheckpointError(
            f"stream {stream}: the network of its checkpoint has {then}, but the script has {now}. Restore the old value, or start with a "
            "new output folder and checkpoint"
        )
