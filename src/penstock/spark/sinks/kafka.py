"""The sink `kafka`: a record a row, with headers that tell repeated records, or none repeated by transactions.

In a transaction the number of the delivery is a record too, of a topic that keeps the newest one of each sink (docs/decisions/0085).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from penstock.errors import InputError, SqlError
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery, Mode, is_taken
from penstock.spark.sinks.kafka_client import PREFIX, TRANSACTIONAL_ID, KafkaProducer, one_record
from penstock.spark.sinks.kafka_records import RECORD_OPTIONS, RecordForm, record_form
from penstock.spark.sinks.providers import Opens, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits
from penstock.spark.sources.kafka_checks import SERVERS, check_broker, check_connector, check_target

_MARKS = "penstock-sinks"
_FLAGS = ("false", "true")


class _Topic:
    def __init__(self, producer: KafkaProducer, topic: str, form: RecordForm) -> None:
        self._producer = producer
        self._topic = topic
        self._form = form

    def deliver(self, delivery: Delivery) -> None:
        self._producer.send({self._topic: self._form.of(delivery)})

    def idle(self, *, is_over: bool) -> None:
        """Do nothing: a delivery is acknowledged as a whole."""

    def close(self) -> None:
        self._producer.close()


class _TopicInTransactions(_Topic):
    def __init__(
        self, producer: KafkaProducer, topic: str, form: RecordForm, marks: str, home: TargetHome
    ) -> None:
        super().__init__(producer, topic, form)
        self._marks = marks
        newest = producer.newest(marks, home.id)
        self._delivered = None if newest is None else int(newest)

    def deliver(self, delivery: Delivery) -> None:
        if is_taken(delivery, self._delivered, f"topic {self._marks}"):
            return
        mark = one_record(delivery.sink.encode(), str(delivery.number).encode())
        self._producer.send({self._topic: self._form.of(delivery), self._marks: mark})
        self._delivered = delivery.number


class KafkaProvider:
    """Rows in a topic."""

    modes: tuple[Mode, ...] = ("changes", "append")
    promise: Promise = "at least once"
    #: a transaction has a minute
    limits = Limits(rows=50_000)
    prefixes = (PREFIX,)

    def options(self) -> Iterable[str]:
        """The topic and what records have; whatever begins with `kafka.` is the producer's."""
        return (SERVERS, "topic", *RECORD_OPTIONS, "transactions", "marks_topic")

    def promise_of(self, table: SinkTable) -> Promise:
        """Exactly once with transactions."""
        return "exactly once" if _has_transactions(table) else self.promise

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:
        """See `SinkProvider`.

        Raises:
            ConnectionFailedError: no broker answers, the topic does not exist, or the session has no connector.
        """
        given = dict(table.options)
        for needed in (SERVERS, "topic"):
            if needed not in given:
                raise InputError(f"INSERT INTO {table.name}: set the option {needed}.")
        topic, marks = given["topic"], given.get("markstopic", _MARKS)
        is_transactional = _has_transactions(table)
        _refuse_contradictions(table, topic, marks, is_transactional=is_transactional)
        form = record_form(table)
        check_broker(table.name, given[SERVERS])
        check_connector(spark, table.name)
        check_target(spark, table.name, given)

        def opens(home: TargetHome) -> _Topic:
            if not is_transactional:
                return _Topic(KafkaProducer(spark, given), topic, form)
            producer = KafkaProducer(spark, given, f"penstock-{home.id}")
            try:
                return _TopicInTransactions(producer, topic, form, marks, home)
            except BaseException:
                producer.close()
                raise

        return opens


def _has_transactions(table: SinkTable) -> bool:
    return options.choice(table, "transactions", _FLAGS) == "true"


def _refuse_contradictions(table: SinkTable, topic: str, marks: str, *, is_transactional: bool) -> None:
    given: Mapping[str, str] = table.options
    own = f"{PREFIX}{TRANSACTIONAL_ID}"
    if own in given:
        raise SqlError(
            f"table {table.name}: Penstock chooses {TRANSACTIONAL_ID}. Remove {own}, and set transactions 'true'.",
            *table.statement.at(own),
        )
    if "markstopic" in given and not is_transactional:
        raise SqlError(
            f"table {table.name}: marks_topic belongs to transactions 'true'.",
            *table.statement.at("marks_topic"),
        )
    if is_transactional and marks == topic:
        raise SqlError(
            f"table {table.name}: marks_topic and topic are both {topic}. Name two topics.",
            *table.statement.at("marks_topic"),
        )


PROVIDER = KafkaProvider()
