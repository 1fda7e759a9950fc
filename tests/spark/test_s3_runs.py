"""Runs whose results and checkpoint are in a bucket: answers as of a local run, read by commands, and bad buckets refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commands import alone
from every_kind import FILES, put, rows_of, start
from forms import ALL
from penstock.errors import CheckpointError, ConnectionFailedError
from penstock.spark.storage.layout import Layout
from penstock_lab.servers.s3 import READER, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("s3_environment")]


def _prefix(name: str) -> str:
    return f"s3://bucket/{name}-{time.time_ns()}"


@pytest.fixture(scope="module")
def tuples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `in`."""
    root = tmp_path_factory.mktemp("tuples")
    for number in range(FILES if ALL else 4):
        put(root / "in", number)
    return root


def test_every_kind_of_view_answers_as_in_a_local_folder(
    spark: SparkSession, tuples: Path, tmp_path: Path, s3_environment: S3Server
) -> None:
    output = _prefix("kinds")
    with_bucket = rows_of(start(spark, tuples, output, ended=True))
    again = rows_of(start(spark, tuples, output, ended=True))
    local = rows_of(start(spark.newSession(), tuples, tmp_path / "out", ended=True))
    assert with_bucket == local
    assert again == local, "a second start repeats nothing"
    assert all(local.values())
    variables = s3_environment.environment()
    read = alone("results", output, "large", "--limit", "0", "--format", "json", **variables)
    assert read.returncode == 0, read.stderr
    assert len({json.loads(line)["id"] for line in read.stdout.splitlines()}) == local["large"].total()
    status = alone("status", output, "--format", "json", **variables)
    assert json.loads(status.stdout)["state"] == "ended"
    assert f"{output}/matches/s/" in alone("files", output, "s", **variables).stdout
    checked = alone("verify", output, **variables)
    assert (checked.returncode, "no damage found" in checked.stdout) == (0, True), checked.stdout


def test_a_bucket_in_use_is_refused_and_a_closed_one_is_not(spark: SparkSession, tmp_path: Path) -> None:
    output = _prefix("fenced")
    first = Layout.of(output, None)
    ledger = first.open(lambda: True)
    put(tmp_path / "in", 0)
    with pytest.raises(CheckpointError, match="is in use by"):
        start(spark, tmp_path, output)
    ledger.close()
    start(spark, tmp_path, output)


@pytest.mark.parametrize(
    ("output", "variables", "told"),
    [
        ("s3://missing/out", {}, "the bucket does not exist; create it"),
        ("s3://bucket/out", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the credentials are wrong or expired"),
        (
            "s3://bucket/out",
            {"AWS_ACCESS_KEY_ID": READER, "AWS_SECRET_ACCESS_KEY": "reader-secret"},
            "permission denied; allow reading, writing, listing and deleting objects below this address",
        ),
    ],
)
def test_a_bucket_that_cannot_be_written_is_refused_before_anything_starts(
    output: str, variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConnectionFailedError, match=told):
        Layout.of(f"{output}-{time.time_ns()}", None).check()


def test_a_prefix_of_another_checkpoint_is_refused() -> None:
    output, elsewhere = _prefix("other"), _prefix("elsewhere")
    Layout.of(output, None).open().close()
    with pytest.raises(CheckpointError, match=r"has results, but its checkpoint .* does not exist"):
        Layout.of(output, elsewhere).open()
    Layout.of(_prefix("third"), elsewhere).open().close()
    with pytest.raises(CheckpointError, match="has the results of another checkpoint than"):
        Layout.of(output, elsewhere).open()


def test_a_folder_that_cannot_be_read_is_one_message(s3_environment: S3Server) -> None:
    refused = alone("status", _prefix("none"), **s3_environment.environment())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "does not exist. A run creates it when it starts." in refused.stderr
    wrong = {**s3_environment.environment(), "AWS_SECRET_ACCESS_KEY": "wrong"}
    refused = alone("status", _prefix("none"), **wrong)
    assert refused.returncode == 2
    assert "the credentials are wrong or expired" in refused.stderr
