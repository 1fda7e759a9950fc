"""Spark's Kafka connector: where a session gets it from."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shlex
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError

#: names a folder with the connector's jars
VARIABLE = "PENSTOCK_JARS"
JARS, PACKAGES = "spark.jars", "spark.jars.packages"
#: the class that Spark looks for
PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
#: settings and options of Spark that name jars or packages
_NAMING = (JARS, PACKAGES, "--jars", "--packages")
_ARTIFACT = "spark-sql-kafka-0-10"
#: what helps where Spark cannot fetch it
HOW_TO_GET_JARS = (
    f"Run `make kafka-jars` in the project's folder, or set {VARIABLE} to a folder with the connector's jars."
)
#: where `make kafka-jars` puts the jars, in a clone of the project
_FETCHED = Path(__file__).parents[4] / ".cache" / "kafka-connector"
_CORE = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<spark>\d\S*)\.jar")


@dataclass(frozen=True, slots=True)
class Connector:
    """Where a session gets Spark's Kafka connector from.

    Attributes:
        source: the place, for a message.
        conf: the Spark settings that add the connector to a session; empty if the session has it anyway.
    """

    source: str
    conf: Mapping[str, str]

    def __str__(self) -> str:
        """Where it is from, in one line."""
        return f"Kafka connector: {self.source}"


def find_connector(conf: Mapping[str, str]) -> Connector:
    """Chooses where a new session gets the Kafka connector from.

    The first of these that has the connector: jars and packages that the user's own settings name, Spark's own
    jars, the folder that the variable PENSTOCK_JARS names, the project's `.cache/kafka-connector`. Otherwise Spark
    fetches the package for its own version.

    Args:
        conf: the user's Spark settings.

    Raises:
        InputError: PENSTOCK_JARS names a folder without the connector.
    """
    home = _spark_home()
    given = {**_defaults(home), **conf}
    for setting, value in (*given.items(), *_submit_arguments()):
        if setting in _NAMING and any(_has_connector(each.strip()) for each in value.split(",")):
            return Connector(f"{setting} names it", {})
    if next(home.glob(f"jars/{_ARTIFACT}_*.jar"), None) is not None:
        return Connector(f"{home / 'jars'} has it", {})
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else _FETCHED
    scala, _ = spark_versions()
    needed = [
        f"{_ARTIFACT}_{scala}",
        f"spark-token-provider-kafka-0-10_{scala}",
        "kafka-clients",
        "commons-pool2",
    ]
    missing = [name for name in needed if next(folder.glob(f"{name}-*.jar"), None) is None]
    if not missing:
        jars = sorted(str(jar.absolute()) for jar in folder.glob("*.jar"))
        return Connector(f"{folder} ({len(jars)} jars)", {JARS: _with(given, JARS, ",".join(jars))})
    if named:
        raise InputError(
            f"{VARIABLE} is {named}. This folder has no {' and no '.join(f'{name}-*.jar' for name in missing)}. "
            "Name a folder with the jars of Spark's Kafka connector, or unset the variable."
        )
    package = connector_package()
    return Connector(
        f"Spark fetches {package} (the first time takes a minute)",
        {PACKAGES: _with(given, PACKAGES, package)},
    )


def connector_package() -> str:
    """The Maven coordinates of the connector for this Scala and Spark version, as `spark.jars.packages` takes them."""
    scala, spark = spark_versions()
    return f"org.apache.spark:{_ARTIFACT}_{scala}:{spark}"


def spark_versions() -> tuple[str, str]:
    """The Scala and the Spark version of the installed Spark, such as ("2.13", "4.3.0").

    Raises:
        InputError: SPARK_HOME names a folder without Spark's jars.
    """
    home = _spark_home()
    for jar in home.glob("jars/spark-core_*.jar"):
        if (found := _CORE.fullmatch(jar.name)) is not None:
            return found["scala"], found["spark"]
    raise InputError(
        f"{home / 'jars'} has no jar spark-core. Set SPARK_HOME to an installation of Spark, or unset it."
    )


def _spark_home() -> Path:
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "PySpark is a requirement"
    assert found.origin is not None, "it is no namespace"
    return Path(found.origin).parent


def _defaults(home: Path) -> dict[str, str]:
    """The settings of Spark's configuration file that name jars and packages."""
    path = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    lines = path.read_text().splitlines() if path.is_file() else []
    pairs = (line.strip().replace("=", " ", 1).partition(" ") for line in lines)
    return {setting: value.strip() for setting, _, value in pairs if setting in _NAMING}


def _submit_arguments() -> Iterable[tuple[str, str]]:
    """The options for spark-submit in the environment, each with its value."""
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return itertools.pairwise(arguments)


def _has_connector(jar: str) -> bool:
    """Whether a jar or package is the connector, or a local jar has its class."""
    if _ARTIFACT in jar:
        return True
    path = Path(jar.removeprefix("file://").removeprefix("file:"))
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{PROVIDER.replace('.', '/')}.class" in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return False


def _with(given: Mapping[str, str], setting: str, more: str) -> str:
    own = given.get(setting)
    return f"{own},{more}" if own else more
