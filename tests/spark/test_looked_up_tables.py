"""Several LEFT JOINs with static tables, as people write them: the rows are Spark's, over restarts and versions of a table."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from joined_inputs import answered, multiset
from penstock.errors import UnsupportedError
from penstock.spark.engine import Engine
from read_results import bag, published
from spark_answers import in_one_partition, tuples_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SCHEMAS = {
    "orders": pa.schema(
        {"id": pa.int64(), "customer": pa.int64(), "product": pa.string(), "at": pa.timestamp("us", "UTC")}
    ),
    "payments": pa.schema({"of": pa.int64(), "paid": pa.timestamp("us", "UTC")}),
    "customers": pa.schema({"id": pa.int32(), "name": pa.string()}),
    "products": pa.schema({"id": pa.string(), "title": pa.string(), "category": pa.int32()}),
    "categories": pa.schema({"id": pa.int64(), "name": pa.string(), "since": pa.int64()}),
}
STREAMS = {"orders": "at", "payments": "paid"}
_LOOKUPS = (
    "LEFT JOIN customers c ON o.customer = c.id LEFT JOIN products p ON o.product = p.id AND o.id > 1 "
    "LEFT JOIN categories g ON p.category = g.id AND g.since <= o.id"
)
VIEWS = {
    "described": f"SELECT o.id, c.name AS customer, p.title, g.name AS category FROM orders o {_LOOKUPS}",
    "chosen": f"SELECT o.id, soundex(c.name) AS customer, coalesce(g.name, 'none') AS category FROM orders o {_LOOKUPS} "
    "WHERE g.name IS NULL OR c.name = 'Ada'",
    "paid": "SELECT o.id, y.paid, c.name AS customer, p.title FROM orders o JOIN payments y ON o.id = y.of AND y.paid BETWEEN o.at "
    "AND o.at + INTERVAL 1 HOUR LEFT JOIN customers c ON o.customer = c.id LEFT JOIN products p ON o.product = p.id",
    "maybe_paid": "SELECT o.id, y.paid, c.name AS customer, p.title FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "LEFT JOIN payments y ON o.id = y.of AND y.paid BETWEEN o.at AND o.at + INTERVAL 1 HOUR LEFT JOIN products p ON o.product = p.id "
    "WHERE p.title IS NULL OR p.category > 0",
}
CUSTOMERS = [(1, "Ada"), (2, "Bo"), (2, "Bob"), (None, "nobody")]
PRODUCTS = [("a", "apple", 1), ("b", "book", 2), ("b", "boot", None), ("z", None, 1)]
CATEGORIES = [(1, "food", 0), (1, "fruit", 4), (2, "things", 0)]
ORDERS = [
    [(1, 1, "a", 0), (2, 2, "b", 100), (3, None, "a", 50), (4, 9, None, 200)],
    [(5, 1, "b", 150), (6, 2, "q", 4_000), (7, 2, "z", 90), (8, 1, "a", 60_000)],
]
PAYMENTS = [[(1, 10), (4, 300), (2, 9_000)], [(5, 160), (5, 170), (3, 60), (1, 20), (9, 60_000)]]


#: by case the category of a product in the new version of its table; None: no new version
CHANGED = [None, 1, 0]


def changed_products(category: int) -> list[tuple[Any, ...]]:
    """The new version of the products."""
    return [("a", "apricot", category), ("b", "book", 2)]


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows of a table; times are seconds."""
    columns = []
    for place, field in enumerate(schema):
        values = [row[place] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array([(1_700_000_000 + each) * 1_000_000 for each in values]).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _products(changed: int | None) -> str:
    """The table of products of a case."""
    return "products" if changed is None else f"products_{changed}"


def _named(name: str, changed: int | None) -> str:
    """The name of a view over the products of a case."""
    return name if changed is None else f"{name}_{changed}"


@pytest.fixture(scope="module")
def lives(
    _session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[dict[str, Counter[str]], str]]:
    """What two runs have told of the views over the products of each case, and how they explain themselves.

    Before the second one, each case but the first gets a new version of its table.
    """
    root = tmp_path_factory.mktemp("lives")

    def put(name: str, rows: list[tuple[Any, ...]], number: int = 0) -> None:
        (root / name).mkdir(exist_ok=True)
        schema = SCHEMAS["products" if name.startswith("products") else name]
        pq.write_table(table(schema, rows), root / name / f"{number}.parquet")

    for name, rows in {"customers": CUSTOMERS, "categories": CATEGORIES}.items():
        put(name, rows)
    for changed in CHANGED:
        put(_products(changed), PRODUCTS)
    names = [*(SCHEMAS.keys() - {"products"}), *map(_products, CHANGED)]
    script = ";\n".join(
        f"CREATE TABLE {name} USING parquet OPTIONS (path '{root / name}', "
        + (f"event_time '{STREAMS[name]}')" if name in STREAMS else "static 'true')")
        for name in names
    )
    views = {
        _named(name, changed): text.replace("JOIN products p", f"JOIN {_products(changed)} p")
        for name, text in VIEWS.items()
        for changed in CHANGED
    }
    found = []
    for number in range(2):
        put("orders", ORDERS[number], number)
        put("payments", PAYMENTS[number], number)
        for changed in CHANGED if number else ():
            if changed is not None:
                put(_products(changed), changed_products(changed))
        run = answered(Engine(_session).execute(script).add_views(views), root / "out")
        told = {name: bag(published(run, name)) for name in views}
        found.append((told, run.explain()))
        run.stop()
    return found


@pytest.mark.parametrize("changed", CHANGED)
def test_views_with_several_left_joins_are_their_texts(
    spark: SparkSession, lives: list[tuple[dict[str, Counter[str]], str]], changed: int | None
) -> None:
    """The new version of a table has another title and this category of a product, which WHERE excludes if it is 0."""

    def expected(
        text: str,
        orders: list[tuple[Any, ...]],
        payments: list[tuple[Any, ...]],
        products: list[tuple[Any, ...]],
    ) -> Counter[str]:
        tables = {"orders": orders, "payments": payments, "products": products}
        for name, rows in {**tables, "customers": CUSTOMERS, "categories": CATEGORIES}.items():
            in_one_partition(spark, table(SCHEMAS[name], rows)).createOrReplaceTempView(name)
        return multiset(spark.sql(text))

    (first, _), (second, explained) = lives
    for name, text in VIEWS.items():
        before, told = first[_named(name, changed)], second[_named(name, changed)]
        assert before == expected(text, ORDERS[0], PAYMENTS[0], PRODUCTS), text
        if changed is None:
            every = [*ORDERS[0], *ORDERS[1]], [*PAYMENTS[0], *PAYMENTS[1]]
            assert told == expected(text, *every, PRODUCTS), text
        elif name in ("described", "chosen"):
            # rows of before stay as they were
            since = expected(text, ORDERS[1], PAYMENTS[1], changed_products(changed))
            assert told == before + since, text
    if changed is not None:
        rows = second[_named("maybe_paid", changed)]
        assert not any("'id': 3" in row and "'paid': None" in row for row in rows), "it was withdrawn by name"
        assert any("'id': 3" in row and "apricot" in row for row in rows) == (changed == 1)
    assert "then looked up in g (optional static table categories)" in explained


#: keys and conditions of other types, NULL, NaN and negative zero, names in other letters, `SELECT *`, WHERE that may be unknown
AWKWARD = {
    "narrow": "SELECT s.id, a.tiny, b.big FROM s LEFT JOIN t a ON s.big = a.tiny LEFT JOIN t b ON s.tiny = b.big",
    "texts": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.id LEFT JOIN t b ON s.word = b.tiny",
    "words": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.id LEFT JOIN t b ON s.big = b.word",
    "floats": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.x = a.x LEFT JOIN t b ON s.x = b.y AND s.y <= b.x",
    "mixed": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.x = a.big LEFT JOIN t b ON s.big = b.x",
    "decimals": "SELECT s.id, a.id AS a, b.id AS b, c.id AS c FROM s LEFT JOIN t a ON s.d = a.d LEFT JOIN t b ON s.d = b.e "
    "LEFT JOIN t c ON b.e = c.big AND s.d < c.e",
    "decimal_whole": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.tiny = a.d LEFT JOIN t b ON a.d = b.tiny AND b.e > s.big",
    "days": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.day = a.day LEFT JOIN t b ON s.at >= b.day AND s.day = b.moment",
    "case": "SELECT S.ID, A.Word AS w, b.WORD FROM s LEFT JOIN T A ON S.BIG = a.Big LEFT JOIN t B ON A.id = b.ID",
    "stars": "SELECT * FROM s LEFT JOIN renamed r ON s.id = r.rid LEFT JOIN others o ON s.big = o.oid",
    "of_one": "SELECT b.*, s.id AS sid, a.id AS a FROM s LEFT JOIN t a ON s.id = a.id LEFT JOIN t b ON s.big = b.big",
    "using": "SELECT id, a.word, b.x FROM s LEFT JOIN t a USING (id) LEFT JOIN t b USING (id)",
    "star_using": "SELECT * FROM s LEFT JOIN named n USING (id) LEFT JOIN sized z USING (big)",
    "not_true": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.id = b.id WHERE NOT (a.x > b.x)",
    "either": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.id = b.id WHERE a.x > 0 OR b.x > 0",
    "unknown": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.id = b.id "
    "WHERE (a.x > 0) IS NULL AND b.word NOT IN ('1', 'no')",
    "null_safe": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.id = b.id WHERE a.x <=> b.x",
    "chained_inner": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON a.id = b.id WHERE b.x = b.x",
    "constant": "SELECT s.id, a.id AS a, b.id AS b, c.id AS c FROM s LEFT JOIN t a ON s.id = a.id AND 1 = 1 LEFT JOIN t b ON s.big = b.big AND b.id = 2 "
    "LEFT JOIN t c ON s.id = c.id AND s.word IS NULL AND a.id IS NOT NULL",
    "between": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.x BETWEEN b.x AND b.y",
    "counted": "SELECT 1 AS one FROM s LEFT JOIN t a ON s.big = a.big LEFT JOIN t b ON s.tiny = b.tiny",
    "computed": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.big + 1 = a.big LEFT JOIN t b ON lower(a.word) = upper(b.word)",
    "binary": "SELECT s.id, a.id AS a, b.id AS b FROM s LEFT JOIN t a ON s.raw = a.raw LEFT JOIN t b ON s.flag = b.flag AND s.id <> b.id",
}


#: tables with some columns of `t`, by another name each
NARROW = {
    "renamed": {"id": "rid", "word": "rword"},
    "others": {"x": "ox", "id": "oid"},
    "named": {"word": "nword", "id": "id"},
    "sized": {"d": "zd", "big": "big"},
}


def _tried(word: re.Match[str]) -> str:
    return "try_cast(s.word AS BIGINT) = b.tiny" if word[1] else f"try_cast({word[2]} AS BIGINT)"


def awkward(count: int, first: int) -> pa.Table:
    """Rows among which each column has equal ones, NULL, and what compares in its own way."""
    nan = float("nan")

    def cycled(values: list[Any], kind: pa.DataType, step: int) -> pa.Array:
        return pa.array([values[(first + place * step) % len(values)] for place in range(count)], kind)

    moments = [(1_700_000_000 + first + place) * 1_000_000 for place in range(count)]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int32()),
            "big": cycled([1, 2, None, 3, 300, 2], pa.int64(), 1),
            "tiny": cycled([1, None, 2, 3, -1], pa.int8(), 1),
            "word": cycled(["1", " 2", "no", None, "3.0", "", "NO"], pa.string(), 2),
            "x": cycled([0.0, nan, None, -0.0, 1.0, 3.0], pa.float64(), 1),
            "y": cycled([-0.0, 0.1, nan, 1.0, None], pa.float32(), 2),
            "d": cycled([Decimal("1.00"), None, Decimal("2.50"), Decimal("3.00")], pa.decimal128(7, 2), 1),
            "e": cycled([Decimal("1"), Decimal("2.5000"), None, Decimal("300")], pa.decimal128(20, 4), 3),
            "day": pa.array([19_675 + place % 3 for place in range(count)], pa.int32()).cast(pa.date32()),
            "moment": pa.array([(19_675 + place % 4) * 86_400_000_000 for place in range(count)]).cast(
                pa.timestamp("us", "UTC")
            ),
            "raw": cycled([b"", b"a", None, b"\0"], pa.binary(), 1),
            "flag": cycled([True, None, False], pa.bool_(), 1),
            "at": pa.array(moments).cast(pa.timestamp("us", "UTC")),
        }
    )


def test_keys_of_other_types_names_and_unknown_conditions_are_spark_s(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = AWKWARD if ALL else dict(list(AWKWARD.items())[::3])
    for name in ("s", "t"):
        (tmp_path / name).mkdir()
    pq.write_table(awkward(9, 0), tmp_path / "t" / "0.parquet")
    pq.write_table(awkward(7, 2), tmp_path / "t" / "1.parquet")
    whole = pq.read_table(tmp_path / "t")
    for name, columns in NARROW.items():
        (tmp_path / name).mkdir()
        renamed = whole.select(list(columns)).rename_columns(list(columns.values()))
        pq.write_table(renamed, tmp_path / name / "0.parquet")
    for number in range(2):
        pq.write_table(awkward(11, number * 11), tmp_path / "s" / f"{number}.parquet")
    script = ";\n".join(
        f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', "
        + ("event_time 'at')" if name == "s" else "static 'true')")
        for name in ("s", "t", *NARROW)
    )
    run = answered(Engine(spark).execute(script).add_views(texts), tmp_path / "out")
    for name in ("s", "t", *NARROW):
        in_one_partition(spark, tuples_of(tmp_path / name)).createOrReplaceTempView(name)
    for name, text in texts.items():
        # a text that is no number equals none, where Spark would stop
        expected = spark.sql(re.sub(r"(\w\.word) = b.tiny|(?<=s.big = )(b.word)", _tried, text))
        found = run.results(name)
        assert found.columns == expected.columns, text
        assert multiset(found) == multiset(expected), text
    run.stop()


def test_what_only_spark_computes_is_told_of_the_join_that_says_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("orders", "customers", "products"):
        (tmp_path / name).mkdir()
        pq.write_table(SCHEMAS[name].empty_table(), tmp_path / name / "0.parquet")
    engine = Engine(spark).execute(
        ";\n".join(
            f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', {option})"
            for name, option in {
                "orders": "event_time 'at'",
                "customers": "static 'true'",
                "products": "static 'true'",
            }.items()
        )
    )
    text = (
        "SELECT o.id FROM orders o\nLEFT JOIN customers c ON o.customer = c.id\n"
        "LEFT JOIN products p ON o.product = p.id AND (o.id > p.category OR p.title = 'x')\nWHERE c.name = 'Ada'"
    )
    with pytest.raises(UnsupportedError, match=r"(?s)only Spark can compute.*line 3: "):
        engine.view("v", text)
