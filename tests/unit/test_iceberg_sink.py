"""The sink `iceberg` against a SQL catalog: exactly once, upserts, columns that come, small files and old snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointError, InputError, TypeMismatchError
from penstock.spark.sinks import iceberg
from penstock.spark.sinks.delivery import Form
from penstock.spark.sinks.providers import SinkTable
from penstock.spark.storage.formats import SINK
from penstock.sql.script.statements import CreateTable
from penstock_lab.servers.s3 import S3Server
from sink_cases import CUTS, OWN, SELECTION, WINDOWS, Folder, Revision, newest

catalogs = pytest.importorskip("pyiceberg.catalog", reason="the package pyiceberg is not installed")
changes = pytest.importorskip("penstock.spark.sinks.iceberg_changes")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are merged now and then."""
    found = Folder(tmp_path / "out", 2)
    yield found
    found.close()


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """The options of a table in a catalog of SQLite."""
    (tmp_path / "lake").mkdir()
    return {
        "table": "db.rows",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/lake/catalog.db",
        "catalog.warehouse": f"file://{tmp_path}/lake",
    }


def opened(lake: dict[str, str]) -> Any:
    """The table."""
    given = {
        name.removeprefix("catalog."): text for name, text in lake.items() if name.startswith("catalog.")
    }
    return catalogs.load_catalog("default", **given).load_table(lake["table"])


def rows_of(lake: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of the table, as the library reads them."""
    found: list[dict[str, Any]] = opened(lake).scan().to_arrow().to_pylist()
    return found


def ids(lake: dict[str, str]) -> list[int]:
    """The ids among the rows."""
    return sorted(row["id"] for row in rows_of(lake))


def windows_of(lake: dict[str, str]) -> dict[tuple[str | None, int], tuple[int, bool]]:
    """(n, is_final) by city and start of the window."""
    rows = rows_of(lake)
    found = {(row["city"], int(row["w"]["start"].timestamp())): (row["n"], row["is_final"]) for row in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


def target(lake: dict[str, str], **changed: Any) -> iceberg._IcebergTarget:
    """A target without a follower."""
    given = {
        name.removeprefix("catalog."): text for name, text in lake.items() if name.startswith("catalog.")
    }
    place = {"location": None, "partition_by": (), "maintain_every": 0, "keep_seconds": 0.0, **changed}
    return iceberg._IcebergTarget(iceberg._Place("default", given, lake["table"], **place))


def delivery(number: int, sink: str = "x") -> Any:
    """One row."""
    rows = pa.table({"a": [number]})
    return SimpleNamespace(sink=sink, number=number, view="v", batch=0, form=Form("append"), rows=rows)


def killed_behind_the_commit(folder: Folder, lake: dict[str, str]) -> None:
    """As if the process had been killed behind a commit of the table, and before its mark."""
    sink = folder.sink("iceberg", **lake)
    folder.match([1, 2])
    folder.deliver(sink)
    where = folder.layout.sinks["target.large"]
    before = SINK.read(where)
    folder.match([3])
    folder.deliver(sink)
    after = SINK.read(where)
    assert before is not None
    assert after is not None
    planned = {"feed": {"query": "orders", "kind": "matches"}, "definition": 1}
    SINK.replace(where, {**before, "planned": {**planned, "end": after["feeds"][0]["place"]}})
    folder.match([4])


def test_appended_rows_equal_the_folder_and_other_readers_see_them(
    folder: Folder, lake: dict[str, str]
) -> None:
    folder.match([1, 2, -3], [3], [4, 5])
    sink = folder.sink("iceberg", **lake, partition_by="city")
    folder.deliver(sink)
    folder.match([6])
    folder.deliver(sink)
    assert ids(lake) == [1, 2, 3, 4, 5, 6]
    assert [field.name for field in opened(lake).spec().fields] == ["city"]
    files = [task.file.file_path.removeprefix("file://") for task in opened(lake).scan().plan_files()]
    assert all("city=" in path for path in files)
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT sum(id) FROM read_parquet({files})").fetchall()
    assert found == [(21,)]
    told = opened(lake).current_snapshot().summary.additional_properties
    assert (told["penstock-view"], told["penstock-delivery"]) == ("large", "1")


def test_a_delivery_that_was_committed_and_not_marked_is_not_committed_again(
    folder: Folder, lake: dict[str, str]
) -> None:
    killed_behind_the_commit(folder, lake)
    folder.deliver(folder.sink("iceberg", **lake))
    assert ids(lake) == [1, 2, 3, 4]


def test_the_number_outlives_the_snapshots(folder: Folder, lake: dict[str, str]) -> None:
    killed_behind_the_commit(folder, lake)
    table = opened(lake)
    table.append(table.scan().to_arrow().slice(0, 0))
    head = table.current_snapshot().snapshot_id
    gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    folder.deliver(folder.sink("iceberg", **lake))
    assert ids(lake) == [1, 2, 3, 4]


def test_a_table_that_was_rolled_back_is_refused(lake: dict[str, str]) -> None:
    for number in range(3):
        target(lake).deliver(delivery(number))
    table = opened(lake)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(CheckpointError, match="lacks the deliveries 1 to 2"):
        target(lake).deliver(delivery(3))


def test_a_run_that_has_been_taken_over_commits_nothing(
    lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target(lake).deliver(delivery(0))
    change = changes.Change
    overtaken: list[int] = []

    def meanwhile(table: Any) -> Any:
        if not overtaken:
            overtaken.append(1)
            target(lake).deliver(delivery(1))
        return change(table)

    monkeypatch.setattr(changes, "Change", meanwhile)
    target(lake).deliver(delivery(1))
    assert sorted(row["a"] for row in rows_of(lake)) == [0, 1]


def test_a_table_that_another_program_writes_too_gets_each_delivery_once(
    lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target(lake).deliver(delivery(0))
    change = changes.Change
    written: list[int] = []

    def meanwhile(table: Any) -> Any:
        if len(written) < 2:
            written.append(1)
            opened(lake).append(pa.table({"a": [9]}))
        return change(table)

    monkeypatch.setattr(changes, "Change", meanwhile)
    target(lake).deliver(delivery(1))
    assert sorted(row["a"] for row in rows_of(lake)) == [0, 1, 9, 9]
    written.clear()
    monkeypatch.setattr(iceberg, "_TRIES", 1)
    with pytest.raises(ConnectionError, match=r"other writers changed table db\.rows"):
        target(lake).deliver(delivery(2))


@pytest.mark.parametrize(
    ("known", "told"),
    [(None, "lacks the deliveries 0 to 1"), (0, "lacks the deliveries 1 to 1"), (3, "has delivery 3")],
)
def test_a_table_of_another_time_than_the_folder_is_refused(
    lake: dict[str, str], known: int | None, told: str
) -> None:
    for number in range(0 if known is None else known + 1):
        target(lake).deliver(delivery(number))
    with pytest.raises(CheckpointError, match=told):
        target(lake).deliver(delivery(2))


def test_a_new_results_folder_is_another_writer(folder: Folder, lake: dict[str, str], tmp_path: Path) -> None:
    folder.match([1])
    folder.deliver(folder.sink("iceberg", **lake))
    other = Folder(tmp_path / "other")
    other.match([2])
    other.deliver(other.sink("iceberg", **lake))
    other.close()
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("partition_by", ["", "city"])
def test_windows_are_upserted_to_what_the_folder_says(
    folder: Folder, lake: dict[str, str], partition_by: str
) -> None:
    sink = folder.sink("iceberg", WINDOWS, **lake, partition_by=partition_by, compact_every="2")
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(sink)
        assert windows_of(lake) == newest(CUTS[:number])


def test_many_upserts_equal_the_folder(folder: Folder, lake: dict[str, str]) -> None:
    random = np.random.default_rng(7)
    sink = folder.sink("iceberg", WINDOWS, **lake, compact_every="3")
    cuts: list[list[Revision]] = []
    for _ in range(12):
        cut: list[Revision] = []
        for _ in range(30):
            city = [None, "a", "b", "\u00e9"][random.integers(4)]
            start, n, dice = 60 * int(random.integers(20)), int(random.integers(9)), random.random()
            cut.append((city, start, n, dice < 0.3, dice > 0.8))
        cuts.append(cut)
        folder.answer(cuts[-1])
        folder.deliver(sink)
    assert windows_of(lake) == newest(cuts)


def test_an_upsert_leaves_files_without_the_keys(folder: Folder, lake: dict[str, str]) -> None:
    sink = folder.sink("iceberg", WINDOWS, **lake)
    folder.answer([("a", 0, 1, False, False)])
    folder.deliver(sink)
    (first,) = [task.file.file_path for task in opened(lake).scan().plan_files()]
    folder.answer([("a", 60, 1, False, False)])
    folder.deliver(sink)
    assert first in {task.file.file_path for task in opened(lake).scan().plan_files()}
    folder.answer([("a", 0, 2, False, False)])
    folder.deliver(sink)
    assert first not in {task.file.file_path for task in opened(lake).scan().plan_files()}


def test_changes_are_appended_with_their_marks(folder: Folder, lake: dict[str, str]) -> None:
    folder.answer(*CUTS)
    folder.deliver(folder.sink("iceberg", WINDOWS, **lake, mode="changes"))
    rows = rows_of(lake)
    assert len(rows) == sum(map(len, CUTS))
    assert {"revision", "op", "is_final"} <= rows[0].keys()


def test_a_column_that_comes_is_added(lake: dict[str, str]) -> None:
    target(lake).deliver(delivery(0))
    wider = delivery(1)
    wider.rows = pa.table({"a": [1], "b": pa.array([2], pa.int16())})
    target(lake).deliver(wider)
    assert sorted(rows_of(lake), key=lambda row: row["a"]) == [{"a": 0, "b": None}, {"a": 1, "b": 2}]


def test_small_files_are_merged_and_snapshots_expire_with_their_files(
    lake: dict[str, str], tmp_path: Path
) -> None:
    for number in range(20):
        target(lake, maintain_every=20).deliver(delivery(number))
    table = opened(lake)
    assert len(list(table.scan().plan_files())) == 1
    assert len(table.snapshots()) == 1
    assert sorted(row["a"] for row in rows_of(lake)) == list(range(20))
    data = list((tmp_path / "lake").rglob("*.parquet"))
    assert len(data) == 1
    assert len(list((tmp_path / "lake").rglob("snap-*.avro"))) == 1
    # the property is all that is left of the number
    with pytest.raises(CheckpointError, match="lacks the deliveries 20 to 20"):
        target(lake).deliver(delivery(21))


def test_snapshots_that_are_held_or_of_others_remain_with_their_files(lake: dict[str, str]) -> None:
    for number in range(3):
        target(lake).deliver(delivery(number))
    table = opened(lake)
    tagged = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(tagged, "kept").commit()
    table.overwrite(pa.table({"a": [7]}))
    other = table.current_snapshot().snapshot_id
    for number in range(3, 20):
        target(lake, maintain_every=20).deliver(delivery(number))
    table = opened(lake)
    known = {each.snapshot_id for each in table.snapshots()}
    assert {tagged, other} <= known
    assert len(known) < 6
    assert table.scan(snapshot_id=tagged).to_arrow().to_pydict() == {"a": [0]}
    assert table.scan(snapshot_id=other).to_arrow().to_pydict() == {"a": [7]}
    assert sorted(row["a"] for row in rows_of(lake)) == [*range(3, 8), 7, *range(8, 20)]


@pytest.mark.parametrize(
    ("view", "changed", "told"),
    [
        (SELECTION, {"table": ""}, "set the option table"),
        (SELECTION, {"table": "rows"}, "table is 'rows'; write namespace.table"),
        (SELECTION, {"catalog.type": "sqlite"}, "catalog.type is 'sqlite'; allowed: rest, hive"),
        (
            SELECTION,
            {"catalog.type": "", "catalog.uri": "", "none": ""},
            "nothing says where catalog default is",
        ),
        (SELECTION, {"partition_by": "town"}, "partition_by names column town, which does not exist"),
        (WINDOWS, {"partition_by": "w"}, "partition_by names column w, which is"),
        (SELECTION, {"tabel": "y"}, "sink iceberg has no option tabel; did you mean table"),
        (SELECTION, {"keep_snapshots": "long"}, "keep_snapshots is 'long'"),
        (WINDOWS, {"mode": "append"}, "mode append is for rows that never change"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    folder: Folder, lake: dict[str, str], view: str, changed: dict[str, str], told: str
) -> None:
    options = {**lake, **changed}
    if "none" in options:
        options = {"table": lake["table"]}
    with pytest.raises(InputError, match=told):
        folder.sink("iceberg", view, **options)


def test_a_type_that_iceberg_does_not_have_is_refused_by_its_column(lake: dict[str, str]) -> None:
    statement = CreateTable("t", (), "iceberg", lake, 0, 1, "CREATE TABLE t")
    columns = pa.schema([*OWN, ("span", pa.duration("us"))])
    with pytest.raises(TypeMismatchError, match="column span is"):
        iceberg.PROVIDER.open(None, SinkTable(statement, lake, "v", columns, Form("append")))  # type: ignore[arg-type]


def test_a_secret_stands_in_no_message(folder: Folder, lake: dict[str, str]) -> None:
    options = {
        **lake,
        "catalog.uri": "postgresql+nothing://me:marker-of-a-password@127.0.0.1:1/db",
        "catalog.token": "marker-of-a-token",
        "catalog.header.Authorization": "Bearer marker-of-a-header",
        "catalog.adls.account-key": "marker-of-an-account",
        "catalog.s3.secret-access-key": "marker-of-a-key",
    }
    sink = folder.sink("iceberg", **options)
    assert "marker-of" not in repr(sink)
    folder.match([1])
    followers, _ = folder.followers(lambda: True, retry_attempts=1)
    followers.set([sink])
    followers.start()
    assert followers.join(float("inf"))
    assert followers.failed
    assert "marker-of" not in str(followers.failed) + str(folder.events.recent)


def test_a_table_lies_in_a_bucket(folder: Folder, lake: dict[str, str], s3: S3Server) -> None:
    known = s3.environment()
    options = {
        **lake,
        "catalog.warehouse": "s3://bucket/lake",
        "catalog.s3.endpoint": known["AWS_ENDPOINT_URL"],
        "catalog.s3.access-key-id": known["AWS_ACCESS_KEY_ID"],
        "catalog.s3.secret-access-key": known["AWS_SECRET_ACCESS_KEY"],
        "catalog.s3.region": known.get("AWS_REGION", "us-east-1"),
    }
    sink = folder.sink("iceberg", WINDOWS, **options, compact_every="2")
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(sink)
        assert windows_of(options) == newest(CUTS[:number])
