"""Names that Spark takes for patterns: every file of a folder is read once, by its name, and nothing else is."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from penstock.errors import SqlError, StreamFailedError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

#: each sign of a pattern, a pattern that others fit, and letters that mean something to a shell or a URI
NAMES = [
    "plain",
    "star*",
    "abc[123]",
    "q?",
    "{x,y}",
    "a\\b",
    "*",
    "abc1",
    "50%",
    "100%25",
    "a#b",
    "ü ñ",
    "it's",
]
EVERY = list(range(len(NAMES)))


def _parquet(path: Path, number: int) -> None:
    with path.open("wb") as file:
        pq.write_table(pa.table({"id": pa.array([number], pa.int32())}), file)


def _orc(path: Path, number: int) -> None:
    with path.open("wb") as file:
        orc.write_table(pa.table({"id": pa.array([number], pa.int32())}), file)


WRITERS: dict[str, Callable[[Path, int], object]] = {
    "csv": lambda path, number: path.write_text(f"{number}\n"),
    "json": lambda path, number: path.write_text(f'{{"id":{number}}}\n'),
    "text": lambda path, number: path.write_text(f"{number}\n"),
    "parquet": _parquet,
    "orc": _orc,
}


def _fill(folder: Path, kind: str) -> Path:
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        WRITERS[kind](folder / f"{name}.{kind}", number)
    return folder


def _table(name: str, kind: str, folder: Path, more: str = "") -> str:
    columns = "value STRING" if kind == "text" else "id INT"
    path = str(folder).replace("\\", "\\\\")
    return f"CREATE TABLE {name} ({columns}) USING {kind} OPTIONS (path '{path}'{more});\n"


def _run(engine: Engine, output: Path) -> Run:
    return run_to_end(engine, output, seconds=None)


def _ids(run: Run, view: str) -> list[int]:
    return sorted(int(row[0]) for row in run.results(view).collect())


def test_every_file_of_a_stream_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """By arrival too, and a folder whose own name is a pattern that another folder fits; all formats in the long form."""
    kinds, read_by_us = (
        (list(WRITERS), ("csv", "parquet")) if ALL else (["csv", "parquet", "orc"], ("parquet",))
    )
    text = "".join(_table(kind, kind, _fill(tmp_path / kind, kind)) for kind in kinds)
    for kind in read_by_us:
        text += _table(f"{kind}_stamped", kind, tmp_path / kind, ", arrival 'came'")
        text += _table(f"{kind}_odd", kind, _fill(tmp_path / f"{kind}[1]", kind))
        other = tmp_path / f"{kind}1"
        other.mkdir()
        WRITERS[kind](other / f"other.{kind}", 99)
    shutil.copytree(tmp_path / "csv", tmp_path / "broken")
    (tmp_path / "broken" / "star*.csv").write_text("no number\n")
    text += _table("broken", "csv", tmp_path / "broken")
    names = [*kinds, *(f"{kind}_{what}" for kind in read_by_us for what in ("stamped", "odd"))]
    for name in [*names, "broken"]:
        column = "value" if name.startswith("text") else "id"
        text += f"CREATE VIEW of_{name} AS SELECT {column} FROM {name} WHERE length({column}) > 0;\n"
    run = _run(Engine(spark, retry_attempts=0).execute(text), tmp_path / "out")
    found = {name: _ids(run, f"of_{name}") for name in names}
    assert found == dict.fromkeys(names, EVERY)
    status = run.status().to_dict()["streams"]
    assert {name: status[name]["tuples"] for name in names} == dict.fromkeys(names, len(NAMES))
    assert _ids(run, "of_broken") == [each for each in EVERY if each != 1]
    assert status["broken"]["quarantined"] == {"malformed csv record: id is no INT": 1}


@pytest.mark.long
def test_partition_folders_whose_names_are_patterns(spark: SparkSession, tmp_path: Path) -> None:
    text = ""
    for kind in ("csv", "parquet"):
        for number, key in enumerate(["a{b", "c*"]):
            folder = tmp_path / f"{kind}[1]" / f"k={key}"
            folder.mkdir(parents=True)
            WRITERS[kind](folder / f"x*.{kind}", number)
            WRITERS[kind](folder / f"y.{kind}", number + 10)
        text += f"CREATE TABLE {kind} (id INT, k STRING) USING {kind} OPTIONS (path '{tmp_path}/{kind}[1]');"
        text += f"CREATE VIEW of_{kind} AS SELECT id, k FROM {kind} WHERE id >= 0;"
    run = _run(Engine(spark, retry_attempts=0).execute(text), tmp_path / "out")
    for kind in ("csv", "parquet"):
        rows = sorted(tuple(row) for row in run.results(f"of_{kind}").collect())
        assert rows == [(0, "a{b"), (1, "c*"), (10, "a{b"), (11, "c*")]


@pytest.mark.long
def test_files_that_are_read_again_and_files_at_rest(spark: SparkSession, tmp_path: Path) -> None:
    """A window view begun in mid-stream, a replay, a static table; an unreadable file among odd names is set aside alone."""
    data = tmp_path / "in[1]"
    data.mkdir()
    for number, name in enumerate(NAMES):
        (data / f"{name}.csv").write_text(f"{number},2026-01-01 00:00:{number:02d}\n")
    shutil.copytree(data, tmp_path / "at rest[1]")
    (data / "cut*.csv.gz").write_bytes(b"\x1f\x8b\x08\x00nothing of the kind")
    table = f"CREATE TABLE s (id INT, at TIMESTAMP) USING csv OPTIONS (path '{data}', event_time 'at');"
    select = "CREATE VIEW every AS SELECT id FROM s WHERE id >= 0;"
    run = _run(Engine(spark, retry_attempts=0).execute(table + select), tmp_path / "out")
    assert _ids(run, "every") == EVERY
    assert [
        Path(each["path"]).name for event in run.events("rows_set_aside") for each in event["places"]
    ] == ["cut*.csv.gz"]
    (data / "cut*.csv.gz").unlink()
    (data / "later.csv").write_text("50,2026-01-01 00:00:20\n")
    window = "CREATE VIEW counted AS SELECT window(at, '1 minute') AS w, count(*) AS n, sum(id) AS ids FROM s GROUP BY w;"
    rest = tmp_path / "at rest[1]"
    others = (
        f"CREATE TABLE names (id INT, at TIMESTAMP) USING csv OPTIONS (path '{rest}', static 'true');"
        f"CREATE TABLE again (id INT, at TIMESTAMP) USING replay OPTIONS (path '{rest}', format 'csv', "
        "event_time 'at', speed 'max');"
        "CREATE VIEW replayed AS SELECT id FROM again WHERE id >= 0;"
        "CREATE VIEW joined AS SELECT a.id FROM again a JOIN names n ON a.id = n.id;"
    )
    (data / "cut*.csv.gz").write_bytes(b"\x1f\x8b\x08\x00nothing of the kind")
    engine = Engine(spark, retry_attempts=0).execute(table + select + window + others)
    run = _run(engine, tmp_path / "second")
    assert _ids(run, "replayed") == EVERY
    assert _ids(run, "joined") == EVERY
    (row,) = run.results("counted").collect()
    assert (row.n, row.ids) == (len(NAMES) + 1, sum(EVERY) + 50)


@pytest.mark.long
def test_a_pattern_stays_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """A path that does not exist as it is written names the folders that it fits."""
    for number, name in enumerate(["day1", "day2", "other"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x*.csv").write_text(f"{number}\n")
        (tmp_path / name / "plain.csv").write_text(f"{number + 10}\n")
    text = _table("days", "csv", tmp_path / "day[12]") + "CREATE VIEW v AS SELECT id FROM days WHERE id >= 0;"
    run = _run(Engine(spark, retry_attempts=0).execute(text), tmp_path / "out")
    assert _ids(run, "v") == [0, 1, 10, 11]
    file = tmp_path / "other" / "x*.csv"
    with pytest.raises(SqlError, match=r"is a file. A stream reads a folder"):
        Engine(spark).execute(_table("one", "csv", file))


@pytest.mark.long
def test_a_streaming_dataframe_stops_before_a_file_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "star*.csv").write_text("1\n")
    frame = spark.readStream.schema("id INT").csv(str(folder))
    engine = Engine(spark, retry_attempts=0).stream("s", frame)
    engine.view("v", "SELECT id FROM s WHERE id > 0")
    assert _ids(_run(engine, tmp_path / "out"), "v") == [1]
    (folder / "plain.csv").write_text("2\n")
    (folder / "b[1].csv").write_text("3\n")
    with pytest.raises(StreamFailedError, match=r"b\[1\]\.csv has a name that Spark reads as a pattern"):
        _run(engine, tmp_path / "out")


def test_what_is_no_file_is_passed_over_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    """A FIFO would hold whoever opens it until somebody writes to it: the stream, and whoever wants to know the columns."""
    text = ""
    for kind in ("csv", "json", "parquet", "orc"):
        folder = tmp_path / kind
        folder.mkdir()
        os.mkfifo(folder / f"a.{kind}")
        (folder / f"folder.{kind}").mkdir()
        WRITERS[kind](folder / f"good.{kind}", 7)
        # Spark opens files of these to know the columns
        columns = "" if kind in ("orc", "json") else "(id INT)"
        text += f"CREATE TABLE {kind} {columns} USING {kind} OPTIONS (path '{folder}');"
        text += f"CREATE VIEW of_{kind} AS SELECT id FROM {kind} WHERE id > 0;"
    ended: list[Run] = []

    def answer() -> None:
        ended.append(_run(Engine(spark, settle_seconds=0).execute(text), tmp_path / "out"))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    thread.join(200)
    if thread.is_alive():
        for kind in ("csv", "json", "parquet", "orc"):
            os.close(os.open(tmp_path / kind / f"a.{kind}", os.O_RDWR | os.O_NONBLOCK))
        pytest.fail("a FIFO holds the run")
    (run,) = ended
    for kind in ("csv", "json", "parquet", "orc"):
        assert _ids(run, f"of_{kind}") == [7]
        (told,) = [event for event in run.events("files_passed_over") if event["stream"] == kind]
        assert told["files"] == [{"path": str(tmp_path / kind / f"a.{kind}"), "kind": "FIFO"}]
        assert run.status().streams[kind].to_dict()["files_passed_over"] == 1
    run = _run(Engine(spark, settle_seconds=0).execute(text), tmp_path / "out")
    assert not run.events("files_passed_over")
