"""The sink `console`: a JSON object a row on standard output."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from penstock.spark.results.json_columns import json_lines
from penstock.spark.results.texts import has_form
from penstock.spark.sinks.delivery import Delivery, Mode
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits


class _Console(PlainTarget):
    def __init__(self, name: str) -> None:
        self._name = name

    def deliver(self, delivery: Delivery) -> None:
        rows = delivery.rows
        if all(has_form(field.type) for field in rows.schema):
            lines = [line for batch in rows.to_batches() for line in json_lines(batch)]
        else:
            lines = delivery.json_by_spark()
        print("".join(f"{self._name} {delivery.batch}: {line}\n" for line in lines), end="", flush=True)


class ConsoleProvider:
    """Rows for the eye."""

    modes: tuple[Mode, ...] = ("changes", "append")
    promise: Promise = "at least once"
    limits = Limits()

    def options(self) -> Iterable[str]:
        """None."""
        return ()

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`."""

        def opens(_: TargetHome) -> _Console:
            return _Console(table.name)

        return opens


PROVIDER = ConsoleProvider()
