"""Documents of many views, stored by difference from a base, so that a change of a few views writes these alone.

A document of few views has them whole. One of many names a base, a document of all views as they were, and has the views that
are new or others since and the names that left. The base of a document is never changed, nor removed while it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from penstock.errors import DamagedError
from penstock.spark.storage.documents import Place
from penstock.spark.storage.formats import BASE, BASE_NUMBER, DROPPED
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.shared_maps import Changes, SharedMap

#: fewer views are stored whole
_LEAST_VIEWS = 256
#: a new base is written once one of so many views differs
_MOST_CHANGED = 8

Text = TypeVar("Text", bound=str)
View = TypeVar("View")


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
        self._views: SharedMap[Text] = SharedMap()

    def members(self, number: int, views: SharedMap[Text]) -> dict[str, Any]:
        """The members of the next document; its base is durable on return.

        Args:
            number: of the document; ascending.
            views: its views as JSON, by name.
        """
        if len(views) < _LEAST_VIEWS:
            self._number, self._views = None, SharedMap()
            return self._stored(views)
        changes = views.changes_since(self._views)
        if self._number is None or not self._is_near(changes):
            self._write(number, views)
            self._number, self._views = number, views.copy()
            changes = Changes({}, [], is_in_order=True)
        return {BASE_NUMBER: self._number, DROPPED: sorted(changes.gone), **self._stored(changes.others)}

    def _write(self, number: int, views: Mapping[str, Text]) -> None:
        # of documents that no longer exist
        self._bases.remove(newer for newer in self._bases.numbers() if newer > number)
        BASE.replace(self._bases[number], self._stored(views))

    def _is_near(self, changes: Changes[Text]) -> bool:
        """Whether few views differ from the base's, and the order of all follows from it."""
        return changes.is_in_order and _MOST_CHANGED * len(changes) <= len(self._views)

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
