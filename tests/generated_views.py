"""Views of the newer kinds by seed, over the streams and static tables of `joined_inputs`."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import numpy as np

from outer_joins import OUTPUTS, SHAPES, WORDS, random_outer_join

#: columns of every stream
_CONDITIONS = (
    "k > 3",
    "n BETWEEN 1 AND 4",
    "name = 'north' OR x > 1",
    "x IS NOT NULL",
    "length(name) > 3",
    "k % 2 = 0 AND n <> 3",
    "NOT (n = 2 OR name = '')",
)
_KEYS = ("k", "n", "name", "k % 3", "upper(name)", "day", "n + 1", "coalesce(name, '?')", "x > 1")
_AGGREGATES = (
    *(
        "count(*)",
        "count(x)",
        "sum(n)",
        "sum(k)",
        "sum(x)",
        "avg(n)",
        "avg(x)",
        "min(x)",
        "max(x)",
        "min(name)",
    ),
    *("max(name)", "count(DISTINCT name)", "count(DISTINCT k)", "stddev(n)", "var_pop(n)", "stddev_pop(k)"),
    *(
        "variance(n)",
        "median(n)",
        "percentile(k, 0.25)",
        "sum(n) FILTER (WHERE x > 0)",
        "max(ts)",
        "min(day)",
    ),
    *("count(*) FILTER (WHERE name IS NOT NULL)", "max(n) FILTER (WHERE k > 3)"),
    # moments to nine digits, of sums in any order
    *(
        "round(corr(n, k), 9)",
        "round(covar_samp(n, x), 6)",
        "round(regr_slope(n, k), 9)",
        "round(regr_r2(k, n), 9)",
    ),
    *(
        "regr_count(n, x)",
        "regr_avgx(x, n)",
        "round(regr_sxy(k, n), 6)",
        "round(skewness(n), 9)",
        "round(kurtosis(k), 9)",
    ),
    *("bit_and(n)", "bit_or(k)", "bit_xor(k)", "bit_xor(n) FILTER (WHERE x > 0)"),
    # expressions over aggregates
    *("sum(n) / count(*)", "max(k) - min(k)", "coalesce(sum(n), 0) + count(*)", "round(avg(n), 2)"),
    *("CASE WHEN count(*) > 3 THEN 'many' ELSE 'few' END", "concat(min(name), '-', max(name))"),
    *("count(DISTINCT k) * 2 - count(x)", "max(n) > 3 AND min(n) < 2", "CAST(sum(k) AS STRING)"),
)
_HAVING = (
    "count(*) > 2",
    "sum(n) > 5",
    "max(k) > 3 AND count(*) < 40",
    "avg(n) > 1.5",
    "sum(n) / count(*) > 2",
    "count(DISTINCT name) > 1",
    "min(name) IS NOT NULL",
    "sum(CAST(k AS DECIMAL(10, 2))) > 12.5 AND count(*) % 2 = 0",
    "max(day) > DATE '2022-01-08' AND count(*) % 3 <> 0",
)
_BOUND = "r.ts BETWEEN l.ts - INTERVAL 2 SECONDS AND l.ts + INTERVAL 4 SECONDS"
_PAIRS = f"SELECT l.*, r.n AS rn, r.ts AS rts FROM flights l JOIN weather r ON l.k = r.k AND {_BOUND}"
_MET = f"SELECT * FROM flights l LEFT SEMI JOIN weather r ON l.k = r.k AND {_BOUND}"
_REFRESHED = (
    "SELECT /*+ REFRESH('1 minute') */ k, n, ts FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n, ts) AS place "
    "FROM flights WHERE ts IS NOT NULL) WHERE place <= {0}",
    "SELECT /*+ REFRESH('1 minute') */ {1}, n FROM flights UNION ALL SELECT {1}, n FROM delays WHERE n > {0}",
    "SELECT /*+ REFRESH('1 minute') */ l.k, l.n, r.n AS rn, a.name FROM flights l FULL JOIN weather r ON l.k = r.k AND l.n = r.n "
    "LEFT JOIN airports a ON a.k = l.k AND a.n > {0}",
    "SELECT /*+ REFRESH('1 minute') */ {1}, count(*) AS c FROM flights WHERE k IN (SELECT n FROM weather WHERE n > {0}) GROUP BY {1}",
    "SELECT /*+ REFRESH('1 minute') */ k, n, count(*) AS c FROM flights GROUP BY ROLLUP (k, n) HAVING count(*) > {0}",
)


@dataclass(frozen=True)
class View:
    """A view.

    Attributes:
        text: its query.
        kind: how it is answered: "selection", "running", "windows", "join", "refreshed", "over" another view.
        shape: of an outer join: see `SHAPES`.
    """

    text: str
    kind: str
    shape: str = ""


def generated_views(seed: int, count: int, prefix: str) -> dict[str, View]:
    """So many views and those beneath some of them, by name; each is behind those that it selects from.

    Args:
        seed: of what they are.
        count: how many.
        prefix: of their names.
    """
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    views: dict[str, View] = {
        f"{prefix}chosen": View(f"SELECT * FROM flights WHERE {choice.choice(_CONDITIONS)}", "selection"),
        f"{prefix}windows": View(_windows(choice, "flights", keyed=True), "windows"),
        f"{prefix}pairs": View(_PAIRS, "join", "inner"),
        f"{prefix}met": View(_MET, "join", "a stream"),
    }
    makers = [
        lambda: View(_running(choice, choice.choice(("flights", "weather", "delays"))), "running"),
        lambda: View(_distinct(choice, choice.choice(("flights", f"{prefix}chosen"))), "running"),
        lambda: View(_running(choice, f"{prefix}chosen"), "running"),
        lambda: View(_over_windows(choice, f"{prefix}windows"), "over"),
        lambda: View(_running(choice, choice.choice((f"{prefix}pairs", f"{prefix}met"))), "over"),
        lambda: View(_windows(choice, choice.choice((f"{prefix}pairs", f"{prefix}met"))), "over"),
        lambda: View(_windows(choice, choice.choice(("flights", "weather"))), "windows"),
        lambda: View(_windows(choice, f"{prefix}chosen"), "windows"),
        lambda: View(_by_sets(choice, choice.choice(("flights", f"{prefix}chosen")), ""), "running"),
        lambda: View(_by_sets(choice, choice.choice(("flights", "weather")), "w, "), "windows"),
        lambda: _outer(rng, "LEFT JOIN"),
        lambda: _outer(rng, "RIGHT JOIN"),
        lambda: _outer(rng, "FULL JOIN"),
        lambda: _outer(rng, "SEMI JOIN"),
        lambda: _outer(rng, "ANTI JOIN"),
        lambda: View(
            _LATER[choice.randrange(len(_LATER))].format(choice.randint(0, 3)),
            "join",
            "a stream behind another",
        ),
        lambda: View(
            choice.choice(_REFRESHED).format(choice.randint(1, 3), choice.choice(("k", "name"))), "refreshed"
        ),
    ]
    first = choice.randrange(len(makers))
    for number in range(count - len(views)):
        views[f"{prefix}v{number}"] = makers[(first + number) % len(makers)]()
    return views


#: an outer join before an inner one
_LATER = (
    f"SELECT {OUTPUTS}, m.n AS mn FROM flights l LEFT JOIN weather r ON l.k = r.k AND {_BOUND} JOIN delays m ON l.n = m.n AND m.ts "
    "BETWEEN l.ts AND l.ts + INTERVAL 2 SECONDS AND m.k > {0}",
    f"SELECT {OUTPUTS}, a.name AS city FROM weather r RIGHT JOIN flights l ON l.k = r.k AND {_BOUND} JOIN airports a ON l.n = a.n "
    "AND a.k > {0}",
)


def _outer(rng: np.random.Generator, word: str) -> View:
    among = WORDS.get(word, list(SHAPES))
    shape = str(rng.choice(among))
    return View(random_outer_join(rng, shape, word), "join", shape)


def _some(choice: random.Random, most: int) -> str:
    chosen = choice.sample(_AGGREGATES, choice.randint(1, most))
    return ", ".join(f"{each} AS a{place}" for place, each in enumerate(chosen))


def _tail(choice: random.Random, keys: str) -> str:
    where = f" WHERE {choice.choice(_CONDITIONS)}" if choice.random() < 0.4 else ""
    having = f" HAVING {choice.choice(_HAVING)}" if choice.random() < 0.4 and keys else ""
    return where + (f" GROUP BY {keys}" if keys else "") + having


def _grouped(choice: random.Random, least: int) -> tuple[str, str]:
    """Keys of a SELECT list, and their names."""
    keys = choice.sample(_KEYS, choice.randint(least, 2))
    written = "".join(f"{each} AS g{place}, " for place, each in enumerate(keys))
    return written, ", ".join(f"g{place}" for place in range(len(keys)))


def _running(choice: random.Random, source: str) -> str:
    keys, names = _grouped(choice, 0)
    return f"SELECT {keys}{_some(choice, 5)} FROM {source}{_tail(choice, names)}"


def _distinct(choice: random.Random, source: str) -> str:
    items = choice.sample(_KEYS, choice.randint(1, 3))
    written = ", ".join(f"{each} AS d{place}" for place, each in enumerate(items))
    return f"SELECT DISTINCT {written} FROM {source}{_tail(choice, '')}"


def _windows(choice: random.Random, source: str, *, keyed: bool = False) -> str:
    keys, names = _grouped(choice, 1 if keyed else 0)
    slide = choice.choice((5, 10, 20))
    size = slide * choice.choice((1, 1, 2, 3))
    length = f"'{size} seconds'" + (f", '{slide} seconds'" if size > slide else "")
    total = "count(*) AS c, sum(k) AS s, " if keyed else ""
    group = ", ".join(filter(None, (names, "w")))
    return f"SELECT {keys}window(ts, {length}) AS w, {total}{_some(choice, 6)} FROM {source}{_tail(choice, group)}"


#: ways to group by two keys
_SETS = (
    "ROLLUP (g0, g1)",
    "CUBE (g0, g1)",
    "GROUPING SETS ((g0), g1, ())",
    "g1, CUBE (g0)",
    "GROUPING SETS ((g1, g0), g0)",
)


def _by_sets(choice: random.Random, source: str, window: str) -> str:
    """A view with grouping sets; `window` is put before the keys in GROUP BY."""
    keys = "".join(f"{each} AS g{place}, " for place, each in enumerate(choice.sample(_KEYS, 2)))
    laid = "window(ts, '20 seconds', '10 seconds') AS w, " if window else ""
    tail = _tail(choice, f"{window}{choice.choice(_SETS)}")
    if window:
        # Spark cannot read an aggregate of a column there
        tail = re.sub(" HAVING .*", " HAVING count(*) > 2", tail)
    return f"SELECT {keys}{laid}grouping_id() AS g, {_some(choice, 5)} FROM {source}{tail}"


def _over_windows(choice: random.Random, source: str) -> str:
    if choice.random() < 0.5:
        seconds = choice.choice((30, 60))
        return (
            f"SELECT window(w, '{seconds} seconds') AS v, sum(c) AS total, max(s) AS most, count(DISTINCT g0) AS d FROM {source} "
            "GROUP BY v"
        )
    values = choice.sample(("avg(c)", "max(s)", "count(*)", "max(w.end)", "sum(c) / count(*)", "min(c)"), 3)
    written = ", ".join(f"{each} AS b{place}" for place, each in enumerate(values))
    having = " HAVING count(*) > 1" if choice.random() < 0.5 else ""
    if choice.random() < 0.3:
        return f"SELECT DISTINCT g0, c FROM {source} WHERE c > 1"
    return f"SELECT g0, {written} FROM {source} GROUP BY g0{having}"
