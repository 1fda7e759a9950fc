"""A database behind a JDBC driver in Spark's JVM: its types, and statements with many rows.

A small class in Java takes rows as Arrow and fills the parameters of a statement: a call of Python has thousands of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.redaction import option_secrets_masked
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.java_sources import new_object
from penstock.spark.sinks.jdbc_columns import JdbcColumn
from penstock.spark.sinks.jdbc_source import NAME, SOURCE

#: rows of one call, and of one batch of the driver
_CALL_ROWS = 4_096
#: a driver that waits longer for its server gives up
_NETWORK_MS = 120_000
#: text columns that an index has need a length in most databases
_KEY_TYPE = "VARCHAR(255)"
_WITH_ZONE = ("TIMESTAMPTZ", "DATETIMEOFFSET", "TIMESTAMP_TZ")
#: Spark's dialect knows one of them
_MYSQL = "jdbc:mysql:"
_MARIADB = "jdbc:mariadb:"
#: theirs for moments: TIMESTAMP would be read in the session's zone, and has no fraction of a second
_MOMENT_OF_MYSQL = "DATETIME(6)"
_JDBC = "org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils"


class DatabaseRefusedError(Exception):
    """A database refuses a statement or a row."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table that exists.

    Attributes:
        name: as the database has it.
        code: its type among `java.sql.Types`.
        type: its type's name.
    """

    name: str
    code: int
    type: str

    def kind_of(self, values: JdbcColumn) -> str:
        """The kind in Java of values for it: moments go with a zone where it has one."""
        kind = values.kind
        assert kind is not None, "refused as the sink was declared"
        if kind == "T":
            named = self.type.upper()
            has_zone = named.endswith(("WITH TIME ZONE", "WITH LOCAL TIME ZONE")) or named in _WITH_ZONE
            return "Z" if has_zone else "T"
        return kind


@dataclass(frozen=True)
class JdbcDatabase:
    """A database, as far as it is known without a connection.

    Attributes:
        spark: the session, in whose JVM the driver is.
        options: of the table: `url`, `user`, `password` and `driver`.
    """

    spark: SparkSession
    options: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        """The address."""
        return self.options["url"]

    def driver(self) -> Any | None:
        """The driver for the address; None where the session has none."""
        if named := self.options.get("driver"):
            found = java_class(self.spark, named)
            return found() if isinstance(found, JavaClass) else None
        known = java_class(self.spark, "java.lang.Class").forName("java.sql.Driver")
        drivers = java_class(self.spark, "java.util.ServiceLoader").load(known).iterator()
        while drivers.hasNext():
            driver = drivers.next()
            if driver.acceptsURL(self.url):
                return driver
        return None

    def types(self, columns: Sequence[JdbcColumn], key: Sequence[str]) -> dict[str, str | None]:
        """The types of columns as SQL of this database; None where it has no such type.

        Args:
            columns: of the table.
            key: names of those that tell rows apart.
        """
        dialect = self._dialect
        found: dict[str, str | None] = {}
        for each in columns:
            if each.name in key and each.kind == "s":
                found[each.name] = _KEY_TYPE
                continue
            found[each.name] = self._type(dialect, each) if each.kind is not None else None
        return found

    def _type(self, dialect: Any, column: JdbcColumn) -> str | None:
        kind = java_class(self.spark, "org.apache.spark.sql.types.DataType").fromDDL(column.spark_type)
        try:
            named = str(java_class(self.spark, _JDBC).getJdbcType(kind, dialect).databaseTypeDefinition())
        except Py4JJavaError:
            return None
        return _MOMENT_OF_MYSQL if column.kind == "T" and self._known_as.startswith(_MYSQL) else named

    @property
    def _known_as(self) -> str:
        """The address as Spark's dialects know its kind."""
        return self.url.replace(_MARIADB, _MYSQL, 1) if self.url.startswith(_MARIADB) else self.url

    @property
    def _dialect(self) -> Any:
        return java_class(self.spark, "org.apache.spark.sql.jdbc.JdbcDialects").get(self._known_as)

    def connect(self) -> JdbcConnection:
        """Open a connection.

        Raises:
            ConnectionError: the server does not answer.
            DatabaseRefusedError: it refuses the user, or has no transactions.
        """
        return JdbcConnection(self)


class JdbcConnection:
    """A connection; used by one thread. What it raises has no secret of the options.

    Args:
        database: where to.
    """

    def __init__(self, database: JdbcDatabase) -> None:
        spark, self._options = database.spark, database.options
        arrow = java_class(spark, "org.apache.spark.sql.util.ArrowUtils").rootAllocator()
        # the JVM makes one of the class, whose neighbours are those of Spark
        self._rows = new_object(spark, NAME, SOURCE, arrow)
        self._dialect = database._dialect
        driver = database.driver()
        settings = java_class(spark, "java.util.Properties")()
        for name in ("user", "password"):
            if name in self._options:
                settings.setProperty(name, self._options[name])
        with self._told():
            assert driver is not None, "looked for as the sink was declared"
            self._connection: Any = self._rows.connected(driver, database.url, settings, _NETWORK_MS)

    def close(self) -> None:
        """Give up what is not committed."""
        self._rows.close(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what happens within, or nothing of it."""
        try:
            yield
        except BaseException:
            self._rows.rollBack(self._connection)
            raise
        with self._told():
            self._connection.commit()

    def quoted(self, name: str) -> str:
        """A column's name in SQL."""
        return str(self._dialect.quoteIdentifier(name))

    def adding(self, table: str, name: str, kind: str) -> str:
        """The statement that adds a column to a table."""
        return str(self._dialect.getAddColumnQuery(table, name, kind))

    def columns(self, table: str) -> list[TableColumn] | None:
        """The columns of a table; None where it does not exist, or may not be read."""
        told = self._rows.described(self._connection, self._dialect.getSchemaQuery(table))
        if told is None:
            return None
        parts = [line.split("\1") for line in str(told).split("\2") if line]
        return [TableColumn(name, int(code), kind) for name, code, kind in parts]

    def execute(self, text: str) -> None:
        """Execute a statement without parameters."""
        with self._told():
            self._rows.execute(self._connection, text)

    def changed(self, text: str, *values: str | int) -> int:
        """Execute a statement with a few parameters; return how many rows it changed."""
        with self._told():
            statement = self._with(text, values)
            try:
                return int(statement.executeUpdate())
            finally:
                statement.close()

    def number(self, text: str, *values: str | int) -> int:
        """The first number of the first row of a query."""
        with self._told():
            statement = self._with(text, values)
            try:
                rows = statement.executeQuery()
                rows.next()
                return int(rows.getLong(1))
            finally:
                statement.close()

    def _with(self, text: str, values: Sequence[str | int]) -> Any:
        statement = self._connection.prepareStatement(text)
        for place, value in enumerate(values, 1):
            if isinstance(value, int):
                statement.setLong(place, value)
            else:
                statement.setString(place, value)
        return statement

    def run(
        self,
        text: str,
        rows: pa.Table,
        kinds: str,
        targets: Sequence[TableColumn],
        *,
        is_counted: bool = False,
    ) -> npt.NDArray[np.bool_]:
        """Execute a statement for each of many rows.

        Args:
            text: the statement, with a parameter for each column.
            rows: as `flat_rows` gives them.
            kinds: of values, a letter a column.
            targets: the columns of the table.
            is_counted: whether the result is wanted.

        Returns:
            Of each row whether it changed something.

        Raises:
            ConnectionError: the server does not answer any more.
            DatabaseRefusedError: it refuses a row.
        """
        codes = ",".join(str(each.code) for each in targets)
        found = [np.empty(0, np.bool_)]
        with self._told():
            statement = self._connection.prepareStatement(text)
            try:
                for first in range(0, rows.num_rows, _CALL_ROWS):
                    sent = _as_stream(rows.slice(first, _CALL_ROWS))
                    told = self._rows.run(statement, sent, kinds, codes, is_counted)
                    found.append(np.frombuffer(told, np.bool_))
            finally:
                self._rows.close(statement)
        return np.concatenate(found)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn Java's errors into one that says what the database says."""
        try:
            yield
        except Py4JJavaError as error:
            told = str(self._rows.reason(error.java_exception))
            is_away, reason = told[0] == "!", " ".join(told[1:].split())
            raise (ConnectionError if is_away else DatabaseRefusedError)(
                f"database: {option_secrets_masked(reason, self._options)}"
            ) from None


def _as_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())
