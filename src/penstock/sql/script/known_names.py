"""Names that exist before a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType


class KnownNames(Mapping[str, str]):
    """Names as they were declared, by name in upper case, and what has them.

    Args:
        spelled: by kind (`table`, `stream` or `view`) the names, by name in upper case; later kinds win.
    """

    def __init__(self, spelled: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> None:
        self._spelled = spelled

    def kind(self, name: str) -> str | None:
        """Return what has a name in upper case; None: nothing."""
        return next((kind for kind in reversed(list(self._spelled)) if name in self._spelled[kind]), None)

    def __getitem__(self, name: str) -> str:
        kind = self.kind(name)
        if kind is None:
            raise KeyError(name)
        return self._spelled[kind][name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(*self._spelled.values())))

    def __len__(self) -> int:
        return sum(1 for _ in self)
