"""What attempts that were killed have left in the folders of published files.

Files are listed here and nowhere else. A file is deleted if neither a manifest nor a document of replaced files lists it, and only if it
is of a batch up to the next one: a file of a later batch means that the ledger is older than the folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from penstock.spark.publication.kinds import ending_of, folder_of, is_required, name_of, store_of
from penstock.spark.publication.manifests import PublishedBatches, located
from penstock.spark.storage.layout import LOG_KINDS, TUPLES_FILES, Layout, is_of_log
from penstock.spark.storage.store_paths import StorePath, name_below
from penstock.stores.files import Files

_DIGITS = "[0-9a-f]{8}"
_NAME = rf"(?P<first>\d{{10,}})(?:-to-(?P<last>\d{{10,}})(?:-\d+)?|-\d+-\d{{5,}})-{_DIGITS}"


class Leftovers:
    """Finds and deletes files of one query that are not published.

    Args:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        owner: ends the names of its files, where other queries may publish into the same folders.
    """

    def __init__(self, layout: Layout, query: str, owner: str | None) -> None:
        self._layout = layout
        self._query = query
        self._owner = owner

    def repair(self, published: PublishedBatches, kinds: Collection[str], replaced: Collection[str]) -> None:
        """Delete the files that nothing lists.

        Args:
            published: the query's batches.
            kinds: of its files, as far as they are known.
            replaced: names in the store of the results folder that are deleted later.

        Raises:
            DamagedError: a file that a manifest lists is missing or damaged; nothing is deleted then.
        """
        for file in published.files:
            if is_required(file.kind):
                located(self._layout, self._query, file)
        keep = {name_of(self._layout, self._query, file.kind, file.name) for file in published.files}
        keep.update(replaced)
        gone: dict[Files, list[str]] = {}
        for kind, name, first, last in self._own(kinds):
            # the log alone knows which files of merged batches it still needs
            is_over = last <= published.last + 1 and not (is_of_log(kind) and first <= published.merged.last)
            if is_over and name not in keep:
                gone.setdefault(store_of(self._layout, kind), []).append(name)
        if gone:
            # fails if another run has taken over meanwhile, whose files these may be
            self._layout.ledger.writer.commit()
        for store, names in gone.items():
            store.delete(names)

    def remove(self, batch: int, kinds: Collection[str]) -> None:
        """Delete the files of a batch that is not published."""
        for kind, name, first, last in self._own(kinds):
            if first == last == batch:
                store_of(self._layout, kind).delete([name])

    def _own(self, kinds: Collection[str]) -> Iterator[tuple[str, str, int, int]]:
        """The query's files: a kind of the folder, name in the store, and the batches that the name says."""
        layout, query = self._layout, self._query
        folders = {folder_of(layout, query, kind): kind for kind in kinds}
        if self._owner is None:
            tuples = _folders(layout.log_files(query, TUPLES_FILES))
            logged = (*LOG_KINDS, *(f"{TUPLES_FILES}/{each.name}" for each in tuples))
            folders |= {layout.log_files(query, kind): kind for kind in logged}
        else:
            for group in ("results", "misses"):
                folders = dict.fromkeys(_folders(layout.output / group), group) | folders
        for folder, kind in folders.items():
            root = layout.checkpoint if is_of_log(kind) else layout.output
            pattern = re.compile(_NAME + re.escape(ending_of(kind, self._owner)))
            for path in folder.iterdir() if folder.is_dir() else ():
                found = pattern.fullmatch(path.name)
                if found is not None:
                    first = int(found["first"])
                    yield kind, name_below(root, path), first, int(found["last"] or first)


def _folders(folder: StorePath) -> list[StorePath]:
    return [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
