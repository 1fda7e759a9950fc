"""Joins of streams without a bound, with the hint STATE_TTL: as Spark's with the bound written out; what is left out is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, answered, multiset
from penstock.errors import SqlError, UnsupportedError
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

HINT = "/*+ STATE_TTL('20 seconds') */"
WITHIN = "r.ts BETWEEN l.ts - INTERVAL 20 SECONDS AND l.ts + INTERVAL 20 SECONDS"
TWICE = "r.ts BETWEEN l.ts - INTERVAL 40 SECONDS AND l.ts + INTERVAL 40 SECONDS"
OUTPUTS = "l.k, l.n, l.ts, r.n AS rn, r.ts AS rts"
#: by name the text, without the hint, and the bound that it stands for; {} is where both stand
VIEWS = {
    "inner_pairs": (f"SELECT {{}} {OUTPUTS} FROM flights l JOIN weather r ON l.k = r.k{{}}", WITHIN),
    "named": (
        f"SELECT {{}} {OUTPUTS} FROM flights l JOIN weather r ON l.name = r.name AND l.x < r.x{{}}",
        WITHIN,
    ),
    "by_spark": (
        f"SELECT {{}} {OUTPUTS}, l.n + r.n AS both FROM flights l JOIN weather r ON l.day = r.day AND (l.n = 1 OR r.n = 2){{}}",
        WITHIN,
    ),
    "later": (
        f"SELECT {{}} {OUTPUTS} FROM flights l JOIN weather r ON l.k = r.k AND r.ts >= l.ts{{}}",
        "r.ts <= l.ts + INTERVAL 20 SECONDS",
    ),
    "or_none": (
        f"SELECT {{}} {OUTPUTS} FROM flights l LEFT JOIN weather r ON l.k = r.k AND l.n = r.n{{}}",
        WITHIN,
    ),
    "three": (
        "SELECT {} l.k, l.n, r.n AS rn, d.n AS dn FROM flights l JOIN weather r ON l.k = r.k "
        "AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECONDS JOIN delays d ON r.name = d.name AND d.n = l.n{}",
        "d.ts BETWEEN l.ts - INTERVAL 20 SECONDS AND l.ts + INTERVAL 20 SECONDS AND "
        "d.ts BETWEEN r.ts - INTERVAL 20 SECONDS AND r.ts + INTERVAL 20 SECONDS",
    ),
    "newest": (
        f"SELECT {{}} {OUTPUTS} FROM flights l ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k{{}}",
        "r.ts >= l.ts - INTERVAL 20 SECONDS",
    ),
}
#: selections over `all_of`, a view with the hint
SELECTED = {
    "half": "ts >= rts",
    "within_a_day": "rts >= ts - INTERVAL 1 DAY",
    "within_half_a_minute": "rts BETWEEN ts - INTERVAL 30 SECONDS AND ts + INTERVAL 1 DAY",
    "soon": "rts BETWEEN ts AND ts + INTERVAL 5 SECONDS",
}
COUNTED = ("inner_pairs", "named", "by_spark", "later", "or_none")


def test_rows_are_those_within_the_length_and_pairs_beyond_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    script = inputs.script()
    views = {name: text.format(HINT, "") for name, (text, _) in VIEWS.items()}
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    for files in (3, 2):
        inputs.feed(files)
        run = answered(Engine(spark).execute(script).add_views(views), tmp_path / "out")
        inputs.register(spark)
        for name, (text, bound) in VIEWS.items():
            expected = multiset(spark.sql(text.format("", f" AND {bound}")))
            assert expected.total() > 0, name
            assert bag(published(run, name)) == expected, name
        run.stop()
    spark.conf.unset("spark.sql.join.asofJoin.enabled")
    told = folder_status(tmp_path / "out")["views"]
    for name in COUNTED:
        text, bound = VIEWS[name]
        inner = text.replace("LEFT JOIN", "JOIN").replace("AND (l.n = 1 OR r.n = 2)", "")
        twice = TWICE if bound == WITHIN else "r.ts <= l.ts + INTERVAL 40 SECONDS"
        beyond = (
            spark.sql(inner.format("", f" AND {twice}")).count()
            - spark.sql(inner.format("", f" AND {bound}")).count()
        )
        assert beyond > 0
        assert told[name]["beyond_ttl"] == beyond, name
    assert told["three"]["beyond_ttl"] == 0, "of three inputs none are counted"


def test_a_selection_has_no_pairs_that_the_view_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    inputs.feed(3)
    pairs = f"SELECT {{}} {OUTPUTS} FROM flights l JOIN weather r ON l.k = r.k{{}}"
    views = {"all_of": pairs.format(HINT, "")}
    views |= {name: f"SELECT * FROM all_of WHERE {condition}" for name, condition in SELECTED.items()}
    run = answered(Engine(spark).execute(inputs.script()).add_views(views), tmp_path / "out")
    inputs.register(spark)
    counted = {}
    for bound in (WITHIN, TWICE):
        spark.sql(pairs.format("", f" AND {bound}")).createOrReplaceTempView("all_of")
        for name in SELECTED:
            counted[name, bound] = spark.sql(views[name]).count()
            if bound == WITHIN:
                assert bag(published(run, name)) == multiset(spark.sql(views[name])), name
    run.stop()
    told = folder_status(tmp_path / "out")["views"]
    for name in SELECTED:
        beyond = counted[name, TWICE] - counted[name, WITHIN]
        assert (beyond > 0) == (name != "soon")
        assert told[name].get("beyond_ttl", 0) == beyond, name


def test_bounds_that_contradict_the_hint_are_told_of_it(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    inputs.feed(1)
    engine = Engine(spark).execute(inputs.script())
    text = f"SELECT {HINT} l.k, l.ts, r.ts AS rts FROM flights l JOIN weather r ON l.k = r.k"
    engine.view("v", text)
    for name, refused in (
        ("late", f"{text} AND r.ts >= l.ts + INTERVAL 2 HOURS"),
        ("later", "SELECT * FROM v WHERE rts >= ts + INTERVAL 2 HOURS"),
    ):
        with pytest.raises(SqlError, match="STATE_TTL keeps event times at most 20 seconds apart") as error:
            engine.view(name, refused)
        assert error.value.text[error.value.start : error.value.end].startswith("STATE_TTL"), name


def test_the_hint_says_what_it_does_and_is_refused_where_it_does_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    inputs.feed(1)
    engine = Engine(spark).execute(inputs.script())
    pairs = "SELECT {} l.k, r.n AS rn FROM flights l JOIN weather r ON l.k = r.k{}"
    with pytest.raises(
        UnsupportedError, match=r"Or add the hint /\*\+ STATE_TTL\('1 hour'\) \*/ behind SELECT"
    ):
        engine.view("v", pairs.format("", ""))
    with pytest.raises(
        SqlError, match="Every two streams have a bound on event time, so STATE_TTL has no effect"
    ):
        engine.view("v", pairs.format(HINT, f" AND {WITHIN}"))
    with pytest.raises(SqlError, match="STATE_TTL has no effect"):
        engine.view("v", f"SELECT {HINT} l.k FROM flights l JOIN airports a ON l.k = a.k")
    with pytest.raises(SqlError, match="BACKFILL needs GROUP BY; a join view has none"):
        engine.view("v", pairs.format("/*+ BACKFILL */", ""))
    engine.view("v", pairs.format(HINT, ""))
    engine.view("few", "SELECT k FROM v WHERE rn > 2")
    assert engine.notes[0] == (
        "v: STATE_TTL: on the sides that no condition bounds, event times of joined rows are at most 20 seconds apart; other pairs are left out. "
        "Pairs up to 20 seconds further apart are counted (beyond_ttl)."
    )
    assert engine.warnings == []
    told = engine.explain().splitlines()
    assert told.count("  r is -20 seconds to 20 seconds later than l") == 2
    assert "  STATE_TTL: pairs -40 seconds to 40 seconds apart that the bound leaves out are counted" in told
