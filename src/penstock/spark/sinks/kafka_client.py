"""Kafka's own producer in Spark's JVM, given records by the thousand, with transactions or without.

Python calls the JVM once for many records. What takes them apart there is a small class in Java, which Janino compiles: Spark brings it for its own
generated code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.errors import CheckpointError
from penstock.redaction import option_secrets_masked
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.sources.kafka_admin import KafkaAdmin

PREFIX = "kafka."
TRANSACTIONAL_ID = "transactional.id"
#: bytes of one call
_CALL_BYTES = 1 << 20
#: how long a broker that is away holds up a delivery, unless options say so: the client's own is two minutes
_DELIVERY, _DELIVERY_MS, _MORE_MS = "delivery.timeout.ms", 120_000, 2_000
_PATIENCE = {"max.block.ms": "20000", _DELIVERY: "30000", "request.timeout.ms": "15000"}
#: how long other sinks may hide marks by their open transactions: Kafka lets these live for a minute, and looks every ten seconds
_HIDDEN_MS = 71_000
_CLOSE_SECONDS = 5
_NUMBER = struct.Struct(">i")
_NONE = _NUMBER.pack(-1)
_NAME = "PenstockRecords"
#: py4j finds methods that it has called before by the name of their class, whoever has loaded it: each class gets a name of its own
_numbers = count()
_JAVA = f"""
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;

public class {_NAME} {{
    private final List sent = new ArrayList();

    private static byte[] part(ByteBuffer in) {{
        int length = in.getInt();
        if (length < 0) return null;
        byte[] bytes = new byte[length];
        in.get(bytes);
        return bytes;
    }}

    public void send(Producer producer, String topic, byte[] records) {{
        ByteBuffer in = ByteBuffer.wrap(records);
        while (in.hasRemaining()) {{
            byte[] key = part(in);
            byte[] value = part(in);
            RecordHeaders headers = new RecordHeaders();
            for (int left = in.getInt(); left > 0; left--) {{
                String name = new String(part(in), StandardCharsets.UTF_8);
                headers.add(name, part(in));
            }}
            sent.add(producer.send(new ProducerRecord(topic, null, null, key, value, headers)));
        }}
    }}

    public void acknowledged(long millis) throws Exception {{
        for (Iterator each = sent.iterator(); each.hasNext(); )
            ((Future) each.next()).get(millis, java.util.concurrent.TimeUnit.MILLISECONDS);
        sent.clear();
    }}

    public String newest(Consumer consumer, Map ends, String key, long millis) throws Exception {{
        consumer.assign(ends.keySet());
        consumer.seekToBeginning(ends.keySet());
        long until = System.currentTimeMillis() + millis;
        byte[] wanted = key.getBytes(StandardCharsets.UTF_8);
        String found = null;
        while (true) {{
            boolean isRead = true;
            for (Iterator each = ends.entrySet().iterator(); each.hasNext(); ) {{
                Map.Entry entry = (Map.Entry) each.next();
                isRead &= consumer.position((TopicPartition) entry.getKey()) >= ((Number) entry.getValue()).longValue();
            }}
            if (isRead) return found;
            if (System.currentTimeMillis() > until) throw new java.util.concurrent.TimeoutException("marks are hidden by a transaction");
            for (Iterator each = consumer.poll(Duration.ofMillis(200)).iterator(); each.hasNext(); ) {{
                ConsumerRecord record = (ConsumerRecord) each.next();
                if (record.value() != null && java.util.Arrays.equals(wanted, (byte[]) record.key()))
                    found = new String((byte[]) record.value(), StandardCharsets.UTF_8);
            }}
        }}
    }}
}}
"""


def part(content: bytes | None) -> bytes:
    """Bytes as the class in Java reads them: behind their number, or -1 where there are none."""
    return _NONE if content is None else _NUMBER.pack(len(content)) + content


def headers_part(headers: Sequence[tuple[str, bytes | None]], more: int = 0) -> bytes:
    """Names and values of headers, likewise.

    Args:
        headers: the first ones.
        more: how many follow, each as two parts.
    """
    named = [part(each) for name, value in headers for each in (name.encode(), value)]
    return b"".join([_NUMBER.pack(len(headers) + more), *named])


class KafkaProducer:
    """A producer; used by one thread. What it raises has no secret of the options.

    Args:
        spark: the session, in whose JVM Kafka's client is.
        options: of the table; those that begin with `kafka.` are the client's.
        transactional_id: None: without transactions.

    Raises:
        ConnectionError: the client refuses its options, or no broker answers.
    """

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], transactional_id: str | None = None
    ) -> None:
        self._spark = spark
        self._options = options
        self._java = partial(java_class, spark)
        given = {
            name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)
        }
        # Kafka refuses some without the others
        patience = {} if set(_PATIENCE) & set(given) else _PATIENCE
        own = {"linger.ms": "5", **patience, **given}
        if transactional_id is not None:
            own[TRANSACTIONAL_ID] = transactional_id
        self._given = given
        self._patience_ms = int(own.get(_DELIVERY, _DELIVERY_MS)) + _MORE_MS
        self._is_transactional = transactional_id is not None
        with self._told():
            serializer = self._java("org.apache.kafka.common.serialization.ByteArraySerializer")
            self._records = _compiled(self._java, serializer())
            producer = self._java("org.apache.kafka.clients.producer.KafkaProducer")
            self._producer: Any = producer(self._map(own), serializer(), serializer())
        try:
            if self._is_transactional:
                # ends what a run before left open, and keeps it from writing on
                with self._told():
                    self._producer.initTransactions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends its connections; an open transaction is given up."""
        self._producer.close(self._java("java.time.Duration").ofSeconds(_CLOSE_SECONDS))

    def send(self, records: Mapping[str, Iterable[bytes]]) -> None:
        """Writes records of topics, in one transaction where it has transactions; on return the brokers have them.

        Args:
            records: by topic; each is its key and its value (`part`), then its headers (`headers_part`).

        Raises:
            ConnectionError: they have not. Whether a transaction is committed is open then.
        """
        with self._told():
            if self._is_transactional:
                self._producer.beginTransaction()
            for topic, each in records.items():
                for content in _calls(each):
                    self._records.send(self._producer, topic, content)
            # a flush has no limit: without the transaction's coordinator no record ever expires
            self._records.acknowledged(self._patience_ms)
            if self._is_transactional:
                self._producer.commitTransaction()

    def newest(self, topic: str, key: str) -> str | None:
        """The value of the newest committed record of a key; the topic is created where it is missing.

        Raises:
            CheckpointError: the topic does not keep the newest record of each key.
            ConnectionError: it cannot be read.
        """
        with self._told(), closing(KafkaAdmin(self._spark, self._options)) as admin:
            if topic not in admin.matching(".*"):
                admin.create_compacted(topic)
            if not admin.keeps_the_newest(topic):
                raise CheckpointError(
                    f"topic {topic} deletes old records, and sinks keep the number of their last delivery there. Set its cleanup.policy to "
                    "compact, or name another one in the option marks_topic"
                )
            # also what is not committed: a mark may lie behind the beginning of another sink's open transaction
            ends = admin.ends(admin.partitions([topic]))[topic]
            partition = self._java("org.apache.kafka.common.TopicPartition")
            wanted = self._java("java.util.HashMap")()
            for number, end in ends.items():
                wanted.put(partition(topic, int(number)), end)
            reads = {"isolation.level": "read_committed", "enable.auto.commit": "false"}
            deserializer = self._java("org.apache.kafka.common.serialization.ByteArrayDeserializer")
            consumer = self._java("org.apache.kafka.clients.consumer.KafkaConsumer")(
                self._map({**self._given, **reads}), deserializer(), deserializer()
            )
            try:
                found = self._records.newest(consumer, wanted, key, _HIDDEN_MS)
            finally:
                consumer.close(self._java("java.time.Duration").ofSeconds(_CLOSE_SECONDS))
        return None if found is None else str(found)

    def _map(self, settings: Mapping[str, str]) -> Any:
        converted = self._java("java.util.HashMap")()
        for name, value in settings.items():
            converted.put(name, value)
        return converted

    def _told(self) -> _Told:
        return _Told(self._options)


@dataclass(frozen=True, slots=True)
class _Told:
    """Turns Java's errors into one that says what Kafka says."""

    options: Mapping[str, str]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Py4JJavaError):
            reason: Any = error.java_exception
            while reason.getCause() is not None:
                reason = reason.getCause()
            name = str(reason.getClass().getSimpleName())
            told = option_secrets_masked(str(reason.getMessage()), self.options)
            raise ConnectionError(f"Kafka: {name}: {told}") from None


def _calls(records: Iterable[bytes]) -> Iterable[bytes]:
    gathered: list[bytes] = []
    size = 0
    for each in records:
        gathered.append(each)
        size += len(each)
        if size >= _CALL_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _compiled(java: Any, neighbour: Any) -> Any:
    """An object of a class as above, which sees the classes that a neighbour sees."""
    compiler = java("org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(neighbour.getClass().getClassLoader())
    name = f"{_NAME}{next(_numbers)}"
    compiler.cook(_JAVA.replace(_NAME, name))
    return compiler.getClassLoader().loadClass(name).newInstance()
