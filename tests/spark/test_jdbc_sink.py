"""The sink `jdbc` against PostgreSQL, MariaDB and H2: exactly once through kills, upserts, types, secrets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from conftest import JDBC_JARS
from penstock.errors import ConnectionFailedError, InputError, TypeMismatchError
from penstock.spark.sinks import jdbc as sink_module
from penstock.spark.sinks.declared import Sink
from penstock.spark.sinks.delivery import Form
from penstock.spark.sinks.jdbc import PROVIDER
from penstock.spark.sinks.jdbc_client import DatabaseRefusedError, JdbcConnection, JdbcDatabase
from penstock.spark.sinks.jdbc_columns import flat_rows, jdbc_columns
from penstock.spark.sinks.providers import SinkTable
from penstock.spark.storage.formats import SINK
from penstock.sql.script.statements import CreateTable
from penstock_lab.servers.mariadb import MariaDBServer
from penstock_lab.servers.postgres import PostgresServer
from sink_cases import CUTS, SELECTION, WINDOWS, Folder, newest, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not JDBC_JARS, reason="the JDBC drivers are not there: `make jdbc-jars` fetches them"),
]


@dataclass
class Database:
    """A database, and how to ask it."""

    spark: SparkSession
    options: dict[str, str]

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.options["url"]

    def connect(self) -> JdbcConnection:
        return JdbcDatabase(self.spark, self.options).connect()

    def does(self, *statements: str) -> None:
        connection = self.connect()
        for each in statements:
            with connection.transaction():
                connection.execute(each)
        connection.close()

    def asked(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, as Spark's own reader has them."""
        options = {**self.options, "query": query}
        if self.is_mariadb:
            # Spark knows it by the name of MySQL alone
            url = self.options["url"].replace("jdbc:mariadb:", "jdbc:mysql:")
            options |= {"url": f"{url}?permitMysqlScheme", "query": query.replace('"', "`")}
        frame = self.spark.read.format("jdbc").options(**options)
        return [tuple(row) for row in frame.load().collect()]


@pytest.fixture(params=["postgres", "mariadb", pytest.param("h2", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Database:
    """An embedded database of its own, or the server that all tests share."""
    if request.param in ("postgres", "mariadb"):
        return of_server(spark, request.getfixturevalue(request.param))
    return Database(
        spark, {"url": f"jdbc:h2:{tmp_path / 'h2'}", "user": "sa", "password": "", "driver": "org.h2.Driver"}
    )


def of_server(spark: SparkSession, server: PostgresServer | MariaDBServer) -> Database:
    """The database of a server."""
    own = {"url": server.url, "user": server.user, "password": server.password}
    if isinstance(server, MariaDBServer):
        return Database(spark, {**own, "driver": "org.mariadb.jdbc.Driver"})
    return Database(spark, {**own, "url": f"jdbc:{server.url}", "driver": "org.postgresql.Driver"})


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are merged now and then."""
    found = Folder(tmp_path / "out", 2, spark=spark)
    yield found
    found.close()


@pytest.fixture
def table() -> str:
    """A table's name that no other test has."""
    return f"t_{uuid.uuid4().hex[:8]}"


def sink_to(folder: Folder, database: Database, table: str, view: str = SELECTION, **options: str) -> Sink:
    """A sink into a table."""
    own = {**database.options, "dbtable": table}
    return folder.sink("jdbc", view, options.pop("name", "target"), **{**own, **options})


def failure(folder: Folder, sink: Sink, **settings: Any) -> Mapping[str, Any]:
    """What is told of a sink that cannot deliver."""
    followers, _ = folder.followers(lambda: True, **{"retry_attempts": 1, **settings})
    followers.set([sink])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    return failed


def windows_of(database: Database, table: str) -> dict[tuple[str | None, int], tuple[int, bool]]:
    """(n, is_final) by city and start of the window."""
    rows = database.asked(f'SELECT "city", "w_start", "n", "is_final" FROM {table}')
    return {(city, int(start.replace(tzinfo=UTC).timestamp())): (n, final) for city, start, n, final in rows}


def test_appended_rows_equal_the_folder(folder: Folder, database: Database, table: str) -> None:
    sink = sink_to(folder, database, table)
    assert sink.promise == "exactly once"
    folder.match([1, 2, -3], [3], [4, 5])
    folder.deliver(sink)
    folder.match([6])
    folder.deliver(sink)
    assert database.asked(f'SELECT "id", "city", "amount" FROM {table} ORDER BY "id"') == [
        (each, f"city {each % 3}", each / 2) for each in range(1, 7)
    ]
    document = SINK.read(folder.layout.sinks["target.large"])
    assert document is not None
    assert database.asked(f"SELECT delivered FROM penstock_deliveries WHERE sink = '{document['id']}'") == [
        (1,)
    ]


def test_a_delivery_that_was_committed_and_not_marked_is_not_made_again(
    folder: Folder, database: Database, table: str
) -> None:
    sink, where = sink_to(folder, database, table), folder.layout.sinks["target.large"]
    folder.match([1, 2])
    folder.deliver(sink)
    before = SINK.read(where)
    folder.match([3])
    folder.deliver(sink)
    after = SINK.read(where)
    assert before is not None
    assert after is not None
    planned = {"feed": {"query": "orders", "kind": "matches"}, "definition": 1}
    SINK.replace(where, {**before, "planned": {**planned, "end": after["feeds"][0]["place"]}})
    folder.match([4])
    folder.deliver(sink)
    assert database.asked(f'SELECT "id" FROM {table} ORDER BY "id"') == [(1,), (2,), (3,), (4,)]


def test_a_delivery_that_fails_in_its_middle_leaves_nothing(
    folder: Folder, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.match([1, 2])
    insert = sink_module._JdbcTarget._insert

    def half(self: Any, rows: pa.Table, columns: Any) -> None:
        insert(self, rows.slice(0, 1), columns)
        raise ConnectionError("killed")

    monkeypatch.setattr(sink_module._JdbcTarget, "_insert", half)
    assert "killed" in failure(folder, sink_to(folder, database, table))["told"]
    assert database.asked(f"SELECT * FROM {table}") == []
    monkeypatch.undo()
    folder.deliver(sink_to(folder, database, table))
    assert database.asked(f'SELECT "id" FROM {table} ORDER BY "id"') == [(1,), (2,)]


def test_windows_are_upserted_and_withdrawn(folder: Folder, database: Database, table: str) -> None:
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(sink_to(folder, database, table, WINDOWS))
        assert windows_of(database, table) == newest(CUTS[:number])
    folder.deliver(sink_to(folder, database, f"{table}_whole", WINDOWS, name="whole"))
    assert windows_of(database, f"{table}_whole") == newest(CUTS)


def test_the_row_of_a_key_that_is_null_alone_is_replaced(
    folder: Folder, database: Database, table: str
) -> None:
    for n, is_final in ((3, False), (4, False), (5, True)):
        folder.answer([(None, 0, n, is_final, False), ("a", 0, n, is_final, False)])
        folder.deliver(sink_to(folder, database, table, WINDOWS, key="city"))
        assert sorted(database.asked(f'SELECT "city", "n" FROM {table}'), key=str) == [("a", n), (None, n)]
    folder.answer([(None, 0, 0, True, True)])
    folder.deliver(sink_to(folder, database, table, WINDOWS, key="city"))
    assert database.asked(f'SELECT "city", "n" FROM {table}') == [("a", 5)]


def test_every_revision_is_a_row_in_mode_changes(folder: Folder, database: Database, table: str) -> None:
    folder.answer(*CUTS)
    folder.deliver(sink_to(folder, database, table, WINDOWS, mode="changes"))
    ((count,),) = database.asked(f"SELECT count(*) FROM {table}")
    assert count == sum(map(len, CUTS))


def test_a_run_taken_for_dead_cannot_commit_behind_its_successor(
    folder: Folder, database: Database, table: str
) -> None:
    folder.match([1])
    folder.deliver(sink_to(folder, database, table))
    document = SINK.read(folder.layout.sinks["target.large"])
    assert document is not None
    database.does(f"UPDATE penstock_deliveries SET delivered = 7 WHERE sink = '{document['id']}'")
    folder.match([2])
    assert (
        "the folder was restored from an older copy"
        in failure(folder, sink_to(folder, database, table))["told"]
    )
    assert database.asked(f'SELECT "id" FROM {table}') == [(1,)]


def test_a_table_of_the_users_is_written_as_it_is(folder: Folder, database: Database, table: str) -> None:
    """Columns in the case of the database, one more with a default, one missing."""
    database.does(f"CREATE TABLE {table} (id INTEGER, city VARCHAR(20), note VARCHAR(9) DEFAULT 'new')")
    folder.match([1])
    folder.deliver(sink_to(folder, database, table))
    assert database.asked(f'SELECT id, city, note, "amount" FROM {table}') == [(1, "city 1", "new", 0.5)]


def test_a_row_that_the_database_refuses_is_told_and_kept(
    folder: Folder, database: Database, table: str
) -> None:
    database.does(f"CREATE TABLE {table} (id BIGINT, CONSTRAINT {table}_c CHECK (id < 3))")
    folder.match([1, 3])
    told = failure(folder, sink_to(folder, database, table))["told"]
    assert f"{table}_c" in told.lower()
    assert "Batch entry" not in told
    database.does(f"ALTER TABLE {table} DROP CONSTRAINT {table}_c")
    folder.deliver(sink_to(folder, database, table))
    assert database.asked(f"SELECT id FROM {table} ORDER BY id") == [(1,), (3,)]


def test_values_of_every_type_arrive_as_they_are(database: Database, table: str) -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
    values: dict[str, tuple[pa.DataType, Any]] = {
        "b": (pa.bool_(), True),
        "i8": (pa.int8(), -8),
        "i16": (pa.int16(), 16),
        "i32": (pa.int32(), -(2**31)),
        "i64": (pa.int64(), 2**63 - 1),
        "f": (pa.float32(), 0.5),
        "d": (pa.float64(), 1e300),
        "m": (pa.decimal128(38, 10), Decimal("1234567890.0123456789")),
        "s": (pa.string(), "a \"quoted\", 'text'\nwith\ttabs \\N ü"),
        "e": (pa.string(), ""),
        "x": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), date(1900, 3, 1)),
        "at": (pa.timestamp("us", "UTC"), moment),
        "old": (pa.timestamp("us", "UTC"), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        "gap": (pa.timestamp("us"), datetime(2024, 3, 31, 2, 30, 0, 5)),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    row = {name: value for name, (_, value) in values.items()}
    rows = pa.Table.from_pylist([row, dict.fromkeys(row)], schema)
    columns = jdbc_columns(schema)
    types = JdbcDatabase(database.spark, database.options).types(columns, ())
    connection = database.connect()
    with connection.transaction():
        defined = ", ".join(f"{connection.quoted(name)} {kind}" for name, kind in types.items())
        connection.execute(f"CREATE TABLE {table} ({defined})")
    targets = connection.columns(table)
    assert targets is not None
    kinds = "".join(target.kind_of(each) for target, each in zip(targets, columns, strict=True))
    with connection.transaction():
        named = ", ".join(map(connection.quoted, types))
        places = ", ".join("?" * len(columns))
        text = f"INSERT INTO {table} ({named}) VALUES ({places})"
        connection.run(text, flat_rows(rows, columns), kinds, targets)
    connection.close()
    first, second = sorted(database.asked(f"SELECT * FROM {table}"), key=lambda each: each[0] is None)
    wanted = [each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in row.values()]
    assert [bytes(each) if isinstance(each, bytearray) else each for each in first] == wanted
    assert set(second) == {None}


def test_types_are_chosen_by_column(folder: Folder, database: Database, table: str) -> None:
    folder.match([1, 2])
    folder.deliver(
        sink_to(
            folder,
            database,
            table,
            column_types="city CHAR(12), AMOUNT DECIMAL(5, 2)",
            mode="upsert",
            key="city",
        )
    )
    found = database.asked(f'SELECT "city", "amount" FROM {table} ORDER BY "id"')
    assert found == [("city 1      ", Decimal("0.50")), ("city 2      ", Decimal("1.00"))]


def test_a_wrong_password_is_told_without_it(folder: Folder, database: Database, table: str) -> None:
    database.does(f"CREATE TABLE {table} (id INTEGER)")
    folder.match([1])
    failed = failure(folder, sink_to(folder, database, table, password="marker-password"))
    assert "password" in failed["told"]
    assert "marker-password" not in f"{failed}{folder.events.recent}"


@pytest.mark.parametrize("which", ["postgres", "mariadb"])
def test_a_server_that_is_killed_delays_nobody_and_gets_every_row_once(
    request: pytest.FixtureRequest,
    folder: Folder,
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    which: str,
) -> None:
    server = request.getfixturevalue(which)
    database = of_server(spark, server)
    sinks = [
        sink_to(folder, database, table),
        folder.sink("parquet", name="beside", path=str(tmp_path / "beside")),
    ]
    with folder.following(*sinks) as told:
        folder.match(range(10))
        until(lambda: told["target.large"].get("deliveries") == 1)
        server.kill()
        try:
            for first in range(10, 100, 10):
                folder.match(range(first, first + 10))
            until(
                lambda: told["beside.large"].get("deliveries", 0) > 1 and not told["beside.large"]["backlog"]
            )
            until(lambda: any(event["kind"] == "sink_retried" for event in folder.events.recent))
            until(lambda: told["target.large"]["backlog"] > 0)
        finally:
            server.start()
        until(lambda: told["target.large"]["backlog"] == 0)
    assert database.asked(f'SELECT "id" FROM {table} ORDER BY "id"') == [(each,) for each in range(100)]
    assert "database: " in str(folder.events.recent)
    assert server.password not in str(folder.events.recent)


def test_a_driver_that_does_not_count_batches_is_asked_row_by_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = Database(spark, {"url": f"jdbc:h2:{tmp_path / 'h2'}", "driver": "org.h2.Driver"})
    database.does("CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)")
    connection = database.connect()
    targets = connection.columns("t")
    assert targets is not None
    rows = pa.table({"id": pa.array(range(5_000))})
    there = connection.run("UPDATE t SET id = id WHERE id = ?", rows, "l", targets, is_counted=True)
    assert there.tolist() == [False, True, *[False] * 4_998]
    with pytest.raises(DatabaseRefusedError, match="database: "):
        connection.execute("DROP TABLE nothing")
    connection.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dbtable": "t"}, "set the option url"),
        ({"url": "postgresql://h/d", "dbtable": "t"}, "url must begin with jdbc:"),
        ({"url": "jdbc:oracle:thin:scott/marker@h", "dbtable": "t"}, "url has a user and a password"),
        ({"url": "jdbc:h2:mem:x"}, "set the option dbtable"),
        ({"url": "jdbc:h2:mem:x", "dbtable": "a; DROP TABLE b"}, "write table or schema.table"),
        ({"url": "jdbc:h2:mem:x", "dbtable": "t", "column_types": "town CHAR(3)"}, "column_types has 'town"),
        ({"url": "jdbc:h2:mem:x", "dbtable": "t", "column_types": "city"}, "write a column and its type"),
        ({"url": "jdbc:h2:mem:x", "dbtable": "t", "drivr": "x"}, "no option drivr; did you mean driver"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    folder: Folder, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InputError, match=told) as refused:
        folder.sink("jdbc", **options)
    assert "marker" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "jdbc:nobody:x"}, "no JDBC driver for jdbc:nobody. Add its jar by the Spark setting"),
        ({"url": "jdbc:h2:mem:x", "driver": "org.nobody.Driver"}, "no JDBC driver org.nobody.Driver"),
    ],
)
def test_a_missing_driver_is_refused_at_the_start(folder: Folder, options: dict[str, str], told: str) -> None:
    with pytest.raises(ConnectionFailedError, match=told):
        folder.sink("jdbc", dbtable="t", **options)


def test_a_driver_is_found_by_the_address(folder: Folder, tmp_path: Path) -> None:
    folder.match([1])
    folder.deliver(folder.sink("jdbc", url=f"jdbc:h2:{tmp_path / 'h2'}", dbtable="t"))


def test_a_type_without_a_counterpart_is_refused_by_its_column(spark: SparkSession) -> None:
    options = {"url": "jdbc:h2:mem:x", "dbtable": "t"}
    statement = CreateTable("t", (), "jdbc", options, 0, 1, "CREATE TABLE t")
    columns = pa.schema([("a", pa.int64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(
        TypeMismatchError, match=r"column tags is .*, which has no type in this database here"
    ):
        PROVIDER.open(spark, SinkTable(statement, options, "v", columns, Form("append")))


def test_old_drivers_get_what_they_know(spark: SparkSession, tmp_path: Path) -> None:
    """Derby takes no java.time."""
    log = tmp_path / "derby.log"
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(log))
    database = Database(
        spark,
        {
            "url": f"jdbc:derby:{tmp_path / 'derby'};create=true",
            "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        },
    )
    database.does('CREATE TABLE t ("day" DATE, "at" TIMESTAMP)')
    moment = datetime(2024, 3, 31, 2, 30, 0, 5)
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    columns = jdbc_columns(schema)
    connection = database.connect()
    targets = connection.columns("t")
    assert targets is not None
    rows = pa.Table.from_pylist([{"day": moment.date(), "at": moment}], schema)
    with connection.transaction():
        connection.run("INSERT INTO t VALUES (?, ?)", flat_rows(rows, columns), "DT", targets)
    with connection.transaction():
        there = connection.run(
            'UPDATE t SET "at" = "at" WHERE "day" = ? AND "at" = ?',
            flat_rows(rows, columns),
            "DT",
            targets,
            is_counted=True,
        )
    assert there.tolist() == [True]
    connection.close()
