"""The folders into which one query publishes, and which of the files in them are its own.

Files of matches and results have two names: one in a folder under `_penstock/files/`, which the manifests mean, and one in
the folder that anybody may list. A file that was replaced loses the second one at once, the first one when its time is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.publication.kinds import folder_of, shown_folder
from penstock.spark.storage.files import make_folder, second_name
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
        self.layout = layout
        self.name = name
        self.ending = ".parquet" if owner is None else f".{on_disk(owner)}.parquet"
        self._of: dict[str, Path] = {}
        self._shown: dict[str, Path] = {}

    def __iter__(self) -> Iterator[Path]:
        return iter(dict.fromkeys((*self._of.values(), *self._shown.values())))

    @property
    def merged(self) -> list[str]:
        """The kinds whose files are merged, one of each folder."""
        first = {folder: kind for kind, folder in reversed(self._of.items()) if not is_of_log(kind)}
        return list(first.values())

    def __getitem__(self, kind: str) -> Path:
        """The folder of a kind that is known."""
        return self._of[kind]

    def shown(self, kind: str) -> Path:
        """The folder in which anybody may list the files of a kind that is known."""
        return self._shown[kind]

    def follow(self, kind: str) -> None:
        """Looks after a kind of files from now on."""
        self._of[kind] = folder_of(self.layout, self.name, kind)
        self._shown[kind] = shown_folder(self.layout, self.name, kind)

    def make(self, kind: str) -> None:
        """Creates the folders of a kind, durable on return."""
        self.follow(kind)
        make_folder(self._of[kind])
        make_folder(self._shown[kind])

    def show(self, kind: str, name: str) -> None:
        """Lets anybody see a file; not durable, as the next start looks after that."""
        if self._shown[kind] != self._of[kind]:
            second_name(self._of[kind] / name, self._shown[kind] / name)

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
