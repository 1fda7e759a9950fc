"""Sinks: copies of published matches for Kafka, the console or a function of the user's.

They run after publication, so the results folder never waits for them; after a crash a batch may
be handed over again. Rows for Kafka carry (batch, ordinal) as headers for deduplication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InputError, SinkFailedError, UnsupportedError
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION, TO_JSON
from penstock.spark.sources.kafka_checks import check_broker, check_connector, check_target
from penstock.sql.script.statements import SINKS, CreateTable

#: given the rows of one view of one batch, with the columns BATCH and ORDINAL, of a selection SINK_DEFINITION too, and the
#: batch's number
SinkFunction = Callable[[DataFrame, int], None]
#: headers of a record of Kafka, and the columns that they are of
_HEADERS = {"penstock-batch": BATCH, "penstock-ordinal": ORDINAL, "penstock-definition": SINK_DEFINITION}


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows of one view go.

    Attributes:
        name: of the table or function, for messages.
        view: whose rows.
        write: takes them, batch by batch.
        text: the query of the INSERT INTO that declared it; empty for a function.
    """

    name: str
    view: str
    write: SinkFunction
    text: str = ""

    def take(self, rows: DataFrame, batch: int) -> None:
        """Hands rows over.

        Raises:
            SinkFailedError: they were not taken.
        """
        try:
            self.write(rows, batch)
        except Exception as error:
            raise SinkFailedError(self.name, self.view) from error


def open_sink(spark: SparkSession, table: CreateTable) -> SinkFunction:
    """The writer behind the target of an INSERT INTO.

    Raises:
        UnsupportedError: not a sink Penstock writes to.
        InputError, ConnectionFailedError: options are missing, no broker answers, the topic does not exist, or the session
            has no Kafka connector.
    """
    kind = table.source.lower()
    if kind == "console":
        return _console(table.name)
    if kind != "kafka":
        raise UnsupportedError(
            f"INSERT INTO {table.name}: Penstock cannot write to a table USING {table.source}; use {' or '.join(SINKS)}, or "
            "`Engine.sink` in Python. The results folder has the rows of every view in any case."
        )
    options = {
        name: value for name, value in table.options.items() if name == "topic" or name.startswith("kafka.")
    }
    for needed in ("kafka.bootstrap.servers", "topic"):
        if needed not in options:
            raise InputError(f"INSERT INTO {table.name}: set the option {needed}.")
    check_broker(table.name, options["kafka.bootstrap.servers"])
    check_connector(spark, table.name)
    check_target(spark, table.name, options)
    return _kafka(options)


def _console(name: str) -> SinkFunction:
    def write(rows: DataFrame, batch: int) -> None:
        for row in rows.select(_as_json(_own(rows)).alias("json")).collect():
            print(f"{name} {batch}: {row.json}", flush=True)

    return write


def _kafka(options: dict[str, str]) -> SinkFunction:
    def write(rows: DataFrame, batch: int) -> None:  # noqa: ARG001 - the rows carry it
        own = _own(rows)
        if "value" in own and set(own) <= {"key", "value"}:
            columns = [F.col(name).cast("binary").alias(name) for name in own]
        else:
            columns = [_as_json(own).alias("value")]
        headers = F.array(
            *(
                F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
                for name, column in _HEADERS.items()
                if column in rows.columns
            )
        )
        rows.select(*columns, headers.alias("headers")).write.format("kafka").options(**options).save()

    return write


def _own(rows: DataFrame) -> list[str]:
    """The view's own columns."""
    return [name for name in rows.columns if name not in _HEADERS.values()]


def _as_json(columns: Sequence[str]) -> Column:
    """A row as one JSON object, as `penstock results` writes it."""
    return F.to_json(F.struct(*map(quoted, columns)), TO_JSON)
