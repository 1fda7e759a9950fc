"""Queries that join declared views by name and group, rank or have subqueries are answered as Spark answers them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_over_inner_queries import COUNTS, NAMED, definition, engine, same, write

from penstock.errors import InputError, MistakesError, SqlError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.storage.refreshed import RefreshedDefinition

__all__ = ["engine"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_WINDOWS = "counts a JOIN sums b ON a.city = b.city AND a.w = b.w"
_MIXED = "counts c JOIN per_city p ON c.city = p.city"
#: answered by windows
BY_WINDOW = {
    "per_window": f"SELECT a.w, count(*) AS k, sum(b.s) AS s FROM {_WINDOWS} GROUP BY a.w",
    "first": f"SELECT a.city, b.s FROM {_WINDOWS} QUALIFY row_number() OVER (PARTITION BY a.w ORDER BY b.s DESC, a.city) = 1",
    "listed": "SELECT a.w.end AS e, max(b.s) AS s FROM counts a, sums b WHERE a.w = b.w GROUP BY a.w",
    "of_stream": "SELECT a.w, count(*) AS k FROM counts a JOIN t ON a.city = t.city AND t.ts >= a.w.start AND t.ts < a.w.end GROUP BY a.w",
}
#: answered as a whole
WHOLE = {
    "grouped": f"SELECT a.city, count(*) AS k, sum(b.s) AS s FROM {_WINDOWS} GROUP BY a.city HAVING count(*) > 1",
    "of_running": f"SELECT c.city, count(*) AS k, max(p.m) AS m FROM {_MIXED} GROUP BY c.city",
    "of_pairs": "SELECT j.city, count(DISTINCT j.id) AS k FROM pairs j LEFT JOIN per_city p ON j.city = p.city AND p.m > j.qty GROUP BY j.city",
    "of_both": "SELECT x.city, max(x.s) AS s, min(y.n) AS n FROM best x JOIN merged y ON x.city = y.city GROUP BY x.city",
    "of_hourly": "SELECT x.city, count(*) AS k FROM best x JOIN hourly y ON x.city = y.city GROUP BY x.city",
    "with_table": "SELECT s.people, sum(a.n) AS n FROM counts a JOIN s ON a.city = s.city GROUP BY s.people",
    "ranked": "SELECT city, s FROM (SELECT a.city, b.s, row_number() OVER (PARTITION BY a.w ORDER BY b.s DESC, a.city) AS r "
    f"FROM {_WINDOWS}) WHERE r = 1",
    "above_mean": f"SELECT a.city, a.n FROM {_WINDOWS} WHERE b.s > (SELECT avg(m) FROM per_city)",
    "above_own": "SELECT city, n FROM counts WHERE n >= (SELECT max(n) FROM counts)",
    "among": f"SELECT a.city, a.n FROM {_WINDOWS} WHERE a.n IN (SELECT m - 1 FROM per_city) OR a.n > 6",
    "cities": f"SELECT DISTINCT c.city FROM {_MIXED}",
    "all": f"SELECT count(*) AS k, max(p.m) AS m FROM {_MIXED}",
    "least": f"SELECT c.city, c.n FROM {_MIXED} ORDER BY c.n, c.city, c.w LIMIT 3",
    "crossed": "SELECT a.city, p.m FROM counts a CROSS JOIN per_city p WHERE a.n > 2",
    "united": f"SELECT a.city, count(*) AS k FROM {_WINDOWS} GROUP BY a.city UNION ALL SELECT city, m FROM per_city",
    "of_groups": "SELECT x.c, y.n FROM (SELECT m, count(*) AS c FROM per_city GROUP BY m) x JOIN counts y ON x.m > y.n",
    "beside_most": f"SELECT a.city, (SELECT max(m) FROM per_city) AS most FROM {_WINDOWS}",
    "within": f"WITH g AS (SELECT a.city, count(*) AS k FROM {_WINDOWS} GROUP BY a.city) SELECT max(k) AS k FROM g",
}
#: what the nested form says, by the name of the flat one
NESTED = {
    "grouped": f"SELECT city, count(*) AS k, sum(s) AS s FROM (SELECT a.city, b.s FROM {_WINDOWS}) GROUP BY city HAVING count(*) > 1",
    "of_running": f"SELECT city, count(*) AS k, max(m) AS m FROM (SELECT c.city, p.m FROM {_MIXED}) GROUP BY city",
}


def test_answers_are_sparks_also_of_later_tuples_and_after_a_restart(
    spark: SparkSession, engine: Engine, tmp_path: Path
) -> None:
    over = {**BY_WINDOW, **WHOLE, **{f"nested_{name}": text for name, text in NESTED.items()}}
    engine.add_views({**over, **NAMED})
    for name in (*BY_WINDOW, *WHOLE):
        found = definition(engine, name)
        assert isinstance(found, RefreshedDefinition), name
        assert bool(found.by_window) == (name in BY_WINDOW), name
        assert found.views, "it is over rows"
        assert not found.inputs, "no tuples are kept for it"
    for numbers in (range(3), range(3, 5)):
        # then later tuples of windows that were final, and windows of their own
        write(tmp_path / "in", numbers)
        same(spark, engine, tmp_path, over, NAMED)


_GROUPED = "SELECT a.city, count(*) AS k FROM {} a JOIN {} b ON a.city = b.city «GROUP BY» a.city"
_NAMED = "SELECT a.city, count(*) AS k FROM {} a JOIN {} b ON a.city = b.city GROUP BY a.city"
_PAIRED = "SELECT a.city FROM {} a JOIN {} b ON a.city = b.city"


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        # streams and tables alone: what lanes say
        (_GROUPED.format("t", "t"), "An aggregation in a join view is not supported; make the join a view"),
        (_GROUPED.format("t", "s"), "An aggregation in a join view is not supported; make the join a view"),
        ("SELECT id FROM t WHERE qty > («SELECT» max(people) FROM s)", "A subquery is not supported yet"),
        (
            _NAMED.format("«t»", "counts"),
            r"t cannot be read in this query beside rows of views\. It is a stream\. Compare its event time",
        ),
        (
            _NAMED.format("«chosen»", "counts"),
            r"chosen cannot be read .*\. It selects tuples of a stream\. Aggregate or join them in a view",
        ),
        (
            _NAMED.format("counts", "«soon»"),
            r"soon cannot be read .*\. It has a deadline\. Declare a view like it without DEADLINE",
        ),
        (
            _NAMED.format("counts", "«above»"),
            r"above cannot be read .*\. It aggregates rows of another view\. Write its query in FROM",
        ),
        # of joins and UNION ALL that lanes refuse once they know what the names are
        (
            _PAIRED.format("counts", "«above»"),
            r"above cannot be read .*\. It aggregates rows of another view\.",
        ),
        (_PAIRED.format("«chosen»", "counts"), r"chosen cannot be read .*\. It selects tuples of a stream\."),
        (
            "SELECT city FROM counts UNION ALL SELECT city FROM «soon»",
            r"soon cannot be read .*\. It has a deadline\.",
        ),
        (
            _PAIRED.format("(SELECT city, count(*) AS n FROM t GROUP BY city)", "«above»"),
            r"above cannot be read .*\. It aggregates rows of another view\.",
        ),
        (_NAMED.format("counts", "«nowhere»"), "nowhere does not exist"),
        (
            "SELECT a.city, max(«b.town») AS m FROM counts a JOIN per_city b ON a.city = b.city GROUP BY a.city",
            "Column b.town does not exist",
        ),
        (
            "SELECT a.city, «b.n» FROM counts a JOIN sums b ON a.w = b.w GROUP BY a.city",
            "Column b.n does not",
        ),
    ],
)
def test_what_is_not_answered_says_what_to_write(engine: Engine, marked: str, message: str) -> None:
    engine.add_views({name: NAMED[name] for name in ("counts", "sums", "per_city")})
    engine.view("chosen", "SELECT id, city FROM t WHERE qty > 1")
    engine.view("soon", COUNTS.replace("SELECT", "SELECT /*+ DEADLINE('3 seconds') */"))
    engine.view("above", "SELECT city, count(*) AS m FROM counts GROUP BY city")
    before = set(engine._declared.views)
    with pytest.raises(InputError, match=message) as raised:
        engine.view("v", marked.replace("«", "").replace("»", ""))
    error = raised.value
    assert isinstance(error, SqlError)
    found = f"{error.text[: error.start]}«{error.text[error.start : error.end]}»{error.text[error.end :]}"
    assert found == marked
    assert set(engine._declared.views) == before


def test_what_the_messages_say_is_answered(engine: Engine) -> None:
    engine.add_views({name: NAMED[name] for name in ("counts", "per_city")})
    engine.view("chosen", "SELECT city, count(*) AS n FROM t WHERE qty > 1 GROUP BY city")
    engine.view("v", _NAMED.format("chosen", "counts"))
    above = "(SELECT city, count(*) AS m FROM counts GROUP BY city)"
    engine.view("w", _NAMED.format("counts", above))
    engine.view("x", _PAIRED.format("counts", above))
    for name in ("v", "w", "x"):
        assert isinstance(definition(engine, name), RefreshedDefinition)


def test_a_script_reports_refusals_beside_other_mistakes(engine: Engine) -> None:
    text = (
        "CREATE VIEW c AS SELECT city, count(*) AS n FROM t GROUP BY city;"
        "CREATE VIEW good AS SELECT a.n, count(*) AS k FROM c a JOIN c b ON a.n < b.n GROUP BY a.n;"
        "CREATE VIEW bad AS SELECT a.id, count(*) AS k FROM t a JOIN t b ON a.id = b.id GROUP BY a.id;"
        "CREATE VIEW worse AS SELECT a.n, FROM c a;"
        "CREATE VIEW over_bad AS SELECT k FROM bad WHERE k > 1;"
    )
    with pytest.raises(MistakesError) as raised:
        engine.execute(text)
    first, second = raised.value.mistakes
    assert isinstance(first, UnsupportedError)
    assert first.text[first.start : first.end] == "GROUP BY"
    assert first.start > text.index("VIEW bad")
    assert isinstance(second, SqlError)
    assert second.start > text.index("VIEW worse")
    assert not engine._declared.views
