"""The files of deploy/: they are whole, and name what exists, in the versions that are pinned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.spark.sessions.file_systems import file_system
from penstock.sql.script.script import parse_script

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
APPLICATION = "spark-application.yaml"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    """The manifests by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / APPLICATION).read_text())}


def _pinned(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def test_the_image_has_the_spark_that_is_pinned() -> None:
    assert re.search(r"^ARG SPARK_VERSION=(\S+)$", DOCKERFILE, re.MULTILINE)[1] == _pinned("pyspark")  # type: ignore[index]
    assert "FROM apache/spark:${SPARK_VERSION}" in DOCKERFILE


def test_the_image_copies_what_exists_and_names_no_index() -> None:
    copied = [
        name for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    ]
    assert {"pyproject.toml", "src", "deploy/penstock_main.py"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert not re.search(r"index-url|https?://", DOCKERFILE)
    (extras,) = re.findall(r"source\[([\w,]+)\]", DOCKERFILE)
    assert set(extras.split(",")) <= _project()["optional-dependencies"].keys()
    assert _project()["readme"] in copied, "its build reads it"


def test_the_application_runs_the_program_of_the_image(documents: dict[str, Any]) -> None:
    spec = documents["SparkApplication"]["spec"]
    assert spec["sparkVersion"] == _pinned("pyspark")
    assert spec["image"] == f"penstock:{_project()['version']}"
    program = spec["mainApplicationFile"].removeprefix("local://")
    assert f"COPY deploy/penstock_main.py {program}" in DOCKERFILE
    assert spec["deps"]["packages"] == list(file_system("s3").packages[:1])
    command, script, *options = spec["arguments"]
    assert (command, options[0]) == ("run", "--output")
    (mount,) = spec["driver"]["volumeMounts"]
    (volume,) = spec["volumes"]
    assert mount["name"] == volume["name"]
    assert volume["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    folder, _, name = script.rpartition("/")
    assert (folder, name in documents["ConfigMap"]["data"]) == (mount["mountPath"], True)


def test_the_script_of_the_application_is_one_and_has_its_variables(documents: dict[str, Any]) -> None:
    (text,) = documents["ConfigMap"]["data"].values()
    assert parse_script(text).views
    given = {each["name"] for each in documents["SparkApplication"]["spec"]["driver"]["env"]}
    assert set(re.findall(r"\$\{env:(\w+)\}", text)) <= given


def test_the_page_names_these_files() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert all(f"deploy/{file.name}" in page for file in DEPLOY.iterdir())
    assert f"penstock:{_project()['version']}" in page
    assert file_system("s3").packages[0] in page
