"""Compares the demo's rows by DuckDB, which computes the windows of all flights itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

#: columns of the window views beside the window
COLUMNS = {
    "departures_by_origin": ("origin", "departures"),
    "delay_by_origin": ("origin", "mean_delay", "worst"),
    "delay_by_airline": ("carrier", "departures", "mean_delay"),
}
#: the window views as DuckDB reads them, over all flights
EXACT = {
    "departures_by_origin": (
        "SELECT origin, time_bucket(INTERVAL '1 hour', sched_dep) AS start, count(*) AS departures "
        "FROM flights WHERE dep_time IS NOT NULL GROUP BY ALL"
    ),
    "delay_by_origin": (
        "SELECT origin, time_bucket(INTERVAL '1 hour', sched_dep) AS start, avg(dep_delay) AS mean_delay, "
        "max(dep_delay) AS worst FROM flights WHERE dep_time IS NOT NULL GROUP BY ALL"
    ),
    "delay_by_airline": (
        "SELECT carrier, time_bucket(INTERVAL '6 hours', sched_dep) AS start, count(*) AS departures, "
        "avg(dep_delay) AS mean_delay FROM flights WHERE dep_time IS NOT NULL GROUP BY ALL HAVING count(*) >= 5"
    ),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two multisets of rows.

    Attributes:
        rows: of the first one.
        different: rows of either one that the other one lacks.
    """

    rows: int
    different: int

    @property
    def text(self) -> str:
        """Whether they are the same, in words."""
        if not self.rows:
            return "NO: no rows to compare"
        if self.different:
            return f"NO: {self.different:,} rows differ"
        return f"yes, all {self.rows:,}"


def together(parts: Iterable[Compared]) -> Compared:
    """Several comparisons as one."""
    listed = list(parts)
    return Compared(sum(each.rows for each in listed), sum(each.different for each in listed))


def flat(rows: pa.Table, view: str) -> pa.Table:
    """The columns of a window view's rows, with `start`, the begin of the window, in place of the window."""
    starts = pc.struct_field(rows["w"], "start")
    return rows.select(COLUMNS[view]).append_column("start", starts)


def arrived(matched: pa.Table, sample: pa.Table) -> pa.Table:
    """Matches of the flights that arrived no later than the last one of a sample."""
    newest = pc.max(sample["arrival"]).cast(matched.schema.field("arrival").type)
    return matched.filter(pc.less_equal(matched["arrival"], newest))


def compare_matches(ours: pa.Table, plain: pa.Table, columns: Sequence[str]) -> Compared:
    """Compares (flight, rule) pairs, each flight with all its columns.

    Args:
        ours: flights with `queries`, a list of names.
        plain: flights with `rules`, names between commas.
        columns: of a flight.
    """
    listed = ", ".join(f'"{column}"' for column in columns)
    return _compare(
        f"SELECT {listed}, unnest(queries) AS rule FROM ours",
        f"SELECT {listed}, unnest(string_split(rules, ',')) AS rule FROM plain WHERE rules <> ''",
        {"ours": ours, "plain": plain},
    )


def compare_windows(ours: pa.Table, plain: pa.Table) -> Compared:
    """Compares the rows of a window view up to the newest window that plain Spark has answered; both have the same columns."""
    listed = ", ".join(f'"{column}"' for column in plain.column_names)
    return _compare(
        f"SELECT {listed} FROM ours WHERE start <= (SELECT max(start) FROM plain)",
        f"SELECT {listed} FROM plain",
        {"ours": ours, "plain": plain},
    )


def compare_exactly(view: str, ours: pa.Table, flights: pa.Table) -> Compared:
    """Compares the final rows of a window view with DuckDB's own, over all flights."""
    listed = ", ".join(f'"{column}"' for column in ours.column_names)
    return _compare(
        f"SELECT {listed} FROM ours",
        f"SELECT {listed} FROM ({EXACT[view]})",
        {"ours": ours, "flights": flights},
    )


def _compare(ours: str, plain: str, tables: Mapping[str, pa.Table]) -> Compared:
    different = (
        f"SELECT count(*) FROM ((({ours}) EXCEPT ALL ({plain})) UNION ALL (({plain}) EXCEPT ALL ({ours})))"
    )
    return Compared(_count(f"SELECT count(*) FROM ({ours})", tables), _count(different, tables))


def _count(text: str, tables: Mapping[str, pa.Table]) -> int:
    import duckdb

    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, _without_zones(table))
        (count,) = connection.execute(text).fetchall()[0]
    return int(count)


def _without_zones(table: pa.Table) -> pa.Table:
    """Instants as UTC timestamps without a zone: DuckDB needs an extension for zones."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.timestamp("us")))
    return table
