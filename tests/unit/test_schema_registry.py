"""What a schema registry says, and what is an outage instead."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators.wire.readers import AVRO, WantedColumn
from penstock.spark.tasks import schema_registry
from penstock.spark.tasks.schema_registry import SchemaRegistry, SchemaRegistryError
from penstock.spark.tasks.value_formats import ValueFormat
from penstock_lab.servers.schema_registry import SchemaRegistryServer

TEXT = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
WANTED = [WantedColumn("id", pa.int64(), ("id",))]


class _Gateway(SchemaRegistryServer):
    """Answers each request alike."""

    def __init__(self, status: int, told: Any) -> None:
        super().__init__()
        self._answer = status, told

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:  # noqa: ARG002
        return self._answer


def test_what_the_registry_says_it_lacks_is_unknown() -> None:
    with SchemaRegistryServer() as server:
        number = server.register("s", TEXT)
        registry = SchemaRegistry.of(server.url)
        assert registry.by_number(number + 1) is None
        assert registry.versions("other") == []
        assert registry.version("other", 1) is None
        assert registry.version("s", 2) is None
        found = registry.by_number(number)
        assert found is not None
        assert found.text == TEXT
        assert registry.versions("s") == [1]
        assert registry.version("s", 1) == found


@pytest.mark.parametrize(
    ("status", "told", "message"),
    [
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, "answers 404"),
        (404, "no such route", "answers 404"),
        (404, {"error_code": [40403]}, "answers 404"),
        (404, {"message": "not here"}, "answers 404"),
        (200, {"status": "ok"}, "gives another answer than a schema registry"),
        (200, {"schema": {"type": "record"}}, "gives another answer than a schema registry"),
        (200, {"schema": TEXT, "schemaType": 1}, "gives another answer than a schema registry"),
        (200, {"schema": TEXT, "references": [1]}, "gives another answer than a schema registry"),
        (200, None, "gives another answer than a schema registry"),
        (200, "welcome", "gives another answer than a schema registry"),
    ],
)
def test_what_is_no_word_of_a_registry_is_an_outage(status: int, told: Any, message: str) -> None:
    with _Gateway(status, told) as server:
        registry = SchemaRegistry.of(server.url)
        asked = (
            lambda: registry.by_number(1),
            lambda: registry.versions("s"),
            lambda: registry.version("s", 1),
        )
        for each in asked:
            with pytest.raises(SchemaRegistryError, match=message):
                each()


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_a_code_counts_where_it_belongs(code: int) -> None:
    with _Gateway(404, {"error_code": code}) as server:
        registry = SchemaRegistry.of(server.url)
        if code == 40403:
            assert registry.by_number(1) is None
            with pytest.raises(SchemaRegistryError, match="answers 404"):
                registry.version("s", 1)
        else:
            assert registry.version("s", 1) is None
            with pytest.raises(SchemaRegistryError, match="answers 404"):
                registry.by_number(1)


def test_the_next_server_is_asked_where_one_is_a_gateway() -> None:
    with _Gateway(404, {}) as gateway, _Gateway(200, {}) as page, SchemaRegistryServer() as server:
        number = server.register("s", TEXT)
        found = SchemaRegistry.of(f"{gateway.url},{page.url},{server.url}").by_number(number)
        assert found is not None


def test_numbers_without_a_schema_are_asked_for_once_in_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(schema_registry, "monotonic", lambda: now)
    monkeypatch.setattr(schema_registry, "_absent", {})
    monkeypatch.setattr(schema_registry, "_ABSENT_KEPT", 3)
    with SchemaRegistryServer() as server:
        values = pa.array([b"\0\0\0\0\1\2", b"\0\xff\xff\xff\xff\2", b"\0\0\0\0\2\2"], pa.binary())
        for _ in range(3):
            # a task has a decoder of its own
            decoder = ValueFormat(AVRO, SchemaRegistry.of(server.url)).decoder(WANTED, 100)
            assert decoder.decode(values).reasons == [
                f"malformed Avro: the registry has no schema {each}" for each in (1, 2**32 - 1, 2)
            ]
        assert dict(server.requests) == {"/schemas/ids/1": 1, "/schemas/ids/2": 1}
        assert server.register("s", TEXT) == 1
        now += 11.0
        assert SchemaRegistry.of(server.url).by_number(1) is not None
        for number in range(10, 20):
            SchemaRegistry.of(server.url).by_number(number)
        assert len(schema_registry._absent) == 3


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ({"type": ["null", "string"]}, '{"type": ["null", "string"]} is not a schema'),
        ({"type": "enum", "name": "e"}, '{"type": "enum", "name": "e"} is not a schema'),
        ({"type": "string", "logicalType": ["x"]}, "id is string, no BIGINT"),
    ],
)
def test_values_of_an_odd_schema_are_set_aside_with_the_reason(kind: Any, reason: str) -> None:
    with SchemaRegistryServer() as server:
        text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": kind}]})
        number = server.register("s", text)
        decoder = ValueFormat(AVRO, SchemaRegistry.of(server.url)).decoder(WANTED, 100)
        found = decoder.decode(pa.array([b"\0" + number.to_bytes(4, "big") + b"\2"], pa.binary()))
        assert found.reasons == [f"malformed Avro: schema {number}: {reason}"]


@pytest.mark.parametrize("levels", [100, 5_000, 200_000])
def test_a_schema_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    kind = '{"type":"array","items":' * levels + '"long"' + "}" * levels
    text = f'{{"type":"record","name":"r","fields":[{{"name":"id","type":{kind}}}]}}'
    decoder = ValueFormat(AVRO, schema=text.encode(), is_framed=False).decoder(WANTED, 100)
    assert decoder.decode(pa.array([b"\2"], pa.binary())).reasons == [
        "malformed Avro: schema 0: the schema is nested more than 100 levels deep"
    ]
