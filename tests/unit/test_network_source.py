"""A network as a table: its options, its packets under the checkpoint, and what is told of those that never come."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, StructType
from rich.console import Console

from installed import install_penstock
from penstock.cli.run import Starting
from penstock.errors import CheckpointError, InputError, StartStoppedError
from penstock.monitor.book import StatusBook
from penstock.monitor.report import status_lines
from penstock.settings import Settings
from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.replay import Pace, ReplaySource
from penstock.spark.sources.source import untold
from penstock.spark.sources.tables import open_table
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.sql.script.script import parse_script
from penstock_lab.simulate.networks import trace
from penstock_lab.simulate.networks.readings import PacketCounts, arrived_readings, lost_readings
from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.sources.network import NetworkProvider, NetworkSource

pytestmark = pytest.mark.usefixtures("own_commits")

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
#: six packets, the fourth never comes, the last one not before the end
PACKETS = pa.table(
    {
        "sensor": pa.array([1, 2, 1, 2, 1, 2], pa.int32()),
        "sequence": pa.array([0, 0, 1, 1, 2, 2]),
        "created": pa.array([0, 1, 2, 3, 4, 5]),
        "arrived": pa.array([7, 3, 6, None, 6, None], pa.int64()),
        "channel": pa.array([0, 1, 1, None, 0, None], pa.int8()),
        "hops": pa.array([1, 2, 1, None, 3, None], pa.int8()),
        "value": pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        "fate": pa.array(
            ["delivered", "delivered", "delivered", "lost: no route", "delivered", "in flight"]
        ).dictionary_encode(),
    }
)


class Told:
    """Events as they are recorded."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def record(self, kind: str, **fields: Any) -> None:
        self.events.append({"kind": kind, **fields})


def _opened(options: str) -> NetworkSource:
    table = parse_script(f"CREATE TABLE readings USING network OPTIONS ({options})").tables[0]
    no_session: Any = None
    source = open_table(no_session, table, Settings())
    assert isinstance(source, NetworkSource)
    return source


@pytest.fixture(autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab registers its source."""
    install_penstock(monkeypatch, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[NetworkSettings]:
    """The networks that were simulated, all with the same packets."""
    asked: list[NetworkSettings] = []

    def simulate(settings: NetworkSettings, reached: Callable[[float], None]) -> SimpleNamespace:  # noqa: ARG001 - at once
        asked.append(settings)
        return SimpleNamespace(packets=PACKETS)

    monkeypatch.setattr(trace, "simulate", simulate)
    return asked


def _layout(folder: Path) -> Layout:
    return Layout(folder / "out", folder / "checkpoint")


def _prepared(
    source: ReplaySource, folder: Path, progress: Callable[[str], None] = untold
) -> list[dict[str, Any]]:
    told = Told()
    source.prepare(_layout(folder), "readings", told, progress)  # type: ignore[arg-type]
    return told.events


def _replay(folder: Path) -> Path:
    return _layout(folder).replay("readings")


def test_a_table_has_the_columns_of_a_reading() -> None:
    source = _opened("nodes '20', MaxSpeed '3', speed 'max'")
    assert source.schema.simpleString() == (
        "struct<sensor:int,sequence:bigint,value:double,measured:timestamp,arrived:timestamp,channel:tinyint,hops:tinyint>"
    )
    assert source.event_time == "measured"
    assert _opened("event_time 'arrived'").event_time == "arrived"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            "nodes '1'",
            "table readings: Option nodes is '1'; allowed: whole numbers from 2 to 1000\n  line 1: ",
        ),
        ("protocol 'olsr'", "Option protocol is 'olsr'; allowed: 'dual-channel', 'multipath', 'single-path'"),
        ("maxspeed 'fast'", "Option max_speed is 'fast'; allowed: numbers from 0 to 100"),
        ("sources '60'", "Option sources is 60; with 50 nodes at most 49"),
        ("sensing_metres '9'", "Option sensing_metres is 9; at least range_metres, 250"),
        ("start 'noon'", "Option start is 'noon'; allowed: a moment such as '2026-01-01 00:00:00'"),
        (
            "start '0001-01-01T00:00+05:00'",
            "Option start is '0001-01-01T00:00+05:00'; allowed: a moment from 1970 on that leaves the 600 simulated seconds",
        ),
        ("start '1970-01-01T00:00+00:01'", "allowed: a moment from 1970 on"),
        ("start '9998-12-31 23:50:01'", "that leaves the 600 simulated seconds before 9999"),
        ("start '9999-12-31 23:59:59-05:00'", "that leaves the 600 simulated seconds before 9999"),
        ("arrival 'at'", "source network cannot stamp its tuples. Remove the option arrival"),
        ("speed '0'", "speed is '0'. Write 'max' or a number above 0"),
        ("path 'data'", "source network has no option path. Options: protocol, nodes, load"),
        ("static 'true'", "source network has no option static"),
    ],
)
def test_a_mistake_in_the_options_is_told_at_its_place(options: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        _opened(options)
    assert told in str(error.value)
    name = options.partition(" ")[0]
    shown, underlined = str(error.value).splitlines()[-2:]
    assert shown[underlined.index("^") : underlined.rindex("^") + 1].lower().startswith(name)


def test_a_network_may_begin_in_1970_and_end_with_9998() -> None:
    for options in ("start '1970-01-01'", "start '9998-12-31 23:50:00'"):
        assert _opened(options).event_time == "measured"


def test_without_its_simulator_the_source_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_lab.sources.network.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"network needs the package simpy, .* Install penstock\[lab\]"):
        _opened("")


def test_declared_columns_are_refused() -> None:
    statement = parse_script("CREATE TABLE readings (sensor INT) USING network OPTIONS ()").tables[0]
    table = StreamTable(
        statement, StructType().add("sensor", IntegerType()), {}, None, None, None, Settings()
    )
    no_session: Any = None
    with pytest.raises(InputError, match="a network has fixed columns: sensor, sequence, value, measured"):
        NetworkProvider().open(no_session, table)


def test_the_packets_are_simulated_once(tmp_path: Path, simulated: list[NetworkSettings]) -> None:
    options = "nodes '20', seconds '1', speed 'max', rows_per_trigger '3', start '2026-05-01T12:00:00'"
    for _ in range(2):
        assert _prepared(_opened(options), tmp_path) == []
    assert [each.nodes for each in simulated] == [20]
    chunks = [pq.read_table(file) for file in sorted(_replay(tmp_path).glob("waiting/*.parquet"))]
    assert [chunk.num_rows for chunk in chunks] == [3, 1]
    assert pa.concat_tables(chunks).to_pylist() == arrived_readings(PACKETS, NOON).to_pylist()
    assert pq.read_table(_replay(tmp_path) / "packets.parquet").num_rows == 6


def test_a_start_that_was_cut_off_is_begun_anew(tmp_path: Path, simulated: list[NetworkSettings]) -> None:
    _prepared(_opened("nodes '20'"), tmp_path)
    (_replay(tmp_path) / "schedule.json").unlink()
    _prepared(_opened("nodes '30'"), tmp_path)
    with pytest.raises(CheckpointError, match="has nodes 30, but the script has nodes 20"):
        _prepared(_opened("nodes '20'"), tmp_path)
    assert len(simulated) == 2


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("options", "then", "now"),
    [
        ("protocol 'multipath', seed '9'", "protocol dual-channel, seed 1", "protocol multipath, seed 9"),
        ("speed 'max'", "speed 1.0", "speed max"),
        ("rows_per_trigger '10'", "rows_per_trigger 100000", "rows_per_trigger 10"),
        ("start '2026-05-01'", "start 2000-01-01T00:00:00+00:00", "start 2026-05-01T00:00:00+00:00"),
    ],
)
def test_another_network_than_that_of_the_checkpoint_is_refused(
    tmp_path: Path, options: str, then: str, now: str
) -> None:
    _prepared(_opened(""), tmp_path)
    with pytest.raises(CheckpointError) as error:
        _prepared(_opened(options), tmp_path)
    assert (
        f"the network of its checkpoint has {then}, but the script has {now}. Restore the old value"
        in str(error.value)
    )


@pytest.mark.usefixtures("simulated")
def test_the_checkpoint_of_a_replay_is_refused(tmp_path: Path) -> None:
    _prepared(_opened(""), tmp_path)
    (_replay(tmp_path) / "network.json").unlink()
    with pytest.raises(CheckpointError, match="belongs to a replay of a stored table"):
        _prepared(_opened(""), tmp_path)


@pytest.mark.usefixtures("simulated")
def test_the_checkpoint_of_a_network_is_refused_by_a_replay(tmp_path: Path) -> None:
    network = _opened("")
    _prepared(network, tmp_path)
    pace = Pace(1.0, 100_000)
    replay = ReplaySource(network.schema, lambda: pa.table({}), "measured", "arrived", pace, in_scan=True)
    with pytest.raises(CheckpointError, match="belongs to a simulated network, not to a stored table"):
        _prepared(replay, tmp_path)


def test_a_simulation_that_is_stopped_is_begun_anew(tmp_path: Path) -> None:
    options = "nodes '10', sources '2', load '5', seconds '3.5', speed 'max'"
    printed, told, now = io.StringIO(), threading.Event(), [0.0]
    console = Console(file=printed, width=200)
    starting = Starting(console, told.is_set, lambda: now[0])

    def later(what: str) -> None:
        now[0] += 4
        if now[0] > 8:
            told.set()
        starting(what)

    with pytest.raises(StartStoppedError):
        _prepared(_opened(options), tmp_path, later)
    assert printed.getvalue() == "stream readings: simulating the network: 2 s of 3.5 s\n"
    assert not (_replay(tmp_path) / "schedule.json").exists()
    told.clear()
    seen: list[str] = []
    _prepared(_opened(options), tmp_path, seen.append)
    assert [text.partition("network: ")[2] for text in seen] == [
        f"{second} s of 3.5 s" for second in (1, 2, 3)
    ]
    assert (_replay(tmp_path) / "schedule.json").exists()


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("published", "told"),
    [(-1, []), (0, [(0.0, 3)]), (1, [(1.0, 4)])],
    ids=["nothing", "the first", "the last"],
)
def test_a_restart_tells_what_is_reached_with_the_published_batches(
    tmp_path: Path, published: int, told: list[tuple[float, int]]
) -> None:
    """A run that was killed has told nothing of its last batches, and after the last one no other follows."""
    options = "seconds '1', speed 'max', rows_per_trigger '3'"
    _prepared(_opened(options), tmp_path)
    layout = _layout(tmp_path)
    (layout.spark("readings") / "offsets").mkdir(parents=True)
    for batch in range(2):
        # both are planned and released, the published ones are answered
        chunk = f"{batch:08d}.parquet"
        (_replay(tmp_path) / "waiting" / chunk).rename(_replay(tmp_path) / "released" / chunk)
        offsets = f'v1\n{{}}\n{{"logOffset":{batch}}}'
        (layout.spark("readings") / "offsets" / str(batch)).write_text(offsets)
        if batch <= published:
            manifest = {"first": batch, "last": batch, "files": [], "batches": [{"batch": batch}]}
            MANIFEST.replace(layout.manifests("readings")[batch], manifest)
    events = _prepared(_opened(options), tmp_path)
    assert [(event["seconds"], event["arrived"]) for event in events] == told


def test_a_network_of_which_nothing_arrives_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = PACKETS.filter(PACKETS["arrived"].is_null())
    monkeypatch.setattr(trace, "simulate", lambda *_, **__: SimpleNamespace(packets=lost))
    (event,) = _prepared(_opened("seconds '2'"), tmp_path)
    assert event == {
        **{"kind": "network_reached", "stream": "readings", "seconds": 2.0, "of_seconds": 2.0},
        **{"created": 2, "arrived": 0, "under_way": 1, "lost": {"no route": 1}},
    }


def test_at_each_moment_every_packet_is_counted_once() -> None:
    counts = PacketCounts(PACKETS)
    told = [counts.until(moment) for moment in range(-1, 9)]
    assert [each["created"] for each in told] == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]
    assert [each["arrived"] for each in told] == [0, 0, 0, 0, 1, 1, 1, 3, 4, 4]
    assert [each["under_way"] for each in told] == [0, 1, 2, 3, 2, 3, 4, 2, 1, 1]
    assert [each["lost"] for each in told] == [{}] * 4 + [{"no route": 1}] * 6
    for each in told:
        assert each["created"] == each["arrived"] + each["under_way"] + sum(each["lost"].values())


def test_readings_are_in_order_of_arrival_and_the_others_beside_them() -> None:
    arrived, lost = arrived_readings(PACKETS, NOON), lost_readings(PACKETS, NOON)
    assert arrived["value"].to_pylist() == [2.0, 3.0, 5.0, 1.0]
    assert arrived["measured"].to_pylist()[1] == NOON.replace(microsecond=2)
    assert arrived["arrived"].to_pylist()[1] == NOON.replace(microsecond=6)
    assert lost.select(["value", "fate"]).to_pylist() == [
        {"value": 4.0, "fate": "lost: no route"},
        {"value": 6.0, "fate": "in flight"},
    ]


def test_the_status_says_what_became_of_the_packets() -> None:
    book = StatusBook()
    reached = {
        "kind": "network_reached",
        "time": "",
        "stream": "readings",
        "seconds": 61.5,
        "of_seconds": 600.0,
    }
    lost = {"link break": 3, "no route": 40}
    book.note({**reached, "created": 12_300, "arrived": 12_000, "under_way": 257, "lost": lost})
    assert book.stream("readings")["network"]["lost"] == lost
    assert book.document()["news"] == []
    lines = list(status_lines({**book.document(), "output": "out"}, verbose=True))
    assert (
        "  network: 61.5 s of 600 s | 12,300 packets created | 12,000 arrived | 257 under way | "
        "43 lost (no route 40, link break 3)"
    ) in lines
