"""`penstock-lab simulate network`: its files, its summary, and mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock_lab.cli import main
from penstock_lab.simulate.networks.readings import ARRIVED, LOST
from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.simulate.networks.trace import simulate

#: small, and on the move: some packets are lost
NETWORK = {"nodes": "15", "load": "40", "seconds": "20", "seed": "7", "max_speed": "20", "sources": "5"}


def _call(*arguments: object) -> int:
    before = sys.argv
    sys.argv = ["penstock-lab", "simulate", "network", *map(str, arguments)]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
    return 0


def test_what_came_through_and_what_did_not_are_written_for_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, lost = tmp_path / "trace.parquet", tmp_path / "lost.parquet"
    options = (
        "--nodes",
        15,
        "--load",
        40,
        "--seconds",
        20,
        "--seed",
        7,
        "--max-speed",
        20,
        "--set",
        "sources=5",
    )
    assert _call("--output", output, "--lost", lost, *options, "--start", "2026-05-01 12:00:00") == 0
    packets = simulate(NetworkSettings.from_options(NETWORK)).packets
    came, never = pq.read_table(output), pq.read_table(lost)
    assert came.schema.equals(ARRIVED)
    assert never.schema.equals(LOST)
    assert came.num_rows + never.num_rows == packets.num_rows
    assert never.num_rows > 0
    times = came["arrived"].to_pylist()
    assert times == sorted(times)
    assert times[0].isoformat().startswith("2026-05-01T12:00:0")
    assert all(row["measured"] < row["arrived"] for row in came.to_pylist())
    told = capsys.readouterr().out
    for words in (
        "dual-channel, 15 nodes, 40 packets/s, 20 s",
        f"{packets.num_rows:,}",
        "lost: no route",
        "95th percentile",
        "collisions",
    ):
        assert words in told
    assert sorted(tmp_path.iterdir()) == [lost, output]


def test_a_network_of_which_nothing_comes_has_no_delays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "trace.parquet"
    assert _call("--output", output, "--seconds", 1, "--set", "range_metres=1") == 0
    assert pq.read_table(output).num_rows == 0
    told = capsys.readouterr().out
    assert "control overhead" in told
    assert "95th percentile" not in told
    assert "nan" not in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--nodes", "1"], "Option nodes is '1'; allowed: whole numbers from 2 to 1000"),
        (["--set", "sources=80"], "Option sources is 80; with 50 nodes at most 49"),
        (["--set", "colour=red"], "Unknown option colour of a network. Options: protocol, nodes"),
        (["--set", "colour"], "--set colour: write --set NAME=VALUE"),
        (["--set", "max_speed=3"], "--set max_speed: use its own option, --max-speed"),
        (["--start", "soon"], "Option start is 'soon'; allowed: a moment such as"),
        (["--output", "."], "--output . is a folder; name a file"),
        (["--lost", "nowhere/lost.parquet"], "--lost nowhere/lost.parquet: folder nowhere does not exist"),
        (["--lost", "./trace.parquet"], "--lost trace.parquet is also the file of --output"),
    ],
)
def test_a_mistake_is_told_before_anything_is_simulated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _call("--output", "trace.parquet", *options) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_protocol_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert _call("--output", "trace.parquet", "--protocol", "olsr") == 2
    told = capsys.readouterr().err
    assert all(word in told for word in ("olsr", "dual-channel", "multipath", "single-path"))
