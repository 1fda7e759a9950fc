"""Kafka's own producer in Spark's JVM, given records by the thousand, with transactions or without.

Python calls the JVM once for many records, which go as Arrow. What takes them apart there is a small class in Java.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.errors import CheckpointError
from penstock.redaction import option_secrets_masked
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.java_sources import new_object
from penstock.spark.sources.kafka_admin import KafkaAdmin

PREFIX = "kafka."
TRANSACTIONAL_ID = "transactional.id"
#: records come by the thousand: few and large requests
_LARGE = {"linger.ms": "5", "batch.size": "131072"}
#: bytes of one call
_CALL_BYTES = 1 << 20
#: how long a broker that is away holds up a delivery, unless options say so: the client's own is two minutes
_DELIVERY, _DELIVERY_MS, _MORE_MS = "delivery.timeout.ms", 120_000, 2_000
_PATIENCE = {"max.block.ms": "20000", _DELIVERY: "30000", "request.timeout.ms": "15000"}
#: how long other sinks may hide marks by their open transactions: Kafka lets these live for a minute, and looks every ten seconds
_HIDDEN_MS = 71_000
_CLOSE_SECONDS = 5
#: how long transactions may take to begin, however short the patience of options
_BEGIN_SECONDS = 20
_TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
_NAME = "PenstockRecords"
_JAVA = f"""
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;

public class {_NAME} {{
    private final List sent = new ArrayList();

    public void send(Producer producer, String topic, byte[] records) throws Exception {{
        ArrowStreamReader reader = new ArrowStreamReader(
            new ByteArrayInputStream(records), org.apache.spark.sql.util.ArrowUtils.rootAllocator());
        try {{
            VectorSchemaRoot batch = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {{
                int count = batch.getFieldVectors().size();
                VarBinaryVector[] columns = new VarBinaryVector[count];
                String[] names = new String[count];
                for (int each = 0; each < count; each++) {{
                    columns[each] = (VarBinaryVector) batch.getFieldVectors().get(each);
                    names[each] = columns[each].getName().split(":", 2)[1];
                }}
                for (int row = 0; row < batch.getRowCount(); row++) {{
                    RecordHeaders headers = new RecordHeaders();
                    for (int each = 2; each < count; each++) headers.add(names[each], columns[each].get(row));
                    Future future = producer.send(new ProducerRecord(
                        topic, null, null, columns[0].get(row), columns[1].get(row), headers));
                    // a client that waits in vain for a broker fails the one record, and would wait as long for the next
                    if (future.isDone()) future.get();
                    sent.add(future);
                }}
            }}
        }} finally {{
            reader.close();
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


def one_record(key: bytes, value: bytes) -> pa.Table:
    """A record without headers, as `KafkaProducer.send` takes it."""
    return pa.table([pa.array([each], pa.binary()) for each in (key, value)], ["key", "value"])


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
        own = {**_LARGE, **patience, **given}
        if transactional_id is not None:
            own[TRANSACTIONAL_ID] = transactional_id
        self._given = given
        self._patience_ms = int(own.get(_DELIVERY, _DELIVERY_MS)) + _MORE_MS
        self._is_transactional = transactional_id is not None
        with self._told():
            serializer = self._java("org.apache.kafka.common.serialization.ByteArraySerializer")
            self._records = new_object(spark, _NAME, _JAVA, serializer())
            producer = self._java("org.apache.kafka.clients.producer.KafkaProducer")
            self._producer: Any = producer(self._map(own), serializer(), serializer())
        try:
            if self._is_transactional:
                with self._told():
                    self._begin_transactions()
        except BaseException:
            self.close()
            raise

    def _begin_transactions(self) -> None:
        """Ends what a run before left open, and keeps it from writing on.

        The client goes on where a call that timed out had come to. A new client would connect, and look for the coordinator, anew: a busy
        broker might never answer it in time.
        """
        until = time.monotonic() + _BEGIN_SECONDS
        while True:
            try:
                self._producer.initTransactions()
            except Py4JJavaError as error:
                has_time = time.monotonic() < until
                if not has_time or error.java_exception.getClass().getName() != _TIMEOUT:
                    raise
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends its connections; an open transaction is given up."""
        self._producer.close(self._java("java.time.Duration").ofSeconds(_CLOSE_SECONDS))

    def send(self, records: Mapping[str, pa.Table]) -> None:
        """Writes records of topics, in one transaction where it has transactions; on return the brokers have them.

        Args:
            records: by topic; the columns are bytes or text: the key, the value, then a header of each column's name.

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


def _calls(records: pa.Table) -> Iterator[bytes]:
    """Records as streams of Arrow, of about so many bytes as a call has."""
    rows = max(1, records.num_rows * _CALL_BYTES // max(1, records.nbytes))
    for first in range(0, records.num_rows, rows):
        taken = records.slice(first, rows)
        columns = [each.cast(pa.binary()).combine_chunks() for each in taken.columns]
        # Java knows columns by their names
        names = [f"{number}:{name}" for number, name in enumerate(records.column_names)]
        sent = pa.record_batch(columns, names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, sent.schema) as writer:
            writer.write_batch(sent)
        yield bytes(sink.getvalue())
