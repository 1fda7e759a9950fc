"""The statements that a script has: tables, views, rules from files, and where results go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from penstock.errors import InputError, SqlError
from penstock.sql.joins.query import JoinQuery
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.text.clauses import Clause
from penstock.sql.text.intervals import OF_THE_CALENDAR, microseconds_of
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery
from penstock.sql.windows.query import WindowQuery

#: sources of tables that INSERT INTO writes to
SINKS = ("console", "delta", "http", "iceberg", "jdbc", "kafka", "parquet", "postgres")
#: what names of settings begin with: those of Penstock, and of Spark
OWN_SETTING, SPARK_SETTING = "penstock.", "spark."
#: what a view may be
Query = SelectQuery | WindowQuery | JoinQuery | RefreshedQuery | UnionQuery


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column.

    Attributes:
        name: its name.
        type_sql: its type as Spark SQL writes it.
        path: names of the objects around its field in a record and of the field itself; (): the field has the column's name.
    """

    name: str
    type_sql: str
    path: tuple[str, ...] = ()


class _Placed:
    """A statement that knows where its parts stand in the script."""

    __slots__ = ()
    start: int
    end: int
    text: str
    places: dict[str, tuple[int, int]]

    def at(self, part: str = "") -> tuple[str, int, int]:
        """The script and the place of a part in it, for a `SqlError`; the first one's where there is no such part."""
        return self.text, *self.places.get(part, self.places.get("", (self.start, self.end)))

    @contextmanager
    def pointing(self, part: str = "") -> Iterator[None]:
        """Gives mistakes that know of no place in a text that of a part, see `at`."""
        try:
            yield
        except SqlError as error:
            if error.text:
                raise
            raise error.at(*self.at(part)) from error
        except InputError as error:
            raise SqlError(str(error), *self.at(part)) from error


@dataclass(frozen=True, slots=True)
class Retain:
    """How long rows are kept after their publication.

    Attributes:
        seconds: above 0.
        text: the script.
        start, end: place of the property in it.
    """

    seconds: float
    text: str = field(default="", repr=False, compare=False)
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @classmethod
    def of(cls, length: str, text: str = "", start: int = 0, end: int = 0, *, what: str = "retain") -> Retain:
        """Read a length of time such as '30 days'.

        Args:
            length: the length.
            text, start, end: its place in a script.
            what: names it in messages.

        Raises:
            SqlError: it is none, or not above 0.
        """
        microseconds = microseconds_of("'" + length.replace("'", "") + "'")
        if microseconds is None or microseconds <= 0:
            message = f"{what} needs a length of time above 0 in weeks to microseconds, such as '30 days'; got '{length}'."
            if OF_THE_CALENDAR.search(length):
                message = f"{what} cannot have months or years, whose lengths differ. Write days, such as '30 days'; got '{length}'."
            raise SqlError(message, text, start, end)
        return cls(microseconds / 1e6, text, start, end)


@dataclass(frozen=True, slots=True)
class CreateTable(_Placed):
    """`CREATE TABLE name [(columns)] USING source OPTIONS (...)`.

    Attributes:
        name: the table's name.
        columns: declared columns; () leaves them to the source.
        source: the word after USING, in lower case.
        options: keys in lower case.
        start, end: place in the script.
        text: the script.
        places: where parts of the statement stand in it: "" the name, options by key, columns by name, paths by `NAME PATH`.
    """

    name: str
    columns: tuple[Column, ...]
    source: str
    options: dict[str, str] = field(repr=False)
    start: int
    end: int
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CreateView:
    """`CREATE [OR REPLACE] VIEW name [TBLPROPERTIES (retain 'length')] AS query`.

    Attributes:
        name: the view's name.
        query: the parsed query.
        text: the query's SQL.
        start, end: place of the statement in the script.
        retain: how long published rows are kept.
        replaces: whether an earlier view of this name gives way.
    """

    name: str
    query: Query
    text: str
    start: int
    end: int
    retain: Retain | None = None
    replaces: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class DropView:
    """`DROP VIEW [IF EXISTS] name`: takes back an earlier CREATE VIEW of the script.

    Attributes:
        name: the view's name.
        if_exists: whether the view may be missing.
    """

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetValue(_Placed):
    """`SET name = value`: a setting of the whole script.

    Attributes:
        name: as written, such as `penstock.batch_rows`.
        value: without quotes.
        start, end: place in the script.
        text: the script.
        places: "" the name, and `value`.
    """

    name: str
    value: str = field(repr=False)
    start: int
    end: int
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ShowViews:
    """`SHOW VIEWS`: asks for the names of the views."""


@dataclass(frozen=True, slots=True)
class Describe(_Placed):
    """`DESCRIBE name`: asks for the columns of a stream, static table or view.

    Attributes:
        name: its name.
        start, end: place of the name in the script.
        text: the script.
        places: none.
    """

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CreateViews(_Placed):
    """`CREATE VIEWS FROM 'path' [ON stream] [USING format] [OPTIONS (name 'column', condition 'column')]`.

    Attributes:
        path: the files: a name, a folder or a pattern.
        stream: what conditions are over; None: files have whole statements.
        format: `sql`, `csv`, `json` or `parquet`.
        name_column, condition_column: columns of a table of rules.
        start, end: place in the script.
        text: the script.
        places: where parts of the statement stand in it: "" the path, and `on`.
    """

    path: str
    stream: str | None
    format: str
    name_column: str
    condition_column: str
    start: int = field(compare=False)
    end: int = field(compare=False)
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class InsertInto:
    """`INSERT INTO table query`: the query's rows also go to a declared table."""

    table: str
    query: Query
    text: str
    start: int
    end: int


Statement = CreateTable | CreateView | CreateViews | InsertInto
#: what asks for an answer
Asking = ShowViews | Describe
#: what the text of one statement may be
Parsed = Statement | DropView | SetValue | Asking


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and its statements in order.

    Attributes:
        text: the text.
        statements: those without a mistake.
        targets: the tables that INSERT INTO names, with and without mistakes, in upper case.
        apart: views that the script drops, replaces or declares under a name that is taken, each behind the views beneath it.
        settings: what it sets, in order; not judged yet, see `wrong_settings`.
        asked: what it asks for, in order; names are not judged yet.
    """

    text: str
    statements: tuple[Statement, ...]
    targets: frozenset[str] = frozenset()
    apart: tuple[tuple[CreateView, ...], ...] = ()
    settings: tuple[SetValue, ...] = ()
    asked: tuple[Asking, ...] = ()

    @property
    def tables(self) -> tuple[CreateTable, ...]:
        """The tables in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateTable))

    @property
    def without_settings(self) -> str:
        """The text with blanks in place of what it sets: everything else stays where it is."""
        pieces, taken = [], 0
        for each in self.settings:
            blank = "".join(mark if mark == "\n" else " " for mark in self.text[each.start : each.end])
            pieces += [self.text[taken : each.start], blank]
            taken = each.end
        return "".join([*pieces, self.text[taken:]])

    @property
    def has_deadlines(self) -> bool:
        """Whether some view has a deadline."""
        windows = (each.query for each in self.views if isinstance(each.query, WindowQuery))
        return any(each.hints.deadline_seconds is not None for each in windows)

    @property
    def views(self) -> tuple[CreateView, ...]:
        """The views in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateView))

    @property
    def rules(self) -> tuple[CreateViews, ...]:
        """The CREATE VIEWS statements in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateViews))

    @property
    def is_empty(self) -> bool:
        """Whether it declares nothing that runs."""
        return not (self.views or self.rules or self.inserts)

    @property
    def inserts(self) -> tuple[InsertInto, ...]:
        """The INSERT INTO statements in order."""
        return tuple(item for item in self.statements if isinstance(item, InsertInto))


def sources_of(query: Query) -> tuple[tuple[str, Clause], ...]:
    """The names of the tables and views a query selects from, and where they were written."""
    if isinstance(query, JoinQuery):
        read = [
            sources_of(each.inner) if each.inner else ((each.source, each.clause),) for each in query.sources
        ]
        return tuple(chain.from_iterable(read))
    if isinstance(query, RefreshedQuery):
        inner = (sources_of(each.query) for each in query.inner)
        return tuple({name.upper(): (name, at) for name, at in chain(query.sources, *inner)}.values())
    if isinstance(query, UnionQuery):
        found: dict[str, tuple[str, Clause]] = {}
        for branch in query.branches:
            for name, clause in sources_of(branch):
                found.setdefault(name.upper(), (name, clause))
        return tuple(found.values())
    if query.inner is not None:
        return sources_of(query.inner)
    return ((query.source, query.source_clause),)
