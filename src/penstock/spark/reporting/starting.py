"""What `_penstock/status.json` says before a run reports; loads nothing that is slow."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from penstock.errors import DamagedError
from penstock.monitor.book import StatusBook
from penstock.spark.storage.documents import read_json, replace_json
from penstock.spark.storage.layout import STATUS, Layout

_log = logging.getLogger(__name__)


@contextmanager
def told_as_starting(layout: Layout) -> Iterator[None]:
    """Has readers of a results folder say that a run is starting, until it reports or the block is left.

    A process that is killed before it reports leaves that word, not the one of the run before.
    """
    document = read_status(layout)
    if layout.status.parent.is_dir():
        starting = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        _put(layout, {**StatusBook(document).document(), "starting": starting})
    try:
        yield
    finally:
        document = read_status(layout)
        # another start may have begun since
        if (document.pop("starting", None) or {}).get("pid") == os.getpid():
            _put(layout, document)


def _put(layout: Layout, document: Mapping[str, Any]) -> None:
    try:
        replace_json(layout.status, document)
    except OSError as error:
        _log.warning("cannot write %s: %s", layout.status, error)


def read_status(layout: Layout) -> dict[str, Any]:
    """The document as the newest run left it; {} where there is none that can be read."""
    try:
        return read_json(layout.status, STATUS) or {}
    except (OSError, DamagedError):
        return {}
