"""Window views, right and wrong ones, and a table for them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from penstock.errors import (
    DuplicateNameError,
    SqlError,
    TypeMismatchError,
    UngroupedError,
    UnknownNameError,
    UnsupportedError,
)
from penstock.operators.windows.shard import Shard

ROWS = 40
NOON = datetime(2024, 3, 1, 12)
TABLE = pa.table(
    {
        "ts": pa.array(
            [
                None if row == 7 else NOON + timedelta(minutes=17 * row % 150, seconds=row)
                for row in range(ROWS)
            ],
            pa.timestamp("us", "UTC"),
        ),
        "ntz": pa.array(
            [NOON + timedelta(minutes=11 * row % 200) for row in range(ROWS)], pa.timestamp("us")
        ),
        "day": pa.array([date(2024, 3, 1 + row % 4) for row in range(ROWS)]),
        "said": pa.array([f"2024-03-01 {row % 24:02}:30:00" for row in range(ROWS)]),
        "origin": pa.array([("JFK", "LGA", None, "EWR")[row % 4] for row in range(ROWS)]),
        "i": pa.array([None if row % 9 == 0 else row % 5 - 2 for row in range(ROWS)], pa.int32()),
        "l": pa.array([row * 10**9 for row in range(ROWS)], pa.int64()),
        "x": pa.array([None if row % 7 == 0 else row % 8 / 4 for row in range(ROWS)]),
        "money": pa.array([Decimal(row % 6) / 4 for row in range(ROWS)], pa.decimal128(10, 2)),
        "number": pa.array([str(row % 3) for row in range(ROWS)]),
        "late": pa.array([row % 3 == 0 for row in range(ROWS)]),
        "place": pa.array([{"city": f"c{row % 2}", "gate": row % 3} for row in range(ROWS)]),
    }
)

QUERIES = [
    "SELECT /*+ MAX_ERROR(0.1, 0.2) */ origin, window(ts, '1 hour', '15 minutes') AS w, count(*) AS n, "
    "round(avg(x), 1) AS mean_x FROM t WHERE i > -2 GROUP BY origin, w HAVING count(*) > 1",
    "SELECT window(ts, '1 hour'), count(1), count(i), COUNT('a') AS also, count(DISTINCT i) FROM t GROUP BY 1",
    "SELECT window.start, window.end, sum(i), sum(l), sum(x), sum(money), sum(number) FROM t "
    "GROUP BY window(ts, '1 hour')",
    "SELECT window(ts, '30 minutes') AS w, w.start AS s, avg(i), mean(i), avg(money), avg(number) FROM t "
    "GROUP BY window(ts, '30 minutes')",
    "SELECT window(ts, '1 hour') AS w, w.start, w.end AS e, min(origin), max(day), min(late), max(money), "
    "min(place), max(ts) FROM t GROUP BY w",
    "SELECT window(ts, '2 hours') AS w, std(i), stddev(x), stddev_samp(money), stddev_pop(l), variance(i), "
    "var_samp(number), var_pop(x) FROM t GROUP BY w",
    "SELECT window(ts, '2 hours') AS w, median(i), percentile(money, 0.25), percentile(number, 1), "
    "approx_percentile(i, 0.5D), percentile_approx(day, 0.9), approx_count_distinct(origin), median(x) "
    "FROM t GROUP BY w",
    "SELECT upper(origin) AS where_from, where_from || '!' AS loud, window, sum(i) FILTER (WHERE late) AS s, "
    "count(*) FILTER (WHERE x > 1) AS c, count(DISTINCT number) FILTER (WHERE i > 0), s + c "
    "FROM t GROUP BY window(ts, '20 minutes'), where_from HAVING where_from <> 'EWR' AND c > 0",
    "SELECT ORIGIN, `origin` AS o, t.origin AS p, count(*) n FROM t GROUP BY Origin, window(t.ts, '1 hour')",
    "SELECT f.origin AS o, sum(f.x + f.i), max(f.l) - min(f.l) spread FROM t AS f GROUP BY o, window(f.ts, '3600 seconds')",
    "SELECT i + l, (i + l) * 2, -(i + l) AS m, count(*) FROM t GROUP BY i + l, window(ts, '1 hour')",
    "SELECT place.city, place.gate + 1, count(*) FROM t GROUP BY place.city, place.gate, window(ts, '1 hour')",
    "SELECT CASE WHEN late THEN count(*) ELSE 0 END AS c, coalesce(sum(x), 0.0) / count(*), "
    "date_format(window.start, 'HH') AS hour FROM t GROUP BY late, window(ts, '1 hour', '30 minutes', '-5 minutes')",
    "SELECT window(ntz, '1 hour') AS w, count(*) FROM t GROUP BY w",
    "SELECT window(day, '2 days') AS w, count(*) FROM t GROUP BY w",
    "SELECT window(said, '12 hours', '6 hours', '1 hour') AS w, max(said) FROM t GROUP BY w",
    "SELECT window(ts + INTERVAL 1 HOUR, '1 hour') AS w, count(*) FROM t GROUP BY w",
    "SELECT 1, 'x' AS s, pi() AS c, count(*) FROM t GROUP BY window(ts, 3600000000)",
    "SELECT max(-x) AS x, sum(i) AS i FROM t GROUP BY window(ts, '1 hour'), origin HAVING sum(x) > 1 AND x < 0 AND i > 0",
    "SELECT lower(origin) AS origin, count(*) FROM t GROUP BY window(ts, '1 hour'), t.origin "
    "HAVING origin = 'jfk' OR upper(origin) = 'LGA'",
    "SELECT upper(origin) AS origin, lower(origin) || origin FROM t GROUP BY window(ts, '1 hour'), t.origin, upper(t.origin) "
    "HAVING t.origin = origin AND upper(origin) <> 'LGA'",
    "SELECT upper(origin) AS origin, count(*) AS i FROM t GROUP BY window(ts, '1 hour'), upper(origin) "
    "HAVING origin = 'JFK' OR upper(origin) = 'LGA' AND lower(origin) = 'lga' AND i > 1",
    "SELECT (late) AND NOT (late) AS never, late IS NULL, sum(CAST(late AS INT)) FROM t "
    "GROUP BY (late), window(ts, '1 hour') HAVING window.start > '2024-03-01 13:00:00'",
    "SELECT cast(sum(i) AS DECIMAL(10, 1)), sum(i)::string || 'x', named_struct('a', origin, 'n', count(*)) AS st "
    "FROM t GROUP BY window(ts, '1 hour'), origin HAVING st.n > 2",
    "SELECT date_trunc('HOUR', ts) AS h, extract(MINUTE FROM h) AS m, count(*) FROM t GROUP BY h, window(ts, '1 day')",
    "SELECT count(NULL), sum(NULL), min(2), sum(1), window FROM t GROUP BY window(ts, '1 hour')",
    "SELECT transform(sequence(1, count(*)), v -> v + i) AS l, 10 / count(*) FROM t GROUP BY window(ts, '2 hours'), i",
    "SELECT avg(100 / i), count(*) FROM t WHERE i <> 0 GROUP BY window(ts, '1 hour')",
    "SELECT count(*) FROM t GROUP BY window(ts, '1 hour') HAVING max(x) > 1 AND window.end IS NOT NULL",
    "SELECT window(ts, '1 hour').start, window(ts, '60 minutes').end AS e, count(*) AS end FROM t GROUP BY window(ts, '1 hour')",
    "SELECT -- a remark\n count(*) /* another */ AS n, -- FROM\n origin FROM t GROUP BY origin, -- GROUP\n window(ts, '1 hour')",
]

#: a view, the kind of its mistake and the words that are underlined, where it matters
WRONG = [
    ("SELECT sum(late) FROM t GROUP BY window(ts, '1 hour')", TypeMismatchError, "sum(late)"),
    ("SELECT avg(nothing) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "nothing"),
    (
        "SELECT count(*) FILTER (WHERE nothing > 1) FROM t GROUP BY window(ts, '1 hour')",
        UnknownNameError,
        "nothing",
    ),
    ("SELECT count(*) FROM t GROUP BY window(nothing, '1 hour')", UnknownNameError, "nothing"),
    ("SELECT count(*) FROM t GROUP BY window(l, '1 hour')", TypeMismatchError, "l"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), nothing", UnknownNameError, "nothing"),
    (
        "SELECT round(count(*), 'a', 3) FROM t GROUP BY window(ts, '1 hour')",
        SqlError,
        "round(count(*), 'a', 3)",
    ),
    (
        "SELECT count(*) + origin.x AS q, origin FROM t GROUP BY window(ts, '1 hour'), origin",
        SqlError,
        "origin.x",
    ),
    (
        "SELECT nonsense(count(*)) FROM t GROUP BY window(ts, '1 hour')",
        UnknownNameError,
        "nonsense(count(*))",
    ),
    ("SELECT window.begin, count(*) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "window.begin"),
    (
        "SELECT count(*) FROM t GROUP BY window(ts, '1 hour') HAVING count(*) > array(1)",
        TypeMismatchError,
        "count(*) > array(1)",
    ),
    ("SELECT count(*) AS n FROM t GROUP BY window(ts, '1 hour') HAVING n", TypeMismatchError, "n"),
    ("SELECT count(*), count(1) FROM t GROUP BY window(ts, '1 hour')", DuplicateNameError, "count(1)"),
    (
        "SELECT upper(origin) AS origin, count(*) FROM t GROUP BY window(ts, '1 hour'), origin",
        UnsupportedError,
        "origin",
    ),
    ("SELECT window(ts, '1 hour') AS x, count(*) FROM t GROUP BY x", UnsupportedError, "x"),
    ("SELECT rand() AS r, count(*) FROM t GROUP BY window(ts, '1 hour')", UnsupportedError, "rand() AS r"),
    (
        "SELECT current_timestamp() AS r, count(*) FROM t GROUP BY window(ts, '1 hour')",
        UnsupportedError,
        "current_timestamp() AS r",
    ),
    ("SELECT sum(rand()) AS r FROM t GROUP BY window(ts, '1 hour')", UnsupportedError, "rand()"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), place", UnsupportedError, "place"),
    (
        "SELECT count(DISTINCT place) FROM t GROUP BY window(ts, '1 hour')",
        UnsupportedError,
        "count(DISTINCT place)",
    ),
    ("SELECT min(NULL) FROM t GROUP BY window(ts, '1 hour')", TypeMismatchError, "min(NULL)"),
    ("SELECT n + 1, count(*) AS n FROM t GROUP BY window(ts, '1 hour')", UngroupedError, "n"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour', )", SqlError, None),
    ("SELECT max(window.start) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "window.start"),
]


#: stored pieces of panes by (operator, start)
StoredPanes = dict[tuple[int, int], list[bytes]]


def store(shard: Shard, panes: StoredPanes) -> None:
    """Stores what changed in a shard."""
    for operator, start, kept, pieces in shard.take_changes():
        now = [*panes.pop((operator, start), [])[:kept], *pieces]
        if now:
            panes[operator, start] = now


def stream_of(table: pa.Table) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
