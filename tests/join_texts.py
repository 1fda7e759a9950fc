"""Join views and the tables they are over."""

from __future__ import annotations

import random
import re
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
    "near": "SELECT f.*, w.seen, w.x AS wx, f.k + w.k AS both, upper(f.dest) FROM flights f JOIN weather w "
    "ON f.origin = w.origin AND w.seen BETWEEN f.dep - INTERVAL 20 MINUTES AND f.dep",
    "nearer": "SELECT k, n.wx, x, seen FROM near n WHERE k > 0",
    "perhaps": "SELECT f.k, f.origin AS o, w.x AS wx FROM flights f LEFT JOIN weather w ON f.k = w.k AND w.seen BETWEEN "
    "f.dep - INTERVAL 20 MINUTES AND f.dep",
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

#: several LEFT JOINs with static tables, beside another outer join or not
LOOKUPS = (
    "SELECT f.k, f.dest, a.city, b.code, b.x AS bx FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b ON f.k = b.k",
    "SELECT f.k, a.city, b.city AS other, c.k AS ck FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b "
    "ON a.k = b.k AND a.x <= b.x LEFT JOIN airports c ON b.code = c.code AND f.x > 0 AND c.x > 0 AND f.k <> c.k WHERE coalesce(b.x, 1) > 0",
    "SELECT f.k, a.city, b.city AS other FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b ON a.k = b.k "
    "WHERE b.city IS NULL OR a.x > f.x",
    "SELECT f.k, a.city, b.city AS other FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b ON f.k = b.k "
    "WHERE a.x > 0",
    "SELECT f.k, a.city, b.city AS other FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b ON f.k = b.k "
    "WHERE b.x > 0 AND f.k < 3",
    "SELECT f.k, a.city, b.city AS other FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN airports b ON a.k = b.k "
    "WHERE b.x > 0",
    f"SELECT f.k, w.x AS wx, a.city, b.x AS bx FROM flights f JOIN weather w ON f.origin = w.origin AND {_BOUND} LEFT JOIN airports a "
    "ON f.dest = a.code AND w.k = a.k LEFT JOIN airports b ON w.x = b.x AND f.said = b.k AND w.k > 1",
    f"SELECT f.k, w.x AS wx, a.city, b.x AS bx FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT JOIN weather w ON f.k = w.k AND "
    f"{_BOUND} LEFT JOIN airports b ON w.k = b.k AND w.x > 0 AND upper(w.origin) = b.city WHERE w.x IS NULL OR b.x IS NULL OR a.k = 1",
    f"SELECT f.k, w.x AS wx, a.city FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN airports a ON w.k = a.k WHERE w.x > 0",
    "SELECT f.k, b.x AS bx, a.city FROM flights f LEFT JOIN airports a ON f.dest = a.code JOIN bookings b ON f.k = b.k AND b.at BETWEEN "
    "f.dep AND f.dep + INTERVAL 40 MINUTES AND coalesce(a.x, b.x) > 0 LEFT JOIN airports c ON b.k = c.k",
    f"SELECT f.k, w.k AS wk, a.city, b.city AS other FROM flights f FULL JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN airports a "
    "ON f.dest = a.code LEFT JOIN airports b ON w.k = b.k AND f.x > 0",
    f"SELECT f.k, w.k AS wk, a.city FROM flights f FULL JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN airports a ON f.dest = a.code "
    "WHERE f.x > 0 AND a.x > 0",
    f"SELECT f.k, w.x, a.city FROM weather w RIGHT JOIN flights f ON f.k = w.k AND {_BOUND} LEFT JOIN airports a ON w.k = a.k",
    f"SELECT f.k, a.city FROM flights f LEFT JOIN airports a ON f.dest = a.code LEFT ANTI JOIN weather w ON f.k = w.k AND {_BOUND}",
    f"SELECT k, dest, city, code FROM flights f SEMI JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN airports a USING (k) WHERE a.x IS NULL",
    f"SELECT f.k, a.city FROM flights f LEFT JOIN airports a ON f.dest = a.code WHERE EXISTS (SELECT 1 FROM weather w WHERE f.k = w.k AND {_BOUND})",
    "SELECT l.k1, a.city, b.x AS bx FROM later l LEFT JOIN airports a ON l.loud = a.code LEFT JOIN airports b ON l.k1 = b.k + 1",
)
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
    f"({_BOUND}) AND f.place >= named_struct('city', w.origin, 'gate', CAST(w.k AS INT)) AND 1 < 2",
    f"SELECT f.k, w.k AS wk, coalesce(w.x, 7) AS x, f.dest FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND {_BOUND}",
    f"SELECT f.k, w.k AS wk FROM flights f LEFT OUTER JOIN weather w ON f.k = w.k AND {_BOUND} AND f.k > 1 AND w.x > 0 "
    "AND (f.dest = w.origin OR f.x > w.x) WHERE f.origin = 'JFK' OR f.k = 2",
    f"SELECT f.k, f.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} WHERE w.k IS NULL AND f.x IS NOT NULL",
    "SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k WHERE w.seen <= f.dep "
    "AND w.seen + INTERVAL 30 MINUTES > f.dep AND length(w.origin) > 1",
    f"SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} WHERE coalesce(w.x, f.x) > 0 AND 2 > 1",
    f"SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} AND f.said = w.k AND f.said = f.k",
    f"SELECT f.k, f.x, w.x AS wx, a.x AS ax, a.city FROM flights f JOIN weather w ON f.origin = w.origin AND {_BOUND} LEFT JOIN airports a "
    "ON f.x = a.x AND w.x = a.x AND f.dest = a.code AND w.origin = a.code",
    f"SELECT f.k, w.x, a.city FROM flights f JOIN weather w ON f.k = w.k AND {_BOUND} AND f.k + w.k > 1 LEFT JOIN airports a "
    "ON f.dest = a.code AND w.k = a.k AND f.k < 3 AND w.x > 0 AND a.x > 0 WHERE f.x + w.x < 9 OR f.x IS NULL",
    f"SELECT f.k, a.city, coalesce(a.k, 7) AS ak FROM flights f JOIN weather w ON {_BOUND} LEFT JOIN airports a "
    "ON f.k = a.k AND f.said = a.k AND a.k = a.x AND w.x <= a.x AND 1 < 2 WHERE a.city IS NULL OR a.city <> w.origin",
    f"SELECT a.city, b.k AS bk, f.dest FROM airports a JOIN flights f ON f.dest = a.code JOIN weather w ON f.k = w.k AND {_BOUND} "
    "LEFT JOIN airports b ON b.k = f.k AND f.k = b.k WHERE f.k >= 0",
    "SELECT f.dest, a.city, k FROM flights f LEFT JOIN airports a USING (k) WHERE coalesce(a.city, 'x') <> 'JFK'",
    f"SELECT f.k, w.x, b.k AS bk, b.at FROM flights f JOIN weather w ON f.origin = w.origin AND {_BOUND} LEFT JOIN bookings b "
    "ON b.k = f.k AND b.x >= w.x AND w.k > 0 AND b.x > 0 AND b.at BETWEEN w.seen - INTERVAL 1 HOUR AND f.dep WHERE f.k < 3",
    "SELECT a.city, f.k, b.x AS bx, b.origin FROM airports a JOIN flights f ON f.dest = a.code AND f.k + a.k > 1 LEFT JOIN "
    "bookings b ON b.k = a.k AND f.x <> b.x AND b.at BETWEEN f.dep AND f.dep + INTERVAL 40 MINUTES WHERE b.x IS NULL OR b.x > 0",
    f"SELECT f.k, f.x AS fx, w.x, w.seen FROM weather w RIGHT JOIN flights f ON f.k = w.k AND {_BOUND} AND f.x > 0 AND w.x < 5 WHERE f.k < 3",
    f"SELECT f.k, a.city, w.x FROM flights f LEFT JOIN airports a ON f.dest = a.code JOIN weather w ON f.k = w.k AND {_BOUND} "
    "AND coalesce(a.x, w.x) > 0",
    f"SELECT f.k, w.x, a.city FROM airports a RIGHT OUTER JOIN flights f USING (k) JOIN weather w ON f.origin = w.origin AND {_BOUND}",
    f"SELECT f.*, f.x > 1 AS high FROM flights f LEFT SEMI JOIN weather w ON f.k = w.k AND {_BOUND} AND f.dest < w.origin WHERE f.x < 7",
    f"SELECT k, dest FROM flights f ANTI JOIN weather w ON f.said = w.k AND {_BOUND} AND f.x > 0",
    "SELECT k, dest FROM flights f SEMI JOIN airports a USING (k) WHERE f.x > 0",
    "SELECT f.origin, f.k, b.x FROM flights f ANTI JOIN airports a ON f.dest = a.code AND a.x > 2 JOIN bookings b ON f.k = b.k AND b.at "
    "BETWEEN f.dep - INTERVAL 2 HOURS AND f.dep + INTERVAL 2 HOURS AND coalesce(f.x, b.x, 2) > 1",
    f"SELECT f.k, w.k AS wk, coalesce(f.x, w.x, 7) AS x FROM flights f FULL JOIN weather w ON f.k = w.k AND {_BOUND} AND f.x > 0 AND "
    "w.x > 0 AND f.said = w.k AND w.k = w.x",
    f"SELECT f.k, w.k AS wk, w.x FROM flights f FULL OUTER JOIN weather w ON f.k = w.k AND {_BOUND} WHERE w.x IS NULL OR f.x > 0",
    f"SELECT f.k, w.k AS wk FROM flights f FULL OUTER JOIN weather w ON f.k = w.k AND {_BOUND} WHERE f.x > 0",
    "SELECT k, dest FROM flights f WHERE f.x > 0 AND NOT EXISTS (SELECT 1 FROM airports a WHERE a.k = f.k AND a.x > 2)",
    f"SELECT f.k, f.x FROM flights f JOIN airports a ON f.dest = a.code WHERE EXISTS (SELECT w.k FROM weather w WHERE w.k = f.k AND {_BOUND})",
    "SELECT k, dest FROM flights f WHERE f.dest IN (SELECT DISTINCT code FROM airports a WHERE a.x > 1)",
    "SELECT f.k, dest FROM flights f WHERE f.k > 0 AND f.k NOT IN (SELECT a.k FROM airports a WHERE a.k < 3 AND a.x > 1)",
    f"SELECT f.k, f.x FROM flights f JOIN airports a ON f.dest = a.code WHERE f.k + 1 IN (SELECT w.k FROM weather w WHERE {_BOUND})",
    f"SELECT f.k FROM flights f WHERE f.k IS NOT NULL AND NOT f.k IN (SELECT w.k FROM weather w WHERE w.k IS NOT NULL AND {_BOUND})",
    # bounds after ON say nothing of the streams before
    f"SELECT f.dep, w.seen, b.at FROM flights f JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN bookings b ON f.k = b.k "
    "AND b.at BETWEEN f.dep AND f.dep + INTERVAL 5 MINUTES AND b.at BETWEEN w.seen AND w.seen + INTERVAL 5 MINUTES",
    "SELECT n.k, wx, both * 2 AS twice, twice + 1 AS more, n.place.city, `upper(dest)` AS loud FROM near AS n "
    "WHERE n.both > 1 AND (wx > 0.5 OR x >= wx) AND NOT seen < dep - INTERVAL 15 MINUTES",
    "SELECT * FROM near -- all\n WHERE k = both - k -- a key\n",
    "SELECT *, wx + x AS sum, `wx` AS k2 FROM nearer WHERE wx IS NOT NULL AND x <= 2.5",
    "SELECT wx, o FROM perhaps WHERE wx IS NULL AND o = 'JFK'",
    "SELECT k FROM perhaps WHERE wx > 0 AND k > 1",
    *LOOKUPS,
    "SELECT -- a remark\n f.k, /* of */ w.x -- two\n FROM flights f -- three\n JOIN weather w -- four\n ON f.k = w.k -- five\n"
    f" AND {_BOUND} -- six\n WHERE w.x > 0 -- seven\n OR f.x > w.x -- eight",
]
#: those with what the clock of a time zone shifts
SHIFTED = [text for text in QUERIES if re.search(r"1 DAY|1 MONTH|locals|dep - w.seen", text)]

#: columns of the same meaning by kind, for random conditions
_NUMBERS = {
    "flights": ("k", "x", "money", "place.gate"),
    "weather": ("k", "x", "cost"),
    "bookings": ("k", "x"),
    "locals": ("k",),
    "airports": ("k", "x"),
}
_STRINGS = {
    "flights": ("origin", "dest"),
    "weather": ("origin",),
    "bookings": ("origin",),
    "locals": (),
    "airports": ("code", "city"),
}


def random_query(seed: int) -> str:
    """A join of two to four inputs: keys, comparisons and bounds of all kinds, in ON and in WHERE, inner or outer."""
    return _RandomQuery(random.Random(seed)).text()


class _RandomQuery:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables = [chance.choice(("flights", "weather", "bookings"))]
        self.tables += chance.choices(list(SCHEMAS), k=chance.choice((1, 1, 2, 3)))
        self.aliases = [f"t{number}" for number in range(len(self.tables))]

    def text(self) -> str:
        is_outer = self.chance.random() < 0.5
        joins, where = [f"{self.tables[0]} {self.aliases[0]}"], []
        for number in range(1, len(self.tables)):
            other = self.chance.randrange(number)
            conditions = [self._joining(number, other)]
            conditions += self._bounds(number)
            conditions += self._further(number, other)
            self.chance.shuffle(conditions)
            is_optional = is_outer and number == len(self.tables) - 1
            if not is_optional and len(conditions) > 1 and self.chance.random() < 0.5:
                where.append(conditions.pop())
            word = "LEFT JOIN" if is_optional else "JOIN"
            joins.append(
                f"{word} {self.tables[number]} AS {self.aliases[number]} ON {' AND '.join(conditions)}"
            )
        if self.chance.random() < 0.5:
            where += self._further(len(self.tables) - 1, 0)
        text = f"SELECT {self._outputs()} FROM {' '.join(joins)}"
        return f"{text} WHERE {' AND '.join(where)}" if where else text

    def _column(self, number: int, kinds: Mapping[str, Sequence[str]]) -> str:
        return f"{self.aliases[number]}.{self.chance.choice(kinds[self.tables[number]])}"

    def _joining(self, number: int, other: int) -> str:
        is_text = all(_STRINGS[self.tables[each]] for each in (number, other)) and self.chance.random() < 0.5
        kinds = _STRINGS if is_text else _NUMBERS
        left, right = self._column(number, kinds), self._column(other, kinds)
        operator = self.chance.choice(("=", "=", "=", "<=", "<>", "<=>"))
        return f"{left} {operator} {right}"

    def _bounds(self, number: int) -> list[str]:
        """Conditions that bind a stream's event time to an earlier stream's, in one of several spellings."""
        streams = [each for each in range(number) if TIMES[self.tables[each]] is not None]
        time = TIMES[self.tables[number]]
        if time is None:
            return []
        other = self.chance.choice(streams)
        own, theirs = f"{self.aliases[number]}.{time}", f"{self.aliases[other]}.{TIMES[self.tables[other]]}"
        minutes = self.chance.choice((0, 5, 15, 40))
        return self.chance.choice(
            (
                [f"{own} BETWEEN {theirs} - INTERVAL {minutes} MINUTES AND {theirs} + INTERVAL '30' MINUTE"],
                [f"{own} >= {theirs}", f"{own} < {theirs} + INTERVAL 1 HOUR"],
                [
                    f"NOT {own} + INTERVAL {minutes} MINUTES < {theirs}",
                    f"{own} - INTERVAL 10 MINUTES <= {theirs}",
                ],
                [
                    f"{own} - {theirs} <= INTERVAL {minutes} MINUTES",
                    f"{theirs} < {own} + INTERVAL '0:45' HOUR TO MINUTE",
                ],
                [f"{own} = {theirs}"],
            )
        )

    def _further(self, number: int, other: int) -> list[str]:
        one, two = self._column(number, _NUMBERS), self._column(other, _NUMBERS)
        conditions = (
            f"{one} > 0",
            f"{two} <= 2",
            f"({one} > 1 OR {two} < 2)",
            f"{one} * 2 >= {two}",
            f"{one} + {two} > 1",
            f"coalesce({one}, 1) = coalesce({two}, {one}, 1)",
            f"{one} IS NULL",
            f"{one} IS NOT NULL",
            f"{two} IN (0, 1, {one})",
            f"{one} BETWEEN 0 AND {two}",
            "1 < 2",
        )
        return self.chance.sample(conditions, self.chance.choice((0, 0, 1, 2)))

    def _outputs(self) -> str:
        found = []
        for number in range(len(self.tables)):
            found.append(f"{self._column(number, _NUMBERS)} AS a{number}")
            if self.chance.random() < 0.5:
                other = self._column(self.chance.randrange(len(self.tables)), _NUMBERS)
                found.append(f"coalesce({self._column(number, _NUMBERS)}, {other}, -1) AS b{number}")
        time = TIMES[self.tables[0]]
        return ", ".join([*found, f"{self.aliases[0]}.{time}", "a0 IS NULL AS c"])
