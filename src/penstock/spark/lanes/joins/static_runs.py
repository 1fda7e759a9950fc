"""Versions of static tables as a lane joins with them: sorted runs beside its checkpoint, made when files have changed."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.errors import StreamFailedError
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.gate import tried
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.lanes.joins.grid import (
    KeptRuns,
    grid_of,
    kept_runs,
    key_columns,
    lookup_runs,
    router_of_input,
)
from penstock.spark.lanes.joins.static_aside import HAS_VALUE, keep_aside
from penstock.spark.log.runs import write_run_file
from penstock.spark.recovery.messages import first_line, quoted
from penstock.spark.sources.offenders import fault_of_files
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import STATIC
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath, name_below
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON

_log = logging.getLogger(__name__)
#: the event time that runs have a column of; that of a static tuple says nothing
NO_TIME = "penstock.no_time"
#: a table whose files change while it is read is read anew so often
_ATTEMPTS = 5
#: what is stored of a version: whether there was one before it
_CHANGED = "changed"


class StaticRuns:
    """The static tables of a join; the lane's thread owns it.

    Args:
        spark: the session.
        plan: the join.
        shares: of its grid.
        tables: the static tables, by name.
        layout: of the results folder; the runs lie in a folder an input, in it one a version.
        events: the event log.
        lane: the lane's name, for events.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        shares: tuple[int, ...],
        tables: Mapping[str, StaticTable],
        layout: Layout,
        events: EventLog,
        lane: str,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._shares = shares
        self._tables = {
            number: tables[each.relation] for number, each in enumerate(plan.relations) if each.is_static
        }
        self._layout = layout
        self._folder = layout.static_tables(lane)
        self._versions = layout.static_versions(lane)
        self._events = events
        self._lane = lane
        #: what could not be read, by input, while it is told already
        self._told: dict[int, str] = {}
        #: by input whether a version was there before the one that is stored
        self._changed: dict[int, bool] = {}

    def versions(self) -> dict[str, str]:
        """The version of each static input that the next cut is joined with, by its number; nothing of others is left.

        To be called when all cuts before are done with.

        Raises:
            FileNotFoundError: a table has no files, and was not read before.
            OSError, PySparkException, Py4JJavaError, pa.ArrowException: likewise of one that cannot be read.
            StreamFailedError: likewise of one whose files change all the time.
        """
        return {str(number): self._current(number) for number in self._tables}

    def path(self, runs: KeptRuns, version: str) -> StorePath:
        """Where a run of a version lies."""
        return self._folder / str(runs.input) / version / f"{'none' if runs.key is None else runs.key}.arrow"

    def _current(self, number: int) -> str:
        table, known = self._tables[number], self._known(number)
        try:
            for _ in range(_ATTEMPTS):
                version = table.version()
                if version is None:
                    if known is None:
                        gone = f"static table {table.name}: {os.strerror(errno.ENOENT)}"
                        raise FileNotFoundError(errno.ENOENT, gone, table.path)
                    return self._last(number, known, "its files do not exist any more")
                if version != known:
                    rows, aside = self._read(number)
                    if table.version() != version:
                        continue
                    malformed = keep_aside(
                        self._layout, table.name, version, aside, arrow_schema(table.schema), table.form
                    )
                    self._write(number, version, rows)
                    self._events.record(
                        "static_table_read",
                        lane=self._lane,
                        table=table.name,
                        rows=rows.num_rows,
                        malformed=malformed,
                        version=version,
                    )
                if self._told.pop(number, None) is not None:
                    self._events.record("static_table_back", lane=self._lane, table=table.name)
                return version
        except (OSError, PySparkException, Py4JJavaError, pa.ArrowException) as error:
            if known is None or (isinstance(error, Py4JJavaError) and fault_of_files(error) is None):
                raise
            return self._last(number, known, first_line(error))
        if known is None:
            raise StreamFailedError(
                f"Static table {table.name} in {table.path} changes during every read. Pause its writer."
            )
        return self._last(number, known, "its files change during every read")

    def _last(self, number: int, known: str, reason: str) -> str:
        """The version that stays in use, told once."""
        table = self._tables[number]
        if number not in self._told:
            self._told[number] = reason
            _log.warning(
                "cannot read static table %s; its last version remains in use: %s", table.name, reason
            )
            self._events.record("static_table_lost", lane=self._lane, table=table.name, reason=reason)
        return known

    @property
    def lost(self) -> dict[str, str]:
        """Why static tables are joined with in a version of before, by name."""
        return {self._tables[number].name: reason for number, reason in dict(self._told).items()}

    @property
    def has_changed(self) -> bool:
        """Whether a table has had another version before, with which rows may have been published."""
        return any(map(self._is_another, self._tables))

    def _is_another(self, number: int) -> bool:
        if number not in self._changed:
            document = STATIC.read(self._versions[number])
            self._changed[number] = document is not None and bool(document.get(_CHANGED, False))
        return self._changed[number]

    def _known(self, number: int) -> str | None:
        """The version that is stored."""
        document = STATIC.read(self._versions[number])
        return None if document is None else str(document["version"])

    def _read(self, number: int) -> tuple[pa.Table, pa.Table]:
        """The rows that take part, and what `keep_aside` takes of the records that do not fit."""
        asked = self._plan.relations[number]
        frame = self._tables[number].read(self._spark)
        if asked.condition is not None:
            frame = frame.where(F.col(REASON).isNotNull() | tried(self._spark, asked.condition))
        columns = [tried(self._spark, column.text).alias(column.name) for column in asked.columns]
        of_aside = [CORRUPT, REASON, ORIGIN]
        found = []
        for place, name in enumerate(self._tables[number].schema.fieldNames()):
            of_aside.append(HAS_VALUE.format(place))
            has_value = F.col(quoted(name)).isNotNull()
            found.append(F.when(F.col(REASON).isNotNull(), has_value).alias(of_aside[-1]))
        read = frame.select(*columns, CORRUPT, REASON, ORIGIN, *found).toArrow()
        is_aside = pc.is_valid(read.column(REASON))
        rows = read.filter(pc.invert(is_aside)).drop_columns(of_aside)
        return rows.cast(pa.schema([(column.name, column.type) for column in asked.columns])), read.filter(
            is_aside
        )

    def _write(self, number: int, version: str, rows: pa.Table) -> None:
        """Store a version in the place of the one before, which no cut needs any more."""
        store = self._layout.log_store
        moment = pa.array(np.zeros(rows.num_rows, np.int64)).cast(pa.timestamp("us", "UTC"))
        contents: dict[str, Path] = {}
        for runs in (*kept_runs(self._plan), *lookup_runs(self._plan)):
            if runs.input == number:
                name = name_below(self._layout.checkpoint, self.path(runs, version))
                contents[name] = store.staging(name)
                write_run_file(contents[name], rows.append_column(NO_TIME, moment), self._laid_out(runs))
        store.put_all(contents)
        self._changed[number] = self._known(number) is not None
        document = {"version": version, "files": list(contents), _CHANGED: self._changed[number]}
        STATIC.replace(self._versions[number], document)
        below = name_below(self._layout.checkpoint, self._folder / str(number))
        store.delete([each.name for each in store.list(below) if each.name not in contents])

    def _laid_out(self, runs: KeptRuns) -> RunPlan:
        """How the tuples of a table lie: those of a lookup in one part, as any row may be looked up in any task."""
        inputs = len(self._plan.inputs)
        if runs.input >= inputs:
            own = [key.columns[1] for key in self._plan.lookups[runs.input - inputs].keys[:1]]
            return RunPlan(tuple(name for name in own if name is not None), NO_TIME, HashRouter((), 1))
        router = router_of_input(self._plan, grid_of(self._plan, self._shares), runs.input)
        return RunPlan(key_columns(self._plan, runs), NO_TIME, router)


def forget_static_tables(layout: Layout, lane: str) -> None:
    """Delete the static tables of a lane that is gone, and versions that it kept, those of attempts among them."""
    store, versions = layout.log_store, layout.static_versions(lane)
    below = name_below(layout.checkpoint, layout.static_tables(lane))
    store.delete([each.name for each in store.list(below)])
    versions.remove(versions.numbers())
