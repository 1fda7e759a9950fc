"""Streams over objects in S3: answers as Spark's own, each file once, and one message where a bucket cannot be read."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from obstore.store import ObjectStore
from pyspark.sql import SparkSession

from damage_cases import quarantined
from forms import thinned
from penstock import Engine, Trigger
from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.sessions.store_access import configure
from penstock.spark.sources import parquet_source
from penstock.stores.address import StoreAddress
from penstock_lab.servers.processes import free_port
from penstock_lab.servers.s3 import S3Server

pytestmark = pytest.mark.usefixtures("s3_environment")

COLUMNS = "id BIGINT, carrier STRING, delay DOUBLE"
VIEWS = {
    "late": "SELECT id, delay FROM flights WHERE delay > 90",
    "some": "SELECT * FROM flights WHERE carrier IN ('AA', 'DL') AND id < 700",
}


def _table(first: int, rows: int = 500) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "carrier": [("AA", "DL", None, "UA")[number % 4] for number in numbers],
            "delay": [number * 37 % 121 / 1.0 for number in numbers],
        }
    )


def _content(table: pa.Table, kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=200)
    elif kind == "csv":
        csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
    else:
        sink.write("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode())
    return sink.getvalue()


class Bucket:
    """A prefix of its own in the bucket of the tests."""

    def __init__(self, name: str) -> None:
        self.path = f"s3://bucket/{name}-{time.time_ns()}"
        self.store: ObjectStore = StoreAddress.of(self.path).store()

    def put(self, name: str, first: int, kind: str = "parquet") -> None:
        """Stores a file of tuples."""
        self.store.put(name, _content(_table(first), kind))


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A prefix without objects."""
    return Bucket(request.node.originalname)


def _engine(spark: SparkSession, path: str, kind: str = "parquet", columns: str = f" ({COLUMNS})") -> Engine:
    views = "".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items())
    return Engine(spark).execute(
        f"CREATE TABLE flights{columns} USING {kind} OPTIONS (path '{path}'); {views}"
    )


def _answered(engine: Engine, output: Path) -> dict[str, list[tuple[object, ...]]]:
    with engine.start(output, trigger=Trigger.available_now()) as run:
        run.await_termination()
        return {name: sorted(map(tuple, run.results(name).collect())) for name in VIEWS}


def _expected(spark: SparkSession, tables: Iterable[pa.Table]) -> dict[str, list[tuple[object, ...]]]:
    spark.createDataFrame(pa.concat_tables(tables)).createOrReplaceTempView("flights")
    try:
        return {name: sorted(map(tuple, spark.sql(query).collect())) for name, query in VIEWS.items()}
    finally:
        spark.catalog.dropTempView("flights")


@pytest.mark.parametrize("kind", thinned(["parquet", "csv", "json"], 2))
def test_files_in_a_bucket_are_answered_as_spark_answers_them(
    spark: SparkSession, bucket: Bucket, kind: str, tmp_path: Path
) -> None:
    bucket.put(f"a.{kind}", 0, kind)
    bucket.put(f"b #1?%20.{kind}", 500, kind)
    engine = _engine(spark, bucket.path, kind)
    assert ("fast path" in engine.explain()) is (kind == "parquet")
    assert _answered(engine, tmp_path / "out") == _expected(spark, [_table(0), _table(500)])

    bucket.put(f"c.{kind}", 1000, kind)
    again = _engine(spark, bucket.path, kind)
    assert _answered(again, tmp_path / "out") == _expected(spark, [_table(0), _table(500), _table(1000)])


def test_what_is_left_to_spark_is_read_by_spark_alone(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Credentials that only the settings of the session have are enough for s3a://."""
    bucket.put("a.parquet", 0)
    configure(spark, StoreAddress.of(bucket.path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    engine = _engine(spark, bucket.path.replace("s3://", "s3a://"))
    assert "slower path" in engine.explain()
    assert _answered(engine, tmp_path / "out") == _expected(spark, [_table(0)])


def test_columns_are_those_of_the_files(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("year=2026/a.parquet", 0)
    engine = _engine(spark, bucket.path, columns="")
    assert "only Spark turns partition folders into columns" in engine.explain()
    found = _answered(engine, tmp_path / "out")
    assert [len(row) for row in found["some"][:1]] == [4]


def test_a_damaged_file_is_quarantined(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a.parquet", 0)
    content = bytearray(_content(_table(500), "parquet"))
    place = content.index(b"PAR1") + 4
    content[place : place + 400] = bytes(400)
    bucket.store.put("b.parquet", bytes(content))
    bucket.store.put("c.parquet", b"no Parquet file")
    engine = _engine(spark, bucket.path)
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
        answered = run.status().streams["flights"].tuples
    origins = [str(row["origin"]).rpartition("/")[2] for row in quarantined(tmp_path / "out")]
    assert {origin.partition(".")[0] for origin in origins} == {"b", "c"}
    assert answered >= 500 + 300


def test_a_file_that_is_replaced_before_it_is_read_is_quarantined(
    spark: SparkSession, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("a.parquet", 0)
    planned = parquet_source.split

    def replaced(*given: Any) -> Any:
        bucket.put("a.parquet", 5000)
        return planned(*given)

    monkeypatch.setattr(parquet_source, "split", replaced)
    with _engine(spark, bucket.path).start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
        assert run.results("late").count() == 0
    reasons = {str(row["reason"]) for row in quarantined(tmp_path / "out")}
    assert reasons == {"unreadable row group: the file has changed since its batch began"}


def test_a_prefix_without_files_is_one_message(spark: SparkSession, bucket: Bucket) -> None:
    with pytest.raises(ConnectionFailedError) as raised:
        _engine(spark, bucket.path)
    message = f"table flights: {bucket.path} has no files yet. Add a file, or correct the option path."
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("path", "environment", "message"),
    [
        ("s3://no-such-bucket/a", {}, "the bucket does not exist; create it, or name another one"),
        ("s3://bucket/a", {"AWS_SECRET_ACCESS_KEY": "wrong-one"}, "the credentials are wrong or expired"),
        (
            "s3://bucket/a",
            {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"},
            "the store does not answer",
        ),
    ],
)
def test_a_bucket_that_cannot_be_read_is_one_message(
    spark: SparkSession,
    path: str,
    environment: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    with pytest.raises(ConnectionFailedError) as raised:
        _engine(spark, path)
    told = str(raised.value)
    assert told.startswith(f"table flights: {path}: ")
    assert message in told
    assert "wrong-one" not in told
    assert raised.value.exit_code == 2
    assert time.monotonic() - began < 20


def test_secrets_are_in_no_settings_that_spark_shows(
    spark: SparkSession, bucket: Bucket, s3: S3Server
) -> None:
    bucket.put("a.parquet", 0)
    engine = _engine(spark, bucket.path)
    secrets = s3.environment()["AWS_SECRET_ACCESS_KEY"]
    assert secrets not in engine.explain()
    assert not any(secrets in value for _, value in spark.sparkContext.getConf().getAll())
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    shown = spark._jvm.org.apache.spark.util.Utils.redact(  # type: ignore[union-attr]
        spark.sparkContext._jsc.sc().conf(),  # type: ignore[attr-defined]
        spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(  # type: ignore[union-attr]
            spark._jvm.java.util.HashMap(configuration.getPropsWithPrefix("fs.s3a."))  # type: ignore[union-attr]
        ).toSeq(),
    ).toString()
    assert "bucket.bucket.secret.key" in shown
    assert secrets not in shown


def test_the_settings_of_the_user_for_a_bucket_remain(spark: SparkSession, bucket: Bucket) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    bucket.put("a.parquet", 0)
    _engine(spark, bucket.path)
    assert configuration.get("fs.s3a.bucket.bucket.path.style.access") == "true"
    assert configuration.get("fs.s3a.bucket.other.access.key") is None
    assert configuration.get("fs.s3a.access.key") is None


def test_a_session_without_the_file_system_is_one_message(spark: SparkSession) -> None:
    with pytest.raises(ConnectionFailedError) as raised:
        configure(spark, StoreAddress.of("gs://bucket/a"))
    assert str(raised.value) == (
        "This Spark session has no file system of gs://: class org.apache.hadoop.fs.gs.GoogleHadoopFileSystem is missing. "
        "Start the session with `build_session(..., stores=['gs://...'])`, or with the Spark settings "
        "spark.jars.packages=org.apache.hadoop:hadoop-gcp:3.5.0"
    )


def test_azure_needs_its_account(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InputError, match="az://"):
        _engine(spark, "az://container/a")


@pytest.mark.long
def test_a_run_by_command_with_options_of_the_store(bucket: Bucket, s3: S3Server, tmp_path: Path) -> None:
    bucket.put("a.parquet", 0)
    script = tmp_path / "flights.sql"
    script.write_text(
        f"CREATE TABLE flights ({COLUMNS}) USING parquet OPTIONS (path '{bucket.path}'); "
        f"CREATE VIEW late AS {VIEWS['late']};"
    )
    given = s3.environment()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "penstock.cli.main"]
    options = [
        part
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        for part in ("--set", f"store.{name.lower()}={given[name]}")
    ]

    def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = ended(
        "run", "flights.sql", "--available-now", *options[:-1], "store.aws_secret_access_key=wrong-one"
    )
    assert refused.returncode == 2
    assert "the credentials are wrong or expired" in refused.stderr
    assert "wrong-one" not in refused.stderr + refused.stdout
    assert not (tmp_path / "penstock-out").exists()

    run = ended("run", "flights.sql", "--available-now", *options)
    assert run.returncode == 0, run.stderr
    assert "file system of s3://: " in run.stderr
    assert given["AWS_SECRET_ACCESS_KEY"] not in run.stderr + run.stdout
    secret = given["AWS_SECRET_ACCESS_KEY"].encode()
    assert not any(
        secret in path.read_bytes() for path in (tmp_path / "penstock-out").rglob("*") if path.is_file()
    )
    rows = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "penstock-out").rglob("*.parquet")])
    assert rows.num_rows >= sum(row["delay"] > 90 for row in _table(0).to_pylist())
