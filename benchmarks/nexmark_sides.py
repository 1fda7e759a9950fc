"""The sides of the Nexmark benchmark: a query over stored events, to their end, by Penstock, Spark Structured Streaming or PyFlink.

Each side reads the same Parquet files and writes Parquet files. Where a query changes rows that it told before, Spark writes the changed rows of
each batch, and PyFlink records of changes as JSON, as it writes no other form of them to files.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock import Engine, Trigger
from penstock.errors import PenstockError
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock_lab.generators.nexmark import EVENT_TIME, STREAMS, nexmark_tables
from penstock_lab.generators.nexmark_views import declare_nexmark, refreshed
from processes import processor_seconds

ROOT = Path(__file__).resolve().parent.parent
WATERMARK = "10 seconds"
#: a query of PyFlink that takes longer is given up
MOST_SECONDS = 90


@dataclass(frozen=True)
class Run:
    """A run of a query, or of all of them, on one side.

    Attributes:
        way: how it was answered; why it was not, where `seconds` is None.
        seconds: from the start to the end.
        processor: seconds of all processes of the side.
        rows: so many rows in the end; None where only changes were written.
    """

    way: str
    seconds: float | None = None
    processor: float | None = None
    rows: int | None = None


class Penstock:
    """Queries on Penstock: each by lanes where they can, else refreshed once, at the end.

    Args:
        spark: the session.
        root: for results.
        others: processes below this one that are another side's.
        refresh: the queries that are refreshed though lanes answer them.
    """

    def __init__(
        self, spark: SparkSession, root: Path, others: Callable[[], float], refresh: Collection[str] = ()
    ) -> None:
        self._spark, self._root, self._others, self._refresh = spark, root, others, refresh

    def run(self, name: str, queries: Mapping[str, str], source: Path, *, refresh: bool = False) -> Run:
        """Runs queries as views of one engine."""
        output = self._root / f"penstock-{name}"
        engine = Engine(self._spark)
        try:
            engine.execute(nexmark_tables(source))
            if refresh:
                queries = {view: refreshed(query) for view, query in queries.items()}
            reasons = declare_nexmark(engine, dict(queries), refresh=() if refresh else self._refresh)
            way = "refresh" if refresh or len(reasons) == len(queries) else "lane"
            run = timed(way, lambda: _to_the_end(engine, output), self._processor)
            layout = Layout.of(output, None)
            rows = sum(results(self._spark, layout, view).count() for view in queries)
            return Run(run.way, run.seconds, run.processor, rows)
        except PenstockError as error:
            return Run(_first_line(error))
        finally:
            shutil.rmtree(output, ignore_errors=True)

    def _processor(self) -> float:
        return processor_seconds(os.getpid()) - self._others()


class Spark:
    """Queries on Spark Structured Streaming, in the first output mode that it takes.

    Args: those of `Penstock`.
    """

    def __init__(self, spark: SparkSession, root: Path, others: Callable[[], float]) -> None:
        self._spark, self._root, self._others = spark, root, others

    def run(self, name: str, query: str, source: Path) -> Run:
        """Runs a query."""
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        for stream in STREAMS:
            path = str(source / stream)
            frame = session.readStream.schema(session.read.parquet(path).schema).parquet(path)
            frame.withWatermark(EVENT_TIME, WATERMARK).createOrReplaceTempView(stream)
        session.read.parquet(str(source / "side_input")).createOrReplaceTempView("side_input")
        reason = ""
        for mode in ("append", "update"):
            place = self._root / f"spark-{name}-{mode}"
            out = place / "out"

            def changed(frame: DataFrame, number: int, out: Path = out) -> None:
                frame.write.parquet(str(out / str(number)))

            try:
                writer = session.sql(query).writeStream.outputMode(mode).trigger(availableNow=True)
                writer = writer.option("checkpointLocation", str(place / "checkpoint"))
                if mode == "append":
                    writer = writer.format("parquet").option("path", str(out))
                else:
                    writer = writer.foreachBatch(changed)
                run = timed(mode, lambda writer=writer: writer.start().awaitTermination(), self._processor)
                return Run(run.way, run.seconds, run.processor, _rows(out) if mode == "append" else None)
            except PySparkException as error:
                reason = _first_line(error)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        return Run(reason)

    def _processor(self) -> float:
        return processor_seconds(os.getpid()) - self._others()


class Flink:
    """Queries on PyFlink, whose embedded cluster is in a process of its own.

    Args:
        root: for results and logs.
        python: of the environment in which PyFlink is installed.
        jars: the folder of Flink's reader of Parquet.
    """

    def __init__(self, root: Path, python: Path, jars: Path) -> None:
        self._root, self._python = root, python
        hadoop = sorted(Path(pyspark.__path__[0], "jars").glob("hadoop-client-*.jar"))
        classpath = ":".join(str(jar.absolute()) for jar in [*hadoop, *sorted(jars.glob("*.jar"))])
        logs = root / "flink-logs"
        logs.mkdir()
        self._log = (logs / "errors.txt").open("w")
        self._environment = os.environ | {"HADOOP_CLASSPATH": classpath, "FLINK_LOG_DIR": str(logs)}
        self._process = self._started()

    def run(self, name: str, query: str, source: Path) -> Run:
        """Runs a query."""
        sink = self._root / f"flink-{name}"
        try:
            self._ask({"sources": str(source), "sink": str(sink), "query": query})
            before = self.processor()
            answer = self._ask({"run": True})
            if "error" in answer:
                return Run(str(answer["error"]))
            used, way = self.processor() - before, str(answer["way"])
            rows = _rows(sink / way) if way == "append" else _rows_of_changes(sink / way)
            return Run(way, float(str(answer["seconds"])), used, rows)
        except TimeoutError as error:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = self._started()
            return Run(str(error))
        finally:
            shutil.rmtree(sink, ignore_errors=True)

    def processor(self) -> float:
        """Seconds of its processes until now."""
        return processor_seconds(self._process.pid)

    def stop(self) -> None:
        """Ends the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(60)
        self._log.close()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self._python), str(Path(__file__).with_name("nexmark_flink.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=self._environment,
            process_group=0,
        )

    def _ask(self, request: dict[str, object]) -> dict[str, object]:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], MOST_SECONDS)[0]:
            raise TimeoutError(f"no answer within {MOST_SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"PyFlink ended: {Path(self._log.name).read_text()[-2000:]}")
        answer: dict[str, object] = json.loads(line)
        return answer


def flink_if_installed(root: Path) -> Flink | None:
    """The side of PyFlink; None where `scripts/flink/fetch.sh` could not install it."""
    cache = ROOT / ".cache"
    if not (cache / "flink" / ".installed").exists() or not (cache / "flink-parquet" / ".fetched").exists():
        return None
    return Flink(root, cache / "flink" / "bin" / "python", cache / "flink-parquet")


def timed(way: str, run: Callable[[], object], processor: Callable[[], float]) -> Run:
    """Runs a query to its end."""
    began, used = time.perf_counter(), processor()
    run()
    return Run(way, time.perf_counter() - began, processor() - used)


def _to_the_end(engine: Engine, output: Path) -> None:
    with engine.start(output, trigger=Trigger.available_now(ended=True)) as started:
        started.await_termination()


def _rows(folder: Path) -> int:
    """Rows of the Parquet files of a folder; those whose names begin with a dot or `_` do not count."""
    return int(ds.dataset(folder, format="parquet").count_rows()) if folder.exists() else 0


def _rows_of_changes(folder: Path) -> int:
    """Rows that remain of the records of changes in a folder."""
    rows = 0
    for file in folder.glob("[!._]*"):
        with file.open() as lines:
            rows += sum(1 if '"op":"c"' in line[-12:] else -1 for line in lines)
    return rows


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:100]
