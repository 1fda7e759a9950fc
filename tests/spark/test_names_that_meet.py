"""Columns that are called as ours are: they keep their names, and ours move."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import rows
from penstock.errors import CheckpointError, InputError
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_batches, plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: as a tool that captures changes writes them, and as its flattened form does
COLUMNS = (
    "id INT, ts TIMESTAMP, op STRING, Queries INT, revision BIGINT, coverage DOUBLE, slack STRING, is_final BOOLEAN, "
    "__op STRING, __d0 INT, after STRUCT<op: STRING>"
)
SELECTIONS = {
    "deleted": "SELECT id FROM changes WHERE op = 'd'",
    "whole": "SELECT * FROM changes WHERE Queries > 0",
    "computed": "SELECT id, op AS what, __op, upper(op) AS o, after.op AS then FROM changes WHERE length(op) + __d0 > 1",
}
WINDOWS = {
    "plain": "SELECT op, window(ts, '1 minute') AS w, count(*) AS revision, max(coverage) AS coverage, min(slack) AS slack, "
    "max(id) AS is_final FROM changes GROUP BY op, w",
    "computed_windows": "SELECT op, window(ts, '1 minute') AS w, count(*) + 1 AS revision FROM changes GROUP BY op, w "
    "HAVING max(revision) >= 0",
}
OVER = "SELECT window(w, '2 minutes') AS w2, sum(revision) AS op, max(coverage) AS coverage FROM plain GROUP BY w2"
LEFT = """SELECT c.id, c.op, c.op AS _op, d.revision FROM changes c LEFT JOIN later d
ON c.id = d.id AND d.ts BETWEEN c.ts AND c.ts + INTERVAL 1 MINUTE"""


def _feed(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    records = [
        {
            "id": number * 40 + each,
            "ts": f"2026-01-01T00:{number * 4 + each // 10:02d}:{each:02d}Z",
            "op": "crud"[each % 4],
            "Queries": each % 3,
            "revision": each % 5,
            "coverage": each / 8,
            "slack": f"s{each % 7}",
            "is_final": each % 2 == 0,
            "__op": "x" if each % 6 else None,
            "__d0": each % 2,
            "after": {"op": "a"},
        }
        for each in range(40)
    ]
    (folder / f"{number}.json").write_text("".join(json.dumps(each) + "\n" for each in records))


def _engine(spark: SparkSession, folder: Path, columns: str = COLUMNS) -> Engine:
    tables = "".join(
        f"CREATE TABLE {name} ({columns}) USING json OPTIONS (path '{folder / name}', event_time 'ts');"
        for name in ("changes", "later")
    )
    return Engine(spark, shards=2, compact_every_batches=2).execute(tables)


def _ended(engine: Engine, out: Path, *, ended: bool) -> Run:
    return run_to_end(engine, out, ended=ended, seconds=600)


@pytest.mark.long
def test_columns_called_as_ours_are_answered(spark: SparkSession, tmp_path: Path) -> None:
    handed: dict[str, list[DataFrame]] = {}
    layout = Layout(tmp_path / "out", tmp_path / "out")
    for number in range(2):
        for name in ("changes", "later"):
            _feed(tmp_path / name, number)
        engine = _engine(spark, tmp_path)
        engine.add_views({**SELECTIONS, **WINDOWS, "over": OVER, "left_joined": LEFT})
        for view in ("whole", "plain", "left_joined", "over"):
            taken = handed.setdefault(view, [])
            engine.sink(view, lambda frame, _, taken=taken: taken.append(frame.columns))
        run = _ended(engine, tmp_path / "out", ended=number == 1)
    for name in ("changes", "later"):
        spark.read.schema(COLUMNS).json(str(tmp_path / name)).createOrReplaceTempView(name)
    spark.sql(WINDOWS["plain"]).createOrReplaceTempView("plain")
    for view, text in {**SELECTIONS, **WINDOWS, "over": OVER, "left_joined": LEFT}.items():
        found, expected = run.results(view), spark.sql(text)
        assert found.columns == expected.columns
        wanted = rows(expected)
        assert wanted
        assert rows(found) == wanted, view
        read = plain_rows(layout, view, 0)
        assert read is None or read.count == wanted.total(), view
        assert read is None or read.rows.column_names == expected.columns, view
        batches = plain_batches(layout, view)
        assert batches is None or sum(each.num_rows for each in batches[1]) == wanted.total(), view
    own = [name.split(" ")[0] for name in COLUMNS.split(", ")]
    assert run.matches("changes").columns == [*own, "_queries"]
    assert run.matches("changes").where("array_contains(_queries, 'deleted')").count() == 20
    moved = ["_revision", "_coverage", "_slack", "_is_final", "_op"]
    assert run.changes("plain").columns == [*run.results("plain").columns, *moved]
    assert run.changes("plain").where("_op = 'upsert' AND _is_final").count() > 0
    assert run.changes("over").columns == [
        "w2",
        "op",
        "coverage",
        "revision",
        "_coverage",
        "slack",
        "is_final",
        "_op",
    ]
    assert run.changes("left_joined").columns == ["id", "op", "_op", "revision", "__op"]
    assert plain_rows(layout, "left_joined", 5, revisions=True).rows.column_names[-1] == "__op"
    # the catalog and the folder say how ours are called
    catalog = json.loads(layout.catalog.get() or b"")
    assert catalog["queries"] == {"changes": "_queries", "later": "_queries"}
    assert catalog["views"]["left_joined"]["marks"]["op"] == "__op"
    described = json.loads(layout.result_views("changes")[0].get() or b"")["views"]["plain"]
    assert described["marks"]["revision"] == "_revision"
    names = ["penstock_ordinal", "penstock_batch"]
    assert set(map(tuple, handed["whole"])) == {(*own, *names, "penstock_definition")}
    assert set(map(tuple, handed["plain"])) == {(*run.changes("plain").columns, *names)}
    assert set(map(tuple, handed["over"])) == {(*run.changes("over").columns, *names)}
    assert set(map(tuple, handed["left_joined"])) == {(*run.changes("left_joined").columns, *names)}


def test_a_column_called_as_ours_is_added_to_no_results(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("changes", "later"):
        _feed(tmp_path / name, 0)
    columns = COLUMNS.replace("Queries INT, ", "")
    engine = _engine(spark, tmp_path, columns).view("deleted", SELECTIONS["deleted"])
    _ended(engine, tmp_path / "out", ended=False)
    assert (
        "queries" in pq.read_schema(next((tmp_path / "out" / "matches" / "changes").glob("*.parquet"))).names
    )
    engine = _engine(spark, tmp_path).view("deleted", SELECTIONS["deleted"])
    with pytest.raises(
        CheckpointError, match="have a column queries, the names of queries, and the stream now has"
    ):
        engine.start(tmp_path / "out", trigger=Trigger.available_now())


def test_what_stays_reserved_is_told_with_a_way(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("changes", "later"):
        (tmp_path / name).mkdir()
    engine = _engine(spark, tmp_path)
    with pytest.raises(
        InputError, match="the column name _row is reserved for results; give the column another name with AS"
    ):
        engine.view("v", WINDOWS["plain"].replace("AS is_final", "AS _row"))
    with pytest.raises(InputError, match="column name __penstock_x is reserved"):
        _engine(spark, tmp_path, COLUMNS.replace("__op", "__penstock_x"))
