"""The folders into which one query publishes, and which of the files in them are its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.publication.kinds import folder_of
from penstock.spark.storage.files import make_folder
from penstock.spark.storage.layout import TUPLES_FILES, Layout, is_of_log
from penstock.spark.storage.names import on_disk

#: what ends the names of runs of tuples, which are the log's alone
RUN_ENDING = ".arrow"


class PublishedFolders:
    """Finds and names the published files of one query; one thread owns it.

    Args:
        layout: output and checkpoint folders.
        name: the query's name among the manifests.
        owner: ends the names of its files, where other queries may publish into the same folders.
    """

    def __init__(self, layout: Layout, name: str, owner: str | None) -> None:
        self._layout = layout
        self._name = name
        self.ending = ".parquet" if owner is None else f".{on_disk(owner)}.parquet"
        self._of: dict[str, Path] = {}

    def __iter__(self) -> Iterator[Path]:
        return iter(dict.fromkeys(self._of.values()))

    @property
    def merged(self) -> list[Path]:
        """The folders of the kinds whose files are merged."""
        return list(dict.fromkeys(folder for kind, folder in self._of.items() if not is_of_log(kind)))

    def __getitem__(self, kind: str) -> Path:
        """The folder of a kind that is known."""
        return self._of[kind]

    def follow(self, kind: str) -> None:
        """Looks after a kind of files from now on."""
        self._of[kind] = folder_of(self._layout, self._name, kind)

    def make(self, kind: str) -> None:
        """Creates the folder of a kind, durable on return."""
        self.follow(kind)
        make_folder(self._of[kind])

    def ending_of(self, kind: str) -> str:
        """What ends the names of a kind's files."""
        return RUN_ENDING if self._of[kind].parent.name == TUPLES_FILES else self.ending

    def own(self, folder: Path, stem: str, behind: str = "") -> list[Path]:
        """The query's files in a folder.

        Args:
            folder: one of its folders.
            stem: pattern of their names before the ending that is common to all.
            behind: what follows that ending.
        """
        is_runs = folder.parent.name == TUPLES_FILES
        pattern = re.compile(stem + re.escape((RUN_ENDING if is_runs else self.ending) + behind))
        return [path for path in folder.iterdir() if pattern.fullmatch(path.name)] if folder.is_dir() else []
