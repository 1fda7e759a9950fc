"""What is said of records of files that are set aside: once each, by its line, with the column that Spark could not read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from damage_cases import quarantined
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

BANK = (
    "sep ';', header 'true', encoding 'ISO-8859-1', locale 'de-DE', dateFormat 'dd.MM.yyyy', "
    "timestampFormat 'dd.MM.yyyy HH:mm'"
)
#: table -> format, columns, options, text, encoding, (line, what is said) of what is set aside, rows
CASES: dict[str, tuple[str, str, str, str, str, dict[int, str], int]] = {
    "bank": (
        "csv",
        "day DATE, who STRING, amount DECIMAL(8,2), at TIMESTAMP, n INT",
        BANK,
        "day;who;amount;at;n\n"
        "01.02.2024;Müller;1.234,50;01.02.2024 10:00;1\n"
        "01.02.2024;Müller;much;01.02.2024 10:00;1\n"
        "30.02.2024;Grün;1,5;01.02.2024 10:00;1\n"
        "01.02.2024;Groß;99999999,5;01.02.2024 10:00;1\n"
        "01.02.2024;Ärger;1,5;2024-02-01 10:00;1\n"
        "01.02.2024;Öl;1,5;01.02.2024 10:00;1,5\n"
        "01.02.2024;Übel;1,5;01.02.2024 10:00;1;\n"
        '01.02.2024;"a;b";1,5;01.02.2024 10:00;x\n',
        "latin-1",
        {
            3: "amount is no DECIMAL(8, 2)",
            4: "day is no DATE",
            5: "amount is no DECIMAL(8, 2)",
            6: "at is no TIMESTAMP",
            7: "n is no INT",
            8: "6 fields, 5 columns",
            9: "n is no INT",
        },
        1,
    ),
    "trailing": (
        "csv",
        "v INT, w INT",
        "header 'true', sep ';'",
        "v;w;\n1;2;\n3;4;\n",
        "utf-8",
        {2: "3 fields, 2 columns", 3: "3 fields, 2 columns"},
        0,
    ),
    "pipes": ("csv", "v INT, w INT", "sep '||'", "1||2\n1||x\n", "utf-8", {2: "w is no INT"}, 1),
    "batches": (
        "json",
        "device STRING, temp DOUBLE, day DATE, paid DECIMAL(4,2), place STRUCT<x: INT>",
        "multiLine 'false'",
        '{"device":"é","temp":1}\n'
        '[{"device":"a","temp":40},{"device":"b","temp":"x"},{"device":"c"}]\n'
        '[{"device":"a","temp":40},{"device":"é","temp":"x"},{"device":"c"}]\n'
        '[{"device":"a","temp":40},{"device":"b","temp":"x"},{"device":"c"}]\n'
        '[{"device":"d","temp":40},{"device":"e","temp":50}]\n'
        '{"device":"f","temp":1,"temp":"x"}\n'
        '{"device":"g","day":"2024-02-30"}\n'
        '{"device":"h","paid":12345.6}\n'
        '{"device":"i","place":{"x":"left"}}\n'
        '[{"device":"a","temp":40},{"device"\n'
        '{"device":"j","paid":NaN}\n'
        '["device","temp"]\n'
        '["device","temp"]\n',
        "utf-8",
        {
            2: "temp is no DOUBLE",
            3: "temp is no DOUBLE",
            4: "temp is no DOUBLE",
            6: "temp is no DOUBLE",
            7: "day is no DATE",
            8: "paid is no DECIMAL(4, 2)",
            9: "place.x is no INT",
            10: "not a JSON value",
            11: "paid is no DECIMAL(4, 2)",
            12: "not a JSON object",
            13: "not a JSON object",
        },
        3,
    ),
    # an event time that is no moment is a value all the same
    "timed": (
        "csv",
        "who STRING, at STRING, n INT",
        "event_time 'at', event_time_format 'yyyy-MM-dd'",
        "a,soon,x\nb,2024-05-01,y\nc,soon,1\n",
        "utf-8",
        {1: "n is no INT", 2: "n is no INT"},
        1,
    ),
    "latin": (
        "json",
        "a STRING, n INT",
        "encoding 'ISO-8859-1', lineSep '\n'",
        '{"a":"ü","n":1}\n{"a":"ö","n":"x"}\n',
        "latin-1",
        {2: "n is no INT"},
        1,
    ),
}


def test_each_record_is_told_once_with_its_line_and_column(spark: SparkSession, tmp_path: Path) -> None:
    script = ""
    for name, (kind, columns, options, text, encoding, *_) in CASES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"1.{kind}").write_text(text, encoding=encoding)
        script += (
            f"CREATE TABLE {name} ({columns}) USING {kind} OPTIONS (path '{tmp_path / name}', {options});"
        )
        column = columns.split()[0]
        script += f"CREATE VIEW of_{name} AS SELECT {column} FROM {name} WHERE {column} IS NOT NULL;"
    part = tmp_path / "part"
    (part / "k=1").mkdir(parents=True)
    (part / "k=1" / "1.csv").write_text("1,2\nx,2\n1,2,3\n")
    script += f"CREATE TABLE part (v INT, k INT, w INT) USING csv OPTIONS (path '{part}', arrival 'came');"
    script += "CREATE VIEW of_part AS SELECT v FROM part WHERE v > 0;"
    engine = Engine(spark, retry_attempts=0).execute(script)
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    aside = quarantined(tmp_path / "out")
    for name, (kind, _, _, _, _, told, rows) in CASES.items():
        reasons = Counter(f"malformed {kind} record: {reason}" for reason in told.values())
        assert run.status().streams[name].quarantined == dict(reasons), name
        own = {
            str(row["origin"]).rpartition(":")[2]: row["reason"]
            for row in aside
            if f"/{name}/1.{kind}" in str(row["origin"])
        }
        assert own == {str(line): f"malformed {kind} record: {reason}" for line, reason in told.items()}, name
        assert run.results(f"of_{name}").count() == rows
    assert run.status().streams["part"].quarantined == {
        "malformed csv record: v is no INT": 1,
        "malformed csv record: 3 fields, 2 columns": 1,
    }


@pytest.mark.long
def test_files_of_another_type_are_told_by_column_and_types(spark: SparkSession, tmp_path: Path) -> None:
    """As pandas writes timestamps; in the scan and in partition folders, which Spark reads."""
    moment = pa.array([0, 1_000], pa.timestamp("ns", "UTC"))
    script = ""
    for name, place in (("plain", "1.parquet"), ("part", "k=1/1.parquet")):
        path = tmp_path / name / place
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2], "at": moment}), path)
        good = {"id": [3, 4], "at": moment.cast(pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(good), path.with_name("2.parquet"))
        script += (
            f"CREATE TABLE {name} (id BIGINT, at TIMESTAMP) USING parquet OPTIONS (path '{tmp_path / name}');"
        )
        script += f"CREATE VIEW of_{name} AS SELECT id FROM {name} WHERE id > 0;"
    run = (
        Engine(spark, retry_attempts=0, settle_seconds=0)
        .execute(script)
        .start(tmp_path / "out", trigger=Trigger.available_now())
    )
    run.await_termination()
    run.stop()
    for name in ("plain", "part"):
        assert sorted(row.id for row in run.results(f"of_{name}").collect()) == [3, 4]
        (event,) = [each for each in run.events("rows_set_aside") if each["stream"] == name]
        (place,) = event["places"]
        assert place["rows"] == event["rows"] == 2
        assert place["reason"] == (
            "unreadable Parquet file: column at is stored as timestamp[ns, tz=UTC], which Spark does not read as "
            "TIMESTAMP; write it in microseconds (pandas: to_parquet(..., coerce_timestamps='us'))"
        )
        assert "1 file or row group unreadable, 2 rows skipped" in event["told"]
