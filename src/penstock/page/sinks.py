"""The sinks of a run, for /api/overview: how far each has come, and why one fails."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.troubles import open_troubles
from penstock.page.answers import cut, short_name

#: characters of an error
_LINE = 1_000


def sinks(document: Document) -> Iterator[dict[str, Any]]:
    """The sinks of the newest run in the order of their declaration, as `penstock status` has them.

    Args:
        document: see `folder_status`.
    """
    known: Mapping[str, Document] = document.get("sinks") or {}
    is_live = document["state"] in ("running", "starting")
    troubles = dict(open_troubles(known)) if is_live else {}
    for name, sink in known.items():
        # of a run that is over, what it failed with last
        trouble = troubles.get(name) if is_live else sink.get("trouble")
        since = sink.get("backlog_since")
        yield {
            "name": short_name(name),
            "kind": sink.get("kind") or "unknown",
            "view": short_name(str(sink.get("view") or "")),
            "state": _state(document, trouble, is_live=is_live),
            "error": None if trouble is None else cut(str(trouble.get("told")), _LINE),
            "promise": sink.get("promise"),
            "deliveries": sink.get("deliveries") or 0,
            "rows": sink.get("rows"),
            "backlog": sink.get("backlog") or 0,
            "behind": max(0.0, time.time() - since) if since and is_live else None,
            "rejected": sink.get("rejected") or 0,
            "missed": sink.get("missed") or 0,
        }


def _state(document: Document, trouble: Mapping[str, Any] | None, *, is_live: bool) -> str:
    if trouble is None:
        return str(document["state"])
    # nobody retries after the run
    return str(trouble["state"]) if is_live else "failed"
