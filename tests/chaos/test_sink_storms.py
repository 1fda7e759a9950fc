"""Each sink against its real counterpart: drivers and servers killed at random, a minute without a network, full disks, refused rows."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import sink_storms
from conftest import JDBC_JARS
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.postgres import PostgresServer
from penstock_lab.servers.s3 import S3Server
from sink_counterparts import (
    UNWELCOME,
    Alerts,
    Counterpart,
    Delta,
    DeltaInBucket,
    Iceberg,
    IcebergInBucket,
    Jdbc,
    Kafka,
    Parquet,
    ParquetInBucket,
    Postgres,
)
from sink_drivers import Driver, PlainDriver
from sink_storms import Storm

pytest.importorskip("deltalake", reason="the package deltalake is not installed")
pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
pytest.importorskip("psycopg", reason="the package psycopg is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.kafka
@pytest.mark.parametrize("others", [True, False], ids=["every sink", "by Spark's clients"])
def test_what_arrives_equals_the_folder_whoever_is_killed_or_away(
    kafka: KafkaBroker, postgres: PostgresServer, s3: S3Server, tmp_path: Path, others: bool
) -> None:
    """Begun in mid-stream; driver and servers are killed, each server is away for a minute, and rows are refused."""
    prefix = f"storm{uuid.uuid4().hex[:8]}"
    topics: dict[str, Counterpart] = {
        "kafka": Kafka(kafka, f"{prefix}-often", tmp_path, is_once=False),
        "transactions": Kafka(kafka, f"{prefix}-once", tmp_path, is_once=True),
    }
    by_driver = {"jdbc": Jdbc(postgres, f"{prefix}_jdbc")} if JDBC_JARS else {}
    database, *more = _others(tmp_path, prefix, postgres, s3) if others else [{}]
    at_server = {**database, **by_driver}
    servers = [topics, *([at_server] if at_server else []), *more]
    _killed_or_away(tmp_path, servers, Driver())


@pytest.mark.parametrize("which", [slice(2), slice(2, 3)], ids=["tables", "alerts"])
def test_what_arrives_equals_the_folder_of_a_run_without_spark(
    postgres: PostgresServer, s3: S3Server, tmp_path: Path, which: slice
) -> None:
    """Likewise, without Kafka, whose client is Spark's: followers that start in a second."""
    prefix = f"storm{uuid.uuid4().hex[:8]}"
    _killed_or_away(tmp_path, _others(tmp_path, prefix, postgres, s3)[which], PlainDriver())


def _others(
    folder: Path, prefix: str, postgres: PostgresServer, s3: S3Server
) -> list[Mapping[str, Counterpart]]:
    """What is no topic, by server."""
    bucket = {
        "delta": DeltaInBucket(s3, f"{prefix}/delta"),
        "iceberg": IcebergInBucket(s3, f"{prefix}/iceberg", folder / "catalog.db"),
        "parquet": ParquetInBucket(s3, f"{prefix}/parquet"),
    }
    return [{"postgres": Postgres(postgres, prefix)}, bucket, {"http": Alerts(folder / "alerts")}]


def _killed_or_away(folder: Path, servers: Sequence[Mapping[str, Counterpart]], driver: Driver) -> None:
    counterparts = {name: each for server in servers for name, each in server.items()}
    alerts = counterparts.get("http")
    if alerts is not None:
        alerts.start()
    storm = Storm(folder, counterparts, driver=driver)
    try:
        storm.begin_in_mid_stream()
        storm.kill_drivers(sink_storms.KILLS, 0.2)
        for server in servers:
            storm.kill_server(next(iter(server)), sink_storms.KILLS, 0.08)
        for server in servers:
            storm.kill_both(next(iter(server)), 0.02)
        for name, *names in servers:
            with storm.outage([name, *names], 0.06):
                storm.kill_counterpart(name)
            counterparts[name].start()
            storm.caught_up(f"{name} was away")
        for refusal in sorted({each.refusal for each in counterparts.values()} - {""}):
            names = [name for name, each in counterparts.items() if each.refusal == refusal]
            with storm.outage(names, 0.06, refusal):
                for name in names:
                    counterparts[name].refuse(driver.views[0], storm.fed)
            for name in names:
                counterparts[name].accept(driver.views[0])
            storm.caught_up(f"{', '.join(names)} refused rows")
        storm.finish()
    finally:
        storm.close()
        if alerts is not None:
            alerts.kill()
    if isinstance(alerts, Alerts):
        # rows of requests with a row that was refused for good
        assert alerts.refused() >= sink_storms.ROWS // UNWELCOME


@pytest.mark.parametrize("driver", [Driver(), PlainDriver()], ids=["spark", "without"])
def test_what_arrives_equals_the_folder_however_full_the_disk_of_the_tables_is(
    tmp_path: Path, disk: Path, driver: Driver
) -> None:
    """Tables on a disk of their own, which is full for a minute; the driver is killed before and meanwhile."""
    (disk / "lake").mkdir()
    tables: dict[str, Counterpart] = {
        "delta": Delta(f"{disk}/delta"),
        "iceberg": Iceberg(disk / "catalog.db", f"file://{disk}/lake"),
        "parquet": Parquet(f"{disk}/parquet"),
    }
    storm = Storm(tmp_path, tables, driver=driver)
    try:
        storm.begin_in_mid_stream()
        storm.kill_drivers(sink_storms.KILLS, 0.4)
        with storm.outage([*tables], 0.2, "disk is full"):
            _fill(disk / "ballast")
        storm.kill()
        storm.start()
        (disk / "ballast").unlink()
        storm.caught_up("disk was full")
        storm.finish()
    finally:
        storm.close()


def test_what_arrives_equals_the_folder_however_full_its_own_disk_is(tmp_path: Path, disk: Path) -> None:
    """The disk of results and checkpoint is full for a minute, twice; the driver is killed before, meanwhile and after."""
    storm = Storm(tmp_path, {"delta": Delta(f"{tmp_path}/tables")}, disk / "out")
    try:
        storm.begin_in_mid_stream()
        storm.kill_drivers(1, 0.2)
        for is_killed in (False, True):
            _fill(disk / "ballast")
            storm.feed(0.1)
            time.sleep(sink_storms.AWAY_SECONDS)
            if is_killed:
                storm.kill()
            (disk / "ballast").unlink()
            if is_killed:
                storm.start()
            storm.caught_up("own disk was full")
        storm.kill_drivers(1, 0.2)
        storm.finish()
    finally:
        storm.close()


def _fill(ballast: Path) -> None:
    """Takes what is left of a disk."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4_096)
