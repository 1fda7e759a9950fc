"""StoredDocuments of many views, stored by difference from a base, so that a change of a few views writes these alone.

A document of few views has them whole. One of many names a base, a file of all views as they were, and has the views that
are new or others since and the names that left. The base of a document is never changed, nor removed while it is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from itertools import compress
from typing import Any, Generic, TypeVar

from penstock.errors import DamagedError
from penstock.spark.storage.documents import Place
from penstock.spark.storage.formats import BASE, BASE_NUMBER, DROPPED
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments

#: fewer views are stored whole
_LEAST_VIEWS = 256
#: a new base is written once one of so many views differs
_MOST_CHANGED = 8

Text = TypeVar("Text", bound=str)
View = TypeVar("View")


def others_since(before: Mapping[str, object], now: Mapping[str, View]) -> dict[str, View]:
    """The entries that are new or not what they were, in the order of `now`; quick where most are the same objects."""
    others = compress(now, map(operator.is_not, map(before.get, now), now.values()))
    return {name: now[name] for name in others if before.get(name) != now[name]}


class Bases(Generic[Text, View]):
    """The bases of documents that follow one another: the versions of a plan, or of the catalog.

    Args:
        bases: where they are.
        stored: the members of a document that has these views, given as JSON by name.
        read: the views by name that such members have.
    """

    def __init__(
        self,
        bases: StoredDocuments,
        stored: Callable[[Mapping[str, Text]], dict[str, Any]],
        read: Callable[[Mapping[str, Any]], dict[str, View]],
    ) -> None:
        self._bases = bases
        self._stored = stored
        self._read = read
        #: the newest base, where this object wrote it, and its views
        self._number: int | None = None
        self._views: dict[str, Text] = {}

    def members(self, number: int, views: Mapping[str, Text]) -> dict[str, Any]:
        """The members of the next document; its base is durable on return.

        Args:
            number: of the document; ascending.
            views: its views as JSON, by name.
        """
        if len(views) < _LEAST_VIEWS:
            self._number, self._views = None, {}
            return self._stored(views)
        changed = others_since(self._views, views)
        dropped = sorted(self._views.keys() - views.keys())
        if self._number is None or not self._is_near(views, changed, dropped):
            self._write(number, views)
            self._number, self._views, changed, dropped = number, dict(views), {}, []
        return {BASE_NUMBER: self._number, DROPPED: dropped, **self._stored(changed)}

    def _write(self, number: int, views: Mapping[str, Text]) -> None:
        # of documents that no longer exist
        self._bases.remove(newer for newer in self._bases.numbers() if newer > number)
        BASE.replace(self._bases[number], self._stored(views))

    def _is_near(
        self, views: Mapping[str, Text], changed: Mapping[str, Text], dropped: Collection[str]
    ) -> bool:
        """Whether few views differ from the base's, and the order of all follows from it."""
        if _MOST_CHANGED * (len(changed) + len(dropped)) > len(self._views):
            return False
        kept = [name for name in self._views if name in views] if dropped else self._views
        return [*kept, *(name for name in changed if name not in self._views)] == list(views)

    def views(self, document: Mapping[str, Any], path: Place) -> dict[str, View]:
        """The views of a document by name, in the order that they were given in.

        Args:
            document: as `members` gave it.
            path: where it is, for messages.

        Raises:
            CheckpointError: its base is missing or damaged.
        """
        if BASE_NUMBER not in document:
            return self._read(document)
        base = BASE.read(self._bases[document[BASE_NUMBER]])
        if base is None:
            raise self._missing(document, path)
        left = frozenset(document[DROPPED])
        kept = {name: view for name, view in self._read(base).items() if name not in left}
        return kept | self._read(document)

    def base(self, document: Mapping[str, Any], path: Place) -> StoredDocument:
        """The base of a document by difference.

        Args:
            document: as `members` gave it.
            path: where it is, for messages.

        Raises:
            DamagedError: it is missing.
        """
        base = self._bases[document[BASE_NUMBER]]
        if not base.exists():
            raise self._missing(document, path)
        return base

    def _missing(self, document: Mapping[str, Any], path: Place) -> DamagedError:
        reason = f"({BASE.kind}) is missing: {path} is stored as its difference from it"
        return DamagedError(str(self._bases[document[BASE_NUMBER]]), reason)

    def forget(self, kept: Collection[int]) -> None:
        """Removes the bases that no document needs.

        Args:
            kept: the numbers of the documents that remain. The base of each is the newest one that is no newer than it.
        """
        bases = self._bases.numbers()
        needed = {max((base for base in bases if base <= number), default=None) for number in kept}
        # a newer one may be of a document that is being stored
        newest = max(kept, default=-1)
        self._bases.remove(base for base in bases if base <= newest and base not in needed)
