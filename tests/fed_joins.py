"""Random streams that come to folders in pieces, views over them, and what Spark says that each of these owes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from engine_cases import put_file
from joined_inputs import multiset
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.lanes.joins.views import demands_on
from penstock.spark.log.stream_log import LogReader
from penstock.spark.run import Run
from penstock.spark.storage.bindings import PlanLog
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView, StreamBeginning
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import files_of_batch
from penstock.spark.storage.spark_files import numbered
from penstock_lab.generators.joins import EVENT_TIME, JoinGenerator

ROWS, STATIC_ROWS, PARTS = 80, 12, 2
STATIC_FILE = "all.parquet"


class Feed:
    """The folders of a generator's relations; tuples of streams come disordered, in two parts, in files of all sizes.

    Attributes:
        folder: where.
        relations: by name.
        files, tuples: how many have come, by stream.

    Args:
        folder: where.
        generator: of the relations.
    """

    def __init__(self, folder: Path, generator: JoinGenerator) -> None:
        self.folder = folder
        self._random = generator.random
        self.relations = {each.name: each for each in generator.relations}
        #: of each stream the files that are still to come, by part
        self._coming: dict[str, list[list[pa.Table]]] = {}
        self.files: Counter[str] = Counter()
        self.tuples: Counter[str] = Counter()
        for name, relation in self.relations.items():
            (folder / name).mkdir(parents=True)
            tuples = generator.table(relation, STATIC_ROWS if relation.is_static else ROWS)
            if relation.is_static:
                pq.write_table(tuples, folder / name / STATIC_FILE)
            else:
                self._coming[name] = self._parts(tuples)

    def script(self) -> str:
        """Declares all of them."""
        return "\n".join(map(self._declared, self.relations))

    def more(self) -> None:
        """The files of the next part."""
        for name, parts in self._coming.items():
            for tuples in parts.pop(0):
                path = self.folder / name / file_name(self.files[name])
                put_file(path, partial(pq.write_table, tuples))
                self.files[name] += 1
                self.tuples[name] += tuples.num_rows

    def _declared(self, name: str) -> str:
        relation = self.relations[name]
        kind = (
            "static 'true'"
            if relation.is_static
            else f"event_time '{EVENT_TIME}', max_files_per_trigger '{self._random.randint(1, 3)}'"
        )
        return f"CREATE TABLE {name} USING parquet OPTIONS (path '{self.folder / name}', {kind});"

    def _parts(self, tuples: pa.Table) -> list[list[pa.Table]]:
        """Files by part: tuples in the order of their event times and delays, which differ between streams."""
        delay = self._random.choice((0, 5, 100)) * 1_000_000
        moments = [
            0 if each is None else each for each in tuples.column(EVENT_TIME).cast(pa.int64()).to_pylist()
        ]
        arrivals = np.array([moment + self._random.random() * delay for moment in moments])
        tuples = tuples.take(pa.array(np.argsort(arrivals, kind="stable")))
        files = self._random.randint(PARTS, 9)
        ends = [0, *sorted(self._random.randint(0, ROWS) for _ in range(files - 1)), ROWS]
        every = [tuples.slice(begin, end - begin) for begin, end in pairwise(ends)]
        first = self._random.randint(1, files - 1)
        return [every[:first], every[first:]]


class Oracle:
    """What Spark says of the tuples that a view owes: those of the batches behind its beginning.

    Args:
        spark: the session.
        feed: what came.
        layout: of the run.
    """

    def __init__(self, spark: SparkSession, feed: Feed, layout: Layout) -> None:
        self._spark = spark.newSession()
        # of a few rows each: what is compiled or planned anew takes longer than it saves
        self._spark.conf.set("spark.sql.codegen.wholeStage", "false")
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        self._feed = feed
        self._layout = layout

    def files(self, registered: RegisteredView[JoinDefinition], begun: StreamBeginning) -> list[str]:
        """The names of the files of the batches in which a view has a stream."""
        checkpoint = self._layout.spark(begun.stream)
        log = LogReader(self._layout.log(begun.stream))
        first = 0 if begun.entry < 0 else log.entry(begun.entry).batch + 1
        plans = PlanLog(self._layout, begun.stream)
        newest = plans.newest()
        assert newest is not None
        register = plans.load_demands(newest)
        asked = demands_on(registered, begun.stream)
        begins = [
            each.begins for each in register.demands if each.demand in asked and each.begins is not None
        ]
        if len(begins) < len(asked):
            return []
        first = max(first, *begins)
        return [
            path.rpartition("/")[2]
            for batch in numbered(checkpoint / "offsets", "")
            if batch >= first
            for path in files_of_batch(checkpoint, batch) or ()
        ]

    def rows(self, registered: RegisteredView[JoinDefinition]) -> Counter[str]:
        """The rows of a view over what has come until now."""
        files = {begun.stream: self.files(registered, begun) for begun in registered.beginnings}
        for name, relation in self._feed.relations.items():
            own = [STATIC_FILE] if relation.is_static else files.get(name, [])
            tables = [pq.read_table(self._feed.folder / name / each) for each in own]
            # Spark reads such a table up to its first chunk without rows
            tuples = pa.concat_tables([relation.schema.empty_table(), *tables]).combine_chunks()
            rows = self._spark.createDataFrame(tuples, spark_schema(relation.schema))
            # a tuple without an event time is in no join of several streams; a left one has no partner
            plan = registered.definition.plan
            is_whole = relation.is_static or (plan.withdraws and len(plan.inputs) == 2)
            is_whole |= any(each.is_untimed for each in plan.inputs)
            timed = rows if is_whole else rows.where(f"{EVENT_TIME} IS NOT NULL")
            timed.createOrReplaceTempView(name)
        return multiset(self._spark.sql(registered.definition.sql))

    def assert_owed(self, registered: RegisteredView[JoinDefinition], since: Mapping[str, int]) -> None:
        """Makes sure that a view owes all that has come since it was declared.

        Args:
            registered: the view.
            since: how many files had come then, by stream.
        """
        for begun in registered.beginnings:
            later = range(since[begun.stream], self._feed.files[begun.stream])
            assert set(map(file_name, later)) <= set(self.files(registered, begun))


def file_name(number: int) -> str:
    """The name of a stream's file."""
    return f"{number:03d}.parquet"


def is_answered(run: Run, feed: Feed) -> bool:
    """Whether all that came to a running engine is in cuts."""
    return all(
        told["tuples"] == feed.tuples[name]
        and not any(lane["backlog"][name] for lane in told["lanes"].values())
        for name, told in run.status().to_dict()["streams"].items()
    )


def difference(registered: RegisteredView[JoinDefinition], found: Counter[str], wanted: Counter[str]) -> str:
    """What is wrong with the rows of a view; nothing: they are those that are wanted."""
    missing, unwanted = wanted - found, found - wanted
    if not missing and not unwanted:
        return ""
    return (
        f"{registered.definition.name}: {registered.definition.sql}\n"
        f"{missing.total()} missing of {wanted.total()}: {sorted(missing)[:3]}\n"
        f"{unwanted.total()} unwanted: {sorted(unwanted)[:3]}\n"
    )
