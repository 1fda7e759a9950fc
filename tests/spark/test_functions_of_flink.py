"""Functions of Flink's SQL that Spark has not, or reads otherwise: the message says what to write, and names the place."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.errors import SqlError

FAILS = "Spark fails at this: TO_TIMESTAMP_LTZ reads texts in Spark. Of milliseconds write timestamp_millis(number), of seconds"


@pytest.mark.parametrize(
    ("query", "said", "place"),
    [
        (
            "SELECT JSON_VALUE(payload, '$.a') AS a FROM orders",
            "Function JSON_VALUE is not Spark's. Write get_json_object(text, '$.path').",
            "JSON_VALUE(payload, '$.a')",
        ),
        (
            "SELECT id FROM orders WHERE JSON_EXISTS(payload, '$.a')",
            "Function JSON_EXISTS is not Spark's. Write get_json_object(text, '$.path') IS NOT NULL.",
            "JSON_EXISTS(payload, '$.a')",
        ),
        (
            "SELECT sum(SPLIT_INDEX(payload, ',', 0)) AS n FROM orders",
            "Function SPLIT_INDEX is not Spark's. Write split_part(text, ',', 1), which counts from 1.",
            "SPLIT_INDEX(payload, ',', 0)",
        ),
        ("SELECT id, TO_TIMESTAMP_LTZ(id, 3) AS t FROM orders", FAILS, "TO_TIMESTAMP_LTZ(id, 3)"),
        ("SELECT id FROM orders WHERE TO_TIMESTAMP_LTZ(id, 3) > ts", FAILS, "TO_TIMESTAMP_LTZ(id, 3)"),
        (
            "SELECT max(TO_TIMESTAMP_LTZ(id, 3)) AS t FROM orders GROUP BY window(ts, '1 hour')",
            FAILS,
            "TO_TIMESTAMP_LTZ(id, 3)",
        ),
    ],
)
def test_a_function_of_flink_is_refused_with_what_to_write(
    spark: SparkSession, query: str, said: str, place: str
) -> None:
    engine = Engine(spark)
    engine.stream(
        "orders",
        spark.readStream.format("rate")
        .load()
        .selectExpr("value AS id", "timestamp AS ts", "'{}' AS payload"),
        event_time="ts",
    )
    with pytest.raises(SqlError) as raised:
        engine.execute(f"CREATE VIEW v AS {query}")
    assert raised.value.message.startswith(said)
    assert raised.value.text[raised.value.start : raised.value.end] == place
