"""What a table on Kafka needs before anything starts: a broker that answers, Spark's connector, topics that exist."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.recovery.messages import first_line
from penstock.spark.sessions.connector import PROVIDER, kafka_connector
from penstock.spark.sources.kafka_admin import SUBSCRIPTIONS, KafkaAdmin, subscribed

SERVERS = "kafka.bootstrap.servers"
_CONNECT_SECONDS = 3.0
#: how long the look at a topic may take
_QUICK = {"kafka.request.timeout.ms": "5000", "kafka.default.api.timeout.ms": "10000"}
#: the broker that `make kafka` starts without further options
_LOOPBACK, _MAKE_PORT = ("127.0.0.1", "localhost"), "9092"


def check_broker(name: str, servers: str) -> None:
    """Makes sure that one of the servers accepts connections.

    Raises:
        ConnectionFailedError: none does.
        InputError: a server is not written as host:port.
    """
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            raise InputError(
                f"table {name}: kafka.bootstrap.servers holds '{server}'; allowed: host:port, ..."
            )
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except OSError:
            continue
        return
    own = _make_command(servers)
    remedy = (
        f"Start one with `{own}`" if own else "Check that the broker runs and that this machine reaches it"
    )
    raise ConnectionFailedError(
        f"table {name}: no Kafka broker answers at {servers}. {remedy}, or correct the option {SERVERS}"
    )


def _make_command(servers: str, more: str = "") -> str | None:
    """The command that starts a broker at a place on this machine, or adds topics to it; None for other machines."""
    host, _, port = servers.split(",")[0].strip().rpartition(":")
    if host not in _LOOPBACK:
        return None
    return f"make kafka{more}" + ("" if port == _MAKE_PORT else f" KAFKA_PORT={port}")


def check_connector(spark: SparkSession, name: str) -> None:
    """Makes sure that a session has Spark's Kafka connector.

    Raises:
        ConnectionFailedError: it has not.
    """
    if not isinstance(java_class(spark, PROVIDER), JavaClass):
        raise ConnectionFailedError(
            f"table {name}: this Spark session has no Kafka connector. Start the session with the connector: "
            f"`build_session(..., kafka=True)`, or the Spark setting {kafka_connector().settings}"
        )


def check_topics(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """Makes sure that the topics which a stream reads exist and may be read.

    Args:
        spark: the session.
        name: of the table.
        options: of the table: plain names to values.

    Raises:
        ConnectionFailedError: one does not exist, or may not be read.
    """
    wanted = {
        key: value for key, value in options.items() if key in SUBSCRIPTIONS or key.startswith("kafka.")
    }
    topic = next(options[key] for key in SUBSCRIPTIONS if key in options)
    try:
        reader = spark.read.format("kafka").options(**{**_QUICK, **wanted})
        reader.option("startingOffsets", "earliest").load().limit(1).count()
    except PySparkException as error:
        raise ConnectionFailedError(f"table {name}: topic {topic}: {first_line(error)}") from error
    except Py4JJavaError as error:
        if "UnknownTopicOrPartition" in str(error):
            topics = subscribed(options) or [topic]
            with closing(KafkaAdmin(spark, options)) as admin:
                existing = admin.matching(".*")
            missing = [each for each in topics if each not in existing]
            raise _missing_error(name, options[SERVERS], missing or topics, existing) from error
        told = str(error.java_exception.getMessage())
        raise ConnectionFailedError(f"table {name}: topic {topic}: {told}") from error


def check_target(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """Makes sure that the topic which a sink writes exists, unless its broker creates topics itself.

    Args:
        spark: the session.
        name: of the table.
        options: of the table: the topic, the servers, and what the client needs.

    Raises:
        ConnectionFailedError: it does not exist.
    """
    topic = options["topic"]
    with closing(KafkaAdmin(spark, options)) as admin:
        try:
            existing = admin.matching(".*")
            is_missing = topic not in existing and not admin.creates_topics()
        except Py4JJavaError:
            # a sink may write to a topic, and not be allowed to ask for it
            return
    if is_missing:
        raise _missing_error(name, options[SERVERS], [topic], existing)


def _missing_error(
    name: str, servers: str, topics: Sequence[str], existing: Collection[str]
) -> ConnectionFailedError:
    """The error that topics do not exist, with those that may be meant and the command that creates them."""
    others = set(existing).difference(topics)
    near = {each for topic in topics for each in get_close_matches(topic, others, 1, cutoff=0.8)}
    meant = f"; did you mean {', '.join(sorted(near))}?" if near else "."
    command = "; ".join(
        f"kafka-topics.sh --create --bootstrap-server {servers} --topic {topic}" for topic in topics
    )
    command = f"`{command}`"
    if own := _make_command(servers, f" TOPICS={','.join(topics)}"):
        command = f"`{own}`, or, where another program started the broker, {command}"
    which = f"topic {topics[0]} does" if len(topics) == 1 else f"topics {', '.join(topics)} do"
    return ConnectionFailedError(
        f"table {name}: {which} not exist on the broker {servers}{meant} To create: {command}"
    )
