"""A hook of mkdocs: a pattern in the navigation stands for its files, in the order of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Expand the patterns; called by mkdocs with its configuration."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def expanded(entry: Any, docs: Path) -> Any:
    """Return a navigation in which a list of files has replaced each pattern.

    Args:
        entry: a page, a mapping of one title to an entry, or a list of entries; a pattern stands in a list.
        docs: the folder that pages are relative to.
    """
    if isinstance(entry, dict):
        return {title: expanded(one, docs) for title, one in entry.items()}
    if isinstance(entry, list):
        return [page for one in entry for page in _pages(one, docs)]
    return entry


def _pages(entry: Any, docs: Path) -> list[Any]:
    if isinstance(entry, str) and "*" in entry:
        return sorted(path.relative_to(docs).as_posix() for path in docs.glob(entry))
    return [expanded(entry, docs)]
