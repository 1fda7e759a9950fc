"""The sink `jdbc`: rows of a table of any database, and the number of their delivery, in one transaction (docs/decisions/0098).

The table `penstock_deliveries` beside it has the number of the last delivery of each sink. A delivery updates its row first, which locks it: a
run that was taken for dead cannot commit behind its successor.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock.errors import ConnectionFailedError, SqlError, TypeMismatchError
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import IS_FINAL, Delivery, Mode, Upserts, is_taken
from penstock.spark.sinks.jdbc_client import DatabaseRefusedError, JdbcConnection, JdbcDatabase, TableColumn
from penstock.spark.sinks.jdbc_columns import JdbcColumn, flat_rows, jdbc_columns
from penstock.spark.sinks.providers import Opens, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits

_log = logging.getLogger(__name__)
_NUMBERS = "penstock_deliveries"
_SCHEME = "jdbc:"
_PART = r'(?:"[^"]+"|`[^`]+`|\[[^\]]+\]|[^\W\d][\w$#]*)'
_TABLE = re.compile(rf"(?:{_PART}\.){{0,2}}{_PART}")
#: Oracle's way to write user and password into an address, which nobody could mask
_USER_IN_URL = re.compile(r"jdbc:oracle:[^@]*/[^@]*@")
#: commas that separate columns, not the numbers of a type
_COMMA = re.compile(r",(?![^(]*\))")
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the sink writes.

    Attributes:
        database: where.
        table: the table's name in SQL.
        types: given for columns by the option `column_types`.
    """

    database: JdbcDatabase
    table: str
    types: Mapping[str, str]

    @property
    def numbers(self) -> str:
        """The table of the deliveries' numbers, in the schema of the table."""
        schema = re.findall(_PART, self.table)[:-1]
        return ".".join([*schema, _NUMBERS])

    def types_of(self, columns: Sequence[JdbcColumn], key: Sequence[str]) -> dict[str, str | None]:
        """The types of columns, None where there is none."""
        return {**self.database.types(columns, key), **self.types}


class _JdbcTarget:
    def __init__(self, declared: _Declared, home: TargetHome) -> None:
        self._declared = declared
        self._name = home.name[:_LONGEST_NAME]
        #: columns of the table by those of the view
        self._known: dict[str, TableColumn] = {}
        self._has_numbers = False
        self._connection: JdbcConnection = declared.database.connect()

    def deliver(self, delivery: Delivery) -> None:
        is_upsert = delivery.form.mode == "upsert"
        changed = delivery.upserts if is_upsert else None
        rows = delivery.rows if changed is None else changed.rows
        columns = jdbc_columns(rows.schema)
        key = jdbc_columns(pa.schema([rows.schema.field(each) for each in delivery.form.key]))
        self._make_ready(columns, [each.name for each in key] if is_upsert else [])
        with self._connection.transaction():
            if self._is_there(delivery):
                return
            if changed is None:
                self._insert(rows, columns)
            else:
                self._upsert(changed, columns, key)
            text = f"UPDATE {self._declared.numbers} SET delivered = ? WHERE sink = ?"
            self._connection.changed(text, delivery.number, delivery.sink)

    def idle(self, *, is_over: bool) -> None:
        """Do nothing: a delivery commits all."""

    def close(self) -> None:
        self._connection.close()

    def _make_ready(self, columns: Sequence[JdbcColumn], key: Sequence[str]) -> None:
        """Creates what is missing: both tables, an index of the key, columns that the view has got."""
        if self._has_numbers and all(each.name in self._known for each in columns):
            return
        connection, table, numbers = self._connection, self._declared.table, self._declared.numbers
        types = self._declared.types_of(columns, key)
        if not self._has_numbers:
            number = next(iter(self._declared.database.types([_DELIVERED], ()).values()))
            self._create(
                numbers,
                f"sink VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR({_LONGEST_NAME}) NOT NULL, delivered {number} NOT NULL",
            )
            self._has_numbers = True
        if (found := connection.columns(table)) is None:
            if self._create(table, ", ".join(self._defined(each, types) for each in columns)) and key:
                self._index(key)
            found = connection.columns(table) or []
        if missing := [each for each in columns if _of(found, each) is None]:
            for each in missing:
                with connection.transaction():
                    connection.execute(connection.adding(table, each.name, str(types[each.name])))
            found = connection.columns(table) or []
        for each in columns:
            target = _of(found, each)
            if target is None:
                raise DatabaseRefusedError(f"table {table} has no column {each.name}, though it was added")
            self._known[each.name] = target

    def _defined(self, column: JdbcColumn, types: Mapping[str, str | None]) -> str:
        return f"{self._connection.quoted(column.name)} {types[column.name]}"

    def _create(self, table: str, defined: str) -> bool:
        """Whether the table was missing; another sink may create it at the same time."""
        connection = self._connection
        if connection.columns(table) is not None:
            return False
        try:
            with connection.transaction():
                connection.execute(f"CREATE TABLE {table} ({defined})")
        except DatabaseRefusedError:
            if connection.columns(table) is None:
                raise
            return False
        return True

    def _index(self, key: Sequence[str]) -> None:
        connection, table = self._connection, self._declared.table
        name = f"penstock_{hashlib.sha256(table.encode()).hexdigest()[:16]}"
        listed = ", ".join(map(connection.quoted, key))
        try:
            with connection.transaction():
                connection.execute(f"CREATE INDEX {name} ON {table} ({listed})")
        except DatabaseRefusedError as error:
            # rows arrive without it, though slowly
            _log.warning("sink %s: cannot create an index over %s: %s", self._name, ", ".join(key), error)

    def _is_there(self, delivery: Delivery) -> bool:
        """Whether the table has a delivery; its row among the numbers is locked.

        Raises:
            CheckpointError: it has a later one, or lacks some before.
        """
        numbers, connection = self._declared.numbers, self._connection
        text = f"UPDATE {numbers} SET delivered = delivered WHERE sink = ?"
        if not connection.changed(text, delivery.sink):
            text = f"INSERT INTO {numbers} (sink, name, delivered) VALUES (?, ?, -1)"
            connection.changed(text, delivery.sink, self._name)
        known = connection.number(f"SELECT delivered FROM {numbers} WHERE sink = ?", delivery.sink)
        return is_taken(delivery, known, f"table {self._declared.table}")

    def _insert(self, rows: pa.Table, columns: Sequence[JdbcColumn]) -> None:
        named = ", ".join(self._quoted(each) for each in columns)
        places = ", ".join("?" * len(columns))
        self._run(f"INSERT INTO {self._declared.table} ({named}) VALUES ({places})", rows, columns)

    def _upsert(self, changed: Upserts, columns: Sequence[JdbcColumn], key: Sequence[JdbcColumn]) -> None:
        rows, gone = changed.rows, changed.deleted
        final = next((each for each in columns if each.path == (IS_FINAL,)), None)
        if final is not None and IS_FINAL in gone.column_names:
            rows = self._replacing(rows, key, final)
            is_early = pc.invert(gone.column(IS_FINAL))
            self._delete(gone.filter(is_early), key, final)
            gone = gone.filter(pc.invert(is_early))
        self._delete(gone, key)
        self._delete(rows, key)
        self._insert(rows, columns)

    def _replacing(self, rows: pa.Table, key: Sequence[JdbcColumn], final: JdbcColumn) -> pa.Table:
        """The rows without early ones whose final row is there."""
        named = self._quoted(final)
        places = np.flatnonzero(~rows.column(IS_FINAL).to_numpy())
        kept = np.ones(rows.num_rows, np.bool_)
        wanted = _with_final(rows.take(pa.array(places)), is_final=True)
        for part, condition in self._by_nulls(wanted, key):
            text = (
                f"UPDATE {self._declared.table} SET {named} = {named} WHERE {condition.text} AND {named} = ?"
            )
            there = self._run(text, wanted.take(part), [*condition.columns, final], is_counted=True)
            kept[places[part.to_numpy()[there]]] = False
        return rows.filter(pa.array(kept))

    def _delete(self, rows: pa.Table, key: Sequence[JdbcColumn], final: JdbcColumn | None = None) -> None:
        """Deletes the rows of keys; where `final` is named, those that are early."""
        more = "" if final is None else f" AND {self._quoted(final)} = ?"
        wanted = rows if final is None else _with_final(rows, is_final=False)
        for part, condition in self._by_nulls(wanted, key):
            text = f"DELETE FROM {self._declared.table} WHERE {condition.text}{more}"
            self._run(text, wanted.take(part), [*condition.columns, *([] if final is None else [final])])

    def _by_nulls(self, rows: pa.Table, key: Sequence[JdbcColumn]) -> Iterator[tuple[pa.Array, _Condition]]:
        """Places of rows that have NULL in the same columns of their key, and the condition of these keys."""
        flat = flat_rows(rows, key)
        pattern = np.zeros(rows.num_rows, np.int64)
        for number, column in enumerate(flat.columns):
            pattern |= column.is_null().to_numpy().astype(np.int64) << number
        for each in np.unique(pattern).tolist():
            given = [column for number, column in enumerate(key) if not each >> number & 1]
            parts = [
                f"{self._quoted(column)} {'IS NULL' if each >> number & 1 else '= ?'}"
                for number, column in enumerate(key)
            ]
            yield pa.array(np.flatnonzero(pattern == each)), _Condition(" AND ".join(parts), given)

    def _run(
        self, text: str, rows: pa.Table, columns: Sequence[JdbcColumn], *, is_counted: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not columns:
            # a key of NULLs alone has no parameter, and Arrow counts no rows without columns
            return np.full(rows.num_rows, self._connection.changed(text) > 0)
        targets = [self._known[each.name] for each in columns]
        kinds = "".join(target.kind_of(each) for target, each in zip(targets, columns, strict=True))
        return self._connection.run(text, flat_rows(rows, columns), kinds, targets, is_counted=is_counted)

    def _quoted(self, column: JdbcColumn) -> str:
        return self._connection.quoted(self._known[column.name].name)


@dataclass(frozen=True, slots=True)
class _Condition:
    """What a key has to be.

    Attributes:
        text: SQL with a parameter for each column that is not NULL.
        columns: these columns.
    """

    text: str
    columns: Sequence[JdbcColumn]


_DELIVERED = JdbcColumn("delivered", pa.int64(), ("delivered",))


def _of(found: Sequence[TableColumn], column: JdbcColumn) -> TableColumn | None:
    """The column of a table for one of the view: of the same name, else the only one that differs by case."""
    exact = [each for each in found if each.name == column.name]
    alike = [each for each in found if each.name.lower() == column.name.lower()]
    return exact[0] if exact else alike[0] if len(alike) == 1 else None


def _with_final(rows: pa.Table, *, is_final: bool) -> pa.Table:
    place = rows.schema.get_field_index(IS_FINAL)
    return rows.set_column(place, IS_FINAL, pa.array([is_final] * rows.num_rows, pa.bool_()))


class JdbcProvider:
    """Rows in a table of a database that has a JDBC driver."""

    modes: tuple[Mode, ...] = ("upsert", "append", "changes")
    promise: Promise = "exactly once"
    limits = Limits(rows=100_000, batches=None)

    def options(self) -> Iterable[str]:
        """Where the table is, who writes it, and by which driver."""
        return ("url", "dbtable", "user", "password", "driver", "column_types")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:
        """See `SinkProvider`.

        Raises:
            ConnectionFailedError: the session has no driver for the address.
            TypeMismatchError: a column has a type that has no counterpart in the database.
        """
        url, name = options.required(table, "url"), options.required(table, "dbtable")
        if not url.startswith(_SCHEME):
            raise SqlError(f"table {table.name}: url must begin with {_SCHEME}", *table.statement.at("url"))
        if _USER_IN_URL.match(url):
            raise SqlError(
                f"table {table.name}: url has a user and a password. Write them as the options user and password.",
                *table.statement.at("url"),
            )
        if not _TABLE.fullmatch(name):
            raise SqlError(
                f"table {table.name}: dbtable is '{name}'; write table or schema.table, as SQL of the database has it.",
                *table.statement.at("dbtable"),
            )
        columns = jdbc_columns(table.columns)
        options.refuse_double(table, (each.name for each in columns))
        types = _column_types(table, columns)
        database = JdbcDatabase(spark, dict(table.options))
        declared = _Declared(database, name, types)
        for each in columns:
            if each.kind is None:
                raise _no_type(table, each)
        _refuse_missing_driver(table, database)
        of = declared.types_of(columns, ())
        for each in columns:
            if of[each.name] is None:
                raise _no_type(table, each)
        return partial(_JdbcTarget, declared)


def _no_type(table: SinkTable, column: JdbcColumn) -> TypeMismatchError:
    return TypeMismatchError(
        f"table {table.name}: column {column.path[0]} is {column.spark_type}, which has no type in this database here. "
        "Select its parts, CAST it, or use to_json.",
        *table.statement.at("using"),
    )


def _column_types(table: SinkTable, columns: Sequence[JdbcColumn]) -> dict[str, str]:
    """What the option says.

    Raises:
        SqlError: it names a column that does not exist, or no type.
    """
    known = {each.name.lower(): each.name for each in columns}
    found: dict[str, str] = {}
    for each in filter(None, map(str.strip, _COMMA.split(table.options.get("columntypes", "")))):
        name, _, kind = each.partition(" ")
        if name.strip("`").lower() not in known or not kind.strip():
            raise SqlError(
                f"table {table.name}: column_types has '{each}'; write a column and its type, such as city VARCHAR(80). "
                f"Columns: {', '.join(known.values())}",
                *table.statement.at("column_types"),
            )
        found[known[name.strip("`").lower()]] = kind.strip()
    return found


def _refuse_missing_driver(table: SinkTable, database: JdbcDatabase) -> None:
    if database.driver() is not None:
        return
    named = table.options.get("driver")
    kind = ":".join(database.url.split(":")[:2])
    which = f"JDBC driver {named}" if named else f"JDBC driver for {kind}"
    raise ConnectionFailedError(
        f"table {table.name}: this Spark session has no {which}. Add its jar by the Spark setting spark.jars=FILE or "
        "spark.jars.packages=GROUP:ARTIFACT:VERSION"
        + ("." if named else ", or name the driver's class in the option driver."),
        *table.statement.at("driver" if named else "url"),
    )


PROVIDER = JdbcProvider()
