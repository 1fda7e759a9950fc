"""The sink `parquet`: folders by column, and repeated deliveries."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from penstock.errors import InputError
from penstock.spark.storage.formats import SINK
from sink_cases import WINDOWS, Folder


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
    rows = ds.dataset(path).to_table()
    assert rows.column("n").to_pylist() == [1, 2]
    assert rows.column("is_final").to_pylist() == [False, True]
    folder.close()


def test_another_place_than_a_local_folder_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "out")
    with pytest.raises(InputError, match="sink parquet writes to a local folder"):
        folder.sink("parquet", path="s3://bucket/files")
    folder.close()
