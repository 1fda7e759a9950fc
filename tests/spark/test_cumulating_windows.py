"""Windows that begin together, by the hint CUMULATE: as Spark's answer over every end of each tuple, written out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_engine_windows import COLUMNS, engine_on, rounded, write

from joined_inputs import multiset
from penstock.errors import PenstockError
from penstock.trigger import Trigger
from spark_answers import in_one_partition, tuples_of

pytestmark = pytest.mark.spark

SUMS = (
    "SELECT {hint} key, {window} AS w, sum(value) AS s, count(*) AS n, avg(price) AS p FROM {source} WHERE {where} "
    "GROUP BY key, w"
)
#: by name the text, and of its windows step, length and start, milliseconds
VIEWS = {
    "sums": (SUMS.replace("{where}", "true"), (500, 2_000, 0)),
    "large": (SUMS.replace("{where}", "value > 0.5"), (500, 2_000, 0)),
    "longer": (SUMS.replace("{where}", "value > 0.2"), (500, 3_000, 0)),
    "bounded": (SUMS.replace("{where}", "name = 'a'"), (1_000, 4_000, 0)),
    "spread": (
        "SELECT {hint} window.start AS begun, window.end AS until, count(DISTINCT key) AS keys, median(value) AS middle, "
        "count_if(value > 0.5) AS half, sort_array(collect_set(name)) AS names, avg(DISTINCT key) AS mean, bool_or(value > 0.99) AS any, max(name) AS last FROM {source} GROUP BY {window} HAVING count(*) > 100",
        (1_000, 3_000, 250),
    ),
}
HINT = "/*+ CUMULATE('2 seconds') */"
PLAIN = "SELECT key, window(ts, '500 milliseconds') AS w, sum(value) AS s, count(*) AS n FROM tuples GROUP BY key, w"
OVER = "SELECT key, w, n FROM {} WHERE n > 20 AND key < 4"


def written(name: str) -> str:
    text, (step, length, start) = VIEWS[name]
    bound = "MAX_ERROR(0.05, 0.05), " if name == "bounded" else ""
    return text.format(
        hint=f"/*+ {bound}CUMULATE('{length} milliseconds') */",
        window=f"window(ts, '{step} milliseconds', '{step} milliseconds', '{start} milliseconds')",
        source="tuples",
    )


def oracle(name: str) -> str:
    """The same with a row for each end of the windows that a tuple is in."""
    text, lengths = VIEWS[name]
    step, length, start = (each * 1_000 for each in lengths)
    at = f"unix_micros(ts) - {start}"
    begin = f"floor(({at}) / {length}) * {length} + {start}"
    ends = f"sequence(floor(({at}) / {step}) * {step} + {step + start}, {begin} + {length}, {step})"
    every = f"SELECT *, {begin} AS _begin, explode({ends}) AS _end FROM tuples"
    source = f"(SELECT *, struct(timestamp_micros(_begin) AS start, timestamp_micros(_end) AS end) AS window FROM ({every}))"
    return text.format(hint="", window="window", source=source)


def test_every_window_is_sparks_over_restarts_and_late_tuples(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    texts = {name: written(name) for name in VIEWS} | {"plain": PLAIN, "over": OVER.format("sums")}
    oracles = {name: oracle(name) for name in VIEWS} | {
        "plain": PLAIN,
        "over": OVER.format(f"({oracle('sums')})"),
    }
    for files, ended in ((range(5), False), (range(5, 8), True)):
        write(data, files, rows=1_000)
        engine = engine_on(spark, data, max_delay_seconds=1).add_views(texts)
        run = engine.start(out, trigger=Trigger.available_now(ended=ended))
        run.await_termination()
        in_one_partition(spark, tuples_of(data)).createOrReplaceTempView("tuples")
        for name, text in oracles.items():
            found, expected = run.results(name), spark.sql(text)
            assert found.schema.simpleString() == expected.schema.simpleString(), name
            assert multiset(rounded(found)) == multiset(rounded(expected)), name
        told = list(run.events("windows"))
        run.stop()
    assert sum(each["late_beyond"] for each in told) > 0, "final windows are corrected from the log"
    assert "every 0.5 seconds, each since a multiple of that length" in engine.explain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{hint} window(ts, '1 second', '500 milliseconds') AS w, count(*) AS n FROM tuples GROUP BY w",
            "needs tumbling windows",
        ),
        (
            "{hint} window(ts, '700 milliseconds') AS w, count(*) AS n FROM tuples GROUP BY w",
            "a multiple of the window's 0.7 s",
        ),
        ("{hint} window(ts, '2 seconds') AS w, count(*) AS n FROM tuples GROUP BY w", "and longer"),
        ("{hint} key, count(*) AS n FROM tuples GROUP BY key", "CUMULATE needs a window in GROUP BY"),
        (
            "{hint} session_window(ts, '1 second') AS w, count(*) AS n FROM tuples GROUP BY w",
            "CUMULATE is not supported for sessions",
        ),
        ("{hint} * FROM tuples", "need GROUP BY; this view has none"),
        (
            "/*+ CUMULATE('2 seconds'), DEADLINE('1 second') */ window(ts, '1 second') AS w, count(*) AS n FROM tuples GROUP BY w",
            "exclude each other",
        ),
        ("window(w, '4 seconds') AS w, count(*) AS n FROM sums GROUP BY w", "sums has cumulating windows"),
        (
            "{hint} window(w, '1 second') AS w, count(*) AS n FROM plain GROUP BY window(w, '1 second')",
            "CUMULATE is not supported over a view",
        ),
        (
            "/*+ COUNT_WINDOW(100) */ key, count(*) AS n FROM tuples GROUP BY key",
            "Windows of so many rows depend on the order of arrival",
        ),
    ],
)
def test_what_is_not_answered_is_refused(
    spark: SparkSession, tmp_path: Path, text: str, message: str
) -> None:
    engine = engine_on(spark, write(tmp_path / "data", range(1), rows=10)).add_views(
        {"sums": written("sums"), "plain": PLAIN}
    )
    with pytest.raises(PenstockError, match=message):
        engine.view("refused", f"SELECT {text.format(hint=HINT)}")
    with pytest.raises(PenstockError, match="has cumulating windows, which are not judged yet"):
        engine.backtest("sums")


def test_that_spark_alone_answers_otherwise_is_a_note(spark: SparkSession, tmp_path: Path) -> None:
    engine = engine_on(spark, write(tmp_path / "data", range(1), rows=10)).add_views(
        {"sums": written("sums"), "plain": PLAIN}
    )
    assert engine.warnings == []
    (told,) = engine.notes
    assert told.startswith("sums: CUMULATE widens the windows of the text")


def test_the_text_that_is_named_instead_of_count_windows_is_answered(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = (
        "SELECT /*+ REFRESH('1 minute') */ key, n, count(*) AS rows FROM (SELECT key, ceil(row_number() OVER "
        "(PARTITION BY key ORDER BY ts) / 10) AS n FROM tuples) GROUP BY key, n"
    )
    data = write(tmp_path / "data", range(2), rows=100)
    run = (
        engine_on(spark, data)
        .view("tens", text)
        .start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    )
    run.await_termination()
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("tuples")
    assert multiset(run.results("tens")) == multiset(spark.sql(text))
    run.stop()
