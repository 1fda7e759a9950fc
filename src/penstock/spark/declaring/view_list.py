"""The views of an engine, for its user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from penstock.deprecation import warn_deprecated

#: what declares views, and is returned for the next call
Declarer = TypeVar("Declarer")


class Views(Mapping[str, str], Generic[Declarer]):
    """The views of an engine: name -> SQL text. Calling it, as `engine.views({...})`, is deprecated.

    Args:
        texts: the text of each view, by name.
        add: declares views.
    """

    def __init__(self, texts: Mapping[str, str], add: Callable[[Mapping[str, str]], Declarer]) -> None:
        self._texts = dict(texts)
        self._add = add

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Views({self._texts!r})"

    def __call__(self, queries: Mapping[str, str]) -> Declarer:
        warn_deprecated("Engine.views({...})", "Engine.add_views({...})")
        return self._add(queries)
