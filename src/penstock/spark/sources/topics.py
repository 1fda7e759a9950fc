"""Topics that are deleted and created again under their names: noticed by their ids, read from their beginning.

Spark's offsets name a topic by its name alone: of a new topic it would pass over as many records as it has read of
the old one. Where a topic has another id than before, the offsets in Spark's checkpoint are put back to where the
new topic begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import StreamFailedError
from penstock.plan.expressions import Derived
from penstock.spark.recovery.causes import DATA_LOST, SOURCE_UNREACHABLE, Cause, cause_of
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.kafka_admin import KafkaAdmin, Offsets, subscribed
from penstock.spark.sources.source import BoundBatch, Progress, TimedSource, untold
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import TOPICS
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.spark.storage.spark_files import numbered, remove_file, replace_file
from penstock.spark.tasks.worker import TaskReport


class TopicRecreatedError(StreamFailedError):
    """A topic was deleted and created again while its stream ran; the next start goes on from its beginning."""


class TopicsSource:
    """A source over Kafka that knows its topics by their ids.

    Args:
        source: reads the topics.
        options: of the table: servers, subscription, and whatever the client needs.
    """

    is_finite: ClassVar[bool] = False

    def __init__(self, source: TimedSource, options: Mapping[str, str]) -> None:
        self._source = source
        self._options = options
        self._ids: dict[str, str] = {}
        self._recreated: list[str] = []
        self._admin: KafkaAdmin | None = None

    def timed(self, times: StoredTimes) -> TopicsSource:
        """The source with its event time as a TIMESTAMP."""
        return TopicsSource(self._source.timed(times), self._options)

    @property
    def schema(self) -> StructType:
        """The tuple's columns."""
        return self._source.schema

    @property
    def event_time(self) -> str | None:
        """Name of the event time column, or None."""
        return self._source.event_time

    def prepare(self, layout: Layout, stream: str, events: EventLog, progress: Progress = untold) -> None:
        """Remembers where the stream's checkpoint is."""
        self._layout = layout
        self._stream = stream
        self._events = events
        self._source.prepare(layout, stream, events, progress)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame; topics that were created again are read from their beginning.

        Where no broker answers, Spark waits for one longer than this does, and `run` asks before anything is published.
        """
        if self._admin is None:
            self._admin = KafkaAdmin(spark, self._options)
        try:
            self._mend(self._admin)
        except Exception as error:
            if cause_of(error).kind != SOURCE_UNREACHABLE:
                raise
        return self._source.frame(spark)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """Runs the map stage, then makes sure that the topics are still the ones the batch was planned for.

        Raises:
            TopicRecreatedError: one is not; nothing of the batch may be published.
        """
        reports = self._source.run(df, batch)
        assert self._admin is not None, "a frame comes before its batches"
        found = self._found(self._admin)
        changed = _changed(self._ids, found)
        if changed:
            raise _recreated(changed[0])
        if found.keys() - self._ids.keys():
            self._store({**self._ids, **found})
        return reports

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """What was read before, as long as the topics are the ones it was read from.

        Raises:
            CannotReadAgainError: one was created anew: its offsets have other records than before.
        """
        document = TOPICS.read(self._layout.topics(self._stream)) or {}
        if document.get("recreated"):
            raise CannotReadAgainError(f"topic {document['recreated'][0]} was deleted and created again")
        return self._source.again(spark, past)

    def place(self, derived: tuple[Derived, ...]) -> str:
        """Where the map stage runs."""
        return self._source.place(derived)

    def named(self, cause: Cause) -> Cause:
        """What Spark takes for lost records is a new topic with fewer of them, or a topic that is not there, if the ids say so.

        Both can pass: the next attempt begins the new topic. Where nobody can be asked, why not is the cause.
        """
        if cause.kind != DATA_LOST or self._admin is None:
            return cause
        try:
            found = self._found(self._admin)
        except Exception as error:
            return cause_of(error)
        changed = _changed(self._ids, found)
        return cause_of(_recreated(changed[0])) if changed else cause

    def exhausted(self) -> bool:
        """Left to the source."""
        return self._source.exhausted()

    def close(self) -> None:
        """Ends what `frame` has begun."""
        self._source.close()
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _store(self, ids: dict[str, str]) -> None:
        if ids != self._ids:
            document = {"ids": ids, "recreated": self._recreated}
            TOPICS.replace(self._layout.topics(self._stream), document)
            self._ids = ids

    def _found(self, admin: KafkaAdmin) -> dict[str, str]:
        """The ids of the topics that are subscribed to and there, by name."""
        options = {name.lower(): value for name, value in self._options.items()}
        topics = subscribed(options)
        return admin.ids(admin.matching(options["subscribepattern"]) if topics is None else topics)

    def _mend(self, admin: KafkaAdmin) -> None:
        document = TOPICS.read(self._layout.topics(self._stream)) or {}
        known: dict[str, str] = document.get("ids", {})
        self._ids, self._recreated = known, list(document.get("recreated", ()))
        found = self._found(admin)
        changed = _changed(known, found)
        if changed:
            partitions = admin.partitions(changed)
            begins, ends = admin.begins(partitions), admin.ends(partitions)
            answered = self._start_again(begins)
            if answered is None:
                return
            self._recreated += changed
            for topic in changed:
                expected, begin, end = answered.get(topic, {}), begins[topic], ends[topic]
                self._events.record(
                    "topic_recreated",
                    stream=self._stream,
                    topic=topic,
                    told=f"topic {topic} was deleted and created again. Penstock reads the new topic from its start, "
                    f"{_listed(begin)} to {_listed(end)}. Unread records of the old topic, from {_listed(expected)} on, are lost",
                    was=known[topic],
                    now=found[topic],
                    expected=expected,
                    begins=begin,
                    ends=end,
                )
        self._store({**known, **found})

    def _start_again(self, begins: Offsets) -> Offsets | None:
        """Puts offsets in Spark's checkpoint back to where topics begin.

        Returns:
            The offsets up to which the stream had been answered; None where a published batch waits for Spark's
            commit: Spark repeats it without reading anything, and nothing is changed before.
        """
        folder = self._layout.spark(self._stream)
        committed = max(numbered(folder / "commits", ""), default=-1)
        planned = [batch for batch in numbered(folder / "offsets", "") if batch > committed]
        manifests = self._layout.manifests(self._stream)
        if any(manifests[batch].exists() for batch in planned):
            return None
        for batch in planned:
            remove_file(folder / "offsets" / str(batch))
            self._layout.bindings(self._stream)[batch].remove()
        if committed < 0:
            # no batch has been answered: Spark finds out anew where to begin
            for initial in (folder / "sources").glob("[0-9]*/0"):
                remove_file(initial)
            return {}
        path = folder / "offsets" / str(committed)
        lines = path.read_text().splitlines()
        answered: Offsets = json.loads(lines[-1])
        lines[-1] = json.dumps({**answered, **begins}, separators=(",", ":"))
        replace_file(path, "\n".join(lines).encode())
        return answered


def _recreated(topic: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        f"topic {topic} was deleted and created again; its stream continues from the beginning of the new topic"
    )


def _changed(known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    return sorted(topic for topic, new in found.items() if known.get(topic, new) != new)


def _listed(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(offsets.items())) or "nothing"
