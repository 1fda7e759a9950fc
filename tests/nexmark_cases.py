"""The queries of Nexmark, and their answers by DuckDB."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import sqlglot

from penstock_lab.generators.nexmark import STREAMS
from penstock_lab.generators.nexmark_views import nexmark_queries

FOLDER = Path(__file__).parents[1] / "benchmarks" / "nexmark"
QUERIES = nexmark_queries(FOLDER)

_BUCKET = "time_bucket(INTERVAL '10 seconds', date_time)"
#: DuckDB has no function `window`; the other queries are translated
_WINDOWS = {
    "q5": """
        WITH counted AS (
          SELECT auction, starts.s AS starttime, count(*) AS num
          FROM bid, (SELECT unnest([0, 2, 4, 6, 8]) AS back) backs,
               LATERAL (SELECT time_bucket(INTERVAL '2 seconds', date_time) - back * INTERVAL '1 second' AS s) starts
          GROUP BY auction, starttime
        )
        SELECT auction, num, starttime, starttime + INTERVAL '10 seconds' AS endtime
        FROM counted QUALIFY num >= max(num) OVER (PARTITION BY starttime)""",
    "q7": f"""
        SELECT auction, price, bidder, date_time, extra
        FROM bid QUALIFY price = max(price) OVER (PARTITION BY {_BUCKET})""",
    "q8": f"""
        SELECT DISTINCT p.id, p.name, p.s AS starttime
        FROM (SELECT id, name, {_BUCKET} AS s FROM person) p
        JOIN (SELECT seller, {_BUCKET} AS s FROM auction) a ON p.id = a.seller AND p.s = a.s""",
    "q11": """
        SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + INTERVAL '10 seconds' AS endtime
        FROM (
          SELECT *, sum(begins::INT) OVER (PARTITION BY bidder ORDER BY date_time) AS session
          FROM (
            SELECT bidder, date_time,
                   coalesce(date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) > INTERVAL '10 seconds', true) AS begins
            FROM bid
          )
        )
        GROUP BY bidder, session""",
    "q12": f"""
        SELECT bidder, {{'start': {_BUCKET}, 'end': {_BUCKET} + INTERVAL '10 seconds'}} AS w, count(*) AS bid_count
        FROM bid GROUP BY ALL""",
}


def duckdb_answers(folder: Path) -> dict[str, pa.Table]:
    """What DuckDB says of the events in a folder, by query."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream in (*STREAMS, "side_input"):
            files = str(folder / stream / "*.parquet")
            connection.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet('{files}')")
        texts = {name: _WINDOWS.get(name) or translated(query) for name, query in QUERIES.items()}
        return {name: connection.sql(text).to_arrow_table() for name, text in texts.items()}


def translated(query: str) -> str:
    """A query in the SQL of DuckDB."""
    return sqlglot.transpile(query, read="spark", write="duckdb")[0]


def bag(rows: pa.Table) -> Counter[str]:
    """Rows, counted, by column."""
    return Counter(
        repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows.to_pylist()
    )


def _plain(value: object) -> object:
    """A value as both engines give it: numbers to ten digits, moments as seconds, a window by its begin."""
    if isinstance(value, dict):
        return _plain(value["start"])
    if isinstance(value, dt.datetime):
        return value.timestamp()
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        # a sum of whole numbers is as wide as 128 bits in DuckDB
        return int(value)
    if isinstance(value, (Decimal, float)):
        return f"{value:.10g}"
    return value
