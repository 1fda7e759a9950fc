"""Generated JSON records at Jackson's limits: the worker's decoder and Spark's `from_json` agree on every one."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from json_records import COLUMNS, good_record, records
from penstock.operators.ingest.json_decode import JsonDecoder
from penstock.operators.ingest.json_records import Records
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.sources.kafka_source import decode_json
from penstock.spark.tasks.dataframe_stage import ORIGIN, REASON

pytestmark = pytest.mark.spark

RECORDS, BLOCK, MOST_BYTES = 2_600, 40, 55_000


def by_spark(spark: SparkSession, values: pa.Array, schema: StructType) -> pa.Table:
    """What `from_json` makes of each record, in the order of the records."""
    rows = len(values)
    table = pa.table(
        {
            "value": values,
            "topic": pa.array(["t"] * rows),
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(np.arange(rows)),
        }
    )
    found = decode_json(spark.createDataFrame(table), schema, MOST_BYTES).toArrow()
    places = [int(origin.rpartition("-")[2]) for origin in found.column(ORIGIN).to_pylist()]
    return found.take(pa.array(np.argsort(places)))


def bits(column: pa.ChunkedArray | pa.Array) -> list[object]:
    """The values of a column; doubles by their bits, for NaN and the sign of zero."""
    if not pa.types.is_floating(column.type):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        return column.to_pylist()
    return [None if value is None else np.float64(value).view(np.int64) for value in column.to_pylist()]


def test_both_decoders_agree_on_every_record(spark: SparkSession) -> None:
    drawn = random.Random(3)
    made = records(RECORDS)
    good = [good_record(drawn) for _ in range(400)]
    # a block in three is good but for one record
    every = made + [good[n // 2] if n % 40 else made[n] for n in range(800)]
    values = pa.array(every, pa.binary())
    schema = StructType.fromDDL(COLUMNS)
    told = by_spark(spark, values, schema)
    reasons = told.column(REASON).to_pylist()
    columns = [bits(told.column(name)) for name in schema.names]
    decoder = JsonDecoder(arrow_schema(schema), MOST_BYTES)
    taken = np.zeros(len(every), bool)
    wrong = {}
    alone = [(row, 1) for row in range(RECORDS)]
    blocks = [(row, min(BLOCK, len(every) - row)) for row in range(0, len(every), BLOCK)]
    for first, number in alone + blocks:
        tuples, is_decoded = decoder.decode(Records.of_values(values.slice(first, number)))
        rows = first + np.flatnonzero(is_decoded)
        assert len(tuples) == len(rows)
        taken[rows] = True
        own = [bits(column) for column in tuples.columns]
        for place, row in enumerate(rows):
            mine, theirs = [column[place] for column in own], [column[row] for column in columns]
            if reasons[row] is not None or mine != theirs:
                wrong[every[row][:200]] = (mine, reasons[row] or theirs)
    assert not wrong
    malformed = sum(reason is not None for reason in reasons[:RECORDS])
    print(
        f"{RECORDS:,} generated JSON records at Jackson's limits: both decoders agree on every one", end=" "
    )
    print(f"({malformed:,} malformed, {np.count_nonzero(taken[:RECORDS]):,} decoded in the worker)")
    # good records and what is odd about the rest are of a size to tell
    assert RECORDS // 4 < malformed < RECORDS * 3 // 4
    assert np.count_nonzero(taken[:RECORDS]) > RECORDS // 5
