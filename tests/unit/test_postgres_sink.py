"""The sink `postgres` against a PostgreSQL server: exactly once through kills, upserts, types, secrets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InputError, TypeMismatchError
from penstock.spark.sinks.declared import Sink
from penstock.spark.sinks.delivery import Form
from penstock.spark.sinks.postgres import PROVIDER
from penstock.spark.sinks.postgres_types import copy_texts, postgres_columns
from penstock.spark.sinks.providers import SinkTable
from penstock.spark.storage.formats import SINK
from penstock.sql.script.statements import CreateTable
from penstock_lab.servers.postgres import PostgresServer
from sink_cases import CUTS, SELECTION, WINDOWS, Folder, newest, until

psycopg = pytest.importorskip("psycopg", reason="the package psycopg is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are merged now and then."""
    found = Folder(tmp_path / "out", 2)
    yield found
    found.close()


@pytest.fixture
def table() -> str:
    """A table's name that no other test has."""
    return f"t_{uuid.uuid4().hex[:8]}"


def sink_to(
    folder: Folder, server: PostgresServer, table: str, view: str = SELECTION, **options: str
) -> Sink:
    """A sink into a table."""
    own = {"url": server.url, "user": server.user, "password": server.password, "dbtable": table}
    return folder.sink("postgres", view, options.pop("name", "target"), **{**own, **options})


def asked(server: PostgresServer, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with psycopg.connect(server.url, user=server.user, password=server.password) as connection:
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return found


def windows_of(server: PostgresServer, table: str) -> dict[tuple[str | None, int], tuple[int, bool]]:
    """(n, is_final) by city and start of the window."""
    rows = asked(server, f"SELECT city, w_start, n, is_final FROM {table}")
    return {(city, int(start.timestamp())): (n, is_final) for city, start, n, is_final in rows}


def test_appended_rows_equal_the_folder(folder: Folder, postgres: PostgresServer, table: str) -> None:
    sink = sink_to(folder, postgres, table)
    folder.match([1, 2, -3], [3], [4, 5])
    folder.deliver(sink)
    folder.match([6])
    folder.deliver(sink)
    assert asked(postgres, f"SELECT id, city, amount FROM {table} ORDER BY id") == [
        (each, f"city {each % 3}", each / 2) for each in range(1, 7)
    ]
    ((number,),) = asked(postgres, f"SELECT delivered FROM penstock_sinks WHERE sink = '{_id(folder)}'")
    assert number == 1


def _id(folder: Folder, name: str = "target.large") -> str:
    document = SINK.read(folder.layout.sinks[name])
    assert document is not None
    return str(document["id"])


def test_a_delivery_that_was_committed_and_not_marked_is_not_made_again(
    folder: Folder, postgres: PostgresServer, table: str
) -> None:
    sink, where = sink_to(folder, postgres, table), folder.layout.sinks["target.large"]
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
    assert asked(postgres, f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_windows_are_upserted_and_withdrawn(folder: Folder, postgres: PostgresServer, table: str) -> None:
    for number, cut in enumerate(CUTS, 1):
        folder.answer(cut)
        folder.deliver(sink_to(folder, postgres, table, WINDOWS))
        assert windows_of(postgres, table) == newest(CUTS[:number])
    folder.deliver(sink_to(folder, postgres, f"{table}_whole", WINDOWS, name="whole"))
    assert windows_of(postgres, f"{table}_whole") == newest(CUTS)


def test_a_server_that_is_killed_delays_nobody_and_gets_every_row_once(
    folder: Folder, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    sinks = [
        sink_to(folder, postgres, table),
        folder.sink("parquet", name="beside", path=str(tmp_path / "beside")),
    ]
    with folder.following(*sinks) as told:
        folder.match(range(10))
        until(lambda: told["target.large"].get("deliveries") == 1)
        postgres.kill()
        try:
            for first in range(10, 100, 10):
                folder.match(range(first, first + 10))
            until(
                lambda: told["beside.large"].get("deliveries", 0) > 1 and not told["beside.large"]["backlog"]
            )
            until(lambda: any(event["kind"] == "sink_retried" for event in folder.events.recent))
            until(lambda: told["target.large"]["backlog"] > 0)
        finally:
            postgres.start()
        until(lambda: asked(postgres, f"SELECT count(*) FROM {table}") == [(100,)])
        until(lambda: told["target.large"]["backlog"] == 0)
    assert asked(postgres, f"SELECT id FROM {table} ORDER BY id") == [(each,) for each in range(100)]
    told_of = str(folder.events.recent)
    assert "PostgreSQL" in told_of
    assert postgres.password not in told_of


def test_a_wrong_password_is_told_without_it(folder: Folder, postgres: PostgresServer, table: str) -> None:
    folder.match([1])
    followers, _ = folder.followers(lambda: True, retry_attempts=1)
    followers.set([sink_to(folder, postgres, table, password="marker-password")])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    assert "password authentication failed" in failed["told"]
    assert "marker-password" not in f"{failed}{folder.events.recent}{followers.all}"


def test_a_password_may_stand_in_a_file(
    folder: Folder, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(f"{postgres.password}\n")
    own = {"url": postgres.url, "user": postgres.user, "dbtable": table}
    folder.match([1])
    folder.deliver(folder.sink("postgres", **own, password=f"${{file:{tmp_path / 'password'}}}"))
    assert asked(postgres, f"SELECT id FROM {table}") == [(1,)]


def test_a_row_that_the_server_refuses_is_told_and_kept(
    folder: Folder, postgres: PostgresServer, table: str
) -> None:
    with psycopg.connect(postgres.url, user=postgres.user, password=postgres.password) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint CHECK (id < 3), city text, amount float8)")
    folder.match([1, 3])
    followers, _ = folder.followers(lambda: True)
    followers.set([sink_to(folder, postgres, table)])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    assert "violates check constraint" in failed["told"]
    with psycopg.connect(postgres.url, user=postgres.user, password=postgres.password) as connection:
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_id_check")
    folder.deliver(sink_to(folder, postgres, table))
    assert asked(postgres, f"SELECT id FROM {table} ORDER BY id") == [(1,), (3,)]


def test_values_of_every_type_arrive_as_they_are(postgres: PostgresServer, table: str) -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
    values: dict[str, tuple[pa.DataType, Any]] = {
        "b": (pa.bool_(), True),
        "i8": (pa.int8(), -8),
        "i16": (pa.int16(), 16),
        "i32": (pa.int32(), -(2**31)),
        "i64": (pa.int64(), 2**63 - 1),
        "f": (pa.float32(), 0.5),
        "d": (pa.float64(), float("inf")),
        "m": (pa.decimal128(38, 10), Decimal("1234567890.0123456789")),
        "s": (pa.string(), 'a "quoted", text\nwith\ttabs \\N'),
        "e": (pa.string(), ""),
        "x": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), date(2024, 2, 29)),
        "at": (pa.timestamp("us", "UTC"), moment),
        "local": (pa.timestamp("us"), moment.replace(tzinfo=None)),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    row = {name: value for name, (_, value) in values.items()}
    rows = pa.Table.from_pylist([row, dict.fromkeys(row)], schema)
    columns = postgres_columns(schema)
    with psycopg.connect(postgres.url, user=postgres.user, password=postgres.password) as connection:
        connection.execute(
            f"CREATE TABLE {table} ({', '.join(f'{each.name} {each.sql_type}' for each in columns)})"
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            for part in copy_texts(rows, columns):
                copy.write(part)
    first, second = asked(postgres, f"SELECT * FROM {table}")
    assert first == tuple(row.values())
    assert set(second) == {None}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dbtable": "t"}, "set the option url"),
        ({"url": "mysql://h/d", "dbtable": "t"}, "url must begin with postgresql://"),
        (
            {"url": "postgresql://u:marker@h:no/d?x", "dbtable": "t"},
            "url does not address a PostgreSQL database",
        ),
        ({"url": "postgresql://h/d"}, "set the option dbtable"),
        ({"url": "postgresql://h/d", "dbtable": "a.b.c"}, "write table or schema.table"),
        (
            {"url": "postgresql://h/d", "dbtable": "t", "password": "${file:/nowhere}"},
            "needs the file /nowhere, which cannot be read",
        ),
        ({"url": "postgresql://h/d", "dbtable": "t", "mod": "append"}, "no option mod"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    folder: Folder, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        folder.sink("postgres", **options)


def test_a_type_without_a_counterpart_is_refused_by_its_column() -> None:
    options = {"url": "postgresql://h/d", "dbtable": "t"}
    statement = CreateTable("t", (), "postgres", options, 0, 1, "CREATE TABLE t")
    columns = pa.schema([("a", pa.int64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(TypeMismatchError, match=r"column tags is .*, which has no type in PostgreSQL here"):
        PROVIDER.open(None, SinkTable(statement, options, "v", columns, Form("append")))  # type: ignore[arg-type]
