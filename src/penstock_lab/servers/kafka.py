"""A real Kafka broker on the loopback address: one KRaft node, started from fetched jars.

Needs the jars that `make kafka-jars` fetches and the package `kafka-python` (extra `dev`).
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from penstock.errors import ConnectionFailedError, InputError, PenstockError
from penstock_lab.servers.processes import (
    LOOPBACK,
    ServerProcess,
    free_port,
    is_listened_to,
    java_executable,
    stop_recorded,
)

_NAME = "kafka"
_MOST_CHARACTERS = 249
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MOST_CHARACTERS}}}")


class KafkaBroker:
    """A broker that can be stopped, killed and started again with the same data.

    Args:
        jars: folder with the broker's jars.
        data: folder for its log, its configuration and its topics; one that a broker used before is
            taken up again.
        port: TCP port on 127.0.0.1; a free one by default.
        heap: the Java heap, as `-Xmx` takes it.
        java_options: further options of Java.
    """

    def __init__(
        self,
        jars: Path,
        data: Path,
        port: int | None = None,
        heap: str = "256m",
        java_options: Sequence[str] = (),
    ) -> None:
        self.port = port or free_port()
        #: whether somebody may have the address already, so that the port stays
        self._is_known = port is not None
        self._topics = data.absolute() / "topics"
        self._identity = self._topics / "meta.properties"
        self._properties = data / "server.properties"
        classpath = str(jars.absolute() / "*")
        self._java = [
            java_executable(),
            f"-Xmx{heap}",
            *java_options,
            "-Dlog4j2.level=WARN",
            "-cp",
            classpath,
        ]
        self._server = ServerProcess(_NAME, [*self._java, "kafka.Kafka", str(self._properties)], data)

    @property
    def address(self) -> str:
        """What `kafka.bootstrap.servers` is set to."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Starts the broker and waits until it answers; tried again if another program took one of its ports.

        Raises:
            ConnectionFailedError: it runs already, or another program has the port that was asked for; or it could not
                be started, and the message ends with its log.
        """
        self._server.refuse_second()
        if self._is_known and is_listened_to(self.port):
            raise ConnectionFailedError(
                f"Port {self.port} of {LOOPBACK} is taken by another program, perhaps another Kafka broker: end it, or "
                f"choose another port (make kafka KAFKA_PORT={self.port + 1})."
            )
        for last in (False, False, True):
            self._configure()
            if not self._identity.exists():
                self._format()
            try:
                self._server.start(self._answers)
            except ConnectionFailedError as error:
                if last or "Address already in use" not in str(error):
                    raise
                if not self._is_known:
                    self.port = free_port()
            else:
                self._is_known = True
                break
        return self

    def stop(self) -> None:
        """Ends the broker in good order; its data stay."""
        self._server.stop()

    def kill(self) -> None:
        """Ends the broker as a crash would; its data stay."""
        self._server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_recorded(self) -> bool:
        """Whether another program started this broker, with the same data and port, and it still runs."""
        return (
            self._server.recorded is not None
            and self._properties.exists()
            and f"listeners=PLAINTEXT://{self.address}," in self._properties.read_text()
        )

    def create_missing(self, topics: Sequence[str]) -> list[str]:
        """Creates the topics that do not exist, with one partition each, and waits until they can be written.

        Returns:
            Those that did not exist.
        """
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            existing = set(admin.list_topics())
        finally:
            admin.close()
        missing = [topic for topic in topics if topic not in existing]
        for topic in missing:
            self.create_topic(topic)
        return missing

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Creates a topic and waits until it can be written."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
        finally:
            admin.close()

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic and waits until it is gone."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.delete_topics([topic])
            while topic in admin.list_topics():
                time.sleep(0.05)
        finally:
            admin.close()

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Makes a topic have more partitions than it has, so many in all."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_partitions({topic: partitions})
            while len(admin.describe_topics([topic])[0]["partitions"]) < partitions:
                time.sleep(0.05)
        finally:
            admin.close()

    def produce(self, topic: str, values: Iterable[str | bytes], partition: int | None = None) -> None:
        """Appends values to a topic and returns when the broker has acknowledged all of them.

        Args:
            topic: an existing topic.
            values: the records' values; text is encoded as UTF-8.
            partition: the partition to append to; the client's choice by default.
        """
        producer = KafkaProducer(bootstrap_servers=self.address, acks="all", linger_ms=20)
        try:
            sent = [
                producer.send(topic, value.encode() if isinstance(value, str) else value, partition=partition)
                for value in values
            ]
            producer.flush()
            for record in sent:
                record.get(timeout=30)
        finally:
            producer.close()

    def consume(self, topic: str) -> list[bytes]:
        """The values of all records now in a topic, partition by partition, each in order."""
        consumer = KafkaConsumer(bootstrap_servers=self.address, enable_auto_commit=False)
        try:
            partitions = [
                TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for partition, records in consumer.poll(timeout_ms=500).items():
                    values[partition] += [
                        record.value for record in records if record.offset < ends[partition]
                    ]
            return [value for partition in partitions for value in values[partition]]
        finally:
            consumer.close()

    def _configure(self) -> None:
        controller_port = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": self._topics,
            "auto.create.topics.enable": "false",
            "default.replication.factor": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # by default half of the heap in one piece, which is not always there
            "log.cleaner.dedupe.buffer.size": 8 << 20,
        }
        self._topics.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()
        formatting = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if formatting.returncode:
            raise ConnectionFailedError(
                f"Kafka's storage could not be formatted:\n{formatting.stdout}{formatting.stderr}"
            )

    def _answers(self) -> bool:
        try:
            admin = KafkaAdminClient(
                bootstrap_servers=self.address, bootstrap_timeout_ms=1000, request_timeout_ms=2000
            )
        except (KafkaError, OSError, ValueError):
            return False
        try:
            told = admin.describe_cluster()
            # another broker may have taken the port
            return (
                bool(told["brokers"]) and f"cluster.id={told['cluster_id']}\n" in self._identity.read_text()
            )
        except KafkaError:
            return False
        finally:
            admin.close()


def topic_names(text: str) -> list[str]:
    """The names of topics, separated by commas.

    Raises:
        InputError: one is not a name that Kafka allows.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else []
    for name in names:
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise InputError(
                f"TOPICS: '{name}' is not the name of a topic. Allowed: 1 to {_MOST_CHARACTERS} of the characters "
                "a-z A-Z 0-9 . _ - in a name, and commas between names"
            )
    return names


def _started(options: argparse.Namespace) -> list[str]:
    """Starts the broker unless it runs, and creates the topics.

    Returns:
        What to print, line by line.
    """
    topics = topic_names(options.topics)
    broker = KafkaBroker(options.jars, options.data, options.port)
    if not broker.is_recorded:
        broker.start()
    created = broker.create_missing(topics)
    connector = sorted(options.connector.glob("*.jar"))
    first = topics[0] if topics else "TOPIC"
    table, server = _identifier(first), f"kafka.bootstrap.servers '{broker.address}'"
    return [
        f"Kafka answers on {broker.address}",
        *(f"topic {topic}: {'created' if topic in created else 'exists'}" for topic in topics),
        f"Spark's Kafka connector, which penstock finds there: {options.connector} ({len(connector)} jars)",
        *(f"  {jar.name}" for jar in connector),
        f"Next: declare {'each topic' if len(topics) > 1 else first} in a script, then `penstock run SCRIPT`. To read {first}:",
        f"  CREATE TABLE {table} (id BIGINT, ...) USING kafka OPTIONS ({server}, subscribe '{first}', startingOffsets 'earliest');",
        f"Or to write results to {first}, with INSERT INTO {table}:",
        f"  CREATE TABLE {table} USING kafka OPTIONS ({server}, topic '{first}');",
    ]


def _identifier(topic: str) -> str:
    """A topic's name as the name of a table."""
    plain = re.sub(r"\W", "_", topic)
    return f"t_{plain}" if plain[0].isdigit() else plain


def main() -> None:
    """Start a broker that outlives this program and create its topics, or stop it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jars", type=Path)
    parser.add_argument("--connector", type=Path, default=Path(".cache/kafka-connector"))
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--topics", default="", help="names, separated by commas; those that exist remain")
    options = parser.parse_args()
    if options.action == "stop":
        stopped = stop_recorded(options.data / f"{_NAME}.pid")
        print("Kafka stopped" if stopped else "Kafka was not running")
        return
    try:
        print(*_started(options), sep="\n")
    except (PenstockError, KafkaError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(getattr(error, "exit_code", 1)) from None


if __name__ == "__main__":
    main()
