"""A password in a table's options is on no screen and in no file but the script."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commands import called
from penstock.errors import InputError
from penstock.spark.engine import Engine
from penstock_lab.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

MARKER = "SECRET_PW_777"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARKER}";'
SECRET = f"kafka.sasl.jaas.config '{JAAS}', kafka.ssl.key.password '{MARKER}'"


def _script(address: str, topic: str, more: str = "") -> str:
    return (
        f"CREATE TABLE k (id INT) USING kafka OPTIONS (kafka.bootstrap.servers '{address}', subscribe '{topic}', {SECRET}, "
        f"startingOffsets 'earliest'{more});\n"
        f"CREATE TABLE told USING kafka OPTIONS (kafka.bootstrap.servers '{address}', topic '{topic}-out', {SECRET});\n"
        "CREATE VIEW v AS SELECT * FROM k WHERE id > 1;\nINSERT INTO told SELECT * FROM v;\n"
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "no Kafka broker answers"),
        (", max_offsets_per_trigger 'x'", "Write a whole number"),
        (", event_time 'id'", "no Kafka broker answers"),
        (", startingofsets 'x'", "did you mean starting_offsets"),
        (", x", "Expected a value here"),
    ],
)
def test_a_refused_table_is_shown_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, told: str
) -> None:
    (tmp_path / "q.sql").write_text(_script("127.0.0.1:1", "t", more))
    for command in (("check",), ("explain",), ("run", "--output", str(tmp_path / "out"))):
        assert called(command[0], str(tmp_path / "q.sql"), *command[1:]) == 2
        shown = capsys.readouterr()
        assert MARKER not in shown.out + shown.err
        assert told in shown.err
        assert "kafka.sasl.jaas.config '***'" in shown.err
    assert not (tmp_path / "out").exists()


def test_a_traceback_shows_no_password(spark: SparkSession) -> None:
    with pytest.raises(InputError) as refused:
        Engine(spark).execute(_script("127.0.0.1:1", "t"))
    assert MARKER not in "".join(traceback.format_exception(refused.value))


def test_a_run_writes_its_password_nowhere(
    spark: SparkSession,
    kafka: KafkaBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"secret-{tmp_path.name}".replace("_", "-")
    kafka.create_topic(topic)
    kafka.create_topic(f"{topic}-out")
    values = spark.createDataFrame([(json.dumps({"id": number}),) for number in range(9)], "value STRING")
    values.write.format("kafka").option("kafka.bootstrap.servers", kafka.address).option(
        "topic", topic
    ).save()
    script, out = tmp_path / "q.sql", tmp_path / "out"
    script.write_text(_script(kafka.address, topic))
    with caplog.at_level(logging.DEBUG, "penstock"):
        for arguments in (
            ("check", str(script)),
            ("explain", str(script)),
            ("run", str(script), "--output", str(out), "--available-now"),
            ("status", str(out)),
            ("results", str(out), "v"),
        ):
            assert called(*arguments) == 0
    shown = capsys.readouterr()
    assert MARKER not in shown.out + shown.err + caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != script]
    assert len(files) > 10
    assert [file for file in files if MARKER.encode() in file.read_bytes()] == []
