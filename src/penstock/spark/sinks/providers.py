"""What opens a sink: the interface of sinks, those of Penstock, and those that installed packages register.

A package registers a sink by an entry point of the group `penstock.sinks`, whose name is the word after USING and whose object is
a class of providers without arguments:

    [project.entry-points."penstock.sinks"]
    pager = "hospital.pager:PagerProvider"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from penstock.errors import UnknownNameError, UnsupportedError, meant
from penstock.spark.sinks.published import Limits
from penstock.spark.sources.reader_options import by_plain_name, plain_option
from penstock.sql.script.statements import SINKS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.sinks.delivery import Delivery, Form, Mode
    from penstock.sql.script.statements import CreateTable

GROUP = "penstock.sinks"
#: options of every sink
COMMON = ("mode", "final_only", "key", "begin", "every")
Promise = Literal["exactly once", "at least once"]


class Target(Protocol):
    """Where rows of one view go; one thread uses it."""

    def deliver(self, delivery: Delivery) -> None:
        """Take rows; on return the counterpart has them.

        Raises:
            ConnectionError, TimeoutError: the counterpart does not answer; the delivery is repeated soon.
            Exception: anything else that failed; the delivery is repeated later.
        """
        ...

    def idle(self, *, is_over: bool) -> None:
        """Do what is due beside deliveries; called about each second while none is.

        Args:
            is_over: whether no delivery follows in this run.

        Raises:
            Exception: as of `deliver`.
        """
        ...

    def close(self) -> None:
        """Let go of connections; no delivery follows."""
        ...


class PlainTarget(ABC):
    """A target that does nothing beside deliveries, and keeps nothing open."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """See `Target`."""

    def idle(self, *, is_over: bool) -> None:  # noqa: B027 - most targets have nothing to do
        """See `Target`."""

    def close(self) -> None:  # noqa: B027
        """See `Target`."""


@dataclass(frozen=True, slots=True)
class TargetHome:
    """What a target is given as it opens.

    Attributes:
        name: of the sink, in the status and in the ledger.
        id: of the sink in its results folder.
        folder: where it may keep files of its own.
        rejected: to be called with a number of rows that the counterpart refuses for good, the reason and where they are kept.
    """

    name: str
    id: str
    folder: Path
    rejected: Callable[[int, str, Path], None]


@dataclass(frozen=True, slots=True)
class SinkTable:
    """The CREATE TABLE statement of a sink and the view that is inserted, as a provider opens it.

    Attributes:
        statement: the statement; `at` gives the place of a part for an error.
        options: values by plain name (`plain_option`), without those of every sink; those that begin with a prefix as written.
        view: the view's name.
        columns: the view's own columns.
        form: in what form the sink takes rows.
    """

    statement: CreateTable
    options: Mapping[str, str] = field(repr=False)
    view: str
    columns: pa.Schema
    form: Form

    @property
    def name(self) -> str:
        """The table's name."""
        return self.statement.name


#: opens a target; called by the thread that uses it, before the first delivery and after each failure
Opens = Callable[[TargetHome], Target]


class SinkProvider(Protocol):
    """A kind of sink: what INSERT INTO a table USING its name writes to.

    Attributes:
        modes: the modes it has, the preferred one of rows that change first.
        promise: how often the counterpart gets a row; where an option decides, the method `promise_of` says it of a table.
        limits: how many rows a delivery has.
    """

    modes: tuple[Mode, ...]
    promise: Promise
    limits: Limits

    def options(self) -> Iterable[str]:
        """Return the names of its options as documentation writes them, without those of every sink.

        A provider may have `prefixes`: options that begin with one of these are passed on to the counterpart's client.
        """
        ...

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:
        """Check a declaration; connect to nothing that may be away for a while.

        Args:
            spark: the session.
            table: the declaration. Penstock has refused options that `options` does not name.

        Returns:
            What opens the target.

        Raises:
            PenstockError: an option has no allowed value, or a column has a type that the sink has not.
        """
        ...


def sink_names() -> tuple[str, ...]:
    """Return the names of all sinks: Penstock's, then those that installed packages register."""
    return (*SINKS, *sorted(set(entry_points(group=GROUP).names).difference(SINKS)))


def provider_of(table: CreateTable) -> SinkProvider:
    """Return the provider of a table's sink.

    Raises:
        UnsupportedError: there is no such sink, several packages register it, or its package fails to load.
    """
    name = table.source
    if name in SINKS:
        return cast("SinkProvider", import_module(f"penstock.spark.sinks.{name}").PROVIDER)
    found = tuple(entry_points(group=GROUP, name=name))
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise UnsupportedError(
            f"table {table.name}: the packages {packages} each register a sink {name}. Uninstall all but one.",
            *table.at("using"),
        )
    if not found:
        raise UnsupportedError(
            f"INSERT INTO {table.name}: Penstock cannot write to a table USING {name}{meant(name, sink_names())} Use "
            f"{', '.join(sink_names())}, or `Engine.sink` in Python. The results folder has the rows of every view in any case.",
            *table.at("using"),
        )
    try:
        return cast("SinkProvider", found[0].load()())
    except Exception as error:
        raise UnsupportedError(
            f"table {table.name}: sink {name} of package {_package(found[0])} cannot be loaded: {error}. Reinstall the "
            "package with what it needs.",
            *table.at("using"),
        ) from error


def refuse_unknown(table: CreateTable, provider: SinkProvider) -> None:
    """Refuse an option that a table's sink does not have.

    Raises:
        UnknownNameError: the first such option.
    """
    known = by_plain_name((*COMMON, *provider.options()))
    for name in table.options:
        if plain_option(name) not in known and not name.startswith(tuple(getattr(provider, "prefixes", ()))):
            owner = f"table {table.name}: sink {table.source}"
            error = UnknownNameError.among("option", name, known.values(), "Options", owner=owner)
            raise error.at(*table.at(name))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
