"""What the soak answered beside what DuckDB says of the same tuples."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import duckdb

from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import published_paths, read_published
from penstock.spark.storage.layout import Layout
from soak_stream import PASSING, ROWS, SELECTIONS, STREAM, VERY_LATE, columns

#: by window view its group beside the window, and from what tuples, each in which windows, its rows are
_VIEWS = {
    "by_minute": ("device", "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS start, * FROM given"),
    "sliding": (
        "NULL",
        "SELECT unnest(generate_series(time_bucket(INTERVAL 2 MINUTE, ts) - INTERVAL 8 MINUTE, "
        "time_bucket(INTERVAL 2 MINUTE, ts), INTERVAL 2 MINUTE)) AS start, * FROM given",
    ),
    "passing_window": (
        "NULL",
        "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS start, * FROM given WHERE device = 1",
    ),
}
_VALUES = {"by_minute": "sum(amount)", "sliding": "max(amount)", "passing_window": "sum(amount)"}
#: a view that begins in mid-stream lacks tuples of windows that had begun by then: all that begin so long after its
#: first one are whole
_WHOLE_AFTER = "INTERVAL 10 MINUTE"


class Answers:
    """The published answers and the tuples they are of.

    Matches are those of all published batches, windows those of the entries of the log that the windows had been given. A tuple
    that was set aside as later than the history reaches is in no window. One that is as late and was not set aside was
    either taken in or, where the history was gone by then, counted in `beyond_history`: both are right.

    Args:
        output: the results folder; no run is at work.
        step: event time between two tuples, microseconds.
    """

    def __init__(self, output: Path, step: int) -> None:
        self._layout = Layout.of(output, None)
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        texts = columns(step)
        texts["ts"] = texts["ts"].replace("timestamp_micros(", "make_timestamptz(")
        selected = ", ".join(f"{text} AS {name}" for name, text in texts.items())
        tuples = (read_published(self._layout, STREAM).last + 1) * ROWS
        self._db.execute(
            f"CREATE TABLE {STREAM} AS SELECT {selected}, {VERY_LATE} AS is_very_late FROM range({tuples}) t(value)"
        )
        entry = read_published(self._layout, results_of(STREAM)).batches[-1]["until"][STREAM]["entry"]
        self.given = (LogReader(self._layout.log(STREAM)).entry(entry).batch + 1) * ROWS
        self._set_aside()
        self._db.execute(
            f"CREATE VIEW given AS SELECT * FROM {STREAM} ANTI JOIN aside USING (id) WHERE id < {self.given}"
        )
        #: by window view how many final rows were compared
        self.finals: dict[str, int] = {}
        self.matches = 0

    def wrong(self) -> list[str]:
        """How they differ from DuckDB's; nothing where they are the same."""
        told = []
        strangers = self._one("SELECT count(*) FROM aside WHERE NOT id * 7919 % 10007 = 0")
        if strangers:
            told.append(f"{strangers} tuples that are not very late are in the quarantine")
        told += self._wrong_matches()
        for view in _VIEWS:
            told += self._wrong_windows(view)
        return told

    @property
    def aside(self) -> int:
        """Tuples that were too late for the history."""
        return self._one("SELECT count(*) FROM aside")

    @property
    def strays(self) -> int:
        """Tuples as late that were not set aside."""
        return self._one("SELECT count(*) FROM given WHERE is_very_late")

    def _set_aside(self) -> None:
        files = [str(path) for path in published_paths(self._layout, STREAM, "quarantine")]
        rows = duckdb.execute("SELECT record FROM read_parquet(?)", [files]).fetchall() if files else []
        ids = sorted({int(json.loads(record)["id"]) for (record,) in rows})
        self._db.execute("CREATE TABLE aside AS SELECT unnest(?::BIGINT[]) AS id", [ids])

    def _wrong_matches(self) -> list[str]:
        files = _read(published_paths(self._layout, STREAM))
        self._db.execute(f"CREATE TABLE matches AS SELECT id, unnest(queries) AS query FROM {files}")
        self.matches = self._one("SELECT count(*) FROM matches")
        told = []
        twice = self._one("SELECT count(*) - count(DISTINCT (id, query)) FROM matches")
        if twice:
            told.append(f"{twice} matches are there twice")
        for name, text in SELECTIONS.items():
            condition = text.partition(" WHERE ")[2]
            differ = self._one(
                f"SELECT count(*) FROM (SELECT id FROM {STREAM} WHERE {condition}) AS d "
                f"FULL JOIN (SELECT id FROM matches WHERE query = '{name}') AS o USING (id) "
                "WHERE d.id IS NULL OR o.id IS NULL"
            )
            if differ:
                told.append(f"{name}: {differ} matches differ from DuckDB's")
        condition = PASSING["passing_band"].partition(" WHERE ")[2]
        # the plan of a batch has the view or has it not
        differ = self._one(
            f"SELECT count(*) FROM (SELECT id // {ROWS} AS batch, count(*) AS n FROM matches "
            f"WHERE query = 'passing_band' GROUP BY batch) AS o LEFT JOIN (SELECT id // {ROWS} AS batch, count(*) AS n "
            f"FROM {STREAM} WHERE {condition} GROUP BY batch) AS d USING (batch) WHERE o.n IS DISTINCT FROM d.n"
        )
        if differ:
            told.append(f"passing_band: {differ} batches have some of its matches and not the others")
        return told

    def _wrong_windows(self, view: str) -> list[str]:
        """How the newest revisions that are final differ, and which windows are missing between them."""
        group, tuples = _VIEWS[view]
        value = _VALUES[view]
        self._db.execute(
            f"CREATE TABLE d AS SELECT start, {group} AS key, count(*) AS n, {value} AS v, "
            f"count(*) FILTER (NOT is_very_late) AS sure_n, {value} FILTER (NOT is_very_late) AS sure_v "
            f"FROM ({tuples}) GROUP BY start, key"
        )
        self._db.execute(f"CREATE TABLE o ({_COLUMNS})")
        # the first ones of a view that begins in mid-stream lack tuples of before
        whole = f"WHERE start >= least + {_WHOLE_AFTER}" if view in PASSING else ""
        for files in self._files(view):
            self._db.execute(
                f"INSERT INTO o SELECT start, key, n, v, is_final FROM (SELECT w.start AS start, {group} AS key, "
                f"n, v, is_final, revision, min(w.start) OVER () AS least FROM {_read(files)}) {whole} "
                "QUALIFY row_number() OVER (PARTITION BY start, key ORDER BY revision DESC) = 1"
            )
        self.finals[view] = self._one("SELECT count(*) FROM o WHERE is_final")
        differ = self._one(
            "SELECT count(*) FROM o LEFT JOIN d ON o.start = d.start AND o.key IS NOT DISTINCT FROM d.key "
            "WHERE o.is_final AND NOT coalesce((o.n = d.n AND o.v = d.v) OR (o.n = d.sure_n AND o.v = d.sure_v) "
            "OR (o.n > d.sure_n AND o.n < d.n AND o.v BETWEEN d.sure_v AND d.v), FALSE)"
        )
        missing = 0
        if view not in PASSING:
            missing = self._one(
                "SELECT count(*) FROM d WHERE sure_n > 0 AND start < (SELECT max(start) FROM o WHERE is_final) "
                "AND NOT EXISTS (FROM o WHERE o.is_final AND o.start = d.start AND o.key IS NOT DISTINCT FROM d.key)"
            )
        self._db.execute("DROP TABLE d; DROP TABLE o")
        if self.finals[view] and not differ and not missing:
            return []
        return [
            f"{view}: of {self.finals[view]:,} final rows {differ} differ from DuckDB's, {missing} are missing"
        ]

    def _files(self, view: str) -> Iterable[list[Path]]:
        """Of each operator that answered the view, the files of its results."""
        published = read_published(self._layout, results_of(STREAM))
        kinds = {file.kind for file in published.files if file.kind.partition("/")[2] == view}
        for kind in kinds:
            yield published.paths(self._layout, results_of(STREAM), kind)

    def _one(self, query: str) -> int:
        (found,) = self._db.execute(query).fetchall()[0]
        return int(found)


_COLUMNS = "start TIMESTAMPTZ, key INT, n BIGINT, v BIGINT, is_final BOOLEAN"


def _read(files: Iterable[Path]) -> str:
    return f"read_parquet({[str(path) for path in files]!r})"
