"""Rows that files hold as they are: read without a JVM, and printed as Spark prints them."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import thinned
from penstock.cli.results import Asked, Format, _print_computed, _print_plain
from penstock.errors import UnknownNameError
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

KINDS = {
    "id": pa.int32(),
    "day": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "date": pa.date32(),
    "price": pa.decimal128(12, 3),
    "tiny": pa.decimal128(18, 18),
    "ratio": pa.float64(),
    "small": pa.float32(),
    "ok": pa.bool_(),
    "a name": pa.string(),
    "raw": pa.binary(),
    "list": pa.list_(pa.int64()),
    "pair": pa.struct({"x": pa.int32(), "at": pa.timestamp("us", "UTC")}),
    "map": pa.map_(pa.string(), pa.decimal128(5, 2)),
    "note": pa.string(),
    "days": pa.map_(pa.date32(), pa.int32()),
}
MOMENT = dt.datetime(2026, 1, 5, 12, 30, 0, 123456, tzinfo=dt.UTC)
ROWS = [
    {
        "id": number,
        "day": MOMENT + dt.timedelta(hours=number),
        "local": dt.datetime(2026, 7, 1, 0, 0, number),
        "date": dt.date(99, 1, 2),
        "price": Decimal("12.340"),
        "tiny": Decimal("0E-18"),
        "ratio": ratio,
        "small": 0.1,
        "ok": number % 2 == 0,
        "a name": 'é"\x01\x1f\\/\u2028\n\t[/red]',
        "raw": b"raw",
        "list": [1, None],
        "pair": {"x": None, "at": MOMENT},
        "map": [("k", Decimal("1.50"))],
        "note": "" if number % 2 else "NULL",
    }
    for number, ratio in enumerate(
        [
            1.5,
            1e10,
            1e-5,
            0.001,
            1234567.0,
            12345678.0,
            -0.0,
            100.0,
            0.25,
            float("inf"),
            float("nan"),
            1e7,
            -2.5e-9,
        ]
    )
] + [{"id": 99, "day": MOMENT}]
#: milliseconds that were read as seconds, years before 1, and bytes that are no UTF-8
FAR = {
    "id": pa.array([101, 102], pa.int32()),
    "day": pa.array([MOMENT, MOMENT], KINDS["day"]),
    "local": pa.array([1_767_225_600_000_000_000, -62_198_755_200_000_000], KINDS["local"]),
    "date": pa.array([20_000_000, -800_000], pa.int32()).cast(pa.date32()),
    "raw": pa.array([b"\x00\xff", b""]),
    "pair": pa.array([{"x": 1, "at": 1_767_225_600_000_000_000}, None], KINDS["pair"]),
}


@pytest.fixture(scope="module")
def folder(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with rows of many types, chosen and computed columns, and windows with corrections."""
    at = tmp_path_factory.mktemp("plain")
    (at / "in").mkdir()
    half = len(ROWS) // 2
    for number, rows in enumerate((ROWS[:half], ROWS[half:])):
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(KINDS)), at / "in" / f"{number}.parquet")
    kinds = pa.schema({name: KINDS[name] for name in FAR})
    pq.write_table(pa.table(FAR, kinds), at / "in" / "far.parquet")
    engine = Engine(_session).execute(
        f"CREATE TABLE orders USING parquet OPTIONS (path '{at / 'in'}', event_time 'day', max_files_per_trigger '1');\n"
        f"CREATE VIEW whole AS SELECT {', '.join(f'`{name}`' for name in KINDS if name != 'days')} FROM orders WHERE id >= 0;\n"
        "CREATE VIEW odd AS SELECT * FROM orders WHERE id >= 98;\n"
        "CREATE VIEW chosen AS SELECT ID AS number, `a name`, pair, o.PAIR.at, `pair`.`x` AS left FROM orders o WHERE id < 5;\n"
        "CREATE VIEW computed AS SELECT id + 1 AS next FROM orders WHERE id < 5;\n"
        "CREATE VIEW notes AS SELECT id, note FROM orders WHERE id IN (0, 1, 99);\n"
        "CREATE VIEW nothing AS SELECT id FROM orders WHERE id > 1000;\n"
        "CREATE VIEW hours AS SELECT window.start AS hour, ok, count(*) AS n, max(ratio) AS most FROM orders "
        "GROUP BY window(day, '2 hours'), ok;"
    )
    run = engine.start(at / "out", trigger=Trigger.available_now())
    try:
        assert run.await_termination(300)
    finally:
        run.stop()
    return at / "out"


@pytest.mark.parametrize("form", thinned(list(Format), 2))
@pytest.mark.parametrize(
    ("view", "changes"), [("whole", False), ("chosen", False), ("hours", False), ("hours", True)]
)
def test_rows_are_printed_as_spark_prints_them(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes], view: str, changes: bool, form: Format
) -> None:
    found = plain_rows(Layout(folder, folder), view.upper(), 0, changes)
    assert found is not None
    assert found.count == found.rows.num_rows > 0
    assert _print_plain(Layout(folder, folder), Asked(view.upper(), changes), form)
    plain = capsysbinary.readouterr().out
    _print_computed(folder, Asked(view, changes), form)
    assert _in_any_order(plain) == _in_any_order(capsysbinary.readouterr().out)


def test_null_years_and_bytes_are_the_same_in_all_forms(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A column whose form is only Spark's among them; nothing is a traceback."""
    assert not _print_plain(Layout(folder, folder), Asked("odd"), Format.CSV)
    printed = {}
    for form in Format:
        _print_computed(folder, Asked("odd"), form)
        printed[form] = capsysbinary.readouterr().out.decode()
        assert "+57971-02-25" in printed[form]
        assert "-0221-09-04" in printed[form]
        assert "+56728-02-22" in printed[form]
        assert "AP8=" in printed[form]
    header, *lines = printed[Format.CSV].splitlines()
    assert header.startswith('"id","day","local"')
    (far,) = [line for line in lines if line.startswith("101,")]
    assert ',+57971-02-25 00:00:00,+56728-02-22,,,,,,,"AP8=",,"{""x"":1,""at"":""+57971-02-25T' in far
    (bare,) = [line for line in lines if line.startswith("99,")]
    assert bare.endswith(",,,,,,,,,,,,,"), "NULL is nothing"


def test_null_and_an_empty_text_differ_in_a_table(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert _print_plain(Layout(folder, folder), Asked("notes"), Format.TABLE)
    cells = [
        [cell.strip() for cell in line.split("│")[1:3]]
        for line in capsysbinary.readouterr().out.decode().splitlines()
        if line.startswith("│")
    ]
    assert sorted(cells) == [["0", "'NULL'"], ["1", ""], ["99", "NULL"]]
    assert _print_plain(Layout(folder, folder), Asked("notes"), Format.CSV)
    assert sorted(capsysbinary.readouterr().out.splitlines()) == [
        b'"id","note"',
        b'0,"NULL"',
        b'1,""',
        b"99,",
    ]


def _in_any_order(printed: bytes) -> list[bytes]:
    """Lines of a table or of records, without the numbers of rows that are printed one column a line."""
    return sorted(re.sub("^│ \\d+ *│".encode(), "│ │".encode(), line) for line in printed.splitlines())


def test_limits_and_what_only_spark_can_read(folder: Path) -> None:
    layout = Layout(folder, folder)
    some = plain_rows(layout, "whole", 3)
    assert some is not None
    assert (some.rows.num_rows, some.count) == (3, len(ROWS) + 2)
    nothing = plain_rows(layout, "nothing", 0)
    assert nothing is not None
    assert (nothing.rows.num_rows, nothing.rows.column_names) == (0, ["id"])
    assert plain_rows(layout, "computed", 0) is None
    with pytest.raises(UnknownNameError, match="selection"):
        plain_rows(layout, "whole", 0, revisions=True)


def test_results_of_plain_columns_start_no_java(folder: Path) -> None:
    """With a PATH on which there is no Java; a computed column asks for it."""
    command = [sys.executable, "-m", "penstock.cli.main", "results", str(folder)]
    for view, code, told in (
        ("chosen", 0, "chosen: 5 rows"),
        ("computed", 2, "no java on the PATH"),
        ("huge", 2, "View huge does not exist"),
    ):
        ended = subprocess.run(
            [*command, view],
            capture_output=True,
            text=True,
            env={"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path), "HOME": str(folder)},
            check=False,
        )
        assert ended.returncode == code, ended.stderr
        assert told in ended.stdout + ended.stderr
