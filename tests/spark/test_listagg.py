"""LISTAGG is what Spark says of the same tuples; where Spark leaves the order open, values ascend, and so do those whose keys are equal."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from forms import ALL
from order_files import COLUMNS, expected, finished, values, write
from penstock import Engine
from penstock.errors import SqlError
from penstock.monitor.verification import verify
from read_results import published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = "window(seen, '2 days')"
GAP = "session_window(seen, '2 hours')"


def joined(values: str, delimiter: str = "''") -> str:
    """Texts of an array as one in Spark, which fails where LISTAGG with DISTINCT and another one with ORDER BY are in one query."""
    return f"CASE WHEN size({values}) > 0 THEN array_join({values}, {delimiter}) END"


#: what is written here, and what Spark is asked, for which the order is decided; the same where that is None
ITEMS: dict[str, str | None] = {
    "listagg(name, ', ') WITHIN GROUP (ORDER BY name)": None,
    "string_agg(DISTINCT name, '+') WITHIN GROUP (ORDER BY name DESC)": joined(
        "sort_array(collect_set(name), false)", "'+'"
    ),
    "listagg(amount, ',') WITHIN GROUP (ORDER BY amount DESC NULLS LAST) FILTER (WHERE price > 70)": None,
    "listagg(DISTINCT amount % 5, concat('<', '>')) WITHIN GROUP (ORDER BY amount % 5)": joined(
        "CAST(sort_array(collect_set(amount % 5)) AS ARRAY<STRING>)", "'<>'"
    ),
    "listagg(price, NULL) WITHIN GROUP (ORDER BY price)": None,
    "listagg(name) AS plain": "listagg(name) WITHIN GROUP (ORDER BY name)",
    "string_agg(ALL exact, '|') AS numbers": "listagg(exact, '|') WITHIN GROUP (ORDER BY exact)",
    "listagg(DISTINCT name, '{}') AS names": joined("sort_array(collect_set(name))", "'{}'"),
    "listagg(DISTINCT price, ' ') AS prices": joined("sort_array(collect_set(CAST(price AS STRING)))", "' '"),
    "listagg(name, '>') WITHIN GROUP (ORDER BY seen) AS by_time": "listagg(name, '>') WITHIN GROUP (ORDER BY seen, name)",
    "listagg(id, ' ') WITHIN GROUP (ORDER BY price DESC NULLS FIRST, name DESC) AS by_price": "listagg(id, ' ') WITHIN GROUP (ORDER BY price DESC NULLS FIRST, name DESC, CAST(id AS STRING) DESC)",
    "listagg(id, ' ') WITHIN GROUP (ORDER BY name NULLS LAST, exact % 3) FILTER (WHERE amount > 600) AS by_name": "listagg(id, ' ') WITHIN GROUP (ORDER BY name NULLS LAST, exact % 3, CAST(id AS STRING)) FILTER (WHERE amount > 600)",
    "listagg(name, '') FILTER (WHERE id < 0) IS NULL AS none": "listagg(name, '') FILTER (WHERE id < 0) IS NULL",
    "upper(listagg(name, '.') WITHIN GROUP (ORDER BY name)) || '!' AS loud": None,
    "collect_list(name) AS l": "sort_array(collect_list(name))",
}
FEW = {
    each: ITEMS[each]
    for each in ITEMS
    if each.endswith(("plain", "by_time", "loud")) or "DISTINCT name, '+'" in each
}


def both(before: str, items: dict[str, str | None], behind: str) -> tuple[str, str]:
    """A text as a view, and as Spark is asked."""

    def asked(own: str, decided: str | None) -> str:
        if decided is None:
            return own
        return f"{decided} AS {own.rsplit(' AS ', 1)[1]}" if " AS " in own else decided

    decided = ", ".join(asked(*each) for each in items.items())
    return f"SELECT {before}{', '.join(items)} {behind}", f"SELECT {before}{decided} {behind}"


TEXTS = {
    "single": both("name, ", ITEMS, "FROM orders GROUP BY name"),
    "of_all": both("", ITEMS, "FROM orders"),
    "of_none": both("", ITEMS, "FROM orders WHERE amount > 5000"),
    "sets": both(
        "name, amount % 3 AS k, grouping_id() AS g, ", ITEMS, "FROM orders GROUP BY CUBE(name, amount % 3)"
    ),
    "kept": both(
        "name, amount % 7 AS k, count(*) AS c, ",
        FEW,
        "FROM orders GROUP BY name, k HAVING listagg(id % 3, '') WITHIN GROUP (ORDER BY id % 3) LIKE '%012%' OR string_agg(name) IS NULL",
    ),
    "differ": both(
        "name, ",
        {"listagg(DISTINCT amount % 5, '<') WITHIN GROUP (ORDER BY amount % 5 DESC)": None},
        "FROM orders GROUP BY name",
    ),
    "days": both(f"{DAYS} AS w, name, ", ITEMS, "FROM orders GROUP BY w, name"),
    "sliding": both(
        "window(seen, '1 day', '8 hours').end AS e, ",
        FEW,
        "FROM orders GROUP BY window(seen, '1 day', '8 hours')",
    ),
    "early": both("window(seen, '1 day').start AS b, ", FEW, "FROM orders GROUP BY window(seen, '1 day')"),
    "visits": both(f"{GAP} AS w, name, ", ITEMS, f"FROM orders GROUP BY {GAP}, name"),
    "above": both("w.start AS begun, plain, length(by_time) AS n ", {}, "FROM days WHERE by_time > 'n'"),
    "over_days": both(
        "name, ",
        {
            "listagg(plain, ';') AS l": "listagg(plain, ';') WITHIN GROUP (ORDER BY plain)",
            "listagg(loud, ';') WITHIN GROUP (ORDER BY w.start DESC) AS m": None,
        },
        "FROM days GROUP BY name",
    ),
    "weeks": both(
        "window(w.start, '8 days') AS w8, ",
        {"listagg(DISTINCT name) AS l": "listagg(DISTINCT name) WITHIN GROUP (ORDER BY name)"},
        "FROM days GROUP BY window(w.start, '8 days')",
    ),
    "over_kept": both(
        "k, ",
        {
            "listagg(name, ',') AS names": "listagg(name, ',') WITHIN GROUP (ORDER BY name)",
            "listagg(name, ',') WITHIN GROUP (ORDER BY c DESC) AS by_count": "listagg(name, ',') WITHIN GROUP (ORDER BY c DESC, name DESC)",
        },
        "FROM kept GROUP BY k",
    ),
}
#: these say so only as their windows end
OF_WINDOWS = {"days", "sliding", "early", "visits", "above", "over_days", "weeks"}


def views(side: int) -> dict[str, str]:
    found = {name: texts[side] for name, texts in TEXTS.items()}
    if side == 0:
        found["early"] = found["early"].replace("SELECT ", "SELECT /*+ MAX_ERROR(0.1, 0.1) */ ", 1)
    return found


def engine(spark: SparkSession, data: Path, texts: dict[str, str], columns: str = COLUMNS) -> Engine:
    script = f"CREATE TABLE orders ({columns}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '2', event_time 'seen')"
    return Engine(spark).execute(script).add_views(texts)


def test_it_is_its_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    """Files bring tuples of windows and groups that were answered before; each run continues the one before it."""
    data, out = tmp_path / "data", tmp_path / "out"
    lives = [(range(3), False), (range(3, 5), True), (range(5, 6), False)]
    for files, ended in lives if ALL else lives[:2]:
        write(data, files)
        run = finished(engine(spark, data, views(0)), out, ended=ended)
        for name, wanted in expected(spark, data, views(1)).items():
            if name in OF_WINDOWS and not ended:
                continue
            assert values(published(run, name)) == wanted, (name, files)
            assert wanted or name == "above"
            told = spark.sql(views(0)[name]).schema
            assert [(each.name, each.dataType.simpleString()) for each in run.results(name).schema] == [
                (each.name, each.dataType.simpleString()) for each in told
            ]
    assert verify(out).faults == []


EDGES = (
    "id BIGINT, real DOUBLE, small FLOAT, yes BOOLEAN, raw BINARY, day DATE, local TIMESTAMP_NTZ, word STRING, seen TIMESTAMP",
    (
        pa.int64(),
        pa.float64(),
        pa.float32(),
        pa.bool_(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        pa.string(),
    ),
)
OF_EDGES: dict[str, str | None] = {
    "listagg(real, ' ') WITHIN GROUP (ORDER BY real DESC) AS r": joined(
        "transform(sort_array(collect_list(CASE WHEN real IS NOT NULL THEN named_struct('k', real, 'v', CAST(real AS STRING)) END), false), p -> p.v)",
        "' '",
    ),
    "listagg(small, ' ') AS s": joined(
        "transform(sort_array(collect_list(CASE WHEN small IS NOT NULL THEN named_struct('k', small, 'v', CAST(small AS STRING)) END)), p -> p.v)",
        "' '",
    ),
    "listagg(yes, ' ') WITHIN GROUP (ORDER BY yes) AS y": None,
    "listagg(raw, X'2C00') WITHIN GROUP (ORDER BY raw) AS b": None,
    "listagg(DISTINCT raw) AS d": f"unhex({joined('transform(sort_array(collect_set(raw)), v -> hex(v))')})",
    "listagg(raw, NULL) WITHIN GROUP (ORDER BY id DESC) AS bi": None,
    "listagg(day, ' ') WITHIN GROUP (ORDER BY day DESC) AS da": None,
    "listagg(local, ' ') WITHIN GROUP (ORDER BY local) AS l": None,
    "listagg(DISTINCT local, ' ') WITHIN GROUP (ORDER BY local) AS dl": joined(
        "CAST(sort_array(collect_set(local)) AS ARRAY<STRING>)", "' '"
    ),
    "listagg(seen, ' ') WITHIN GROUP (ORDER BY seen) AS t": None,
    "listagg(DISTINCT seen, ' ') AS dt": joined("sort_array(collect_set(CAST(seen AS STRING)))", "' '"),
    "listagg(word, 1) WITHIN GROUP (ORDER BY word) AS w": None,
    "listagg(word, '|') WITHIN GROUP (ORDER BY id) AS wi": None,
    "listagg(id, ' ') WITHIN GROUP (ORDER BY word, id) AS iw": None,
    "listagg(id, ' ') WITHIN GROUP (ORDER BY raw DESC, id DESC) AS ir": None,
    "listagg(id, ' ') WITHIN GROUP (ORDER BY real, small NULLS LAST, id) AS ire": None,
    "listagg(id, ' ') WITHIN GROUP (ORDER BY day, local, seen, yes, id) AS it": None,
    "listagg(seen - seen, ' ') AS du": None,
    "listagg(NULL, ' ') AS nothing": None,
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_edges_of_types(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """NaN, both zeros, bytes that are no text, empty texts, bars, far years, groups of NULLs alone, and the hour that comes twice."""
    nan, data = float("nan"), tmp_path / "data"
    data.mkdir()
    year = 366 * 86_400 * 10**6
    rows = [
        (0, 0.0, 1.5, True, b"b\xff", 3, 0, "a|b"),
        (3, -0.0, nan, None, b"a", 1, -1, ""),
        (6, nan, nan, False, b"\x00", 3_000_000, 9000 * year, "|"),
        (9, -nan, 1.5, False, None, None, None, None),
        (12, 1e300, 1e-30, True, b"", -100_000, -300 * year, "ä'{}"),
        (15, float("inf"), -0.0, None, b"b", 2, 10**6, "Z"),
        (18, -1.5, 0.0, None, b"b", 2, 10**6 + 10, "Z"),
        (1, None, None, None, None, None, None, None),
        (4, None, None, None, None, None, None, None),
        (2, -0.0, -0.0, True, b"", 8, 7, "0"),
        (5, 2.5, 0.0, True, b"", 2, 7, "00"),
    ]
    # 00:30 UTC and 01:30 UTC are both 02:30 in Berlin
    twice = [1761438600 * 10**6 + hours * 3600 * 10**6 for hours in (0, 1, 0, 2)]
    for number, own in enumerate((rows[::2], rows[1::2])):
        columns = [pa.array(each, kind) for each, kind in zip(zip(*own, strict=True), EDGES[1], strict=True)]
        seen = [twice[(number + place) % 4] for place in range(len(own))]
        columns.append(pa.array(seen, pa.timestamp("us", "UTC")))
        table = pa.table(columns, names=[each.split()[0] for each in EDGES[0].split(", ")])
        put_file(data / f"{number}.parquet", lambda path, table=table: pq.write_table(table, path))
    texts = both("id % 3 AS k, ", OF_EDGES, "FROM orders GROUP BY id % 3")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        run = finished(engine(spark, data, {"edges": texts[0]}, EDGES[0]), tmp_path / "out", ended=True)
        found = values(published(run, "edges"))
        spark.read.schema(EDGES[0]).parquet(str(data)).createOrReplaceTempView("orders")
        wanted = values(spark.sql(texts[1]).toArrow().to_pylist())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    names = ["k", *(each.rsplit(" AS ", 1)[1] for each in OF_EDGES)]
    for own, theirs in zip(found, wanted, strict=True):
        assert dict(zip(names, own, strict=True)) == dict(zip(names, theirs, strict=True))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("listagg()", "LISTAGG needs arguments"),
        ("listagg(name, ',', 'x')", "takes the value and a delimiter, not 3 arguments"),
        ("string_agg(name, ',' ORDER BY amount)", r"behind the call: STRING_AGG\(x, ', '\) WITHIN GROUP"),
        ("listagg(name, ',' ON OVERFLOW TRUNCATE)", "The delimiter of LISTAGG must be a constant"),
        ("listagg(name, +)", "The delimiter of LISTAGG must be a constant"),
        ("listagg(name, name)", "The delimiter of LISTAGG must be a constant, such as ', '"),
        ("string_agg(name, concat(name, ','))", "The delimiter of STRING_AGG must be a constant"),
        ("listagg(*)", r"`\*` is allowed in COUNT\(\*\) only"),
        ("listagg(array(name), ',')", "ARRAY<STRING>"),
        ("listagg(nosuch, ',')", "Column nosuch does not exist"),
        ("listagg(name, ',') WITHIN GROUP (ORDER BY nosuch)", "Column nosuch does not exist"),
        ("listagg(name, ',') WITHIN GROUP ()", r"Expected WITHIN GROUP \(ORDER BY expression\) here"),
        ("listagg(name, ',') WITHIN GROUP (ORDER BY count(*))", "cannot contain another aggregate"),
        (
            "listagg(name, ',') WITHIN GROUP (ORDER BY amount, price DESC)",
            "must all be ascending, or all be descending",
        ),
        (
            "listagg(name, ',') WITHIN GROUP (ORDER BY array(amount))",
            "A key of ORDER BY of type ARRAY<INT> is not supported",
        ),
        ("listagg(name COLLATE UTF8_LCASE)", "its collation being another than binary"),
        (
            "listagg(name, ',') WITHIN GROUP (ORDER BY name COLLATE UTF8_LCASE)",
            "A key of ORDER BY of type STRING is not supported here, its collation",
        ),
        ("listagg(DISTINCT name, ',') WITHIN GROUP (ORDER BY amount)", "do not match"),
        ("listagg(DISTINCT price, ',') WITHIN GROUP (ORDER BY price)", 'is not supported for "DOUBLE" input'),
        ("listagg(CAST(name AS BINARY), ',')", "should all be the same type"),
        ("listagg(name, ',') OVER (PARTITION BY name)", r"A window function \(OVER\) is not supported"),
        ("count(name) WITHIN GROUP (ORDER BY name)", "GROUP is not an aggregate function"),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, item: str, message: str) -> None:
    (tmp_path / "data").mkdir()
    text = f"SELECT {item} AS x FROM orders GROUP BY {DAYS}"
    with pytest.raises(SqlError) as caught:
        engine(spark, tmp_path / "data", {"v": text})
    assert re.search(message, caught.value.message)
