"""Kafka's admin client in Spark's JVM: what topics are there, which ones they are, and from where to where they go; and new topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.spark.analysis.catalyst import java_class

#: offsets by topic and by partition, the partition as in Spark's checkpoint
Offsets = dict[str, dict[str, int]]

#: options that name the topics of a stream
SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_REQUEST, _ANSWER = "request.timeout.ms", "default.api.timeout.ms"
#: it asks for little, beside batches or before them: it gives up sooner than Kafka's minute
_REQUEST_MS, _ANSWER_MS = 5_000, 8_000
#: the client gives up by itself, and says why; waiting for it ends later than that
_MORE_MS = 5_000
#: compacted soon, so that its records are read in a moment
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
#: what brokers without topic ids say
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class KafkaAdmin:
    """A client for questions that are answered in seconds or not at all; used by one thread at a time.

    What it raises is Kafka's own; `causes.cause_of` tells a broker that is away from a topic that is not there.

    Args:
        spark: the session, in whose JVM Kafka's client is.
        options: of the table; those that begin with `kafka.` are the client's. Its timeouts are 5 and 8 seconds
            where the table sets none.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._java = partial(java_class, spark)
        own, self._wait_ms = client_options(options)
        converted = self._java("java.util.HashMap")()
        for name, value in own.items():
            converted.put(name, value)
        self._admin: Any = self._java("org.apache.kafka.clients.admin.AdminClient").create(converted)

    def close(self, seconds: int = 5) -> None:
        """Ends its thread and connections, after so many seconds at the most."""
        self._admin.close(self._java("java.time.Duration").ofSeconds(seconds))

    def matching(self, pattern: str) -> list[str]:
        """The topics whose whole names a regular expression of Java's matches."""
        names = self._java("java.util.ArrayList")(self._answer(self._admin.listTopics().names()))
        compiled = self._java("java.util.regex.Pattern").compile(pattern)
        others = getattr(self._java("java.util.function.Predicate"), "not")(compiled.asMatchPredicate())
        names.removeIf(others)
        # one call for all names, which have no commas
        return [name for name in str(self._java("java.lang.String").join(",", names)).split(",") if name]

    def creates_topics(self) -> bool:
        """Whether the brokers create a topic when somebody writes to it."""
        node = self._answer(self._admin.describeCluster().nodes()).iterator().next()
        return self._setting("BROKER", node.idString(), "auto.create.topics.enable") == "true"

    def keeps_the_newest(self, topic: str) -> bool:
        """Whether a topic keeps the newest record of each key for good."""
        return self._setting("TOPIC", topic, "cleanup.policy") == "compact"

    def create_compacted(self, topic: str) -> None:
        """Create a topic that keeps the newest record of each key for good, unless it exists."""
        settings = self._java("java.util.HashMap")()
        for name, value in _COMPACTED.items():
            settings.put(name, value)
        nothing = self._java("java.util.Optional").empty()
        new = self._java("org.apache.kafka.clients.admin.NewTopic")(topic, nothing, nothing)
        topics = self._java("java.util.ArrayList")()
        topics.add(new.configs(settings))
        try:
            self._answer(self._admin.createTopics(topics).all())
        except Py4JJavaError as error:
            if "TopicExistsException" not in str(error.java_exception.toString()):
                raise

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics, by name; without those of brokers that know none."""
        ids = {topic: str(each.topicId().toString()) for topic, each in self._described(topics).items()}
        return {topic: each for topic, each in ids.items() if each != _NO_ID}

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The numbers of the partitions of topics."""
        found = self._described(topics)
        return {topic: [int(part.partition()) for part in each.partitions()] for topic, each in found.items()}

    def begins(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The first offset of each partition."""
        return self._offsets(partitions, self._java("org.apache.kafka.clients.admin.OffsetSpec").earliest())

    def ends(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The offset after the last of each partition."""
        return self._offsets(partitions, self._java("org.apache.kafka.clients.admin.OffsetSpec").latest())

    def _setting(self, kind: str, name: str, setting: str) -> str:
        resource, kinds = (
            self._java(f"org.apache.kafka.common.config.ConfigResource{each}") for each in ("", "$Type")
        )
        asked = resource(getattr(kinds, kind), name)
        names = self._java("java.util.ArrayList")()
        names.add(asked)
        return str(self._answer(self._admin.describeConfigs(names).all()).get(asked).get(setting).value())

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        names = self._java("java.util.ArrayList")()
        for topic in topics:
            names.add(topic)
        return dict(self._answer(self._admin.describeTopics(names).allTopicNames()))

    def _offsets(self, partitions: Mapping[str, Iterable[int]], spec: Any) -> Offsets:
        wanted, partition = (
            self._java("java.util.HashMap")(),
            self._java("org.apache.kafka.common.TopicPartition"),
        )
        keys = {
            (topic, number): partition(topic, number)
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

    def _answer(self, future: Any) -> Any:
        return future.get(self._wait_ms, self._java("java.util.concurrent.TimeUnit").MILLISECONDS)


def client_options(options: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The client's own options, and how long to wait for it.

    Args:
        options: of the table.

    Returns:
        Kafka's names and values, and milliseconds: more than the client itself waits.
    """
    own = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    answer = int(own.get(_ANSWER, _ANSWER_MS))
    request = int(own.get(_REQUEST, min(_REQUEST_MS, answer)))
    # Kafka refuses a call that gives up before its requests do
    answer = max(answer, request)
    return {
        "connections.max.idle.ms": "60000",
        **own,
        _REQUEST: str(request),
        _ANSWER: str(answer),
    }, answer + _MORE_MS


def subscribed(options: Mapping[str, str]) -> list[str] | None:
    """The topics that a stream names; None if it names a pattern.

    Args:
        options: of the table; names in lower case.
    """
    if "subscribe" in options:
        return [topic.strip() for topic in options["subscribe"].split(",")]
    return list(json.loads(options["assign"])) if "assign" in options else None
