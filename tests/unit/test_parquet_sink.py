"""The sink `parquet`: folders by column, and repeated deliveries."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.fs as fs
import pytest

from penstock.errors import SqlError
from penstock.spark.storage.formats import SINK
from penstock_lab.servers.s3 import S3Server
from sink_cases import WINDOWS, Folder, until


def test_rows_lie_in_folders_by_column_and_a_repeated_delivery_replaces_its_files(tmp_path: Path) -> None:
    folder, path = Folder(tmp_path / "out", 2), tmp_path / "files"
    sink = folder.sink("parquet", path=str(path), partition_by="city")
    folder.match([1, 2, -3], [3], [4])
    folder.deliver(sink)
    where = folder.layout.sinks["target.large"]
    after = SINK.read(where)
    assert after is not None
    planned = {
        "feed": {"query": "orders", "kind": "matches"},
        "definition": 1,
        "end": after["feeds"][0]["place"],
    }
    start = {"batch": -1, "base": 0, "rows": 0}
    feeds = [{**after["feeds"][0], "place": start}]
    # as if the process had been killed while the files were put in place
    SINK.replace(where, {**after, "delivered": -1, "feeds": feeds, "planned": planned})
    folder.match([5])
    folder.deliver(sink)
    rows = ds.dataset(path, partitioning="hive").to_table()
    assert sorted(rows.column("id").to_pylist()) == [1, 2, 3, 4, 5]
    assert {each.name for each in path.iterdir()} == {f"city=city%20{n}" for n in range(3)}
    folder.close()


def test_revisions_have_their_marks(tmp_path: Path) -> None:
    folder, path = Folder(tmp_path / "out"), tmp_path / "files"
    folder.answer([("a", 0, 1, False, False)], [("a", 0, 2, True, False)])
    folder.deliver(folder.sink("parquet", WINDOWS, path=str(path)))
    rows = ds.dataset(path).to_table().sort_by("n")
    assert rows.column("n").to_pylist() == [1, 2]
    assert rows.column("is_final").to_pylist() == [False, True]
    folder.close()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("ftp://host/files", "ftp:// is not supported here. Use a path, file://, s3://, gs:// or az://"),
        ("s3://", "s3://"),
    ],
)
def test_an_address_that_is_none_is_refused_at_its_place(tmp_path: Path, path: str, told: str) -> None:
    folder = Folder(tmp_path / "out")
    with pytest.raises(SqlError, match="table target: ") as refused:
        folder.sink("parquet", path=path)
    assert told in str(refused.value)
    folder.close()


def _tables(server: S3Server, prefix: str) -> ds.Dataset:
    variables = server.environment()
    system = fs.S3FileSystem(
        access_key=variables["AWS_ACCESS_KEY_ID"],
        secret_key=variables["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=variables["AWS_ENDPOINT_URL"],
        region=variables.get("AWS_REGION", "us-east-1"),
    )
    return ds.dataset(f"bucket/{prefix}", filesystem=system, partitioning="hive")


def test_a_bucket_gets_the_same_rows_once(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders by column, a delivery that is repeated, and a server that does not answer for a while."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    prefix = f"sink-{time.time_ns()}"
    folder = Folder(tmp_path / "out", 2)
    sink = folder.sink("parquet", path=f"s3://bucket/{prefix}", partition_by="city")
    folder.match([1, 2, -3], [3], [4])
    folder.deliver(sink)
    where = folder.layout.sinks["target.large"]
    after = SINK.read(where)
    assert after is not None
    feeds = [{**after["feeds"][0], "place": {"batch": -1, "base": 0, "rows": 0}}]
    planned = {
        "feed": {"query": "orders", "kind": "matches"},
        "definition": 1,
        "end": after["feeds"][0]["place"],
    }
    SINK.replace(where, {**after, "delivered": -1, "feeds": feeds, "planned": planned})
    folder.match([5])
    folder.deliver(sink)
    rows = _tables(s3, prefix).to_table()
    assert sorted(rows.column("id").to_pylist()) == [1, 2, 3, 4, 5]
    assert set(rows.column("city").to_pylist()) == {f"city {n}" for n in range(3)}
    assert not [
        path
        for path in (tmp_path / "out").rglob("*")
        if "staged" in path.name and path.is_dir() and any(path.iterdir())
    ]
    folder.close()


def test_a_bucket_that_is_missing_is_named_and_stops_nobody(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    folder = Folder(tmp_path / "out")
    folder.match([1])
    with folder.following(folder.sink("parquet", path="s3://no-such-bucket/x")):
        until(lambda: any(event["kind"] == "sink_retried" for event in folder.events.recent))
    told = next(event for event in folder.events.recent if event["kind"] == "sink_retried")["told"]
    assert "no-such-bucket" in told
    assert s3.environment()["AWS_SECRET_ACCESS_KEY"] not in json.dumps(list(folder.events.recent))
    folder.close()
