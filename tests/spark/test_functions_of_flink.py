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
        (
            "SELECT id, STRPOS(payload, 'a') AS n FROM orders",
            "Function STRPOS is not Spark's. Write instr(text, 'part').",
            "STRPOS(payload, 'a')",
        ),
        (
            "SELECT ROW(1, id) AS r FROM orders",
            "Function ROW is not Spark's. Write struct(1, x), or named_struct('a', 1, 'b', x).",
            "ROW(1, id)",
        ),
        (
            "SELECT JSON_ARRAYAGG(payload) AS a FROM orders",
            "Function JSON_ARRAYAGG is not Spark's. Write to_json(collect_list(a)).",
            "JSON_ARRAYAGG(payload)",
        ),
        (
            "SELECT id FROM orders WHERE ts > CURRENT_WATERMARK(ts)",
            "Function CURRENT_WATERMARK is not Spark's. Leave it out: late tuples correct the windows that they belong to.",
            "CURRENT_WATERMARK(ts)",
        ),
        (
            "SELECT id FROM orders WHERE ts > LOCALTIMESTAMP - INTERVAL '1' HOUR",
            "LOCALTIMESTAMP is not Spark's SQL. Write current_timestamp(), in a view with the hint REFRESH('1 minute').",
            "LOCALTIMESTAMP",
        ),
        (
            "SELECT to_fahr(id) AS f FROM orders",
            "Function to_fahr does not exist. The option --functions, or Engine.function, registers a function",
            "to_fahr(id)",
        ),
        (
            "SELECT date_format(ts, 'YYYYww') AS w FROM orders",
            "'YYYYww' is not a pattern of times: weeks have no letter. Write extract(YEAROFWEEK FROM time) and extract(WEEK",
            "'YYYYww'",
        ),
        (
            "SELECT CAST(ts AS TIMESTAMP(12)) AS t FROM orders",
            "Spark does not read this: The seconds precision 12 of TIMESTAMP_LTZ is invalid.",
            "CAST(ts AS TIMESTAMP(12))",
        ),
        (
            "SELECT /*+ REFRESH('1 minute') */ CAST(ts AS TIMESTAMP(12)) AS t FROM orders",
            "Spark does not read this: The seconds precision 12 of TIMESTAMP_LTZ is invalid.",
            "SELECT /*+ REFRESH('1 minute') */ CAST(ts AS TIMESTAMP(12)) AS t FROM orders",
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
