"""Files that were replaced by merged ones: they are kept for a while for whoever has found them and is reading.

The commit that lists a merged file also puts a document with the names of the files that it replaces. Whoever deletes these
removes the document afterwards. Files that nobody reads any more are deleted in the same way, without the wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from math import inf
from typing import Any

from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import REPLACED
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.stores.files import Files

_log = logging.getLogger(__name__)
#: so long after a file could not be deleted, Penstock tries again
_RETRY_SECONDS = 60.0


class ReplacedFiles:
    """Deletes files once their time is over; one thread at a time calls it.

    Args:
        documents: name the files.
        files: the store of the files.
        grace_seconds: files are kept for so long.
        held: gives the names of files that something still needs.
    """

    def __init__(
        self,
        documents: StoredDocuments,
        files: Files,
        grace_seconds: float,
        held: Callable[[], Set[str]] = frozenset,
    ) -> None:
        self._documents = documents
        self._files = files
        self._grace = grace_seconds
        self._held = held
        found = documents.all(REPLACED.kind)
        #: when the files of each document are deleted, seconds since the epoch
        self._due = {
            key: REPLACED.opened(document, documents[key])["replaced"] + grace_seconds
            for key, document in found.items()
        }
        #: when the first of them are: it is asked with each batch
        self._soonest = min(self._due.values(), default=inf)
        self._deleted = 0
        #: files that could not be deleted: each is logged once
        self._stuck: set[str] = set()

    def document(
        self, key: int | str, names: Sequence[str], *, is_read: bool = True
    ) -> dict[StoredDocument, dict[str, Any]]:
        """Return the document that the commit puts; call `committed` afterwards.

        Args:
            key: no other document has it.
            names: of the files in the store.
            is_read: whether somebody may still be reading them: only then are they kept for a while.
        """
        document = {"replaced": time.time() if is_read else 0.0, "files": list(names)}
        return {self._documents[key]: REPLACED.stamped(document)} if names else {}

    def committed(self, puts: Mapping[StoredDocument, Mapping[str, Any]]) -> None:
        """Note documents that were committed just now."""
        for where, document in puts.items():
            due = document["replaced"] + self._grace
            self._due[where.key[-1]] = due
            self._soonest = min(self._soonest, due)

    def listed(self) -> set[str]:
        """Return the names of all files that are to be deleted later."""
        found = self._documents.all(REPLACED.kind)
        return {name for document in found.values() for name in document["files"]}

    def remove(self) -> None:
        """Delete the files whose time is over.

        A file that is needed, or that cannot be deleted, is tried again later, and delays nothing.
        """
        now = time.time()
        if now < self._soonest:
            return
        held = self._held()
        for key in [key for key, due in self._due.items() if due <= now]:
            document = REPLACED.read(self._documents[key])
            names = () if document is None else document["files"]
            left = [name for name in names if name in held or not self._is_deleted(name)]
            if not left:
                self._documents[key].remove()
                del self._due[key]
            else:
                self._due[key] = now + _RETRY_SECONDS
        self._soonest = min(self._due.values(), default=inf)

    def _is_deleted(self, name: str) -> bool:
        try:
            self._files.delete([name])
        except OSError as error:
            if name not in self._stuck:
                _log.warning(
                    "%s was replaced but cannot be deleted; Penstock tries again: %s",
                    self._files.address(name),
                    error,
                )
            self._stuck.add(name)
            return False
        self._stuck.discard(name)
        failpoint("replaced_half_removed", self._deleted)
        self._deleted += 1
        return True
