"""What sinks deliver to, real and on loopback: how a table of each is declared, killed, started again and read."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.postgres import PostgresServer
from penstock_lab.servers.processes import LOOPBACK, ServerProcess, free_port
from penstock_lab.servers.s3 import S3Server

#: of the orders' columns, as JSON has them
_NUMBERS, _TEXTS = dict.fromkeys(["amount", "price"], "DOUBLE"), dict.fromkeys(["name", "city"], "VARCHAR")
_JSON = {"id": "BIGINT", **_NUMBERS, **_TEXTS, "seen": "TIMESTAMPTZ"}
#: rows with such an id are refused by the server of alerts, and with them their request
UNWELCOME = 100_003
_CONSTRAINT = "no_such_id"


class Counterpart:
    """Where one sink delivers to.

    Attributes:
        windows: what is asked of a window view: `upsert`, `changes` or nothing.
        repeated: how many repeated deliveries `rows` has met.
        refusal: what is part of what it says where `refuse` was called; empty: it cannot refuse.
    """

    windows = "upsert"
    repeated = 0
    refusal = ""

    def declared(self, view: str) -> str:
        """What follows `CREATE TABLE name` of a table for a view."""
        raise NotImplementedError

    def rows(self, view: str) -> pa.Table:
        """The rows of a view that have arrived; repeated ones, where the sink may repeat, once."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables by which a run finds it."""
        return {}

    def refuse(self, view: str, begin: int) -> None:
        """Take no row of a view any more whose id is that or higher."""
        raise NotImplementedError

    def accept(self, view: str) -> None:
        """Take all rows of a view again."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the server as a crash would."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server again, with what it has."""
        raise NotImplementedError


class _Server(Counterpart):
    """Of a test server that can be killed."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class Delta(Counterpart):
    """Tables in a local folder."""

    refusal = _CONSTRAINT

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def declared(self, view: str) -> str:
        return f"USING delta OPTIONS (path '{self.folder}/{view}', every '1 second')"

    def refuse(self, view: str, begin: int) -> None:
        self._table(view).alter.add_constraint({_CONSTRAINT: f"id < {begin}"})

    def accept(self, view: str) -> None:
        self._table(view).alter.drop_constraint(_CONSTRAINT)

    def rows(self, view: str) -> pa.Table:
        return self._table(view).to_pyarrow_table()

    def _table(self, view: str) -> Any:
        import deltalake

        return deltalake.DeltaTable(f"{self.folder}/{view}", storage_options=dict(self.environment()))


class Iceberg(Counterpart):
    """Tables of a catalog in a file, whose data lie in a local folder."""

    def __init__(self, catalog: Path, warehouse: str) -> None:
        self._properties = {"type": "sql", "uri": f"sqlite:///{catalog}", "warehouse": warehouse}

    def declared(self, view: str) -> str:
        named = ", ".join(f"'catalog.{name}' '{value}'" for name, value in self._properties.items())
        return f"USING iceberg OPTIONS ({named}, table 'db.{view}', every '2 seconds')"

    def rows(self, view: str) -> pa.Table:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self._properties).load_table(f"db.{view}").scan().to_arrow()


class Parquet(Counterpart):
    """Local folders of files."""

    windows = "changes"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def declared(self, view: str) -> str:
        return f"USING parquet OPTIONS (path '{self.folder}/{view}')"

    def rows(self, view: str) -> pa.Table:
        return ds.dataset(f"{self.folder}/{view}").to_table()


class _InBucket(_Server):
    """Whatever lies in the bucket of an S3 server."""

    _server: S3Server

    def environment(self) -> Mapping[str, str]:
        return self._server.environment()


class DeltaInBucket(_InBucket, Delta):
    """Delta tables in a bucket."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self._server, self.folder = server, f"s3://bucket/{prefix}"


class ParquetInBucket(_InBucket, Parquet):
    """Parquet files in a bucket."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self._server, self.folder = server, f"s3://bucket/{prefix}"

    def rows(self, view: str) -> pa.Table:
        known = self.environment()
        system = fs.S3FileSystem(
            access_key=known["AWS_ACCESS_KEY_ID"],
            secret_key=known["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=known["AWS_ENDPOINT_URL"],
            region=known["AWS_REGION"],
        )
        return ds.dataset(f"{self.folder.removeprefix('s3://')}/{view}", filesystem=system).to_table()


class IcebergInBucket(_InBucket, Iceberg):
    """Iceberg tables in a bucket."""

    def __init__(self, server: S3Server, prefix: str, catalog: Path) -> None:
        self._server = server
        known = server.environment()
        self._properties = {
            "type": "sql",
            "uri": f"sqlite:///{catalog}",
            "warehouse": f"s3://bucket/{prefix}",
            "s3.endpoint": known["AWS_ENDPOINT_URL"],
            "s3.access-key-id": known["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": known["AWS_SECRET_ACCESS_KEY"],
            "s3.region": known["AWS_REGION"],
        }


class Postgres(_Server):
    """Tables of PostgreSQL; its password stands in the environment."""

    refusal = _CONSTRAINT
    _server: PostgresServer

    def __init__(self, server: PostgresServer, prefix: str) -> None:
        super().__init__(server)
        self._prefix = prefix

    def environment(self) -> Mapping[str, str]:
        return {"PENSTOCK_TEST_PASSWORD": self._server.password}

    def declared(self, view: str) -> str:
        password = "${env:PENSTOCK_TEST_PASSWORD}"
        known = f"url '{self._server.url}', user '{self._server.user}', password '{password}'"
        return f"USING postgres OPTIONS ({known}, dbtable '{self._prefix}_{view}')"

    def refuse(self, view: str, begin: int) -> None:
        self._alter(view, f"ADD CONSTRAINT {_CONSTRAINT} CHECK (id < {begin}) NOT VALID")

    def accept(self, view: str) -> None:
        self._alter(view, f"DROP CONSTRAINT {_CONSTRAINT}")

    def _alter(self, view: str, change: str) -> None:
        with self._connected() as connection:
            connection.execute(f"ALTER TABLE {self._prefix}_{view} {change}")

    def rows(self, view: str) -> pa.Table:
        with self._connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self._prefix}_{view}")
            names = [column.name for column in cursor.description]
            columns = zip(*cursor.fetchall(), strict=True)
            return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(self._server.url, user=self._server.user, password=self._server.password)


class Jdbc(Postgres):
    """Tables of PostgreSQL by its JDBC driver."""

    def declared(self, view: str) -> str:
        url = f"jdbc:{self._server.url}?reWriteBatchedInserts=true"
        known = f"url '{url}', user '{self._server.user}', password '${{env:PENSTOCK_TEST_PASSWORD}}'"
        return f"USING jdbc OPTIONS ({known}, dbtable '{self._prefix}_{view}')"


class Kafka(_Server):
    """Topics of a broker.

    Args:
        server: the broker.
        prefix: of the topics' names.
        scratch: a folder.
        is_once: with transactions, read as committed; else rows with the same headers count once.
    """

    windows = "changes"
    _server: KafkaBroker

    def __init__(self, server: KafkaBroker, prefix: str, scratch: Path, *, is_once: bool) -> None:
        super().__init__(server)
        self._prefix, self._scratch, self._is_once = prefix, scratch, is_once

    def declared(self, view: str) -> str:
        self._server.create_missing([f"{self._prefix}-{view}"])
        known = f"kafka.bootstrap.servers '{self._server.address}', topic '{self._prefix}-{view}'"
        return f"USING kafka OPTIONS ({known}, transactions '{str(self._is_once).lower()}')"

    def rows(self, view: str) -> pa.Table:
        seen: dict[tuple[bytes, bytes], int] = {}
        with (self._scratch / view).open("wb") as file:
            for value, headers in self._records(f"{self._prefix}-{view}"):
                key = headers["penstock-batch"], headers["penstock-ordinal"]
                if not self._is_once and key in seen:
                    assert seen[key] == hash(value), "a repeated record is the same"
                    self.repeated += 1
                    continue
                seen[key] = hash(value)
                file.write(value + b"\n")
        return from_json(self._scratch / view, is_window=view == "by_name")

    def _records(self, topic: str) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self._server.address,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if self._is_once else "read_uncommitted",
        )
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=500, max_records=10_000).values():
                yield from ((each.value, dict(each.headers)) for each in records)
        consumer.close()


class Alerts(Counterpart):
    """A server that takes alerts, a hundred rows a request, and refuses some for good."""

    windows = ""

    def __init__(self, folder: Path) -> None:
        self._port, self._folder = free_port(), folder
        folder.mkdir()
        self._file, self.dead = folder / "requests", folder / "dead"
        program = str(Path(__file__).parent / "chaos" / "alerts_server.py")
        command = [sys.executable, program, str(self._port), str(self._file), str(UNWELCOME)]
        self._server = ServerProcess("alerts", command, folder)

    def declared(self, view: str) -> str:  # noqa: ARG002
        url = f"http://{LOOPBACK}:{self._port}/"
        return (
            f"USING http OPTIONS (url '{url}', per 'batch', timeout '5 seconds', dead_letters '{self.dead}')"
        )

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start(self._answers)

    def rows(self, view: str) -> pa.Table:
        """What has arrived, and the rows of refused requests."""
        seen: dict[str, int] = {}
        with (self._folder / view).open("w") as file:
            for key, body in (*self._requests(), *self._letters()):
                if key in seen:
                    assert seen[key] == hash(body), "a repeated request is the same"
                    self.repeated += 1
                    continue
                seen[key] = hash(body)
                file.writelines(json.dumps(row) + "\n" for row in json.loads(body)["rows"])
        return from_json(self._folder / view)

    def refused(self) -> int:
        """How many rows are in the requests that were refused."""
        return sum(len(json.loads(body)["rows"]) for body in dict(self._letters()).values())

    def _requests(self) -> Iterator[tuple[str, str]]:
        with self._file.open() as file:
            for line in file:
                key, _, body = line.rstrip("\n").partition("\t")
                yield key, body

    def _letters(self) -> Iterator[tuple[str, str]]:
        with self.dead.open() as file:
            for letter in map(json.loads, file):
                yield letter["key"], letter["body"]

    def _answers(self) -> bool:
        opener: Callable[..., Any] = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        try:
            opener(f"http://{LOOPBACK}:{self._port}/", timeout=2).close()
        except OSError:
            return False
        return True


def from_json(lines: Path, *, is_window: bool = False) -> pa.Table:
    """Rows that stand in a file as JSON, one a line."""
    window = 'STRUCT("start" TIMESTAMPTZ, "end" TIMESTAMPTZ)'
    of_window = {"name": "VARCHAR", "w": window, "n": "BIGINT", "op": "VARCHAR", "revision": "BIGINT"}
    columns = of_window if is_window else _JSON
    return duckdb.sql(
        f"SELECT * FROM read_json('{lines}', format='newline_delimited', columns={columns})"
    ).to_arrow_table()
