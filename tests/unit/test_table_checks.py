"""What is told of a table before anything runs: options nobody knows, columns that no record has, a header's order."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import ConnectionFailedError, InputError, SqlError
from penstock.settings import Settings, tuned
from penstock.spark.sources import sampled_files
from penstock.spark.sources.patterns import files_among_others
from penstock.spark.sources.table_checks import table_warnings
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import CreateTable


def _table(source: str, options: str, columns: str = "(id INT, city STRING, amount DOUBLE)") -> CreateTable:
    (table,) = parse_script(f"CREATE TABLE orders {columns} USING {source} OPTIONS ({options})").tables
    return table


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id,city,amount", None),
        ("ID, City ,amount,extra", None),
        ("id,amount,city", "differ in order.*: id, amount, city"),
        ("amount,id,city", "so id gets the values of amount"),
        ("id,town,amount", "has no city; Spark reads CSV by position, so city gets the values of town"),
        ("id,city", "has no amount; Spark reads CSV by position, so amount is NULL"),
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


def test_static_tables_are_checked_as_streams_are(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,city,amount,since\n1,2,3,4\n")
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path}', static 'true'"), is_static=True)
    assert "have 4 fields, and the table declares 3 columns: Penstock will set such records aside." in warning
    (tmp_path / "none").mkdir()
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path / 'none'}', static 'true'"), is_static=True)
    assert warning == f"{tmp_path / 'none'} has no files yet; a join with the table waits for the first one"


def test_other_separators_and_compressed_files_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "1.csv.gz", "wt") as file:
        file.write("'id';'amount';'city'\n")
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path}/*', header true, sep ';', quote \"'\""))
    assert "city gets the values of amount" in warning


def test_declared_columns_that_no_record_has_are_told(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "1.json").write_text('{"id": 1, "City": "Bern"}\nbroken\n{"amount": 2}\n')
    (warning,) = table_warnings(_table("json", f"path '{tmp_path / 'json'}'"))
    assert warning.startswith(
        "the sampled records have no city, which will be NULL; did you mean City? They have: "
    )
    (warning,) = table_warnings(_table("json", f"path '{tmp_path / 'json'}'", "(id INT, nowhere STRING)"))
    assert warning == "the sampled records have no nowhere, which will be NULL. They have: City, amount, id"
    (tmp_path / "parquet").mkdir()
    pq.write_table(
        pa.table({"ID": pa.array([1], pa.int32()), "city": ["a"], "amuont": [2.0]}),
        tmp_path / "parquet" / "1.parquet",
    )
    (tmp_path / "parquet" / "2.parquet").write_text("no Parquet")
    (warning,) = table_warnings(_table("parquet", f"path '{tmp_path / 'parquet'}'"))
    assert warning.startswith("the sampled files have no amount, which will be NULL; did you mean amuont?")
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
            f"the sampled files have x as {own} (declared {declared}), which Spark cannot read: Penstock will set their rows aside"
        ]


def test_every_type_that_a_column_has_in_some_file_is_told(tmp_path: Path) -> None:
    # as the yellow taxis of New York have it, from the second month on
    pq.write_table(pa.table({"n": [1.0], "u8": pa.array([200], pa.uint8())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"n": [2], "u8": pa.array([200], pa.uint8())}), tmp_path / "2.parquet")
    unread, wrapped = table_warnings(_table("parquet", f"path '{tmp_path}'", "(n DOUBLE, u8 TINYINT)"))
    assert "have n as int64 (declared DOUBLE), which Spark cannot read" in unread
    assert (
        "have u8 as uint8 (declared TINYINT): Spark reads values that do not fit as other numbers" in wrapped
    )
    assert table_warnings(_table("parquet", f"path '{tmp_path}/1*'", "(n DOUBLE, u8 SMALLINT)")) == []


def test_timestamps_in_nanoseconds_are_told_with_a_remedy(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns", "UTC"))}), tmp_path / "1.parquet"
    )
    (warning,) = table_warnings(_table("parquet", f"path '{tmp_path}'", "(id BIGINT, at TIMESTAMP)"))
    assert "have at as timestamp[ns, tz=UTC] (declared TIMESTAMP), which Spark cannot read" in warning
    assert "coerce_timestamps='us'" in warning
    assert (
        "declare at BIGINT and, if it is the event time, add the option event_time_format 'nanos'" in warning
    )
    assert table_warnings(_table("parquet", f"path '{tmp_path}'", "(id BIGINT, at BIGINT)")) == []


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("1;Bern;2.5\n2;Basel;3\n", "", "have 1 field, and .* 3 columns.*separated by ';', not by ',': add the option sep ';'"),
        ("id\tcity\tamount\n1\tBern\t2\n", "header true,", "add the option sep '.t'"),
        ("id;city;amount;\n1;Bern;2;\n", "header true, sep ';',", "have 4 fields.*The last field is empty; declare a column for it"),
        ("1,Bern,2,x\n", "", "have 4 fields, and the table declares 3 columns: Penstock will set such records aside. Declare the columns"),
        ("1,Bern\n", "", "have 2 fields"),
        ("id,city,amount,more\n", "header true,", "have 4 fields"),
        ('# a,b\n1,"a,b",2\n', "comment '#',", None),
        ("1|Bern|2\n", "sep '|',", None),
        ("1,Bern,2\n1,Bern\n3,Bern,4\n", "", None),
        ('1,"Bern \\" , ",2\n', "", None),
    ],
)  # fmt: skip
def test_records_with_another_number_of_fields_are_told(
    tmp_path: Path, text: str, options: str, told: str | None
) -> None:
    (tmp_path / "1.csv").write_text(text)
    found = table_warnings(_table("csv", f"{options} path '{tmp_path}'"))
    assert len(found) == (told is not None)
    if told is not None:
        assert re.search(told, found[0])


def test_a_field_of_a_header_without_a_name_may_be_any_column(tmp_path: Path) -> None:
    # an export of a German bank: each line ends with a separator
    (tmp_path / "1.csv").write_bytes("id;größe;\n1;2;\n".encode("latin-1"))
    options = f"path '{tmp_path}', header true, sep ';', encoding 'ISO-8859-1'"
    assert table_warnings(_table("csv", options, "(id INT, größe INT, rest STRING)")) == []
    (warning,) = table_warnings(_table("csv", options, "(größe INT, id INT, rest STRING)"))
    assert "so größe gets the values of id" in warning


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_columns_of_partition_folders_are_not_missed(tmp_path: Path, kind: str) -> None:
    for folder in (f"{kind}/month=01", f"{kind}/_x=1", f"{kind}/_spark_metadata"):
        (tmp_path / folder).mkdir(parents=True)
    file = tmp_path / kind / "month=01" / f"part-0.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), file)
    else:
        file.write_text("1\n" if kind == "csv" else '{"id": 1}\n')
    for passed_over in (
        file.with_name(f"part-1.{kind}._COPYING_"),
        tmp_path / kind / "_spark_metadata" / "0",
    ):
        passed_over.write_text('{"other": 1}')
    assert table_warnings(_table(kind, f"path '{tmp_path / kind}'", "(id INT, Month STRING)")) == []


def test_epoch_milliseconds_in_a_timestamp_are_told(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(
        '{"id": 1, "at": 1767225600}\n{"id": 1, "at": 1767225600000, "b": true}\n'
    )
    columns = "(id INT, at TIMESTAMP, b BOOLEAN)"
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}', event_time 'at'", columns))
    assert warning == (
        "at has numbers such as 1767225600000, which Spark reads as seconds, in the year 57971. "
        "Declare at BIGINT and add the option event_time_format 'millis'"
    )
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}'", columns))
    assert warning.endswith("Declare at BIGINT and write timestamp_millis(at) in queries")
    (tmp_path / "1.json").write_text('{"id": 1, "at": 1767225600000000, "b": true}')
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}'", columns))
    assert warning.endswith("timestamp_micros(at) in queries")
    assert table_warnings(_table("json", f"path '{tmp_path}'", "(id INT, at BIGINT, b BOOLEAN)")) == []


def test_a_folder_without_files_is_told(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    for kind in ("csv", "json", "parquet", "orc"):
        assert table_warnings(_table(kind, f"path '{tmp_path}'")) == [
            f"{tmp_path} has no files yet; the stream waits for the first one"
        ]


def test_a_folder_that_cannot_be_listed_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert table_warnings(_table("json", f"path '{tmp_path}'")) == []
    assert files_among_others(str(tmp_path)) is None


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"id": 1, "city": "Bern", "amount": 2}\n' * 10_000)
    (tmp_path / "1.json.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.json.gz").write_bytes(whole[:12] + bytes(200))
    (tmp_path / "3.json").write_text("[" * 200_000 + '\n{"id": 1, "City": "Bern", "amount": 2}\n')
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}/[23]*'"))
    assert "the sampled records have no city" in warning
    assert table_warnings(_table("json", f"path '{tmp_path}/[12]*'")) == []
    assert table_warnings(_table("csv", f"path '{tmp_path}/2*', header true")) == []


def test_of_a_large_folder_some_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / f"{number}.json").write_text('{"id": 1}')
    (tmp_path / "loop").symlink_to(tmp_path)
    monkeypatch.setattr(sampled_files, "_ENTRIES", 5)
    seen: list[str] = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: seen.append(path.name) or is_file(path))
    (warning,) = table_warnings(_table("json", f"path '{tmp_path}'"))
    assert "have no city, amount" in warning
    assert 0 < len(seen) <= 5


def test_options_that_nobody_knows_are_told(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,Bern,2\n")
    (warning,) = table_warnings(_table("csv", f"path '{tmp_path}', Nonsense 'x', max_files_per_trigger 1"))
    assert (
        warning == "option nonsense is unknown to Penstock and to Spark's reader of csv; check its spelling"
    )
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
    with pytest.raises(InputError, match=f"{name} does not exist; did you mean batch_rows"):
        tuned(Settings(), {name: "2048"})
    with pytest.raises(InputError, match="colour does not exist; existing settings: batch_rows, "):
        tuned(Settings(), {"colour": "red"})
