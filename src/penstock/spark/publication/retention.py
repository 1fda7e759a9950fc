"""Retention: published rows leave in the order of their publication, by whole files (docs/decisions/0087)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.spark.publication.kinds import name_of
from penstock.spark.publication.manifests import (
    MERGED,
    PUBLISHED,
    REMOVED,
    ListedFile,
    PublishedBatches,
    files_of,
    read_published,
    removed_of,
)
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import Layout, is_of_log
from penstock.spark.storage.ledger_documents import StoredDocument, commit
from penstock.spark.storage.replaced import ReplacedFiles

#: files whose batches were published in different ones of so many parts of the retention are not merged
PARTS = 8
#: rows of a query are looked at this seldom
LOOK_SECONDS = 60.0


class Retention:
    """How long a run keeps published rows; any thread may ask.

    Args:
        seconds: of rows whose stream or view has no retention of its own; None: for ever.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        #: seconds by stream or view; replaced, never changed
        self.of_names: Mapping[str, float] = {}
        #: given a query and kinds of its files: the number of the first row that something still needs, by kind, and what needs it
        self.needed: Callable[[str, Iterable[str]], Mapping[str, Needed]] = lambda _query, _kinds: {}

    @property
    def is_any(self) -> bool:
        """Whether any rows ever leave."""
        return self._seconds is not None or bool(self.of_names)

    def seconds(self, query: str, kind: str) -> float | None:
        """How long rows of a kind are kept; None: for ever."""
        return None if is_of_log(kind) else self.of_names.get(owner_of(query, kind), self._seconds)


#: of publishers that keep all rows
FOREVER = Retention()


@dataclass(frozen=True, slots=True)
class Needed:
    """What keeps rows of a feed from leaving.

    Attributes:
        first: number of the first row that is needed.
        by: sinks or views that need it.
    """

    first: int
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaving:
    """Rows of one kind that leave, or that could.

    Attributes:
        query: whose, as manifests name it.
        kind: of the files.
        rows, files, bytes: how many.
        held: rows beside them that are old enough, and that something needs.
        by: what needs them.
    """

    query: str
    kind: str
    rows: int
    files: int
    bytes: int
    held: int = 0
    by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The stream or view whose rows they are."""
        return owner_of(self.query, self.kind)

    @property
    def told(self) -> dict[str, str]:
        """How events name the rows: `matches` or `quarantine` of a stream, `results` or `misses` of a view."""
        group, slash, view = self.kind.partition("/")
        if not slash:
            return {"stream": self.query, "rows_of": group}
        return {"view": view, "rows_of": "results" if group.isdigit() else group}


def owner_of(query: str, kind: str) -> str:
    """The stream or view that rows of a kind are of."""
    return kind.partition("/")[2] or query


@dataclass(frozen=True, slots=True)
class Plan:
    """What leaves of one query.

    Attributes:
        published: what the ledger lists before.
        leaving: by kind.
        names: of the files of these kinds that leave.
    """

    published: PublishedBatches
    leaving: tuple[Leaving, ...]
    names: Mapping[str, frozenset[str]]

    @property
    def is_any(self) -> bool:
        """Whether any row leaves."""
        return any(each.files for each in self.leaving)


def plan_of(
    layout: Layout,
    query: str,
    until: Callable[[str], float | None],
    needed: Callable[[str, Iterable[str]], Mapping[str, Needed]],
    *,
    newest: bool,
) -> Plan:
    """Which published files of a query are old enough; changes nothing.

    Args:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        until: gives by kind the time before which rows must have been published to leave, seconds since the epoch; None: none leave.
        needed: see `Retention`.
        newest: whether the newest batch may leave too.

    Raises:
        DamagedError: a manifest is missing or damaged.
    """
    published = read_published(layout, query)
    kinds = dict.fromkeys(each.kind for each in published.files)
    ends = {kind: end for kind in kinds if not is_of_log(kind) and (end := until(kind)) is not None}
    holding = needed(query, ends) if ends else {}
    leaving, names = [], {}
    for kind, end in ends.items():
        old = list(_old(published, kind, end, newest=newest))
        first, hold = published.removed(kind), holding.get(kind)
        gone, held = [], 0
        for file in old:
            if hold is not None and first + file.rows > hold.first:
                held += file.rows
            elif not held:
                gone.append(file)
            first += file.rows
        if old:
            rows, size = sum(each.rows for each in gone), sum(each.size for each in gone)
            by = hold.by if hold is not None and held else ()
            leaving.append(Leaving(query, kind, rows, len(gone), size, held, by))
            names[kind] = frozenset(each.name for each in gone)
    return Plan(published, tuple(leaving), names)


def _old(published: PublishedBatches, kind: str, until: float, *, newest: bool) -> Iterator[ListedFile]:
    """The files of a kind that were published before a time, in order, up to the first that was not."""
    for file in published.merged.files:
        if file.kind == kind:
            time = published.merged.published_at(file.last)
            if time is None or time >= until:
                return
            yield file
    last = published.last
    for document in published.single:
        if document.get(PUBLISHED, until) >= until or (document["last"] == last and not newest):
            return
        yield from (file for file in files_of(document) if file.kind == kind)


def carry_out(
    layout: Layout, query: str, plan: Plan, replaced: ReplacedFiles, *, is_read: bool = True
) -> None:
    """Let rows leave: one commit, which also puts the names of their files; these are deleted later.

    Args:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        plan: of rows that leave.
        replaced: deletes the files.
        is_read: whether somebody may still be reading them: only then are they kept for a while.

    Raises:
        FencedError: another run has taken over.
    """
    manifests, merged = layout.manifests(query), plan.published.merged

    def leaves(file: ListedFile) -> bool:
        return file.name in plan.names.get(file.kind, ())

    puts: dict[StoredDocument, dict[str, Any]] = {}
    gone = [file for file in merged.files if leaves(file)]
    if gone:
        kept = tuple(file for file in merged.files if not leaves(file))
        left = replace(merged, files=kept, removed=_with(merged.removed, gone))
        puts[manifests[MERGED]] = MERGED_MANIFEST.stamped(left.document())
    for document in plan.published.single:
        own = [file for file in files_of(document) if leaves(file)]
        if own:
            rest = [file for file in document["files"] if file["name"] not in {each.name for each in own}]
            left_document = {**document, "files": rest, REMOVED: _with(removed_of(document), own)}
            puts[manifests[document["first"]]] = MANIFEST.stamped(left_document)
            gone += own
    names = [name_of(layout, query, each.kind, each.name) for each in gone]
    told = replaced.document(f"left-{uuid.uuid4().hex[:8]}", names, is_read=is_read)
    failpoint("rows_leave", plan.published.last)
    commit({**puts, **told})
    failpoint("rows_left", plan.published.last)
    replaced.committed(told)


def _with(removed: Mapping[str, int], gone: Iterable[ListedFile]) -> dict[str, int]:
    found = dict(removed)
    for each in gone:
        found[each.kind] = found.get(each.kind, 0) + each.rows
    return found


class OldRows:
    """Lets old rows of one query leave; the query's publisher owns it.

    Args:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        retention: how long rows are kept.
        replaced: deletes the files.
    """

    def __init__(self, layout: Layout, query: str, retention: Retention, replaced: ReplacedFiles) -> None:
        self._layout = layout
        self._query = query
        self._retention = retention
        self._replaced = replaced
        #: seconds of `time.monotonic`
        self._looked_at: float | None = None
        #: what was told of rows that something needs, by kind
        self._held: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_due(self) -> bool:
        """Whether rows may have become old since the last look, `LOOK_SECONDS` ago."""
        looked_at = self._looked_at
        return self._retention.is_any and (looked_at is None or time.monotonic() - looked_at >= LOOK_SECONDS)

    def remove(self, events: EventLog, now: float) -> None:
        """Let rows leave that are older than their retention; the newest batch remains.

        Args:
            events: where it is told.
            now: seconds since the epoch.

        Raises:
            DamagedError: a manifest is missing or damaged.
            FencedError: another run has taken over.
        """
        self._looked_at = time.monotonic()

        def until(kind: str) -> float | None:
            seconds = self._retention.seconds(self._query, kind)
            return None if seconds is None else now - seconds

        plan = plan_of(self._layout, self._query, until, self._retention.needed, newest=False)
        if plan.is_any:
            carry_out(self._layout, self._query, plan, self._replaced)
        for each in plan.leaving:
            if each.files:
                events.record("rows_removed", **each.told, rows=each.rows, files=each.files, bytes=each.bytes)
            if each.held and self._held.get(each.kind) != each.by:
                events.record("rows_held", **each.told, rows=each.held, held_by=list(each.by))
        self._held = {each.kind: each.by for each in plan.leaving if each.held}
        self._replaced.remove()
