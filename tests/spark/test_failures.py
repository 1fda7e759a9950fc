"""What can pass is tried again and answered exactly; what stops a stream is told by its cause."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import expected, folder_bag, rows, script, write_orders
from forms import SOON_OVER
from penstock.errors import CheckpointError, InputError, StreamFailedError
from penstock.spark.engine import Engine
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

BY_NAME = "SELECT name, window(seen, '1 minute') AS w, count(*) AS n FROM orders GROUP BY name, w"


def _failing() -> dict[str, Callable[..., Any]]:
    """Functions that fail; local ones, which Spark sends to its workers whole."""

    def lacking(_: pa.Array) -> pa.Array:
        raise ModuleNotFoundError("No module\n named 'rates'")

    def short(amounts: pa.Array) -> pa.Array:
        return amounts[1:]

    def text(amounts: pa.Array) -> pa.Array:
        return pa.array(["x"] * len(amounts))

    def number(_: pa.Array) -> pa.Array:
        return 5

    def exits(_: pa.Array) -> pa.Array:
        sys.exit(3)

    return {each.__name__: each for each in (lacking, short, text, number, exits)}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("lacking", "function rate raised: ModuleNotFoundError: No module named 'rates'"),
        ("short", r"function rate returned \d*99 values for \d*00 rows; return one value for each row"),
        ("text", "function rate returned string, which does not fit its declared type INT"),
        ("number", r"function rate returned int, not a pyarrow.Array"),
        ("exits", "function rate ended its Python process: SystemExit: 3"),
    ],
)
def test_a_function_that_fails_is_named_with_its_view(
    spark: SparkSession, tmp_path: Path, function: str, told: str
) -> None:
    write_orders(tmp_path / "in", 1, 300)
    engine = Engine(spark).function("rate", _failing()[function], "INT")
    engine.execute(script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE rate(amount) > 3"}))
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(StreamFailedError, match=f"^stream orders stopped: {told}.* \\(view v\\)$"):
        run.await_termination(300)
    run.stop()
    (failed,) = run.events("run_failed")
    assert (failed["stream"], failed["cause"], failed["view"], failed["function"]) == (
        "orders",
        "function_failed",
        "v",
        "rate",
    )
    assert failed in [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").open()]


def test_a_function_of_no_type_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="function rate: 'NUMBER' is not a Spark SQL type"):
        Engine(spark).function("rate", len, "NUMBER")


def test_a_killed_worker_is_no_end(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, 300)
    killed = tmp_path / "killed"

    def rate(amounts: pa.Array) -> pa.Array:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pc.add(amounts, 1)

    engine = Engine(spark, retry_seconds=0.1).function("rate", rate, "INT")
    views = {"v": "SELECT * FROM orders WHERE rate(amount) > 900"}
    run = engine.execute(script(tmp_path / "in", views)).start(
        tmp_path / "out", trigger=Trigger.available_now()
    )
    assert run.await_termination(300)
    run.stop()
    plain = {"v": "SELECT * FROM orders WHERE amount + 1 > 900"}
    tuples = spark.read.parquet(str(tmp_path / "in"))
    assert {name: rows(run.results(name)) for name in views} == expected(spark, tuples, plain)
    assert set(folder_bag(tmp_path / "out", "orders", by_manifest=False).values()) == {1}
    (again,) = run.events("stream_retried")
    assert (again["part"], again["cause"], again["attempt"]) == ("ingest", "worker_lost", 1)
    assert again["told"].endswith("(view v calls rate)")


def test_a_worker_that_dies_every_time_is_told_in_the_end(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, 300)

    def rate(_: pa.Array) -> pa.Array:
        os._exit(3)

    engine = Engine(spark, retry_attempts=1, retry_seconds=0.01).function("rate", rate, "INT")
    engine.execute(script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE rate(amount) > 3"}))
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(StreamFailedError, match=r"a Python worker .* \(view v calls rate\); retried once"):
        run.await_termination(300)
    run.stop()


def test_a_sink_that_raises_is_named_and_not_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, 300)

    def mail(*_: object) -> None:
        raise FileNotFoundError("/var/mail")

    engine = Engine(spark).execute(script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE amount > 900"}))
    run = engine.sink("v", mail).start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(
        StreamFailedError, match=r"sink mail of view v failed: .*FileNotFoundError: /var/mail"
    ):
        run.await_termination(300)
    run.stop()
    assert not run.events("sink_retried")
    assert [event["view"] for event in run.events("run_failed")] == ["v"]
    assert run.results("v").count() > 0


def test_a_sink_whose_own_server_is_away_is_named_and_given_the_batch_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_orders(tmp_path / "in", 1, 300)
    taken: list[int] = []

    def post(_: DataFrame, batch: int) -> None:
        taken.append(batch)
        if len(taken) == 2:
            server.listen()
        socket.create_connection(server.getsockname()).close()

    engine = Engine(spark, retry_seconds=0.01)
    engine.execute(script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE amount > 900"}))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        run = run_to_end(engine.sink("v", post), tmp_path / "out")
    assert taken == [0, 0]
    (retried,) = run.events("sink_retried")
    assert retried["cause"] == "sink_failed"
    assert retried["told"].startswith("sink post of view v failed: ConnectionRefusedError")


def test_a_checkpoint_stays_that_of_a_run_of_which_something_could_not_be_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(tmp_path / "in", 1, 300)
    text = script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE amount > 900"})
    run = Engine(spark).execute(text).start(tmp_path / "out")
    stream = run._execution.queries["orders"]

    def refuse() -> None:
        raise TimeoutError("the query has not stopped")

    with monkeypatch.context() as patched:
        patched.setattr(stream, "stop", refuse)
        with pytest.raises(TimeoutError, match="has not stopped"):
            run.stop()
    ledger = Layout.of(tmp_path / "out", None).ledger
    assert ledger.run is not None
    with pytest.raises(CheckpointError, match="in use by another run of this process"):
        Engine(spark).execute(text).start(tmp_path / "out")
    run.stop()
    assert not stream.active
    assert ledger.owner() is None


def test_two_engines_of_one_session_may_have_streams_of_one_name(spark: SparkSession, tmp_path: Path) -> None:
    runs = []
    for number in (1, 2):
        write_orders(tmp_path / f"in{number}", 1, 300, seed=number)
        views = {"v": "SELECT * FROM orders WHERE amount > 900", "w": BY_NAME}
        engine = Engine(spark).execute(script(tmp_path / f"in{number}", views))
        runs.append(engine.start(tmp_path / f"out{number}"))
    try:
        deadline = time.monotonic() + 300
        while any(run.status().streams["orders"].tuples < 300 for run in runs):
            assert time.monotonic() < deadline
            assert all(run.active for run in runs)
            time.sleep(0.2)
        with pytest.raises(CheckpointError, match="in use by another run of this process"):
            Engine(spark).execute(script(tmp_path / "in2", views)).start(tmp_path / "out2")
        assert all(run.active for run in runs)
    finally:
        for run in runs:
            run.stop()


STOPPED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from engine_cases import script, write_orders
from penstock.spark.engine import Engine
from penstock.spark.storage.layout import Layout
from penstock.spark.sessions.build import build_session
spark = build_session("local[2]", {{}})
write_orders(Path("in"), 1, 300)
run = Engine(spark).execute(script(Path("in").resolve(), {{"v": "SELECT * FROM orders WHERE amount > 900"}})).start("out")
while run.status().streams["orders"].tuples < 300:
    time.sleep(0.1)
spark.stop()
try:
    run.await_termination(300)
except Exception as error:
    print(type(error).__name__, error)
run.stop()
print("stopped")
"""


@pytest.mark.long
def test_a_session_that_is_stopped_ends_the_run_in_words(tmp_path: Path) -> None:
    text = STOPPED.format(tests=str(Path(__file__).parents[1]))
    ended = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    said = ended.stdout.splitlines()
    assert said[-1] == "stopped", ended.stdout + ended.stderr
    assert said[-2] == (
        "StreamFailedError stream orders stopped: the Spark session has ended: spark.stop() was called, "
        "or its Java process was killed"
    )


#: root may read every file, unless it gives that up
_AS_USERS_ARE = (
    [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
        "--inh-caps",
        "-dac_override,-dac_read_search",
    ]
    if os.geteuid() == 0
    else []
)


def _command(folder: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    command = [
        *_AS_USERS_ARE,
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        "script.sql",
        "--output",
        "out",
        *more,
    ]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **SOON_OVER, **environment},
        start_new_session=True,
    )


@pytest.mark.long
def test_a_killed_java_process_is_one_message(tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, 300)
    views = {"v": "SELECT * FROM orders WHERE amount > 900", "w": BY_NAME}
    (tmp_path / "script.sql").write_text(script(tmp_path / "in", views))
    process = _command(tmp_path, "--master", "local[2]")
    deadline = time.monotonic() + 300
    while not Layout.of(tmp_path / "out", None).manifests("orders").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (java,) = [pid for pid in children if b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(int(java), signal.SIGKILL)
    _, told = process.communicate(timeout=500)
    assert process.returncode == 1
    assert "Traceback" not in told
    assert "Py4J" not in told
    assert told.count("penstock: ") == 1
    assert "stopped: the Spark session has ended" in told
    (failed, *_) = [
        event
        for line in (tmp_path / "out" / "events.jsonl").open()
        if (event := json.loads(line))["kind"] == "run_failed"
    ]
    assert failed["cause"] == "session_ended"


@pytest.mark.long
def test_workers_without_pyarrow_are_told(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", bare], check=True)  # type: ignore[attr-defined]
    write_orders(tmp_path / "in", 1, 300)
    (tmp_path / "script.sql").write_text(
        script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE amount > 900"})
    )
    python = str(bare / "bin" / "python")
    process = _command(tmp_path, "--master", "local[2]", "--available-now", PYSPARK_PYTHON=python)
    _, told = process.communicate(timeout=500)
    assert process.returncode == 1
    assert "the Python of the workers lacks a module" in told
    assert "No module named" in told
    assert "Traceback" not in told
    assert "\tat " not in told


@pytest.mark.long
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("id,amount\n1,1000\n")
    (folder / "1.csv").chmod(0)
    table = f"CREATE TABLE orders (id INT, amount INT) USING csv OPTIONS (path '{folder}', header 'true');"
    (tmp_path / "script.sql").write_text(f"{table} CREATE VIEW v AS SELECT * FROM orders WHERE amount > 900;")
    process = _command(tmp_path, "--master", "local[2]", "--available-now")
    _, told = process.communicate(timeout=500)
    assert process.returncode == 1, told
    assert "stream orders stopped: no permission to read a file: " in told
    assert f"{folder}/1.csv (Permission denied)" in told
    assert "Traceback" not in told
    (failed,) = [
        event
        for line in (tmp_path / "out" / "events.jsonl").open()
        if (event := json.loads(line))["kind"] == "run_failed"
    ]
    assert (failed["cause"], failed["file"]) == ("file_unreadable", f"{folder}/1.csv")
