"""Looks at a source from beside its batches: is it there, and how much of it is in no batch yet."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from penstock.spark.recovery.causes import SESSION_ENDED, cause_of
from penstock.spark.sources.kafka_admin import KafkaAdmin, Offsets
from penstock.spark.sources.listing import files_read
from penstock.spark.sources.patterns import is_pattern
from penstock.spark.storage.spark_files import numbered
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.script.statements import CreateTable

_CONNECT_SECONDS = 2.0
_TOPICS = ("subscribe", "assign", "subscribepattern")
_FILES = ("parquet", "csv", "json", "orc", "text")
#: options that leave files of a folder out for other reasons than their names
_SELECTING = ("pathglobfilter", "modifiedbefore", "modifiedafter")


class SourceGoneError(Exception):
    """The source does not answer, or is not there."""


class Probe(Protocol):
    """What can be asked of a source without reading it; used by one thread.

    Attributes:
        source: the source in words: topic and servers, or folder.
        unit: what its backlog counts.
        topic: the topic, where it is Kafka's.
        parts: what a checkpoint of the stream has positions in: its folder, its topics; others may be added to them.
    """

    source: str
    unit: str
    topic: str | None
    parts: tuple[str, ...]

    def backlog(self, checkpoint: StorePath) -> int | None:
        """What is in the source and in no batch yet, or None where nobody can tell.

        Args:
            checkpoint: Spark's own checkpoint of the stream.

        Raises:
            SourceGoneError: the source is out of reach.
        """
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...


def open_probe(spark: SparkSession, table: CreateTable) -> Probe | None:
    """The probe of a table's source; None where its source cannot be looked at."""
    options = {name.replace("_", "").lower(): value for name, value in table.options.items()}
    kind = table.source.lower()
    if kind == "kafka":
        topics = next((options[each] for each in _TOPICS if each in options), "")
        client = {name: value for name, value in table.options.items() if name.startswith("kafka.")}
        listed = options.get("subscribe", "").split(",")
        return KafkaProbe(
            spark, topics, client, tuple(f"topic {each.strip()}" for each in listed if each.strip())
        )
    path = options.get("path", "")
    if kind in _FILES and "://" not in path and not is_pattern(path):
        is_recursive = options.get("recursivefilelookup", "").lower() == "true"
        is_selected = any(each in options for each in _SELECTING)
        # a link that leads elsewhere is the same folder, as Spark names files by it
        parts = (f"folder {Path(path).absolute()}",)
        return FolderProbe(Path(path).resolve(), is_recursive, is_selected, parts)
    return None


class FolderProbe:
    """A local folder: its files beside those in the log of Spark's file source.

    Args:
        folder: the folder.
        is_recursive: whether the option `recursiveFileLookup` is set.
        is_selected: whether another option says which of its files are read: then nobody can tell the backlog.
        parts: see `Probe`.
    """

    unit: str = "files"
    topic: str | None = None

    def __init__(
        self,
        folder: Path,
        is_recursive: bool = False,
        is_selected: bool = False,
        parts: tuple[str, ...] = (),
    ) -> None:
        self.source = f"folder {folder}"
        self.parts = parts
        self._folder = folder
        self._is_recursive = is_recursive
        self._is_selected = is_selected
        self._log: StorePath | None = None
        self._seen: set[str] = set()
        self._read: set[str] = set()

    def backlog(self, checkpoint: StorePath) -> int | None:
        """Files that no batch has been given; see `Probe.backlog`."""
        try:
            present = files_read(str(self._folder), is_recursive=self._is_recursive)
        except OSError as error:
            raise SourceGoneError(error.strerror or str(error)) from error
        if self._is_selected:
            return None
        self._follow(checkpoint / "sources" / "0")
        self._seen &= present
        return len(present) - len(self._seen)

    def close(self) -> None:
        """Nothing to let go of."""

    def _follow(self, log: StorePath) -> None:
        """Reads what is new in the log: a file a batch, and now and then one that holds all before it too."""
        if log != self._log:
            self._log, self._seen, self._read = log, set(), set()
        if not log.is_dir():
            return
        for name in sorted(entry.name for entry in log.iterdir()):
            if name in self._read or not name.removesuffix(".compact").isdecimal():
                continue
            try:
                lines = (log / name).read_text().splitlines()[1:]
            except FileNotFoundError:
                continue
            self._seen.update(unquote(urlparse(json.loads(line)["path"]).path) for line in lines)
            self._read.add(name)


class KafkaProbe:
    """Topics: the ends of their partitions beside the offsets in Spark's checkpoint.

    Args:
        spark: the session, in whose JVM Kafka's client is.
        topics: as the table names them.
        options: the table's options that begin with `kafka.`.
        parts: see `Probe`.
    """

    unit: str = "records"

    def __init__(
        self, spark: SparkSession, topics: str, options: Mapping[str, str], parts: tuple[str, ...] = ()
    ) -> None:
        self.parts = parts
        self.servers = options.get("kafka.bootstrap.servers", "")
        self.topic: str | None = topics
        self.source = f"topic {topics} at {self.servers}"
        self._spark = spark
        self._options = options
        self._admin: KafkaAdmin | None = None

    def backlog(self, checkpoint: StorePath) -> int | None:
        """Records behind the offsets that have been answered; see `Probe.backlog`."""
        _connect(self.servers)
        answered = _answered(checkpoint)
        if not answered:
            return None
        try:
            ends = self._ends(answered)
        except Exception as error:
            self.close()
            cause = cause_of(error)
            if cause.kind == SESSION_ENDED:
                raise
            raise SourceGoneError(cause.told) from error
        return sum(
            max(0, ends.get(topic, {}).get(number, 0) - offset)
            for topic, offsets in answered.items()
            for number, offset in offsets.items()
        )

    def close(self) -> None:
        """Ends the client's thread and connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            try:
                admin.close(0)
            except Exception:
                return

    def _ends(self, answered: Offsets) -> Offsets:
        if self._admin is None:
            self._admin = KafkaAdmin(self._spark, self._options)
        # of a topic that is not there Kafka would tell no ends and not say why
        there = self._admin.partitions(answered)
        return self._admin.ends(
            {
                topic: [number for number in there[topic] if str(number) in answered[topic]]
                for topic in answered
            }
        )


def _connect(servers: str) -> None:
    """Makes sure that a server accepts connections: cheaper, and sooner to fail, than to ask it something."""
    told = "no servers are configured"
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            told = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise SourceGoneError(f"no broker answers: {told}")


def _answered(checkpoint: StorePath) -> Offsets:
    """The offsets up to which batches have been committed; before the first, those it begins with."""
    committed = max(numbered(checkpoint / "commits", ""), default=None)
    paths = (
        [checkpoint / "sources" / "0" / "0"]
        if committed is None
        else [checkpoint / "offsets" / str(committed)]
    )
    try:
        found: Offsets = json.loads(paths[0].read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found
