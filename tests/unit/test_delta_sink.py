"""The sink `delta` against the library's own tables: exactly once, upserts, columns that come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.errors import CheckpointError, InputError, TypeMismatchError
from penstock.spark.sinks import delta
from penstock.spark.sinks.declared import SinkView
from penstock.spark.sinks.delivery import Form
from penstock.spark.storage.formats import SINK
from penstock_lab.servers.processes import free_port
from penstock_lab.servers.s3 import S3Server
from sink_cases import CUTS, OWN, SELECTION, WINDOWS, Folder, newest, until

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are merged now and then."""
    found = Folder(tmp_path / "out", 2)
    yield found
    found.close()


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a table, as the library reads them."""
    found: list[dict[str, Any]] = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def windows_of(path: Path | str) -> dict[tuple[str | None, int], tuple[int, bool]]:
    """(n, is_final) by city and start of the window."""
    rows = rows_of(path)
    found = {(row["city"], int(row["w"]["start"].timestamp())): (row["n"], row["is_final"]) for row in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


def test_appended_rows_equal_the_folder_and_other_readers_see_them(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "table"
    folder.match([1, 2, -3], [3], [4, 5])
    sink = folder.sink("delta", path=str(path), partition_by="city")
    folder.deliver(sink)
    folder.match([6])
    folder.deliver(sink)
    assert sorted(row["id"] for row in rows_of(path)) == [1, 2, 3, 4, 5, 6]
    assert deltalake.DeltaTable(path).metadata().partition_columns == ["city"]
    files = deltalake.DeltaTable(path).file_uris()
    with duckdb.connect() as connection:
        found = connection.sql(
            f"SELECT sum(id) FROM read_parquet({files}, hive_partitioning = true)"
        ).fetchall()
    assert found == [(21,)]


def test_a_delivery_that_was_committed_and_not_marked_is_not_committed_again(
    folder: Folder, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    sink = folder.sink("delta", path=str(path))
    folder.match([1, 2])
    folder.deliver(sink)
    where = folder.layout.sinks["target.large"]
    before = SINK.read(where)
    assert before is not None
    folder.match([3])
    folder.deliver(sink)
    # as if the process had been killed behind the commit of the table
    planned = {"feed": {"query": "orders", "kind": "matches"}, "definition": 1}
    after = SINK.read(where)
    assert after is not None
    SINK.replace(where, {**before, "planned": {**planned, "end": after["feeds"][0]["place"]}})
    folder.match([4])
    folder.deliver(sink)
    assert sorted(row["id"] for row in rows_of(path)) == [1, 2, 3, 4]


def test_a_table_that_another_run_makes_meanwhile_gets_no_delivery_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    delivery: Any = SimpleNamespace(
        sink="x", number=0, view="v", batch=0, form=Form("append"), rows=pa.table({"a": [1]})
    )
    other = delta._DeltaTarget(path, (), 0)

    class Overtaken(delta._DeltaTarget):
        def _current(self) -> Any:
            table = super()._current()
            if table is None:
                other.deliver(delivery)
            return table

    Overtaken(path, (), 0).deliver(delivery)
    assert rows_of(path) == [{"a": 1}]


@pytest.mark.parametrize(
    ("known", "told"),
    [(None, "lacks the deliveries 0 to 1"), (0, "lacks the deliveries 1 to 1"), (3, "has delivery 3")],
)
def test_a_table_of_another_time_than_the_folder_is_refused(
    tmp_path: Path, known: int | None, told: str
) -> None:
    path = str(tmp_path / "table")

    def delivery(number: int) -> Any:
        rows = pa.table({"a": [number]})
        return SimpleNamespace(sink="x", number=number, view="v", batch=0, form=Form("append"), rows=rows)

    for number in range(0 if known is None else known + 1):
        delta._DeltaTarget(path, (), 0).deliver(delivery(number))
    with pytest.raises(CheckpointError, match=told):
        delta._DeltaTarget(path, (), 0).deliver(delivery(2))


def test_a_new_results_folder_is_another_writer(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "table"
    folder.match([1])
    folder.deliver(folder.sink("delta", path=str(path)))
    other = Folder(tmp_path / "other")
    other.match([2])
    other.deliver(other.sink("delta", path=str(path)))
    other.close()
    assert sorted(row["id"] for row in rows_of(path)) == [1, 2]


def test_windows_are_upserted_to_what_the_folder_says(folder: Folder, tmp_path: Path) -> None:
    step, whole = tmp_path / "step", tmp_path / "whole"
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(folder.sink("delta", WINDOWS, path=str(step)))
        assert windows_of(step) == newest(CUTS[:number])
    folder.deliver(folder.sink("delta", WINDOWS, "whole", path=str(whole)))
    assert windows_of(whole) == newest(CUTS)


def test_changes_and_final_rows(folder: Folder, tmp_path: Path) -> None:
    folder.answer(*CUTS)
    changes, final = tmp_path / "changes", tmp_path / "final"
    folder.deliver(
        folder.sink("delta", WINDOWS, "changes", path=str(changes), mode="changes"),
        folder.sink("delta", WINDOWS, "final", path=str(final), mode="append", final_only="true"),
    )
    assert [row["revision"] for row in rows_of(changes)].count(1) == len(CUTS[1])
    assert len(rows_of(changes)) == sum(map(len, CUTS))
    assert sorted(row["n"] for row in rows_of(final)) == [2, 4, 6, 8]
    assert "op" not in rows_of(final)[0]


def test_a_view_that_gets_a_column_gives_the_table_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    folder = Folder(tmp_path / "out")
    folder.answer(CUTS[0])
    sink = folder.sink("delta", WINDOWS, path=str(path))
    folder.deliver(sink)
    deltalake.DeltaTable(path).alter.add_columns(
        [deltalake.Field("old", deltalake.schema.PrimitiveType("long"))]
    )
    folder.answer(CUTS[1])
    folder.deliver(sink)
    assert windows_of(path) == newest(CUTS[:2])
    folder.close()


def test_small_files_are_merged(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "table"
    sink = folder.sink("delta", path=str(path), compact_every="4")
    for number in range(8):
        folder.match([number])
        folder.deliver(sink)
    assert len(deltalake.DeltaTable(path).file_uris()) == 1
    assert sorted(row["id"] for row in rows_of(path)) == list(range(8))


def test_a_table_that_is_away_delays_nobody_and_gets_the_rest_later(folder: Folder, tmp_path: Path) -> None:
    away, here = tmp_path / "away", tmp_path / "here"
    away.write_text("no folder")
    sinks = [
        folder.sink("delta", name="away", path=str(away / "table")),
        folder.sink("delta", name="here", path=str(here)),
    ]
    with folder.following(*sinks) as told:
        folder.match([1], [2])
        until(lambda: told["here.large"].get("backlog") == 0)
        until(lambda: any(event["kind"] == "sink_retried" for event in folder.events.recent))
        away.unlink()
        until(lambda: told["away.large"].get("deliveries", 0) > 0)
        until(lambda: told["away.large"]["backlog"] == 0)
    assert sorted(row["id"] for row in rows_of(away / "table")) == [1, 2]


@pytest.mark.parametrize(
    ("view", "options", "told"),
    [
        (SELECTION, {}, "set the option path"),
        (SELECTION, {"path": "x", "mode": "merge"}, "mode is 'merge'; allowed: upsert, append, changes"),
        (
            SELECTION,
            {"path": "x", "mode": "upsert"},
            "view large gives none: its SELECT list has no group keys, or not all. Or set the option key",
        ),
        (SELECTION, {"path": "x", "key": "id"}, "key belongs to mode upsert; the mode is append"),
        (
            SELECTION,
            {"path": "x", "mode": "upsert", "key": "ident"},
            "key names column ident, which does not exist",
        ),
        (
            SELECTION,
            {"path": "x", "partition_by": "town"},
            "partition_by names column town, which does not exist",
        ),
        (SELECTION, {"path": "x", "final_only": "true"}, "has no windows, so none of its rows is early"),
        (SELECTION, {"path": "x", "final_only": "maybe"}, "final_only is 'maybe'; allowed: true, false"),
        (SELECTION, {"path": "x", "begin": "now"}, "begin is 'now'; allowed: earliest, latest"),
        (SELECTION, {"path": "x", "pathh": "y"}, "sink delta has no option pathh; did you mean path"),
        (SELECTION, {"path": "x", "compact_every": "-1"}, "compact_every is '-1'"),
        (WINDOWS, {"path": "x", "mode": "append"}, "mode append is for rows that never change"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    folder: Folder, view: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        folder.sink("delta", view, **options)


def test_sessions_are_told_as_sessions(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    view = SinkView("visits", OWN, None, has_windows=True, changes=True, has_sessions=True)
    monkeypatch.setattr(folder, "view", lambda _: view)
    with pytest.raises(
        InputError, match=r"and session_window, or session_window.start and session_window.end"
    ):
        folder.sink("delta", "visits", path="x", mode="upsert")
    assert folder.sink("delta", "visits", path="x", mode="changes", final_only="true").form.final_only


@pytest.mark.parametrize("path", ["/proc/nowhere/x", "/dev/null/table", "nfs://x/y"])
def test_a_path_where_no_table_can_be_is_named(folder: Folder, path: str) -> None:
    folder.match([1])
    followers, _ = folder.followers(lambda: True, retry_attempts=0)
    followers.set([folder.sink("delta", path=path)])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    assert f"Delta table {path}: " in failed["told"]


def test_a_store_that_is_away_is_told_without_colours(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    known = {"AWS_ENDPOINT_URL": away, "AWS_ACCESS_KEY_ID": "owner", "AWS_SECRET_ACCESS_KEY": "marker-secret"}
    for name, value in {**known, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    followers, _ = folder.followers(lambda: True, retry_attempts=1)
    followers.set([folder.sink("delta", path="s3://bucket/away")])
    folder.match([1])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    assert "Delta table s3://bucket/away: OSError: Generic S3 error: Error performing" in failed["told"]
    assert f"GET {away}/bucket" in failed["told"]
    assert failed["told"].isprintable()
    assert "marker-secret" not in failed["told"]


def test_a_type_that_delta_does_not_have_is_refused_by_its_column() -> None:
    import pyarrow as pa

    from penstock.spark.sinks.delivery import Form
    from penstock.spark.sinks.providers import SinkTable
    from penstock.sql.script.statements import CreateTable

    statement = CreateTable("t", (), "delta", {"path": "x"}, 0, 1, "CREATE TABLE t")
    columns = pa.schema([("a", pa.int64()), ("span", pa.duration("us"))])
    with pytest.raises(TypeMismatchError, match="column span is"):
        delta.PROVIDER.open(None, SinkTable(statement, {"path": "x"}, "v", columns, Form("append")))  # type: ignore[arg-type]


def test_a_table_lies_in_a_bucket(folder: Folder, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    path = "s3://bucket/delta/windows"
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(folder.sink("delta", WINDOWS, path=path))
        assert windows_of(path) == newest(CUTS[:number])
    secret = s3.environment()["AWS_SECRET_ACCESS_KEY"]
    assert secret not in str(folder.events.recent)
