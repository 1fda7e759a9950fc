"""Join views and the tables they are over."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.sql.joins.inputs import Relation

NOON = datetime(2024, 3, 30, 22, tzinfo=UTC)
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
SCHEMAS: Mapping[str, pa.Schema] = {
    "flights": pa.schema(
        {
            "dep": INSTANT,
            "origin": pa.string(),
            "dest": pa.string(),
            "k": pa.int32(),
            "x": pa.float64(),
            "money": pa.decimal128(8, 2),
            "said": pa.string(),
            "place": pa.struct({"city": pa.string(), "gate": pa.int32()}),
        }
    ),
    "weather": pa.schema(
        {
            "seen": INSTANT,
            "origin": pa.string(),
            "k": pa.int64(),
            "x": pa.float32(),
            "cost": pa.decimal128(10, 3),
        }
    ),
    "bookings": pa.schema({"at": INSTANT, "origin": pa.string(), "k": pa.int64(), "x": pa.float64()}),
    "locals": pa.schema({"clock": LOCAL, "k": pa.int32()}),
    "airports": pa.schema(
        {"code": pa.string(), "city": pa.string(), "x": pa.float64(), "k": pa.int32(), "since": INSTANT}
    ),
}
TIMES = {"flights": "dep", "weather": "seen", "bookings": "at", "locals": "clock", "airports": None}
RELATIONS = {
    name.upper(): Relation(name, tuple(schema.names), TIMES[name], TIMES[name] is None)
    for name, schema in SCHEMAS.items()
}
VIEWS = {
    "late": "SELECT dep AS t, origin, k + 1 AS k1, x, upper(dest) AS loud FROM flights WHERE x > 0 OR k = 2",
    "later": "SELECT * FROM late WHERE k1 > 1",
    "timeless": "SELECT origin, k FROM weather",
}
_FLOATS = (None, float("nan"), -0.0, 0.0, 1.0, 2.5, -1.0, float("inf"))
_VALUES: Mapping[pa.DataType, Callable[[random.Random], Any]] = {
    INSTANT: lambda chance: (
        NOON + timedelta(minutes=5 * chance.randrange(0, 48), microseconds=chance.choice((0, 0, 1)))
    ),
    LOCAL: lambda chance: (NOON + timedelta(minutes=5 * chance.randrange(0, 48))).replace(tzinfo=None),
    pa.string(): lambda chance: chance.choice((None, "JFK", "LGA", "EWR", "1", "2")),
    pa.int32(): lambda chance: chance.choice((None, 0, 1, 2, 3)),
    pa.int64(): lambda chance: chance.choice((None, 0, 1, 2, 3)),
    pa.float64(): lambda chance: chance.choice(_FLOATS),
    pa.float32(): lambda chance: chance.choice(_FLOATS),
    pa.decimal128(8, 2): lambda chance: chance.choice(
        (None, Decimal("1.00"), Decimal("2.50"), Decimal("3.00"))
    ),
    pa.decimal128(10, 3): lambda chance: chance.choice(
        (None, Decimal("1.000"), Decimal("2.500"), Decimal("2.505"))
    ),
}


def random_tables(seed: int, rows: int) -> dict[str, pa.Table]:
    """A table for each of `SCHEMAS`; event times within four hours around a change of clocks in Europe."""
    chance = random.Random(seed)
    return {name: _table(schema, rows, chance) for name, schema in SCHEMAS.items()}


def _table(schema: pa.Schema, rows: int, chance: random.Random) -> pa.Table:
    def values(name: str, kind: pa.DataType) -> Sequence[Any]:
        if name == "said":
            return [chance.choice((None, "0", "1", "2")) for _ in range(rows)]
        if pa.types.is_struct(kind):
            return [{"city": chance.choice((None, "JFK")), "gate": chance.randrange(3)} for _ in range(rows)]
        return [_VALUES[kind](chance) for _ in range(rows)]

    return pa.table({field.name: pa.array(values(field.name, field.type), field.type) for field in schema})


_BOUND = "w.seen BETWEEN f.dep - INTERVAL 20 MINUTES AND f.dep"
_THREE = f"flights f JOIN weather w ON f.origin = w.origin AND {_BOUND} JOIN bookings b ON b.at >= w.seen"

QUERIES = [
    f"SELECT f.dest, w.x FROM flights f JOIN weather w ON f.origin = w.origin AND {_BOUND} WHERE w.x > 0.5",
    f"SELECT f.k, w.k AS wk FROM flights f INNER JOIN weather w ON f.k = w.k AND {_BOUND} AND f.x <> w.x",
    f"SELECT f.x, w.x AS wx, f.dep, w.seen FROM flights f JOIN weather w ON f.x = w.x AND {_BOUND}",
    f"SELECT f.money, w.cost FROM flights f JOIN weather w ON f.money = w.cost AND {_BOUND}",
    f"SELECT f.said, w.k FROM flights f JOIN weather w ON f.said = w.k AND {_BOUND}",
    "SELECT * FROM flights f JOIN locals l USING (k) WHERE l.clock >= f.dep AND l.clock < f.dep + INTERVAL 1 HOUR",
    "SELECT f.*, b.at FROM flights f JOIN bookings b USING (origin) WHERE f.dep = b.at AND f.x = b.x",
    f"SELECT f.origin, f.k + w.k AS both, f.k * 2 AS twice, twice + 1, f.place.city, b.x FROM {_THREE} "
    "AND f.k = b.k AND b.at < f.dep + INTERVAL '5' MINUTES WHERE f.origin <> 'EWR' AND (f.x > b.x OR w.k = 1)",
    "SELECT f.dest, b.origin, w.k, a.city FROM flights f JOIN weather w ON f.k = w.k JOIN bookings b ON b.k = w.k "
    "JOIN airports a ON a.code = f.dest WHERE f.dep - w.seen BETWEEN INTERVAL -10 MINUTES AND INTERVAL '00:10' HOUR TO MINUTE "
    "AND abs(f.k) <= a.k AND b.at - INTERVAL 1 MINUTE <= w.seen AND NOT (b.at + INTERVAL 9 MINUTES <= w.seen)",
    "SELECT a.dep AS one, b.dep AS other FROM flights a JOIN flights b ON a.origin = b.origin AND a.dep < b.dep "
    "AND b.dep <= a.dep + INTERVAL 30 MINUTES AND a.k <= b.k",
    "SELECT f.dest, f.k, upper(a.city) AS c, a.x FROM flights f JOIN airports a ON f.dest = a.code AND f.k > 0",
    "SELECT f.dest, a.city FROM flights f JOIN airports a ON f.x < a.x AND f.k BETWEEN a.k AND 3 AND a.since <= f.dep",
    "SELECT f.dest, a.city FROM flights f JOIN airports a ON f.k = a.k AND f.said = a.k AND f.x <=> a.x",
    "SELECT t, loud, w.x FROM late l JOIN weather w ON l.k1 = w.k AND w.seen >= t AND w.seen - INTERVAL 1 HOUR < t",
    "SELECT l.*, a.code || l.loud AS said FROM later l JOIN airports AS a ON l.loud = upper(a.code) AND l.x >= a.x",
    "SELECT f.k, w.seen FROM flights f JOIN weather w ON w.seen >= f.dep + INTERVAL 1 DAY - INTERVAL 1 DAY "
    "AND w.seen <= f.dep - INTERVAL 24 HOURS + INTERVAL 24 HOURS + INTERVAL 3 MINUTES",
    "SELECT f.k, w.seen FROM flights f JOIN weather w ON w.seen + INTERVAL 1 MONTH >= f.dep + INTERVAL 1 MONTH "
    "AND w.seen <= f.dep + INTERVAL 3 MINUTES AND f.place.gate = w.k",
    "SELECT 1 AS one, concat_ws('-', f.origin, w.origin) AS o FROM flights f JOIN weather w ON true WHERE "
    f"({_BOUND}) AND f.place = named_struct('city', w.origin, 'gate', CAST(w.k AS INT)) AND 1 < 2",
    f"SELECT f.k, w.k AS wk, coalesce(w.x, 7) AS x, f.dest FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND {_BOUND}",
    f"SELECT f.k, w.k AS wk FROM flights f LEFT OUTER JOIN weather w ON f.k = w.k AND {_BOUND} AND f.k > 1 AND w.x > 0 "
    "AND (f.dest = w.origin OR f.x > w.x) WHERE f.origin = 'JFK' OR f.k = 2",
    f"SELECT f.k, f.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} WHERE w.k IS NULL AND f.x IS NOT NULL",
    "SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k WHERE w.seen <= f.dep "
    "AND w.seen + INTERVAL 30 MINUTES > f.dep AND length(w.origin) > 1",
    f"SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} WHERE coalesce(w.x, f.x) > 0 AND 2 > 1",
    f"SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} AND f.said = w.k AND f.said = f.k",
    "SELECT f.dest, a.city, k FROM flights f LEFT JOIN airports a USING (k) WHERE coalesce(a.city, 'x') <> 'JFK'",
    "SELECT -- a remark\n f.k, /* of */ w.x -- two\n FROM flights f -- three\n JOIN weather w -- four\n ON f.k = w.k -- five\n"
    f" AND {_BOUND} -- six\n WHERE w.x > 0 -- seven\n OR f.x > w.x -- eight",
]
