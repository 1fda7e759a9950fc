"""The sink `kafka`: a record a row, written by Spark's connector, with headers that tell repeated records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InputError
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION, TO_JSON
from penstock.spark.sinks.delivery import Delivery, Mode
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits
from penstock.spark.sources.kafka_checks import SERVERS, check_broker, check_connector, check_target

#: headers of a record, and the columns that they are of
_HEADERS = {"penstock-batch": BATCH, "penstock-ordinal": ORDINAL, "penstock-definition": SINK_DEFINITION}


class _Topic(PlainTarget):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def deliver(self, delivery: Delivery) -> None:
        _records(delivery.frame()).write.format("kafka").options(**self._options).save()


def _records(rows: DataFrame) -> DataFrame:
    own = [name for name in rows.columns if name not in _HEADERS.values()]
    if "value" in own and set(own) <= {"key", "value"}:
        columns = [F.col(name).cast("binary").alias(name) for name in own]
    else:
        columns = [as_json(own).alias("value")]
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
            for name, column in _HEADERS.items()
            if column in rows.columns
        )
    )
    return rows.select(*columns, headers.alias("headers"))


def as_json(columns: Sequence[str]) -> Column:
    """A row as one JSON object, as `penstock results` writes it."""
    return F.to_json(F.struct(*map(quoted, columns)), TO_JSON)


class KafkaProvider:
    """Rows in a topic."""

    modes: tuple[Mode, ...] = ("changes", "append")
    promise: Promise = "at least once"
    limits = Limits()
    takes_frames = True
    prefixes = ("kafka.",)

    def options(self) -> Iterable[str]:
        """The topic; whatever begins with `kafka.` is the producer's."""
        return (SERVERS, "topic")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:
        """See `SinkProvider`.

        Raises:
            ConnectionFailedError: no broker answers, the topic does not exist, or the session has no connector.
        """
        options = dict(table.options)
        for needed in (SERVERS, "topic"):
            if needed not in options:
                raise InputError(f"INSERT INTO {table.name}: set the option {needed}.")
        check_broker(table.name, options[SERVERS])
        check_connector(spark, table.name)
        check_target(spark, table.name, options)

        def opens(_: TargetHome) -> _Topic:
            return _Topic(options)

        return opens


PROVIDER = KafkaProvider()
