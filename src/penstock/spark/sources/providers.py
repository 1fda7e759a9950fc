"""What opens a stream: the interface of sources, and those that installed packages register.

A package registers a source by an entry point of the group `penstock.sources`, whose name is the word after USING and whose object is
a class of providers without arguments:

    [project.entry-points."penstock.sources"]
    gauges = "river.gauges:GaugeProvider"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, cast

from penstock.errors import UnknownNameError, UnsupportedError
from penstock.spark.sources.reader_options import plain_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.settings import Settings
    from penstock.spark.sources.source import Source
    from penstock.spark.sources.stored_fields import StoredFields
    from penstock.sql.script.statements import CreateTable

GROUP = "penstock.sources"
#: sources of packages that this repository has beside Penstock
_PACKAGES = {"network": "penstock_lab"}


@dataclass(frozen=True, slots=True)
class StreamTable:
    """The CREATE TABLE statement of a stream, as a provider opens it.

    Attributes:
        statement: the statement; `at` gives the place of a part for an error.
        columns: the declared ones; None: none are declared.
        options: values by plain name (`plain_option`), without those below.
        event_time: name of the event time column, or None.
        event_time_format: how it is stored; None: as a timestamp, as in all sources of other packages.
        arrival: name of the column that Penstock adds to a `DataFrameSource`, with the time of the batch, or None.
        settings: frozen settings.
        fields: how the columns are taken from inside JSON records; None: each has a field of its name.
    """

    statement: CreateTable
    columns: StructType | None
    options: Mapping[str, str]
    event_time: str | None
    event_time_format: str | None
    arrival: str | None
    settings: Settings
    fields: StoredFields | None = None

    @property
    def stored(self) -> StructType | None:
        """The declared columns as records have them."""
        return self.columns if self.fields is None else self.fields.stored


class SourceProvider(Protocol):
    """A kind of stream: what CREATE TABLE ... USING its name opens."""

    def options(self, given: Mapping[str, str]) -> Iterable[str]:
        """Return the names of its options as documentation writes them, without those of every table.

        Args:
            given: the options of a table, as they are written.
        """
        ...

    def open(self, spark: SparkSession, table: StreamTable) -> Source:
        """Open the stream that a table declares; read nothing yet.

        Args:
            spark: the session.
            table: the declaration. Penstock has refused options that `options` does not name.

        Raises:
            PenstockError: an option has no allowed value, or the source cannot be reached.
        """
        ...


def registered_names() -> tuple[str, ...]:
    """Return the names of the sources that installed packages register, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def registered_provider(table: CreateTable) -> SourceProvider | None:
    """Load the provider of a table's source from the package that registers it; None if no package does.

    Raises:
        UnsupportedError: several packages register the source, its package fails to load, or it is known and not installed.
    """
    name = table.source
    found = tuple(entry_points(group=GROUP, name=name))
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise UnsupportedError(
            f"table {table.name}: the packages {packages} each register a source {name}. Uninstall all but one.",
            *table.at("using"),
        )
    if not found:
        if name not in _PACKAGES:
            return None
        raise UnsupportedError(
            f"table {table.name}: source {name} needs the package {_PACKAGES[name]}, which is not installed. Install it.",
            *table.at("using"),
        )
    try:
        return cast(SourceProvider, found[0].load()())
    except Exception as error:
        raise UnsupportedError(
            f"table {table.name}: source {name} of package {_package(found[0])} cannot be loaded: {error}. Reinstall the "
            "package with what it needs.",
            *table.at("using"),
        ) from error


def refuse_unknown(table: CreateTable, known: Mapping[str, str]) -> None:
    """Refuse an option that the source of another package does not have.

    Args:
        table: the statement.
        known: plain names of the options to the names as documentation writes them.

    Raises:
        UnknownNameError: the first such option.
    """
    for name in table.options:
        if plain_option(name) not in known:
            # slips were refused before: an option that other sources have is not meant to be another
            raise UnknownNameError(
                f"table {table.name}: source {table.source} has no option {name}. Options: {', '.join(known.values())}",
                *table.at(name),
                name=name,
                known=tuple(known.values()),
            )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
