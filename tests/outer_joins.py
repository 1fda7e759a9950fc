"""Random joins with an optional input, over the streams and static tables of `joined_inputs`."""

from __future__ import annotations

import re

import numpy as np

OUTPUTS = "l.k, l.n, l.x, l.ts, r.k AS rk, r.n AS rn, r.x AS rx"
#: pairs of columns that Spark compares, of one type and of several
EQUALITIES = (
    *("{0}.k = {1}.k", "{0}.name = {1}.name", "{0}.x = {1}.x", "{0}.n = {1}.k", "{0}.day = {1}.day"),
    "6 / {0}.n = {1}.k",
)
COMPARISONS = ("{0}.x < {1}.x", "{0}.n <> {1}.n", "{0}.name <= {1}.name", "{0}.k > {1}.n")
#: on the input between the first and the last one
FURTHER = ("m.n = r.n", "m.x >= r.x", "m.n > 1")
#: by name what is joined with `flights`, and what is optional behind them
SHAPES = {
    "a stream": ("", "weather"),
    "a stream behind another": ("delays", "weather"),
    "a stream behind a table": ("airports", "weather"),
    "a table": ("", "airports"),
    "a table behind a stream": ("delays", "airports"),
}
#: by other words what may be joined so
WORDS = {
    "RIGHT JOIN": ["a stream", "a table"],
    "FULL JOIN": ["a stream"],
    "SEMI JOIN": list(SHAPES),
    "ANTI JOIN": list(SHAPES),
}
#: on one input
RESTRICTIONS = (
    "{0}.n > 1",
    "{0}.name IS NOT NULL",
    "{0}.x <= 2.0 OR {0}.k = 3",
    "length({0}.name) > 3",
    "6 / {0}.n < 3",
)
#: what raises here, as Spark is asked: it ends no query, and no pair matches
RAISING, TRIED = re.compile(r"6 / (\w\.n)"), r"try_divide(6, \1)"
#: on the right input, of rows that may lack it
FILTERS = ("r.k IS NULL", "coalesce(r.n, 7) > 2", "r.x IS NULL OR r.x > l.x", "r.name <=> l.name")


#: on tables that rows are looked up in
LOOKED_UP = ("{0}.k IS NULL", "coalesce({0}.n, 7) > 2", "{0}.x IS NULL OR {0}.x > l.x")
#: likewise, which no row without a partner satisfies
FOUND = ("{0}.x > 1", "{0}.name IS NOT NULL")


def random_outer_join(rng: np.random.Generator, shape: str, word: str = "LEFT JOIN") -> str:
    """A join of one of `SHAPES`, of which "a stream" and "a table" may be RIGHT, and "a stream" FULL; LEFT JOINs with up to two tables more."""
    table, is_existence = SHAPES[shape][1], word in ("SEMI JOIN", "ANTI JOIN")
    conditions = rng.choice(EQUALITIES, int(rng.integers(0, 3)), replace=False).tolist()
    if table == "weather":
        low, high = sorted(rng.integers(-9, 10, 2).tolist())
        conditions.append(
            f"{{1}}.ts BETWEEN {{0}}.ts + INTERVAL '{low}' SECOND AND {{0}}.ts + INTERVAL '{high}' SECOND"
        )
    elif not conditions:
        conditions.append(EQUALITIES[0])
    if rng.random() < 0.3:
        conditions.append(str(rng.choice(COMPARISONS)))
    for alias in "lr":
        if rng.random() < 0.3:
            conditions.append(f"({rng.choice(RESTRICTIONS).format(alias)})")
    on = " AND ".join(conditions).format("l", "r")
    where = [rng.choice(RESTRICTIONS).format("l")] if rng.random() < 0.3 else []
    where += [rng.choice(FILTERS)] if rng.random() < 0.3 and not is_existence else []
    outputs = OUTPUTS + (", coalesce(r.name, 'none') AS rname" if rng.random() < 0.3 else "")
    outputs = "l.*" if is_existence else outputs
    names = "l" if is_existence else "lr"
    before = "flights l"
    if other := SHAPES[shape][0]:
        equal = rng.choice(EQUALITIES).format("l", "m")
        bound = " AND m.ts BETWEEN l.ts AND l.ts + INTERVAL 3 SECONDS" if other == "delays" else ""
        before += f" JOIN {other} m ON {equal}{bound}"
        outputs += ", m.n AS mn"
        names += "m"
        on += f" AND {rng.choice(FURTHER)}" if rng.random() < 0.7 else ""
        where += ["m.n + l.n > 2"] if rng.random() < 0.3 else []
    lookups = ""
    for alias in "tu"[: int(rng.choice((0, 1, 2)))]:
        lookups += (
            f" LEFT JOIN {rng.choice(('airports', 'carriers'))} {alias} ON {_looked_up(rng, names, alias)}"
        )
        outputs += f", {alias}.n AS {alias}n, {alias}.name AS {alias}name"
        if rng.random() < 0.3:
            where.append(str(rng.choice(LOOKED_UP)).format(alias))
        elif rng.random() < 0.2 and shape != "a stream":
            where.append(str(rng.choice(FOUND)).format(alias))
        names += alias
    text = f"SELECT {outputs} FROM {before} {word} {table} r ON {on}{lookups}"
    if word == "RIGHT JOIN":
        text = f"SELECT {outputs} FROM {table} r {word} {before} ON {on}{lookups}"
    return text + (f" WHERE {' AND '.join(f'({each})' for each in where)}" if where else "")


def _looked_up(rng: np.random.Generator, names: str, alias: str) -> str:
    """By what a table is joined with one or two of the inputs before it."""

    def other() -> str:
        return str(rng.choice(list(names)))

    conditions = [
        str(rng.choice(EQUALITIES)).format(other(), alias) for _ in range(int(rng.choice((1, 1, 2))))
    ]
    if rng.random() < 0.3:
        conditions.append(str(rng.choice(COMPARISONS)).format(other(), alias))
    conditions += [
        f"({str(rng.choice(RESTRICTIONS)).format(each)})" for each in (alias, other()) if rng.random() < 0.3
    ]
    return " AND ".join(conditions)
