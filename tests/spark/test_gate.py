"""What may reach Spark as text, written by a user or stored in a file: one door, and what it refuses."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import Engine
from penstock.errors import InputError, UnsupportedError
from penstock.spark.analysis.functions import ALLOWED, REFUSED
from penstock.spark.analysis.gate import computed, queried, stored_schema, tried
from penstock.spark.results.read import open_results
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(penstock.__file__).parent
#: calls that hand text or a stored schema to Spark
DOORS = re.compile(
    r".*\b(expr|selectExpr|parseExpression|parsePlan)|.*spark\w*\.sql|\w*Type\.fromJson", re.DOTALL
)
REFUSED_TEXTS = [
    "java_method('java.lang.System', 'exit', '1')",
    "`java_method`('java.lang.System', 'exit', '1')",
    "system.builtin.reflect('java.lang.System', 'exit', '1')",
    "coalesce(id, CASE WHEN TRY_REFLECT('java.lang.System', 'exit', '1') IS NULL THEN 1 END)",
    "transform(array(1), x -> reflect('java.lang.System', 'exit', '1'))",
    "IDENTIFIER('java_' || 'method')('java.lang.System', 'exit', '1')",
    "from_protobuf(binary(s), 'M', '/etc/passwd')",
    "input_file_name()",
    "rand()",
    "uuid()",
    "now()",
    "spark_catalog.default.f(id)",
    "(SELECT 1)",
    "id IN (SELECT 1)",
    "EXISTS (SELECT 1 FROM parquet.`/etc/passwd`)",
    "sum(id) OVER (ORDER BY id)",
    "explode(array(1, 2))",
    ":parameter",
]


@pytest.mark.parametrize("text", REFUSED_TEXTS)
def test_a_text_that_reaches_past_its_row_is_refused_before_a_name_in_it_is_resolved(
    spark: SparkSession, text: str
) -> None:
    for door in (computed, tried):
        with pytest.raises(UnsupportedError, match="cannot be used here"):
            door(spark, text)


def test_a_query_reads_the_tables_it_is_given_and_no_others(spark: SparkSession) -> None:
    spark.range(2).createOrReplaceTempView("given")
    assert queried(spark, "SELECT id + 1 AS n FROM given WHERE id > 0", ["given"]).collect() == [(2,)]
    for query in (
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT * FROM range(3)",
        "SELECT TRANSFORM(id) USING 'cat' FROM given",
        "SELECT id FROM given WHERE java_method('a', 'b') = 1",
        "DROP TABLE given",
    ):
        with pytest.raises(UnsupportedError, match="cannot be used here"):
            queried(spark, query, ["given"])
    spark.catalog.dropTempView("given")


def test_a_text_does_not_read_the_environment_or_the_settings(spark: SparkSession) -> None:
    texts = ["'${env:HOME}'", "'${spark.app.name}'", "'${system:user.home}'"]
    (row,) = spark.range(1).select(*(computed(spark, text) for text in texts)).collect()
    assert list(row) == [text.strip("'") for text in texts]
    assert "HOME" in os.environ


def test_a_user_s_function_passes(spark: SparkSession) -> None:
    spark.udf.register("my_double", lambda value: 2 * value, "bigint")
    spark.sql("SELECT 1")
    assert spark.range(2, 3).select(computed(spark, "my_double(id) + 1")).collect() == [(5,)]


def test_every_function_of_spark_is_allowed_or_refused(spark: SparkSession) -> None:
    known = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    refused = frozenset[str]().union(*REFUSED.values())
    assert known == ALLOWED | refused
    assert not ALLOWED & refused


def test_text_and_stored_schemas_reach_spark_through_the_gate_alone() -> None:
    through = {
        (file.relative_to(PACKAGE).as_posix(), call)
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and DOORS.fullmatch(call := ast.unparse(node.func))
    }
    # the demonstration's own text
    assert through - {("cli/demo_plain.py", "spark.sql")} == {
        ("spark/analysis/gate.py", call)
        for call in (
            "_parser(context).parseExpression",
            "_parser(context).parsePlan",
            "_parser(spark.sparkContext).parseExpression",
            "_parser(spark.sparkContext).parsePlan",
            "StructType.fromJson",
            "spark.sql",
        )
    }


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]}), tmp_path / "in" / "1.parquet"
    )
    script = (
        f"CREATE TABLE t USING parquet OPTIONS (path '{tmp_path}/in');\n"
        "CREATE VIEW large AS SELECT id, upper(s) AS u FROM t WHERE id + 1 > 2"
    )
    run_to_end(Engine(spark).execute(script), str(tmp_path / "out"), seconds=None)
    return tmp_path / "out"


def edited(folder: Path, change: Any) -> None:
    catalog = Layout.of(folder, None).catalog
    document = json.loads(catalog.get() or b"")
    change(document)
    catalog.replace(json.dumps(document).encode())


@pytest.mark.usefixtures("own_commits")
def test_a_results_folder_runs_no_code(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    assert open_results(spark, folder, "large").collect() == [(2, "B")]
    for text in ("java_method('java.lang.System', 'setProperty', 'pwned', 'yes')", "current_user"):
        edited(
            folder, lambda document, text=text: document["views"]["large"].update(projection=[[text, "x"]])
        )
        with pytest.raises(
            InputError,
            match=r"_penstock has a text of view large that Penstock never writes(.|\n)*cannot be used here",
        ):
            open_results(spark, folder, "large").collect()
    assert spark._jvm.java.lang.System.getProperty("pwned") is None
    pwned = tmp_path / "pwned"
    kind = {
        "type": "udt",
        "pyClass": "nowhere.X",
        "class": None,
        "sqlType": "long",
        "serializedClass": "AA==",
    }
    edited(folder, lambda document: document["streams"]["t"]["fields"][0].update(type=kind))
    with pytest.raises(InputError, match="user-defined type"):
        open_results(spark, folder, "large").collect()
    assert not pwned.exists()
    with pytest.raises(InputError, match="user-defined type"):
        stored_schema(
            {"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]}
        )
