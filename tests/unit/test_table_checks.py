"""What is told of a table before anything runs: options nobody knows, columns that no record has, a header's order."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import ConnectionFailedError, InputError, SqlError
from penstock.settings import Settings, tuned
from penstock.spark.sources import table_checks
from penstock.spark.sources.table_checks import table_warnings
from penstock.sql.script.script import CreateTable, parse_script


def _table(source: str, options: str, columns: str = "(id INT, city STRING, amount DOUBLE)") -> CreateTable:
    (table,) = parse_script(f"CREATE TABLE orders {columns} USING {source} OPTIONS ({options})").tables
    return table


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id,city,amount", None),
        ("ID, City ,amount,extra", None),
        ("id,amount,city", "another order than the header of .*: id, amount, city"),
        ("amount,id,city", "so id holds what the header calls amount"),
        ("id,town,amount", "has no city; CSV is read by position, so city holds what the header calls town"),
        ("id,city", "has no amount; CSV is read by position, so amount is NULL"),
    ],
)
def test_columns_are_compared_with_a_csv_header(tmp_path: Path, header: str, told: str | None) -> None:
    (tmp_path / "1.csv").write_text(f"{header}\n1,2,3\n")
    found = table_warnings(_table("csv", f"path '{tmp_path}', header 'true'"))
    assert len(found) == (told is not None)
    if told is not None:
        with pytest.raises(AssertionError, match=told):
            raise AssertionError(found[0])
    assert table_warnings(_table("csv", f"path '{tmp_path}'")) == []


def test_other_separators_and_compressed_files_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "1.csv.gz", "wt") as file:
        file.write("'id';'amount';'city'\n")
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path}/*', header true, sep ';', quote \"'\""))
    assert "city holds what the header calls amount" in warning


def test_declared_columns_that_no_record_has_are_told(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "1.json").write_text('{"id": 1, "City": "Bern"}\nbroken\n{"amount": 2}\n')
    (warning,) = table_warnings(_table("json", f"path '{tmp_path / 'json'}'"))
    assert warning.startswith(
        "the records looked at have no city, which will be NULL; did you mean City? They have: "
    )
    (tmp_path / "parquet").mkdir()
    pq.write_table(
        pa.table({"ID": pa.array([1], pa.int32()), "city": ["a"], "amuont": [2.0]}),
        tmp_path / "parquet" / "1.parquet",
    )
    (tmp_path / "parquet" / "2.parquet").write_text("no Parquet")
    (warning,) = table_warnings(_table("parquet", f"path '{tmp_path / 'parquet'}'"))
    assert warning.startswith("the files looked at have no amount, which will be NULL; did you mean amuont?")
    assert table_warnings(_table("json", f"path '{tmp_path / 'none'}'")) == []


@pytest.mark.parametrize(
    ("own", "declared", "is_read"),
    [
        (pa.int64(), "INT", False),
        (pa.int64(), "BIGINT", True),
        (pa.int32(), "bigint", True),
        (pa.float64(), "INT", False),
        (pa.float64(), "DOUBLE", True),
        (pa.string(), "DOUBLE", False),
        (pa.string(), "VARCHAR(10)", True),
        (pa.string(), "STRING COLLATE UTF8_LCASE", True),
        (pa.timestamp("us"), "TIMESTAMP", True),
        (pa.timestamp("us"), "STRING", False),
        (pa.int64(), "DECIMAL(20, 0)", True),
        (pa.list_(pa.int64()), "ARRAY<INT>", True),
    ],
)
def test_types_that_parquet_files_do_not_have_are_told(
    tmp_path: Path, own: pa.DataType, declared: str, is_read: bool
) -> None:
    pq.write_table(pa.table({"X": pa.array([None], own)}), tmp_path / "1.parquet")
    found = table_warnings(_table("parquet", f"path '{tmp_path}'", f"(x {declared})"))
    assert len(found) == (not is_read)
    if not is_read:
        assert found == [
            f"the files looked at have x as {own} (declared {declared}), which Spark does not read so: their rows will be set aside unread"
        ]


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"id": 1, "city": "Bern", "amount": 2}\n' * 10_000)
    (tmp_path / "1.json.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.json.gz").write_bytes(whole[:12] + bytes(200))
    (tmp_path / "3.json").write_text("[" * 200_000 + '\n{"id": 1, "City": "Bern", "amount": 2}\n')
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}/[23]*'"))
    assert "the records looked at have no city" in warning
    assert table_warnings(_table("json", f"path '{tmp_path}/[12]*'")) == []
    assert table_warnings(_table("csv", f"path '{tmp_path}/2*', header true")) == []


def test_of_a_large_folder_some_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / f"{number}.json").write_text('{"id": 1}')
    (tmp_path / "loop").symlink_to(tmp_path)
    monkeypatch.setattr(table_checks, "_ENTRIES", 5)
    seen: list[str] = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: seen.append(path.name) or is_file(path))
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}'"))
    assert "have no city, amount" in warning
    assert 0 < len(seen) <= 5


def test_options_that_nobody_knows_are_told(tmp_path: Path) -> None:
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path}', Nonsense 'x', max_files_per_trigger 1"))
    assert warning == "option nonsense is known neither to Penstock nor to Spark's reader of csv"
    assert table_warnings(_table("kafka", "subscribe 'x', kafka.whatever 'y', failOnDataLoss false")) == []


def test_a_mistake_of_a_table_points_to_its_place() -> None:
    table = _table("csv", "path 'in',\n  speed 'x'")
    for part, line in (("speed", "line 2:   speed 'x')\n            ^^^^^"), ("", "TABLE orders (id")):
        assert line in str(SqlError("wrong", *table.at(part)))
    for raised in (InputError("wrong"), ConnectionFailedError("wrong")):
        with pytest.raises(SqlError, match="wrong\n  line 1: CREATE TABLE orders"), table.pointing():
            raise raised
    placed = SqlError("wrong", "SELECT", 0, 6)
    with pytest.raises(SqlError) as told, table.pointing():
        raise placed
    assert told.value is placed


@pytest.mark.parametrize("name", ["batch rows", "batchrows", "Batch_Row", "batch-rows"])
def test_a_slip_in_a_setting_is_answered_by_the_one_that_was_meant(name: str) -> None:
    with pytest.raises(InputError, match=f"there is no {name}; did you mean batch_rows"):
        tuned(Settings(), {name: "2048"})
    with pytest.raises(InputError, match="there is no colour; existing settings: batch_rows, "):
        tuned(Settings(), {"colour": "red"})
