"""The whole text of messages about windows with a deadline that need Spark to be found, as a user of the engine sees them.

`PENSTOCK_BLESS=1 pytest tests/golden/test_deadline_messages.py` writes the messages anew: read the difference before
committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from engine_cases import script, write_orders
from penstock.errors import InputError
from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

MESSAGES = Path(__file__).with_name("deadline_messages.txt")
TIMELY = "CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */"
BY_MINUTE = "FROM orders GROUP BY window(seen, '1 minute')"
FARES = "CREATE VIEW fares AS SELECT name, window(seen, '1 minute') AS w, max(price) AS p FROM orders GROUP BY name, w;\n"
STATEMENTS = [
    f"{TIMELY} score(price) AS s {BY_MINUTE}",
    f"{TIMELY} longest(name), LONGEST(name, name) AS other {BY_MINUTE}",
    f"{TIMELY} spread_of(price, amount, id) AS s {BY_MINUTE}",
    f"{TIMELY} score(prise, amount) AS s {BY_MINUTE}",
    f"{TIMELY} score(price, amount + TRUE) AS s {BY_MINUTE}",
    f"{TIMELY} score(price, NULL) AS s {BY_MINUTE}",
    f"{TIMELY} score(price, INTERVAL 2 MONTHS) AS s {BY_MINUTE}",
    f"{TIMELY} score(price, rand()) AS s {BY_MINUTE}",
    f"{TIMELY} score(values => price) AS s {BY_MINUTE}",
    f"{TIMELY} 1 + scroe(1) AS s {BY_MINUTE}",
    f"{TIMELY} score(price, amount).best AS s {BY_MINUTE}",
    f"{TIMELY} longest(name) + DATE'2026-01-01' AS l {BY_MINUTE}",
    f"{TIMELY} longest(name) AS l {BY_MINUTE} HAVING longest(name)",
    f"{TIMELY} longest(name) AS l FROM orders WHERE longest(name) > 'a' GROUP BY window(seen, '1 minute')",
    "CREATE VIEW v AS SELECT name FROM orders WHERE longest(name) > 'a'",
    "CREATE VIEW v AS SELECT longest(name) AS l FROM orders",
    f"CREATE VIEW v AS SELECT /*+ LOSS(1, 4) */ longest(name) AS l {BY_MINUTE}",
    f"{TIMELY} nosuch(price, amount) AS n {BY_MINUTE}",
    f"{TIMELY} longest(name) AS l, longest(name) AS L {BY_MINUTE}",
    f"{TIMELY} longest(name) AS _row {BY_MINUTE}",
    f"{TIMELY} longest(name) AS l FROM orders GROUP BY window(seen + INTERVAL 1 HOUR, '1 minute')",
    f"{TIMELY} max(seen - TIMESTAMP'2026-01-01') AS d {BY_MINUTE}",
    f"{FARES}{TIMELY} count(*) AS n FROM fares GROUP BY window(w, '1 hour')",
    f"{FARES}{TIMELY} longest(name) AS l FROM fares GROUP BY window(w, '1 hour')",
    "CREATE VIEW pairs AS SELECT a.id, a.seen FROM orders a JOIN orders b ON a.id = b.id AND a.seen = b.seen;\n"
    f"{TIMELY} count(*) AS n FROM pairs GROUP BY window(seen, '1 hour')",
    f"{TIMELY} count(*) AS n, window(seen, '1 minute') AS w FROM orders GROUP BY w;\n"
    "CREATE VIEW daily AS SELECT max(n) AS m FROM v GROUP BY window(w, '1 day')",
    f"{TIMELY} count(*) AS n FROM orders GROUP BY window(seen, '1 minute');\n"
    "CREATE VIEW many AS SELECT n FROM v WHERE m > 3",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), MAX_ERROR(2, 0.1, 'absolute') */ longest(name) AS l {BY_MINUTE}",
]


class _Spread:
    """How many tuples there are."""

    def __init__(self) -> None:
        self.tuples = 0

    def add(self, values: pa.Array, weights: pa.Array | None = None) -> None:
        self.tuples += len(values if weights is None else weights)

    def remove(self, values: pa.Array, weights: pa.Array | None = None) -> None:
        self.tuples -= len(values if weights is None else weights)

    def result(self) -> int:
        return self.tuples


def _score(values: pa.Array, weights: pa.Array) -> object:
    return pc.sum(pc.multiply(values, weights))


def _longest(names: pa.Array) -> str | None:
    return max((each for each in names.to_pylist() if each is not None), key=len, default=None)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Engine:
    write_orders(tmp_path / "in", 1, 10)
    engine = Engine(spark)
    engine.aggregate("score", _score, "DOUBLE")
    engine.aggregate("longest", _longest, "STRING")
    engine.aggregate("spread_of", _Spread, "BIGINT")
    return engine.execute(script(tmp_path / "in", {}))


def _message(statement: str, engine: Engine) -> str:
    try:
        engine.execute(statement)
    except InputError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{statement} is accepted")


def test_messages_are_those_recorded(engine: Engine) -> None:
    messages = [f"{statement}\n{_message(statement, engine)}" for statement in STATEMENTS]
    assert engine.declared == {"orders": []}, "nothing of a refused script is declared"
    text = "\n\n".join(messages) + "\n"
    if os.environ.get("PENSTOCK_BLESS"):
        MESSAGES.write_text(text)
    assert text == MESSAGES.read_text()
