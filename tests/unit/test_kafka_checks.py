"""What is said of a Kafka broker that does not answer."""

from __future__ import annotations

import socket

import pytest

from penstock.errors import ConnectionFailedError
from penstock.spark.sources.kafka_checks import check_broker


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_broker_of_this_machine_that_does_not_answer_can_be_started(host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailedError) as refused:
            check_broker("orders", f"{host}:{port}")
    assert str(refused.value) == (
        f"table orders: no Kafka broker answers at {host}:{port}. Start one with `make kafka KAFKA_PORT={port}`, or correct the "
        "option kafka.bootstrap.servers"
    )


def test_a_broker_elsewhere_that_does_not_answer_is_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectionFailedError) as refused:
        check_broker("orders", "broker.example:9092")
    assert str(refused.value) == (
        "table orders: no Kafka broker answers at broker.example:9092. Check that the broker runs and that this machine reaches "
        "it, or correct the option kafka.bootstrap.servers"
    )
