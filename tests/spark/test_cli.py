"""The command line: mistakes are told in one message, scripts run, results are printed, changes followed."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from commands import alone, called
from engine_cases import orders, put_file, write_orders
from engine_cases import script as orders_script
from forms import SOON_OVER, thinned
from penstock.cli.watch import Watcher
from penstock.spark.engine import Engine
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE orders (id INT, city STRING, amount DOUBLE, day TIMESTAMP) USING csv OPTIONS (path 'in', header 'true')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: CSV orders, one of them malformed, one with text that looks like markup."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.csv").write_text(
        "id,city,amount,day\n1,Bern,20,2026-01-01\n2,[/red],950,2026-01-02\n3,,1200,2026-01-03\n4,Oslo,much,2026-01-04\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _process(*arguments: str, seconds: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **SOON_OVER, **environment},
        timeout=seconds,
    )


def _assert_refused(code: int, message: str, told: str, folder: Path) -> None:
    assert code == 2, message
    assert told in message
    assert message.startswith(("penstock: ", "Kafka connector: "))
    assert message.count("penstock: ") == 1
    assert "Traceback" not in message
    assert not (folder / "out").exists()


WITHOUT_SPARK = {
    "missing script": (None, [], "Cannot read script script.sql: No such file or directory"),
    "bad SQL": ("CREATE VIEW v AS SELEC * FROM orders", [], "line 2: CREATE VIEW v AS SELEC * FROM orders\n"),
    "unknown table": ("CREATE VIEW v AS SELECT * FROM order WHERE amount > 1", [], "Existing ones: orders"),
    "GROUP BY": (
        "CREATE VIEW v AS SELECT city, count(*) FROM orders GROUP BY ROLLUP(city), city",
        [],
        "Grouping set (city) occurs twice",
    ),
    "hint": (
        "CREATE VIEW v AS SELECT /*+ MAX_ERROR(0.05, 0.05) */ * FROM orders",
        [],
        "MAX_ERROR, DEADLINE, LOSS, BACKFILL, STATE_TTL and CUMULATE need GROUP BY",
    ),
    "conf": ("CREATE VIEW v AS SELECT * FROM orders", ["--conf", "spark.x"], "write --conf KEY=VALUE"),
    "setting": (
        "CREATE VIEW v AS SELECT * FROM orders",
        ["--set", "idle_seconds=-1"],
        "settings: idle_seconds: Input should be greater than or equal to 0",
    ),
    "functions": (
        "CREATE VIEW v AS SELECT * FROM orders",
        ["--functions", "none.py"],
        "none.py: this Python file does not exist",
    ),
}


@pytest.mark.parametrize("mistake", list(WITHOUT_SPARK))
def test_mistakes_told_before_spark_starts(folder: Path, mistake: str) -> None:
    statement, options, told = WITHOUT_SPARK[mistake]
    if statement is not None:
        (folder / "script.sql").write_text(f"{TABLE};\n{statement}")
    ended = alone("run", "script.sql", "--output", "out", "--available-now", *options)
    _assert_refused(ended.returncode, ended.stderr, told, folder)
    assert ended.stdout == ""


def test_a_java_too_old_is_refused(folder: Path) -> None:
    (folder / "script.sql").write_text(f"{TABLE};\nCREATE VIEW v AS SELECT * FROM orders")
    java = folder / "java11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    ended = alone("run", "script.sql", "--output", "out", JAVA_HOME=str(folder / "java11"))
    _assert_refused(ended.returncode, ended.stderr, "is Java 11. Penstock needs Java 17 or newer", folder)


def test_help_names_every_command() -> None:
    ended = alone("--help")
    assert ended.returncode == 0
    assert all(command in ended.stdout for command in ("run", "check", "explain", "results", "demo"))


WITH_SPARK = {
    "unknown column": (
        f"{TABLE};\nCREATE VIEW v AS SELECT * FROM orders\nWHERE amount > 5 AND town = 'Bern'",
        "Column town does not exist. Existing columns: id, city, amount, day\n"
        "  line 3: WHERE amount > 5 AND town = 'Bern'\n"
        "                               ^^^^",
    ),
    "unclosed parenthesis": (
        f"{TABLE};\nCREATE VIEW v AS SELECT * FROM orders WHERE (amount > 5",
        "This parenthesis is not closed.",
    ),
    "type mismatch": (
        f"{TABLE};\nCREATE VIEW v AS SELECT * FROM orders WHERE day > TRUE",
        "CAST one of them",
    ),
    "missing path": (
        "CREATE TABLE orders USING parquet OPTIONS (path 'nowhere'); CREATE VIEW v AS SELECT * FROM orders",
        "table orders: path nowhere does not exist. Create the folder, or correct the option path.\n  line 1: CREATE TABLE orders USING parquet OPTIONS (path 'nowhere');",
    ),
    "unknown option": (
        "CREATE TABLE orders USING replay OPTIONS (path 'in', speed 'fast', format 'csv'); CREATE VIEW v AS SELECT * FROM orders",
        "a replay needs the option arrival_time",
    ),
    "unreachable broker": (
        "CREATE TABLE orders (id INT) USING kafka OPTIONS (kafka.bootstrap.servers '127.0.0.1:1', subscribe 'orders');"
        "CREATE VIEW v AS SELECT * FROM orders",
        "table orders: no Kafka broker answers at 127.0.0.1:1",
    ),
    "unreachable sink": (
        f"{TABLE}; CREATE VIEW v AS SELECT * FROM orders;"
        "CREATE TABLE alerts USING kafka OPTIONS (kafka.bootstrap.servers '127.0.0.1:1', topic 'alerts');"
        "INSERT INTO alerts SELECT * FROM v",
        "table alerts: no Kafka broker answers at 127.0.0.1:1",
    ),
    "misspelt option": (
        "CREATE TABLE orders (id INT) USING csv OPTIONS (path 'in', max_file_per_triger '1');"
        "CREATE VIEW v AS SELECT * FROM orders",
        "table orders: option max_file_per_triger does not exist; did you mean max_files_per_trigger?",
    ),
    "misspelt option of a reader": (
        "CREATE TABLE orders (id INT) USING csv OPTIONS (path 'in',\n  heder 'true');"
        "CREATE VIEW v AS SELECT * FROM orders",
        "table orders: option heder does not exist; did you mean header?\n  line 2:   heder 'true');",
    ),
    "unknown type": (
        "CREATE TABLE orders (id INT,\n  city STRNG) USING csv OPTIONS (path 'in'); CREATE VIEW v AS SELECT * FROM orders",
        "\n  line 2:   city STRNG) USING csv",
    ),
    "digits of seconds": (
        "CREATE TABLE orders (id INT,\n  at TIMESTAMP(3)) USING csv OPTIONS (path 'in'); CREATE VIEW v AS SELECT * FROM orders",
        "table orders: times have microseconds. Write TIMESTAMP without the digits of its seconds.\n  line 2:   at TIMESTAMP(3)) USING csv",
    ),
    "no number": (
        "CREATE TABLE orders (id INT) USING csv OPTIONS (path 'in', max_files_per_trigger 'x');"
        "CREATE VIEW v AS SELECT * FROM orders",
        "table orders: max_files_per_trigger is 'x'. Write a whole number from 1",
    ),
    "reserved column": (
        "CREATE TABLE orders (id INT, penstock_batch STRING) USING csv OPTIONS (path 'in'); CREATE VIEW v AS SELECT * FROM orders",
        "column name penstock_batch is reserved",
    ),
    "event time": (
        "CREATE TABLE orders (id INT) USING csv OPTIONS (path 'in', event_time 'id'); CREATE VIEW v AS SELECT * FROM orders",
        "event_time column id is int; it must be a timestamp",
    ),
    "unknown source": (
        "CREATE TABLE orders USING carrier_pigeon; CREATE VIEW v AS SELECT * FROM orders",
        "source carrier_pigeon is not supported. Use parquet, csv",
    ),
    "no view": (TABLE, "nothing to run: declare at least one stream and one view on it"),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mistake", thinned(list(WITH_SPARK), 3))
def test_mistakes_only_spark_can_tell(folder: Path, capsys: pytest.CaptureFixture[str], mistake: str) -> None:
    text, told = WITH_SPARK[mistake]
    (folder / "script.sql").write_text(text)
    code = called("run", "script.sql", "--output", "out", "--available-now")
    _assert_refused(code, capsys.readouterr().err, told, folder)


@pytest.mark.usefixtures("spark")
def test_a_script_is_checked_explained_run_and_its_results_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "script.sql").write_text(
        f"{TABLE};\nCREATE VIEW large AS SELECT id, city, day FROM orders WHERE amount > 900;\n"
        "CREATE VIEW named AS SELECT id, array(city, 'x') AS pair FROM orders WHERE octet_length(city) > 3;\n"
    )
    assert called("check", "script.sql") == 0
    assert capsys.readouterr().out == "stream orders: 2 views\nscript.sql: no mistakes found\n"
    assert called("explain", "script.sql") == 0
    told = capsys.readouterr().out
    assert "slower path: Spark decodes csv before the rules run" in told
    assert "= octet_length(city)" in told
    assert not (folder / "out").exists()

    assert called("run", "script.sql", "--output", "out", "--available-now") == 0
    shown = capsys.readouterr().out
    assert "orders: 3 tuples" in shown
    assert "1 record set aside" in shown
    (aside,) = (folder / "out" / "quarantine" / "orders").glob("*.parquet")
    (record,) = pq.read_table(aside).to_pylist()
    assert record["record"] == b"4,Oslo,much,2026-01-04"
    assert record["reason"] == "malformed csv record: amount is no DOUBLE"
    assert record["origin"].endswith("/in/orders.csv:5")
    events = [json.loads(line) for line in (folder / "out" / "events.jsonl").read_text().splitlines()]
    (told_aside,) = [event for event in events if event["kind"] == "records_quarantined"]
    assert told_aside["counts"] == {"malformed csv record: amount is no DOUBLE": 1}

    assert called("status", "out", "-v") == 0
    told = capsys.readouterr().out
    assert "out: ended" in told
    assert "stream orders: ended | 3 tuples in 1 batch" in told
    assert {"large", "named"} == {
        line.split()[0] for line in told.splitlines() if " selection  ended " in line
    }
    assert "in/orders.csv:5: 4,Oslo,much,2026-01-04" in told
    assert called("quarantine", "out", "orders", "--format", "json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["record"] == "4,Oslo,much,2026-01-04"
    assert called("quarantine", "out", "orders", "--format", "csv") == 0
    assert (
        next(csv.DictReader(io.StringIO(capsys.readouterr().out)))["reason"]
        == "malformed csv record: amount is no DOUBLE"
    )

    assert called("results", "out", "large") == 0
    table = capsys.readouterr().out
    assert "large: 2 rows" in table
    assert "[/red]" in table
    assert called("results", "out", "named", "--format", "csv") == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert sorted(rows) == [["1", '["Bern","x"]'], ["2", '["[/red]","x"]'], ["id", "pair"]]
    assert called("results", "out", "large", "--format", "json", "--limit", "0") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["id"], line["city"]) for line in lines] == [(2, "[/red]"), (3, None)]
    assert ".000000" in lines[0]["day"]
    assert called("results", "out", "large", "--format", "json", "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1

    for arguments, message in (
        (("out", "huge"), "View huge does not exist. Existing views: large, named"),
        (("in", "large"), "in is not a results folder of Penstock"),
        (("nowhere", "large"), "Results folder nowhere does not exist"),
    ):
        assert called("results", *arguments) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
def test_columns_in_another_order_than_the_header_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swapped = TABLE.replace("city STRING, amount DOUBLE", "amount DOUBLE, city STRING")
    (folder / "script.sql").write_text(f"{swapped};\nCREATE VIEW v AS SELECT * FROM orders WHERE amount > 5")
    assert called("check", "script.sql") == 0
    told = capsys.readouterr().out
    assert told.startswith("warning: orders: the declared columns and the header of ")
    assert "so amount gets the values of city" in told
    assert told.endswith("script.sql: no mistakes found\n")


@pytest.mark.long
def test_a_machine_too_slow_for_a_python_process_tries_again(folder: Path) -> None:
    """Spark waits ten seconds for the process that prepares the windows' state: the first one is there when that is over."""
    (folder / "slow").mkdir()
    (folder / "slow" / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if any('transform_with_state_driver_worker' in word for word in sys.orig_argv):\n"
        f"    if not os.path.exists({str(folder / 'tried')!r}):\n"
        f"        open({str(folder / 'tried')!r}, 'w').close()\n"
        "        parent = os.getppid()\n"
        f"        told = {str(folder / 'out' / 'events.jsonl')!r}\n"
        "        while os.getppid() == parent and 'lane_retried' not in open(told).read():\n"
        "            time.sleep(0.1)\n"
    )
    (folder / "script.sql").write_text(
        "CREATE TABLE orders (id INT, city STRING, amount DOUBLE, day TIMESTAMP) USING csv "
        "OPTIONS (path 'in', header 'true', event_time 'day');\n"
        "CREATE VIEW days AS SELECT window.start AS d, count(*) AS n FROM orders GROUP BY window(day, '1 day');"
    )
    ended = _process(
        "run",
        "script.sql",
        "--output",
        "out",
        "--available-now",
        "--ended",
        "--set",
        "retry_attempts=1000",
        "--set",
        "retry_seconds=0.1",
        seconds=3_000,
        PYTHONPATH=str(folder / "slow"),
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert (folder / "tried").exists()
    events = [json.loads(line) for line in (folder / "out" / "events.jsonl").read_text().splitlines()]
    again = [event for event in events if event["kind"] == "lane_retried"]
    assert ("windows", "slow_start") in {(event["part"], event["cause"]) for event in again}
    assert "Traceback" not in ended.stderr + ended.stdout
    assert "\tat " not in ended.stderr + ended.stdout
    assert sum(event["views"]["days"]["final"] for event in events if event["kind"] == "windows") == 3


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_belongs_to_one_process_at_a_time(folder: Path) -> None:
    layout = Layout(folder / "out", folder / "out" / "_penstock" / "checkpoint")
    held = layout.open()
    (folder / "script.sql").write_text(f"{TABLE};\nCREATE VIEW v AS SELECT * FROM orders")
    second = alone("run", "script.sql", "--output", "out", "--available-now")
    assert second.returncode == 2
    assert f"is in use by process {os.getpid()} of host {socket.gethostname()} since " in second.stderr
    assert "Stop that process" in second.stderr
    assert not (folder / "out" / "events.jsonl").exists()
    held.close()
    assert called("run", "script.sql", "--output", "out", "--available-now") == 0


@pytest.mark.usefixtures("spark")
def test_a_run_follows_its_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tuple is answered by the views of the plan its batch is bound to."""
    write_orders(folder / "orders", files=1, rows=600)
    first = {"stays": "SELECT id FROM orders WHERE id >= 0", "goes": "SELECT id FROM orders WHERE id >= 0"}
    later = {"stays": first["stays"], "comes": "SELECT id FROM orders WHERE id % 2 = 0"}
    path, events = folder / "script.sql", folder / "out" / "events.jsonl"
    path.write_text(orders_script(folder / "orders", first))

    def told(text: str, times: int = 1) -> None:
        while not events.exists() or events.read_text().count(text) < times:
            time.sleep(0.1)

    def rewrite() -> None:
        told('"kind":"batch"')
        path.write_text(orders_script(folder / "orders", later))
        told('"added":["comes"]')
        put_file(folder / "orders" / "more.parquet", partial(pq.write_table, orders(600, 8, 600)))
        told('"kind":"batch"', 2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=rewrite, daemon=True).start()
    assert called("run", "script.sql", "--output", "out", "--watch") == 0
    assert "script.sql: applied: 1 view added (comes), 1 view dropped (goes)" in capsys.readouterr().out

    batches = read_published(Layout(folder / "out", folder / "out"), "orders").batches
    assert [(figures["plan"], figures["tuples"]) for figures in batches] == [(0, 600), (1, 600)]
    answers = {}
    for view in ("stays", "goes", "comes"):
        assert called("results", "out", view, "--format", "csv", "--limit", "0") == 0
        answers[view] = sorted(int(line) for line in capsys.readouterr().out.splitlines()[1:])
    assert answers == {
        "stays": list(range(1_200)),
        "goes": list(range(600)),
        "comes": list(range(600, 1_200, 2)),
    }


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("told", thinned([signal.SIGTERM, signal.SIGINT], 2))
def test_a_run_stops_when_told_and_goes_on_where_it_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str], told: signal.Signals
) -> None:
    (folder / "script.sql").write_text(
        f"{TABLE};\nCREATE VIEW large AS SELECT id FROM orders WHERE amount > 900;"
    )
    events = folder / "out" / "events.jsonl"

    def stop_after(batches: int) -> None:
        while not events.exists() or events.read_text().count('"kind":"batch"') < batches:
            time.sleep(0.1)
        os.kill(os.getpid(), told)

    for batches in (1, 2):
        threading.Thread(target=stop_after, args=(batches,), daemon=True).start()
        assert called("run", "script.sql", "--output", "out") == 0
        printed = capsys.readouterr()
        assert (
            "Stopping. Run the same command again to continue.\nResults: out; state: penstock status out\n"
            in printed.out
        )
        assert "Traceback" not in printed.err
        (folder / "in" / "more.csv").write_text("id,city,amount,day\n7,Bern,3000,2026-01-05\n")
    assert called("results", "out", "large", "--format", "csv") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ['"id"', "2", "3", "7"]


def test_a_mistake_in_a_followed_script_changes_nothing_and_is_told_once(
    spark: SparkSession, folder: Path
) -> None:
    path, out = folder / "script.sql", io.StringIO()
    now = [0.0]
    good = f"{TABLE};\nCREATE VIEW large AS SELECT * FROM orders WHERE amount > 900;"
    longer = f"{good}\nCREATE VIEW small AS SELECT * FROM orders WHERE amount < 9;"
    engine = Engine(spark).execute(good)
    watcher = Watcher(path, good, engine, Console(file=out, width=200, soft_wrap=True), lambda: now[0])

    def look(seconds: int, text: str | None = None) -> str:
        """What is said in so many seconds with the script as it is, or saved anew."""
        if text is not None:
            path.write_text(text)
        before = len(out.getvalue())
        for _ in range(seconds):
            now[0] += 1
            watcher.look()
        return out.getvalue()[before:]

    assert look(4) == "", "an editor may take the file away for a moment"
    assert look(5).count("not applied, the run continues unchanged: Cannot read script") == 1
    assert look(2, good) == ""
    told = look(3, good.replace("amount > 900", "price > 900"))
    assert told.count("not applied, the run continues unchanged: Column price does not exist") == 1
    assert look(1, longer) == "", "it may not be saved whole yet"
    assert look(1) == f"{path}: applied: 1 view added (small)\n"
    assert engine.declared == {"orders": ["large", "small"]}
    for cut, refusal in (
        (longer[:-4], "the script ends within a statement"),
        (longer[:-40], "the script ends within a statement"),
        (longer[: len(TABLE) + 1], "The script has no view"),
        ("", "the script ends"),
    ):
        assert look(4, cut) == "", "it may be saved whole soon"
        assert f"not applied, the run continues unchanged: {refusal}" in look(4)
        assert engine.declared == {"orders": ["large", "small"]}
        assert look(2, longer) == ""
    assert "Table orders has other columns" in look(3, longer.replace("amount DOUBLE", "amount INT"))
    told = look(8, good)
    assert told == f"{path}: applied: 1 view dropped (small)\n"
    assert engine.declared == {"orders": ["large"]}
    told = look(3, f"{good}\nCREATE TABLE more (id INT) USING csv OPTIONS (path 'in', nonsense 'x');")
    assert "applied: 1 table added (more)\nwarning: more: option nonsense is unknown" in told
    more = "CREATE TABLE more (id INT) USING csv OPTIONS (path 'in', nonsense 'x');"
    copied = f"{good}\n{more}\nCREATE TABLE shown USING console;"
    told = look(3, f"{copied}\nINSERT INTO shown SELECT id FROM orders WHERE amount > 950;")
    assert told == f"{path}: applied: 1 table added (shown), 1 sink added (shown)\n"
