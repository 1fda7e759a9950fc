"""The formats of the documents on disk: each says which version of its format it has, and another one is refused by name.

The layout's version (`layout.LAYOUT_VERSION`) says which documents there are and where; a format's version says what
one kind of them holds. A change that code of before, or documents of before, do not bear raises one or the other.
docs/reference/files.md lists both.

To change a format, raise its version here, or the layout's where files appear, move or disappear; update the list; and run
`make checkpoint-sample`, which adds a checkpoint of the new layout to `tests/checkpoints/`. Tests start from each of these:
the current layout continues, older ones are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import CheckpointError, DamagedError
from penstock.spark.storage.documents import Place, put_json_if_absent, read_json, replace_json

#: the member of a document that says its version
VERSION = "format"
#: members of a document by difference: the number of its base, and the names of the base's views that it lacks
BASE_NUMBER, DROPPED = "base", "dropped"


@dataclass(frozen=True, slots=True)
class Format:
    """The format of one kind of document.

    Attributes:
        kind: what such a document is, for messages.
        version: the version that is written, and the only one that is read.
        members: those that every such document has.
    """

    kind: str
    version: int
    members: tuple[str, ...] = ()

    def replace(self, path: Place, document: Mapping[str, Any]) -> None:
        """Writes a document, see `replace_json`."""
        replace_json(path, self.stamped(document))

    def put(self, path: Place, document: Mapping[str, Any]) -> bool:
        """Writes a document unless there is one, see `put_json_if_absent`."""
        return put_json_if_absent(path, self.stamped(document))

    def read(self, path: Place) -> dict[str, Any] | None:
        """The document, or None where there is no such file.

        Raises:
            CheckpointError: it is of another version, or damaged (`DamagedError`).
        """
        document = read_json(path, self.kind)
        return None if document is None else self.opened(document, path)

    def stamped(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A document with its version."""
        return {VERSION: self.version, **document}

    def opened(self, document: Mapping[str, Any], path: Place) -> dict[str, Any]:
        """A document without its version.

        Args:
            document: as it was read.
            path: where; for messages.

        Raises:
            CheckpointError: it is of another version, or lacks members (`DamagedError`).
        """
        found = document.get(VERSION)
        if found != self.version:
            raise CheckpointError(f"{path}, {self.kind}, {other_version(found, self.version, 'format')}")
        missing = [name for name in self.members if name not in document]
        if missing:
            raise DamagedError(str(path), f"({self.kind}) is damaged: it lacks {', '.join(missing)}")
        return {name: value for name, value in document.items() if name != VERSION}


@dataclass(frozen=True, slots=True)
class EitherFormat:
    """The formats of one kind of document that is stored whole or by difference, see `storage.bases`.

    Attributes:
        whole: of those that are whole.
        difference: of those that name a base.
    """

    whole: Format
    difference: Format

    def of(self, document: Mapping[str, Any]) -> Format:
        """The format of a document."""
        return self.difference if BASE_NUMBER in document else self.whole

    def read(self, path: Place) -> dict[str, Any] | None:
        """The document, or None where there is no such file; raises as `Format.read`."""
        document = read_json(path, self.whole.kind)
        return None if document is None else self.of(document).opened(document, path)


def other_version(found: object, read: int, what: str) -> str:
    """Says of something that it has another version than the one this code reads, and what to do.

    Args:
        found: its version; None where it says none.
        read: the version that is read.
        what: which version it is: of a format, the layout, a state.
    """
    if isinstance(found, int) and found > read:
        age, remedy = "a newer", "continue with that version of Penstock"
    else:
        age, remedy = "an older", "continue with the version of Penstock that wrote it"
    has = f"{what} {found}" if found is not None else f"no {what} version"
    return (
        f"was written by {age} version of Penstock: it has {has}, this version reads {what} {read}; {remedy}, or start "
        "with a new checkpoint and a new output folder"
    )


SESSION = Format("the session of a checkpoint", 1)
PLAN = Format("a plan version", 1, ("version", "views"))
PLAN_DIFFERENCE = Format("a plan version by difference", 2, ("version", "views", BASE_NUMBER, DROPPED))
BASE = Format("a base of views", 1, ("views",))
BINDING = Format("the binding of a batch", 1, ("version",))
PROGRAM = Format("the window views of a plan version", 1, ("program",))
OPERATOR_VIEWS = Format("the window views of an operator", 1, ("views",))
SHARDS = Format("the number of shards of a stream", 2, ("shards",))
WINDOW_STATE = Format("the state of window views", 1, ("cut", "plan", "shards", "progress"))
TO_CORRECT = Format("final windows that got tuples", 1, ("windows", "entry", "plan", "reached", "since"))
WAITING_ROWS = Format("the groups of views that could not be answered", 1, ("views",))
BACKFILL = Format("the end of a backfill", 1, ("impossible",))
READ_FILES = Format("the files that were read", 1)
TOPICS = Format("the topics of a stream", 1, ("ids",))
SCHEDULE = Format("the schedule of a replay", 1, ("due_seconds",))
NETWORK = Format("the network of a stream", 1)
LOG_ENTRY = Format("an entry of a log", 2, ("number", "batch", "plan", "clock", "files", "delays", "whole"))
LOG_SEGMENT = Format("a segment of a log", 1, ("newest", "bytes", "bytes_so_far"))
REPLACED = Format("the files that a merged one has replaced", 1, ("replaced", "files"))
LOG_RUN = Format("the tuples of a stretch of a log", 1, ("first", "name", "bytes", "own"))
LOG_KEPT = Format("how far back a log reaches", 1, ("first", "before", "since", "lacks", "joined"))
LOG_READER = Format("the position of a reader of a log", 1, ("number",))
LANE = Format("a lane", 1)
CALL_STATISTICS = Format(
    "the statistics of users' functions", 1, ("order", "best", "tuples", "seconds", "totals", "sums")
)
PLAN_STATISTICS = Format("the statistics of a join's plan", 1, ("join", "predicates"))
STATIC = Format("the version of a static table", 1, ("version", "files"))
SINK = Format("the place of a sink", 1, ("id", "since", "delivered", "feeds", "planned"))
CUT = Format("a cut of a lane", 1, ("number", "before", "until", "orders"))
LANE_VIEWS = Format("the views with lanes of their own", 2, ("register",))
DEADLINES = Format("the views with a deadline", 1, ("register",))
MANIFEST = Format("a manifest", 1, ("first", "last", "files", "batches"))
MERGED_MANIFEST = Format(
    "the manifest of the merged batches", 1, ("last", "files", "totals", "stretches", "batches")
)
CATALOG = Format("the catalog", 1, ("streams", "views"))
CATALOG_DIFFERENCE = Format("the catalog by difference", 2, ("streams", "views", BASE_NUMBER, DROPPED))
RESULT_VIEWS = Format("the columns of an operator's results", 1, ("views",))

EITHER_PLAN = EitherFormat(PLAN, PLAN_DIFFERENCE)
EITHER_CATALOG = EitherFormat(CATALOG, CATALOG_DIFFERENCE)
