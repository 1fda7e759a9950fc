"""Spark's Kafka connector: where a session gets it from."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError

#: names a folder with the connector's jars
VARIABLE = "PENSTOCK_JARS"
JARS, PACKAGES = "spark.jars", "spark.jars.packages"
#: the class that Spark looks for
PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
#: options of spark-submit that name jars or packages, and the settings that they win over
_OPTIONS = {"--jars": JARS, "--packages": PACKAGES}
_SUBMITTED = "PYSPARK_SUBMIT_ARGS"
_ARTIFACT, _TOKENS = "spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10"
#: what helps where Spark cannot fetch it
HOW_TO_GET_JARS = (
    f"Run `make kafka-jars` in the project's folder, or set {VARIABLE} to a folder with the connector's jars."
)
#: where `make kafka-jars` puts the jars, in a clone of the project
_FETCHED = Path(__file__).parents[4] / ".cache" / "kafka-connector"
#: between a setting and its value in Spark's configuration file
_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+")
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
    fetches the package for its own version. Jars for another major version of Spark or another Scala are passed over.

    Args:
        conf: the user's Spark settings.

    Raises:
        InputError: PENSTOCK_JARS names a folder without the connector.
    """
    home = _spark_home()
    given = {**_defaults(home), **conf}
    for _, setting, value in _submitted(shlex.split(os.environ.get(_SUBMITTED, ""))):
        given[setting] = _with(given, setting, value)
    for setting in (JARS, PACKAGES):
        if any(_has_connector(each) for each in _listed(given.get(setting, ""))):
            return Connector(f"{setting} names it", {})
    if next(home.glob(f"jars/{_ARTIFACT}_*.jar"), None) is not None:
        return Connector(f"{home / 'jars'} has it", {})
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else _FETCHED
    scala, spark = spark_versions()
    # the connector of the newest Spark may not be at every mirror; one of the same major version works the same
    own = [f"{name}_{scala}-{spark.partition('.')[0]}.*.jar" for name in (_ARTIFACT, _TOKENS)]
    needed = [*own, "kafka-clients-*.jar", "commons-pool2-*.jar"]
    missing = [name for name in needed if next(folder.glob(name), None) is None]
    if not missing:
        jars = sorted(
            str(jar.absolute())
            for jar in folder.glob("*.jar")
            if any(jar.match(name) for name in own) or not jar.name.startswith((_ARTIFACT, _TOKENS))
        )
        return Connector(f"{folder} ({len(jars)} jars)", {JARS: _with(given, JARS, ",".join(jars))})
    if named:
        raise InputError(
            f"{VARIABLE} is {named}. This folder has no {' and no '.join(missing)}. "
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
    pairs = (_SEPARATOR.split(line.strip(), maxsplit=1) for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] in (JARS, PACKAGES)}


@contextmanager
def merged_submit_arguments(conf: Mapping[str, str]) -> Iterator[None]:
    """Omit, meanwhile, the options of the environment whose jars and packages a session's settings name too.

    Otherwise these options win over the settings, and Spark ignores what only the settings name.
    """
    given = os.environ.get(_SUBMITTED)
    if given is None:
        yield
        return
    arguments = shlex.split(given)
    for place, setting, value in reversed(list(_submitted(arguments))):
        if set(_listed(value)) <= set(_listed(conf.get(setting, ""))):
            del arguments[place]
    os.environ[_SUBMITTED] = shlex.join(arguments)
    try:
        yield
    finally:
        os.environ[_SUBMITTED] = given


def _submitted(arguments: Sequence[str]) -> Iterator[tuple[slice, str, str]]:
    """The options for spark-submit that name jars or packages: each one's place, setting and value."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name not in _OPTIONS:
            continue
        if equals:
            yield slice(place, place + 1), _OPTIONS[name], value
        elif place + 1 < len(arguments):
            yield slice(place, place + 2), _OPTIONS[name], arguments[place + 1]


def _listed(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]


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
