"""Spark's own checkpoints of the streams of a folder. A run that takes over from one that may still write gets copies."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock.spark.storage.store_paths import StorePath, remove_folder, replace_content
from penstock.stores.durable import make_folder

#: what Spark writes, in the order of copying: it writes a batch's commit last, so no copy has a commit without its offsets
_COPIED = ("commits/*", "offsets/*", "sources/*/*", "metadata")


def folder_name(number: int) -> str:
    """The folder of a stream's checkpoint: of the first, 0, and of copies, which have the epoch of the run that made them."""
    return f"spark-{number}" if number else "spark"


def copy_checkpoints(folder: StorePath, old: int, new: int) -> None:
    """Copies Spark's checkpoint of each stream.

    Another process may still write to the old one. What it adds belongs to a batch that it cannot publish.

    Args:
        folder: the checkpoint of all streams.
        old, new: numbers of the folders, see `folder_name`.
    """
    for stream in folder.glob("*"):
        source, target = stream / folder_name(old), stream / folder_name(new)
        for pattern in _COPIED:
            for file in source.glob(pattern):
                # names of files that are not finished begin with a dot; Spark removes old batches
                if not file.name.startswith("."):
                    with suppress(FileNotFoundError):
                        _copy(source, target, str(file)[len(str(source)) + 1 :])


def remove_other_checkpoints(folder: StorePath, kept: int) -> None:
    """Removes the folders that no run reads any more.

    Args:
        folder: the checkpoint of all streams.
        kept: number of the folders that stay.
    """
    for found in folder.glob("*/spark*"):
        if found.name != folder_name(kept):
            remove_folder(found)


def _copy(source: StorePath, target: StorePath, name: str) -> None:
    """Copies a file, and the one beside it with its checksums."""
    parts = name.rpartition("/")
    for each in (name, f"{parts[0]}{parts[1]}.{parts[2]}.crc"):
        old, new = source / each, target / each
        if isinstance(new, Path):
            make_folder(new.parent)
        replace_content(new, old.read_bytes())
