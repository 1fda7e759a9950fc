"""Whether what Spark has committed of a stream is published, and in the stream's log."""

from __future__ import annotations

from penstock.errors import DamagedError
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.formats import LOG_ENTRY, MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.spark_files import numbered


def refuse_lost(layout: Layout, stream: str) -> None:
    """Makes sure that nothing is lost of the batches that Spark will not repeat.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.

    Raises:
        DamagedError: a manifest or an entry of the log is missing.
    """
    committed = max(numbered(layout.spark(stream) / "commits", ""), default=-1)
    told = f"is missing: Spark has committed batch {committed}"
    if read_published(layout, stream).last < committed:
        raise DamagedError(str(layout.manifests(stream)[committed]), f"({MANIFEST.kind}) {told}")
    log = LogReader(layout.log(stream))
    newest = log.newest()
    if newest is not None and newest.batch < committed:
        raise DamagedError(str(log.log.entries[newest.number + 1]), f"({LOG_ENTRY.kind}) {told}")
