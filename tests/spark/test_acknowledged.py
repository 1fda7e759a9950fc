"""What Java sends is acknowledged at once: an answer in several pieces, and a worker's task, wait for no timer."""

from __future__ import annotations

import os
import socket
import threading
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from penstock.spark.engine import Engine
from penstock.spark.sessions.acknowledged import Acknowledged, acknowledge_tasks

pytestmark = pytest.mark.spark
#: Java writes an answer in pieces of 8 KB
LONG = "x" * 50_000


def _reader(spark: SparkSession) -> object:
    client = spark.sparkContext._gateway._gateway_client
    return client.get_thread_connection().stream.raw


def _answer(spark: SparkSession) -> str:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return str(jvm.java.lang.StringBuilder(LONG).append("y").toString())


def test_threads_and_callbacks_read_answers_so(spark: SparkSession) -> None:
    Engine(spark)
    Engine(spark)
    found = [_reader(spark)]
    assert _answer(spark) == f"{LONG}y"

    def read() -> None:
        assert _answer(spark) == f"{LONG}y"
        found.append(_reader(spark))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    rates = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: read())
    query = rates.trigger(once=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert len(found) == 3
    assert all(isinstance(each, Acknowledged) for each in found)


def test_workers_read_their_tasks_so(spark: SparkSession) -> None:
    def kind(_: int) -> tuple[str, str]:
        import inspect

        frames = (frame.frame.f_locals.get("infile") for frame in inspect.stack())
        own = next(each for each in frames if each is not None)
        return type(own).__name__, type(own.raw).__name__

    assert spark.sparkContext.parallelize([0], 1).map(kind).collect() == [("BufferedReader", "Acknowledged")]


def test_other_files_of_the_daemon_are_opened_as_before() -> None:
    daemon = ModuleType("daemon")
    acknowledge_tasks(daemon)
    read, write = os.pipe()
    with daemon.os.fdopen(write, "wb", 4) as out, daemon.os.fdopen(read, "rb", 4) as found:
        out.write(b"pipe")
        out.flush()
        assert found.read(4) == b"pipe"
    one, other = socket.socketpair()
    with one, daemon.os.fdopen(other.detach(), "rb", 16) as found:
        one.sendall(b"socket")
        assert isinstance(found.raw, Acknowledged)
        assert found.read(6) == b"socket"
        one.close()
        assert found.read() == b""
