"""Spark's own checkpoint, in a local folder or in an object store."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.storage.store_paths import StorePath, replace_content


def sources_of(logs: StorePath) -> list[StorePath]:
    """Return the folders of a query's sources, in order of name.

    Args:
        logs: the folder `sources` of Spark's checkpoint.
    """
    found: list[StorePath] = list(logs.glob("[0-9]*"))
    return sorted(found, key=str)


def replace_file(path: StorePath, content: bytes) -> None:
    """Give a file another content in one step, durable on return; Spark's checksum of the old one is deleted before."""
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)
    replace_content(path, content)


def remove_file(path: StorePath) -> None:
    """Delete a file and Spark's checksum of it; it need not exist."""
    path.unlink(missing_ok=True)
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
