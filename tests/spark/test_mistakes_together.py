"""All mistakes of a script are reported together, those that only Spark finds too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import DuplicateNameError, MistakesError, SqlError, UnknownNameError
from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

SCRIPT = """CREATE TABLE orders (id INT, amount INT, at TIMESTAMP) USING csv OPTIONS (path '{path}', event_time 'at');
CREATE TABLE lost (id INT) USING csv OPTIONS (path '{path}/nowhere');
CREATE TABLE shown (id INT) USING console;
CREATE VIEW good AS SELECT id FROM orders WHERE amount > 1;
CREATE VIEW a AS SELECT id FROM orders WHERE amont > 1;
CREATE VIEW on_a AS SELECT id FROM a WHERE id > 1;
CREATE VIEW b AS SELECT ids FROM orders;
CREATE VIEW good_too AS SELECT id FROM good WHERE id > 1;
CREATE VIEW on_lost AS SELECT id FROM lost;
CREATE VIEW w AS SELECT window(at, '1 minute') AS w, sum(amunt) AS s FROM orders GROUP BY w;
CREATE VIEW on_w AS SELECT * FROM w WHERE s > 1;
CREATE VIEW joined AS SELECT a.id FROM orders a JOIN orders b ON a.id = b.idd AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE;
CREATE VIEW on_good AS SELECT amount FROM good;
INSERT INTO shown SELECT id, amount FROM orders;
INSERT INTO shown SELECT id FROM a;
INSERT INTO shown SELECT idea FROM orders;
CREATE VIEW late SELECT 1;
"""


def test_all_mistakes_are_reported_and_none_that_follows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    engine = Engine(spark)
    with pytest.raises(MistakesError) as raised:
        engine.execute(SCRIPT.format(path=tmp_path / "in"))
    found = [str(each) for each in raised.value.mistakes]
    lines = [each.split("\n  line ")[1].partition(":")[0] for each in found]
    assert lines == ["2", "5", "7", "10", "12", "13", "14", "16", "17"], found
    told = (
        "nowhere does not exist",
        "amont",
        "ids",
        "amunt",
        "idd",
        "amount",
        "2 (id, amount)",
        "idea",
        "AS here",
    )
    assert all(words in each for words, each in zip(told, found, strict=True)), found
    assert engine.views == {}
    assert engine.declared == {}


DROPPED = """CREATE TABLE orders (id INT, amount INT) USING csv OPTIONS (path '{path}');
CREATE VIEW v AS SELECT id FROM orders;
CREATE VIEW w AS SELECT id FROM v;
DROP VIEW v;
CREATE VIEW v AS SELECT idd FROM orders;
CREATE VIEW x AS SELECT amont FROM orders;
DROP VIEW x;
CREATE VIEW x AS SELECT amount FROM orders;
CREATE VIEW y AS SELECT amont FROM w;
CREATE OR REPLACE VIEW y AS SELECT id FROM w;
CREATE VIEW z AS SELECT amunt FROM x;
CREATE VIEW on_v AS SELECT amount FROM v;
"""


def test_mistakes_before_and_behind_drop_view_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    engine = Engine(spark)
    with pytest.raises(MistakesError) as raised:
        engine.execute(DROPPED.format(path=tmp_path / "in"))
    found = [str(each) for each in raised.value.mistakes]
    lines = [each.split("\n  line ")[1].partition(":")[0] for each in found]
    assert lines == ["4", "5", "6", "9", "11"], found
    told = ("View w reads view v", "idd", "amont", "amont", "amunt")
    assert all(words in each for words, each in zip(told, found, strict=True)), found


def test_views_over_rules_are_replaced_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rules.sql").write_text("CREATE VIEW few AS SELECT id FROM orders WHERE id < 3;")
    engine = Engine(spark).execute(f"""
CREATE TABLE orders (id INT, amount INT) USING csv OPTIONS (path '{tmp_path}');
CREATE VIEWS FROM '{tmp_path}/rules.sql' ON orders;
CREATE VIEW v AS SELECT id FROM few;
CREATE OR REPLACE VIEW v AS SELECT id + 1 AS more FROM few;
CREATE VIEW w AS SELECT id FROM few;
DROP VIEW w;
""")
    assert list(engine.views) == ["few", "v"]


def test_of_a_hundred_mistakes_on_the_search_ends(spark: SparkSession, tmp_path: Path) -> None:
    table = f"CREATE TABLE orders (id INT) USING csv OPTIONS (path '{tmp_path}');"
    views = "".join(
        f"CREATE VIEW v{number} AS SELECT id FROM orders WHERE x > {number};\n" for number in range(300)
    )
    with pytest.raises(MistakesError, match="at least 100 mistakes") as raised:
        Engine(spark).execute(table + views)
    assert {type(each) for each in raised.value.mistakes} == {UnknownNameError}


def test_a_column_that_does_not_exist_is_not_said_to_lack_a_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = f"CREATE TABLE orders (id INT, city STRING, at TIMESTAMP) USING csv OPTIONS (path '{tmp_path}', event_time 'at');"
    views = (
        "CREATE VIEW big AS SELECT id AS number, city FROM orders WHERE id > 3;",
        "CREATE VIEW v1 AS SELECT cty, count(*) AS k FROM orders GROUP BY city;",
        "CREATE VIEW v2 AS SELECT b.numbr, window(b.at, '1 day') AS w FROM big b GROUP BY w;",
        "CREATE VIEW v3 AS SELECT id, count(*) AS k FROM orders GROUP BY city;",
        "CREATE VIEW v5 AS SELECT city, count(*) AS k FROM orders GROUP BY id, upper(town);",
    )
    with pytest.raises(MistakesError) as raised:
        Engine(spark).execute(table + "".join(views))
    told = [str(each).partition("\n")[0] for each in raised.value.mistakes]
    assert told == [
        "Column cty does not exist; did you mean city? Existing columns of orders: id, city, at",
        "Column numbr does not exist; did you mean number? Existing columns of big: number, city",
        "id is neither grouped nor aggregated. Add it to GROUP BY, or aggregate it.",
        "Column town does not exist. Existing columns of orders: id, city, at",
    ]
    unknown = raised.value.mistakes[-1]
    assert isinstance(unknown, SqlError)
    assert unknown.text[unknown.start : unknown.end] == "town"
    engine = Engine(spark).execute(table + views[0])
    with pytest.raises(UnknownNameError, match=r"Column numbr does not exist; did you mean number\?"):
        engine.view("v4", "SELECT numbr, count(*) AS k FROM big GROUP BY city")


def test_a_view_with_the_name_of_a_table_is_told_once(spark: SparkSession, tmp_path: Path) -> None:
    table = f"CREATE TABLE orders (id INT, amount INT) USING csv OPTIONS (path '{tmp_path}');"
    for name in ("orders", "ORDERS"):
        with pytest.raises(DuplicateNameError, match=f"^{name} exists already. Names are case-insensitive"):
            Engine(spark).execute(f"{table} CREATE VIEW {name} AS SELECT id FROM orders;")


def test_a_later_script_replaces_a_view_of_an_earlier_one(spark: SparkSession, tmp_path: Path) -> None:
    table = f"CREATE TABLE orders (id INT, city STRING) USING csv OPTIONS (path '{tmp_path}');"
    views = "CREATE VIEW v AS SELECT * FROM orders WHERE id > 3; CREATE VIEW w AS SELECT id FROM v;"
    engine = Engine(spark).execute(table + views)
    engine.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM orders WHERE id > 4")
    assert engine.views["v"].endswith("id > 4")
    assert set(engine.views) == {"v", "w"}
    engine.execute("CREATE VIEW x AS SELECT id FROM v; DROP VIEW x; DROP VIEW IF EXISTS y")
    assert set(engine.views) == {"v", "w"}


SEVERAL = """CREATE TABLE orders (id INT, city STRING, amount DOUBLE, at TIMESTAMP) USING csv OPTIONS (path '{path}', event_time 'at');
CREATE TABLE logins (id INT, who STRUCT<name: STRING, age: INT>, at TIMESTAMP) USING json OPTIONS (path '{path}', event_time 'at');
CREATE VIEW v AS SELECT «cty», «amout» AS amount, lower(«citi») FROM orders
WHERE «amont» > 3 AND «lenght(city)» > 2 AND city > id;
CREATE VIEW w AS SELECT window(«att», '1 hour') AS w, sum(«amout») AS s FROM orders WHERE «zzz» = 1 GROUP BY w HAVING max(«amuont») > 3;
CREATE VIEW j AS SELECT «o.cty», «l.who.nme» FROM orders o JOIN logins l ON «o.idd» = l.id AND l.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
CREATE VIEW s AS SELECT «foo», «bar», city || «id» FROM orders;
"""


def test_all_misspelt_names_of_a_statement_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(MistakesError) as raised:
        Engine(spark).execute(SEVERAL.format(path=tmp_path / "in").replace("«", "").replace("»", ""))
    found = [each.text[each.start : each.end] for each in raised.value.mistakes if isinstance(each, SqlError)]
    assert found == re.findall("«(.*?)»", SEVERAL.replace("«id»", "id")), str(raised.value)


TABLES = """CREATE TABLE orders (id INT, city STRING, at TIMESTAMP) USING csv OPTIONS (path '{path}', event_time 'at');
CREATE TABLE logins (id INT, who STRUCT<name: STRING, `odd age`: INT>, at TIMESTAMP) USING json OPTIONS (path '{path}', event_time 'at');
CREATE TABLE two (id INT, who STRUCT<name: STRING, `odd age`: INT>) USING json OPTIONS (path '{path}');
"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # the first column of the table does not fit where the name stands
        ("SELECT foo.name, bar + 1 AS y, id, who, `no such`, baz FROM two WHERE qux LIKE 'a%'", "foo.name bar `no such` baz qux"),
        ("SELECT who.zzz, who.`odd agee`, who.yyy FROM two", "who.zzz who.`odd agee` who.yyy"),
        ("SELECT uper(lowr(trm(city))) AS x FROM orders", "uper(lowr(trm(city))) lowr(trm(city)) trm(city)"),
        ("SELECT lenght(lenght(city)) AS x, nofn(city), zork(at,id) FROM orders WHERE amont = 1", "lenght(lenght(city)) lenght(city) nofn(city) zork(at,id) amont"),
        # both tables have the column that is meant
        ("SELECT foo, idd, o.bar, uper(lowr(o.city)) AS x FROM orders o JOIN logins l ON o.id = l.id AND l.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR", "foo idd o.bar uper(lowr(o.city)) lowr(o.city)"),
    ],
    ids=["columns", "fields", "functions", "same", "join"],
)  # fmt: skip
def test_names_are_reported_behind_names_of_nothing(
    spark: SparkSession, tmp_path: Path, query: str, expected: str
) -> None:
    (tmp_path / "in").mkdir()
    script = f"{TABLES.format(path=tmp_path / 'in')}CREATE VIEW v AS {query};"
    with pytest.raises(MistakesError) as raised:
        Engine(spark).execute(script)
    found = [each for each in raised.value.mistakes if isinstance(each, UnknownNameError)]
    marked = [script[each.start : each.end] for each in found]
    words = re.findall(r"(?:`[^`]*`|\S)+", expected)
    assert marked == words, str(raised.value)
    assert len(found) == len(raised.value.mistakes)
    assert all(each.name in script[each.start : each.end] for each in found)
    assert all(each.near is None or each.near in each.known for each in found)
