"""The sink `postgres`: rows of a table, and the number of their delivery, in one transaction.

The table `penstock_sinks` beside it has the number of the last delivery of each sink. A delivery locks its row first: a run that was taken
for dead cannot commit behind its successor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import InputError, SqlError, TypeMismatchError
from penstock.plan.spark_types import spark_name
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import IS_FINAL, Delivery, Mode, Upserts, is_taken
from penstock.spark.sinks.postgres_types import PostgresColumn, copy_texts, postgres_columns, postgres_type
from penstock.spark.sinks.providers import Opens, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_NUMBERS = "penstock_sinks"
_STAGE, _GONE = "penstock_stage", "penstock_gone"
#: PostgreSQL takes NULL for equal in a unique index from this version on
_NULLS_EQUAL = 150_000
_CONNECT_SECONDS = 10
_SCHEMES = ("postgresql://", "postgres://", "jdbc:postgresql://")


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a table is.

    Attributes:
        url: the address of the database.
        user, password: who connects; None: as the address or the environment says.
        table: the table's name, the schema before it where it is another one than the user's.
    """

    url: str = field(repr=False)
    user: str | None
    password: str | None = field(repr=False)
    table: str = ""

    def connect(self) -> Connection[Any]:
        """Open a connection.

        Raises:
            ConnectionError: the server does not answer.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        known = make_conninfo(
            self.url,
            user=self.user,
            password=self.password,
            connect_timeout=_CONNECT_SECONDS,
            application_name="penstock",
        )
        try:
            return psycopg.connect(known)
        except psycopg.OperationalError as error:
            raise ConnectionError(f"PostgreSQL: {self.without_password(str(error))}") from None

    def without_password(self, text: str) -> str:
        """A text of the server's without the password."""
        return text.replace(self.password, "***") if self.password else text

    @property
    def parts(self) -> tuple[str, ...]:
        """The schema, if one is named, and the table."""
        return tuple(self.table.split("."))


class _PostgresTarget:
    def __init__(self, server: _Server, name: str) -> None:
        self._server = server
        self._name = name
        self._connection = server.connect()
        self._known: set[str] = set()
        self._is_ready = False

    def deliver(self, delivery: Delivery) -> None:
        import psycopg

        changed: Upserts | None = None
        if delivery.form.mode == "upsert":
            changed = delivery.upserts
        rows = delivery.rows if changed is None else changed.rows
        columns = postgres_columns(rows.schema)
        key = (
            []
            if changed is None
            else postgres_columns(pa.schema([rows.schema.field(n) for n in delivery.form.key]))
        )
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                self._make_ready(cursor, columns, key)
                if self._is_there(cursor, delivery):
                    return
                if changed is None:
                    self._copy(cursor, self._table, rows, columns)
                else:
                    self._upsert(cursor, changed, columns, key)
                cursor.execute(
                    self._sql(
                        "UPDATE {} SET delivered = %s, delivered_at = now() WHERE sink = %s", self._numbers
                    ),
                    (delivery.number, delivery.sink),
                )
        except psycopg.OperationalError as error:
            raise ConnectionError(f"PostgreSQL: {self._server.without_password(str(error))}") from None

    def idle(self, *, is_over: bool) -> None:
        """Do nothing: a delivery commits all."""

    def close(self) -> None:
        self._connection.close()

    def _sql(self, text: str, *parts: Any) -> Any:
        from psycopg import sql

        return sql.SQL(text).format(*parts)

    def _named(self, *names: str) -> Any:
        from psycopg import sql

        return sql.Identifier(*names)

    def _list(self, columns: Sequence[PostgresColumn], form: str = "{}") -> Any:
        from psycopg import sql

        return sql.SQL(", ").join(
            sql.SQL(form).format(*[sql.Identifier(each.name)] * form.count("{}")) for each in columns
        )

    @property
    def _table(self) -> Any:
        return self._named(*self._server.parts)

    @property
    def _numbers(self) -> Any:
        return self._named(*self._server.parts[:-1], _NUMBERS)

    def _make_ready(
        self, cursor: Cursor[Any], columns: Sequence[PostgresColumn], key: Sequence[PostgresColumn]
    ) -> None:
        """Creates what is missing: both tables, columns that the view has got, the index of the key."""
        if self._is_ready and self._known.issuperset(each.name for each in columns):
            return
        # tables are created by one sink at a time
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('penstock_sinks'))")
        cursor.execute(
            self._sql(
                "CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, name text NOT NULL, delivered bigint NOT NULL, "
                "delivered_at timestamptz NOT NULL DEFAULT now())",
                self._numbers,
            )
        )
        defined = [self._sql("{} {}", self._named(each.name), self._sql(each.sql_type)) for each in columns]
        cursor.execute(self._sql("CREATE TABLE IF NOT EXISTS {} ({})", self._table, self._joined(defined)))
        for each in defined:
            cursor.execute(self._sql("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}", self._table, each))
        if key:
            server = cursor.connection.info.server_version
            nulls = " NULLS NOT DISTINCT" if server >= _NULLS_EQUAL else ""
            of = " ".join((self._server.table, *(each.name for each in key)))
            index = f"penstock_key_{hashlib.sha256(of.encode()).hexdigest()[:16]}"
            text = "CREATE UNIQUE INDEX IF NOT EXISTS {} ON {} ({})" + nulls
            cursor.execute(self._sql(text, self._named(index), self._table, self._list(key)))
        self._known, self._is_ready = {each.name for each in columns}, True

    def _joined(self, parts: Sequence[Any]) -> Any:
        from psycopg import sql

        return sql.SQL(", ").join(parts)

    def _is_there(self, cursor: Cursor[Any], delivery: Delivery) -> bool:
        """Whether the table has a delivery; its row among the numbers is locked.

        Raises:
            CheckpointError: it has a later one, or lacks some before.
        """
        cursor.execute(
            self._sql(
                "INSERT INTO {} (sink, name, delivered) VALUES (%s, %s, -1) ON CONFLICT (sink) DO NOTHING",
                self._numbers,
            ),
            (delivery.sink, self._name),
        )
        cursor.execute(
            self._sql("SELECT delivered FROM {} WHERE sink = %s FOR UPDATE", self._numbers), (delivery.sink,)
        )
        found = cursor.fetchone()
        return is_taken(delivery, None if found is None else int(found[0]), f"table {self._server.table}")

    def _copy(
        self, cursor: Cursor[Any], table: Any, rows: pa.Table, columns: Sequence[PostgresColumn]
    ) -> None:
        text = self._sql("COPY {} ({}) FROM STDIN (FORMAT csv)", table, self._list(columns))
        with cursor.copy(text) as copy:
            for part in copy_texts(rows, columns):
                copy.write(part)

    def _upsert(
        self,
        cursor: Cursor[Any],
        changed: Upserts,
        columns: Sequence[PostgresColumn],
        key: Sequence[PostgresColumn],
    ) -> None:
        if changed.rows.num_rows:
            stage = self._stage(cursor, _STAGE, changed.rows, columns)
            keys = {each.name for each in key}
            others = [each for each in columns if each.name not in keys]
            update = self._sql("NOTHING")
            if others:
                update = self._sql("UPDATE SET {}", self._list(others, "{} = excluded.{}"))
            if others and IS_FINAL in changed.rows.column_names:
                newer = "{} WHERE excluded.{} OR NOT t.{}"
                update = self._sql(newer, update, self._named(IS_FINAL), self._named(IS_FINAL))
            listed = self._list(columns)
            cursor.execute(
                self._sql(
                    "INSERT INTO {} AS t ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}",
                    self._table,
                    listed,
                    listed,
                    stage,
                    self._list(key),
                    update,
                )
            )
        if changed.deleted.num_rows:
            final = [
                each for each in columns if each.name in changed.deleted.column_names and each not in key
            ]
            gone = self._stage(cursor, _GONE, changed.deleted, [*key, *final])
            same = self._sql(
                " AND ".join(
                    ["t.{} IS NOT DISTINCT FROM g.{}"] * len(key) + ["(g.{} OR NOT t.{})"] * len(final)
                ),
                *(self._named(each.name) for each in (*key, *final) for _ in range(2)),
            )
            cursor.execute(self._sql("DELETE FROM {} AS t USING {} AS g WHERE {}", self._table, gone, same))

    def _stage(
        self, cursor: Cursor[Any], name: str, rows: pa.Table, columns: Sequence[PostgresColumn]
    ) -> Any:
        """Rows in a table that the transaction drops."""
        stage = self._named(name)
        defined = [self._sql("{} {}", self._named(each.name), self._sql(each.sql_type)) for each in columns]
        cursor.execute(
            self._sql("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP", stage, self._joined(defined))
        )
        self._copy(cursor, stage, rows, columns)
        return stage


class PostgresProvider:
    """Rows in a table of PostgreSQL."""

    modes: tuple[Mode, ...] = ("upsert", "append", "changes")
    promise: Promise = "exactly once"
    limits = Limits(rows=500_000, batches=None)

    def options(self) -> Iterable[str]:
        """Where the table is, and who writes it."""
        return ("url", "dbtable", "user", "password")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`.

        Raises:
            TypeMismatchError: a column has a type that has no counterpart in PostgreSQL.
        """
        psycopg = options.library(table, "psycopg", "postgres")
        url = options.required(table, "url")
        if not url.startswith(_SCHEMES):
            raise SqlError(
                f"table {table.name}: url must begin with {' or '.join(_SCHEMES)}", *table.statement.at("url")
            )
        address = url.removeprefix("jdbc:")
        try:
            psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.ProgrammingError:
            # its message may quote the address, in which a password may stand
            raise SqlError(
                f"table {table.name}: url does not address a PostgreSQL database", *table.statement.at("url")
            ) from None
        name = options.required(table, "dbtable")
        if not all(name.split(".")) or name.count(".") > 1:
            raise InputError(f"table {table.name}: dbtable is '{name}'; write table or schema.table")
        columns = postgres_columns(table.columns)
        for each in columns:
            if postgres_type(each.type) is None:
                raise TypeMismatchError(
                    f"table {table.name}: column {each.path[0]} is {spark_name(each.type)}, which has no type in PostgreSQL here. "
                    "Select its parts, CAST it, or use to_json.",
                    *table.statement.at("using"),
                )
        options.refuse_double(table, (each.name for each in columns))
        server = _Server(address, table.options.get("user"), table.options.get("password"), name)
        return partial(_opened, server)


def _opened(server: _Server, home: TargetHome) -> _PostgresTarget:
    return _PostgresTarget(server, home.name)


PROVIDER = PostgresProvider()
