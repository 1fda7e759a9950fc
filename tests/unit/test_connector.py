"""A session gets Kafka's connector from the user's settings, from jars on this machine, or by a package."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.spark.sessions import libraries
from penstock.spark.sessions.connector import kafka_connector
from penstock.spark.sessions.libraries import Found, find_library, merged_submit_arguments

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"
NAMES = (
    "spark-sql-kafka-0-10_2.13-4.3.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.3.0.jar",
    "kafka-clients-3.9.1.jar",
    "commons-pool2-2.12.1.jar",
)
OLD = [name.replace("4.3.0", "3.5.1") for name in NAMES]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (libraries.VARIABLE, "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "spark"
    _jars(home / "jars", ["spark-core_2.13-4.3.0.jar"])
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(libraries, "FETCHED", tmp_path / "clone")


def find_connector(conf: dict[str, str]) -> Found:
    return find_library(kafka_connector(), conf)


def _jars(folder: Path, names: tuple[str, ...] | list[str] = NAMES) -> str:
    """Makes a folder of empty jars; gives their paths as `spark.jars` takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return ",".join(sorted(str(folder / name) for name in names))


def test_jars_of_the_clone_are_taken(tmp_path: Path) -> None:
    jars = _jars(tmp_path / "clone" / "kafka-connector")
    found = find_connector({})
    assert found.conf == {"spark.jars": jars}
    assert found.source == f"{tmp_path / 'clone' / 'kafka-connector'} (4 jars)"


def test_a_named_folder_wins_over_the_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _jars(tmp_path / "clone" / "kafka-connector")
    jars = _jars(tmp_path / "own")
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "own"))
    assert find_connector({}).conf == {"spark.jars": jars}


@pytest.mark.parametrize("names", [[], NAMES[:3], ["spark-sql-kafka-0-10_2.12-4.3.0.jar", *NAMES[1:]], OLD])
def test_a_named_folder_without_the_connector_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    _jars(tmp_path / "own", names)
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "own"))
    with pytest.raises(
        InputError, match=r"PENSTOCK_JARS is .*own\. This folder has no .*\.jar\. Name a folder"
    ):
        find_connector({})


@pytest.mark.parametrize("names", [[], NAMES[:3], OLD])
def test_without_jars_spark_fetches_its_own_version(tmp_path: Path, names: list[str]) -> None:
    _jars(tmp_path / "clone" / "kafka-connector", names)
    found = find_connector({})
    assert found.conf == {"spark.jars.packages": PACKAGE}
    assert PACKAGE in found.source


def test_what_the_user_gives_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = _jars(tmp_path / "clone" / "kafka-connector")
    with zipfile.ZipFile(tmp_path / "all-in-one.jar", "w") as archive:
        archive.writestr("org/apache/spark/sql/kafka010/KafkaSourceProvider.class", b"")
    other = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    for setting, value in (
        ("spark.jars.packages", f"a:b:1,{other}"),
        ("spark.jars", f"x.jar,{tmp_path / 'all-in-one.jar'}"),
        ("spark.jars", f"file:{tmp_path / 'all-in-one.jar'}"),
    ):
        found = find_connector({setting: value})
        assert (found.conf, found.source) == ({}, f"{setting} names it")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--packages {other} pyspark-shell")
    assert find_connector({}).conf == {}
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"# Spark\nspark.jars.packages  {other}\n")
    assert find_connector({}).conf == {}
    for separator in ("=", "\t", " \t= ", " ", ":"):
        (tmp_path / "spark-defaults.conf").write_text(f"spark.jars{separator}driver.jar\n")
        assert find_connector({}).conf == {"spark.jars": f"driver.jar,{jars}"}
    (tmp_path / "spark-defaults.conf").unlink()
    _jars(tmp_path / "spark" / "jars", ["spark-sql-kafka-0-10_2.13-4.3.0.jar"])
    assert find_connector({}).conf == {}


def test_other_jars_and_packages_of_the_user_remain(tmp_path: Path) -> None:
    assert find_connector({"spark.jars.packages": "a:b:1"}).conf == {
        "spark.jars.packages": f"a:b:1,{PACKAGE}"
    }
    jars = _jars(tmp_path / "clone" / "kafka-connector")
    assert find_connector({"spark.jars": "driver.jar"}).conf == {"spark.jars": f"driver.jar,{jars}"}


def test_a_spark_home_without_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(InputError, match="has no jar spark-core"):
        find_connector({})


def test_jars_of_another_version_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "clone" / "kafka-connector"
    _jars(folder, OLD)
    jars = _jars(folder)
    assert find_connector({}).conf == {"spark.jars": jars}


@pytest.mark.parametrize("form", ["--packages a:b:1,c:d:2", "--packages=a:b:1,c:d:2"])
def test_the_connector_is_added_to_the_packages_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    submitted = f"--name x {form} --jars own.jar pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submitted)
    found = find_connector({})
    assert found.conf == {"spark.jars.packages": f"a:b:1,c:d:2,{PACKAGE}"}
    with merged_submit_arguments(found.conf):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name x --jars own.jar pyspark-shell"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == submitted
    with merged_submit_arguments({"spark.jars.packages": "a:b:1"}):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == submitted


def test_the_connector_is_added_to_the_jars_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars = _jars(tmp_path / "clone" / "kafka-connector")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars own.jar pyspark-shell")
    found = find_connector({})
    assert found.conf == {"spark.jars": f"own.jar,{jars}"}
    with merged_submit_arguments(found.conf):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "pyspark-shell"
