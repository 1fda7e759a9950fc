"""Jars that Spark does not have and a session needs: where they are taken from."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError

#: names a folder with jars
VARIABLE = "PENSTOCK_JARS"
JARS, PACKAGES, EXCLUDES = "spark.jars", "spark.jars.packages", "spark.jars.excludes"
#: options of spark-submit that name jars or packages, and the settings that they win over
_OPTIONS = {"--jars": JARS, "--packages": PACKAGES, "--exclude-packages": EXCLUDES}
_SUBMITTED = "PYSPARK_SUBMIT_ARGS"
#: where the targets of the Makefile put jars, in a clone of the project
FETCHED = Path(__file__).parents[4] / ".cache"
#: between a setting and its value in Spark's configuration file
_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+")


@dataclass(frozen=True, slots=True)
class Library:
    """What a session may need beyond Spark's own jars.

    Attributes:
        name: for messages, such as `Kafka connector`.
        provider: a class of it.
        artifact: the Maven artifact with this class; the names of its jars begin with it.
        own: patterns of the names of the jars that depend on the version of Spark or Hadoop.
        others: patterns of the names of the jars that it needs besides.
        packages: Maven coordinates, as `spark.jars.packages` takes them.
        excludes: dependencies that are not needed, as `spark.jars.excludes` takes them.
        folder: name of the folder in the project's `.cache` that has its jars.
        target: of the Makefile, which fetches them.
    """

    name: str
    provider: str
    artifact: str
    own: tuple[str, ...]
    others: tuple[str, ...]
    packages: tuple[str, ...]
    folder: str
    target: str
    excludes: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """What helps where Spark cannot fetch the packages."""
        fetched = f"Run `make {self.target}` in the project's folder, or set" if self.target else "Set"
        return f"{fetched} {VARIABLE} to a folder with the jars of the {self.name}."

    @property
    def settings(self) -> str:
        """The settings by which Spark fetches it, for a message."""
        told = f"{PACKAGES}={','.join(self.packages)}"
        return f"{told} and {EXCLUDES}={','.join(self.excludes)}" if self.excludes else told


@dataclass(frozen=True, slots=True)
class Found:
    """Where a session gets a library from.

    Attributes:
        name: the library's.
        source: the place, for a message.
        conf: the Spark settings that add the library to a session; empty if the session has it anyway.
    """

    name: str
    source: str
    conf: Mapping[str, str]

    def __str__(self) -> str:
        """Where it is from, in one line."""
        return f"{self.name}: {self.source}"


def find_library(library: Library, conf: Mapping[str, str]) -> Found:
    """Choose where a new session gets a library from.

    The first of these that has it: jars and packages that the user's own settings name, Spark's own jars, the folder that
    the variable PENSTOCK_JARS names, the library's folder in the project's `.cache`. Otherwise Spark fetches its packages.

    Args:
        library: the library.
        conf: the user's Spark settings.

    Raises:
        InputError: PENSTOCK_JARS names a folder without the library.
    """
    home = spark_home()
    given = {**_defaults(home), **conf}
    for _, setting, value in _submitted(shlex.split(os.environ.get(_SUBMITTED, ""))):
        given[setting] = _with(given, setting, [value])
    for setting in (JARS, PACKAGES):
        if any(_has(library, each) for each in _listed(given.get(setting, ""))):
            return Found(library.name, f"{setting} names it", {})
    if next(home.glob(f"jars/{library.artifact}[-_]*.jar"), None) is not None:
        return Found(library.name, f"{home / 'jars'} has it", {})
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else FETCHED / library.folder
    missing = [name for name in (*library.own, *library.others) if next(folder.glob(name), None) is None]
    if not missing:
        stems = tuple(re.split(r"[-_]\d", name)[0] for name in library.own)
        jars = sorted(
            str(jar.absolute())
            for jar in folder.glob("*.jar")
            if any(map(jar.match, library.own)) or not jar.name.startswith(stems)
        )
        return Found(library.name, f"{folder} ({len(jars)} jars)", {JARS: _with(given, JARS, jars)})
    if named:
        raise InputError(
            f"{VARIABLE} is {named}. This folder has no {' and no '.join(missing)}. "
            f"Name a folder with the jars of the {library.name}, or unset the variable."
        )
    settings = {PACKAGES: _with(given, PACKAGES, library.packages)}
    if library.excludes:
        settings[EXCLUDES] = _with(given, EXCLUDES, library.excludes)
    return Found(
        library.name,
        f"Spark fetches {', '.join(library.packages)} (the first time takes a minute)",
        settings,
    )


def find_libraries(libraries: Iterable[Library], conf: Mapping[str, str]) -> list[Found]:
    """Choose where a new session gets some libraries from, see `find_library`; the settings of each include those before it.

    Args:
        libraries: what the session needs.
        conf: the user's Spark settings.

    Raises:
        InputError: PENSTOCK_JARS names a folder without one of them.
    """
    found: list[Found] = []
    together = dict(conf)
    for library in libraries:
        found.append(find_library(library, together))
        together |= found[-1].conf
    return found


def spark_home() -> Path:
    """Return the folder of the installed Spark."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "PySpark is a requirement"
    assert found.origin is not None, "it is no namespace"
    return Path(found.origin).parent


def jar_version(pattern: str, jar: re.Pattern[str]) -> re.Match[str]:
    """Match the name of one of Spark's own jars.

    Args:
        pattern: of its name, for a listing.
        jar: matches the whole name.

    Raises:
        InputError: SPARK_HOME names a folder without this jar.
    """
    home = spark_home()
    for path in home.glob(f"jars/{pattern}"):
        if (found := jar.fullmatch(path.name)) is not None:
            return found
    raise InputError(
        f"{home / 'jars'} has no jar {pattern.partition('*')[0].rstrip('_-')}. Set SPARK_HOME to an installation of "
        "Spark, or unset it."
    )


def _defaults(home: Path) -> dict[str, str]:
    """The settings of Spark's configuration file that name jars and packages."""
    path = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    lines = path.read_text().splitlines() if path.is_file() else []
    pairs = (_SEPARATOR.split(line.strip(), maxsplit=1) for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] in _OPTIONS.values()}


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


def _has(library: Library, jar: str) -> bool:
    """Whether a jar or package is a library, or a local jar has its class."""
    if library.artifact in jar:
        return True
    path = Path(jar.removeprefix("file://").removeprefix("file:"))
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{library.provider.replace('.', '/')}.class" in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return False


def _with(given: Mapping[str, str], setting: str, more: Sequence[str]) -> str:
    """A setting's value with further entries."""
    return ",".join(dict.fromkeys([*_listed(given.get(setting, "")), *more]))
