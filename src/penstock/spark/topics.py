"""Topics that are deleted and created again under their names: noticed by their ids, read from their beginning.

Spark's offsets name a topic by its name alone: of a new topic it would pass over as many records as it has read of
the old one. Where a topic has another id than before, the offsets in Spark's checkpoint are put back to where the
new topic begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import StreamFailedError
from penstock.plan.expressions import Derived
from penstock.spark.events import EventLog
from penstock.spark.files import numbered, read_json, replace_bytes, replace_json
from penstock.spark.layout import Layout
from penstock.spark.past import CannotReadAgainError, Past
from penstock.spark.source import BoundBatch, Source
from penstock.spark.worker import TaskReport

_ANSWER_SECONDS = 30
#: what brokers without topic ids say
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

Offsets = dict[str, dict[str, int]]


class TopicRecreatedError(StreamFailedError):
    """A topic was deleted and created again while its stream ran; the next start goes on from its beginning."""


class TopicsSource:
    """A source over Kafka that knows its topics by their ids.

    Args:
        source: reads the topics.
        options: of the table: servers, subscription, and whatever the client needs.
    """

    is_finite: ClassVar[bool] = False

    def __init__(self, source: Source, options: Mapping[str, str]) -> None:
        self._source = source
        self._options = options
        self._ids: dict[str, str] = {}
        self._recreated: list[str] = []
        self._client: _Client | None = None

    @property
    def schema(self) -> StructType:
        """The tuple's columns."""
        return self._source.schema

    @property
    def event_time(self) -> str | None:
        """Name of the event time column, or None."""
        return self._source.event_time

    def prepare(self, layout: Layout, stream: str, events: EventLog) -> None:
        """Remembers where the stream's checkpoint is."""
        self._layout = layout
        self._stream = stream
        self._events = events
        self._source.prepare(layout, stream, events)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame; topics that were created again are read from their beginning."""
        if self._client is None:
            self._client = _Client(spark, self._options)
        self._mend(self._client)
        return self._source.frame(spark)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """Runs the map stage, then makes sure that the topics are still the ones the batch was planned for.

        Raises:
            TopicRecreatedError: one is not; nothing of the batch may be published.
        """
        reports = self._source.run(df, batch)
        assert self._client is not None, "a frame comes before its batches"
        found = self._client.ids()
        changed = _changed(self._ids, found)
        if changed:
            raise TopicRecreatedError(
                f"topic {changed[0]} was deleted and created again; its stream goes on from its beginning"
            )
        if found.keys() - self._ids.keys():
            self._store({**self._ids, **found})
        return reports

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """What was read before, as long as the topics are the ones it was read from.

        Raises:
            CannotReadAgainError: one was created anew: its offsets have other records than before.
        """
        document = read_json(self._layout.topics(self._stream)) or {}
        if document.get("recreated"):
            raise CannotReadAgainError(f"topic {document['recreated'][0]} was deleted and created again")
        return self._source.again(spark, past)

    def place(self, derived: tuple[Derived, ...]) -> str:
        """Where the map stage runs."""
        return self._source.place(derived)

    def exhausted(self) -> bool:
        """Left to the source."""
        return self._source.exhausted()

    def close(self) -> None:
        """Ends what `frame` has begun."""
        self._source.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _store(self, ids: dict[str, str]) -> None:
        if ids != self._ids:
            document = {"ids": ids, "recreated": self._recreated}
            replace_json(self._layout.topics(self._stream), document)
            self._ids = ids

    def _mend(self, client: _Client) -> None:
        document = read_json(self._layout.topics(self._stream)) or {}
        known: dict[str, str] = document.get("ids", {})
        self._ids, self._recreated = known, list(document.get("recreated", ()))
        found = client.ids()
        changed = _changed(known, found)
        if changed:
            begins, ends = client.offsets(changed)
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
                    told=f"topic {topic} was deleted and created again: read to {_listed(expected)} before, it holds "
                    f"{_listed(begin)} to {_listed(end)} now, all of which is read; records of the old topic that "
                    "had not been read are lost, how many is unknown",
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
        if any((manifests / f"{batch}.json").exists() for batch in planned):
            return None
        for batch in planned:
            _remove(folder / "offsets" / str(batch))
            (self._layout.bindings(self._stream) / f"{batch}.json").unlink(missing_ok=True)
        if committed < 0:
            # no batch has been answered: Spark finds out anew where to begin
            for initial in (folder / "sources").glob("[0-9]*/0"):
                _remove(initial)
            return {}
        path = folder / "offsets" / str(committed)
        lines = path.read_text().splitlines()
        answered: Offsets = json.loads(lines[-1])
        lines[-1] = json.dumps({**answered, **begins}, separators=(",", ":"))
        # Spark's checksum of the old content
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        replace_bytes(path, "\n".join(lines).encode())
        return answered


def _changed(known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    return sorted(topic for topic, new in found.items() if known.get(topic, new) != new)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _listed(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(offsets.items())) or "nothing"


class _Client:
    """Kafka's admin client in Spark's JVM, with the table's options."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._options = {name.lower(): value for name, value in options.items()}
        own = self._jvm.java.util.HashMap()
        for name, value in options.items():
            if name.startswith("kafka."):
                own.put(name.removeprefix("kafka."), value)
        self._admin: Any = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(own)

    def close(self) -> None:
        """Ends its threads and connections."""
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))

    def ids(self) -> dict[str, str]:
        """The ids of the topics that are there, by name; empty where the broker knows none."""
        found = self._described()
        ids = {topic: str(description.topicId().toString()) for topic, description in found.items()}
        return {topic: each for topic, each in ids.items() if each != _NO_ID}

    def offsets(self, topics: Sequence[str]) -> tuple[Offsets, Offsets]:
        """The first offset of each partition, and the one after the last."""
        described = self._described()
        partitions = {topic: [each.partition() for each in described[topic].partitions()] for topic in topics}
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        return self._listed(partitions, spec.earliest()), self._listed(partitions, spec.latest())

    def _listed(self, partitions: Mapping[str, Iterable[int]], spec: Any) -> Offsets:
        wanted = self._jvm.java.util.HashMap()
        keys = {
            (topic, number): self._jvm.org.apache.kafka.common.TopicPartition(topic, number)
            for topic, numbers in partitions.items()
            for number in numbers
        }
        for key in keys.values():
            wanted.put(key, spec)
        result = self._admin.listOffsets(wanted)
        offsets: Offsets = {}
        for (topic, number), key in keys.items():
            found = self._answer(result.partitionResult(key))
            offsets.setdefault(topic, {})[str(number)] = int(found.offset())
        return offsets

    def _described(self) -> dict[str, Any]:
        names = self._jvm.java.util.ArrayList()
        for topic in self._subscribed():
            names.add(topic)
        return dict(self._answer(self._admin.describeTopics(names).allTopicNames()))

    def _subscribed(self) -> list[str]:
        if "subscribe" in self._options:
            return [topic.strip() for topic in self._options["subscribe"].split(",")]
        if "assign" in self._options:
            return list(json.loads(self._options["assign"]))
        pattern = self._jvm.java.util.regex.Pattern.compile(self._options["subscribepattern"])
        existing = self._answer(self._admin.listTopics().names())
        return [str(topic) for topic in existing if pattern.matcher(topic).matches()]

    def _answer(self, future: Any) -> Any:
        return future.get(_ANSWER_SECONDS, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
