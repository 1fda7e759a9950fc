"""How often alerts of one key are sent: the first at once, those that follow together once the time is over.

What waits for a digest is stored before the delivery is taken, so that a kill loses none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.stores.durable import replace_bytes

#: rows that a digest shows
_SHOWN = 10


@dataclass(slots=True)
class Waiting:
    """Rows of one key that wait.

    Attributes:
        until: when the digest is due, seconds since the epoch.
        count: rows that wait.
        first: ordinal of the first one; names the digest.
        rows: the first of them.
    """

    until: float
    count: int = 0
    first: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


class Digests:
    """Decides which rows are sent at once.

    Args:
        path: where what waits is stored.
        seconds: so long after a row or a digest of a key no other is sent.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._delivered = -1
        self._waiting: dict[str, Waiting] = {}
        if path.exists():
            document = json.loads(path.read_bytes())
            self._delivered = document["delivered"]
            self._waiting = {key: Waiting(**each) for key, each in document["waiting"].items()}

    def has(self, delivery: int) -> bool:
        """Whether the rows of a delivery are sent or wait."""
        return delivery <= self._delivered

    def admit(self, key: str, ordinal: str, row: Mapping[str, Any], now: float) -> bool:
        """Whether a row is to be sent now; otherwise it waits."""
        known = self._waiting.get(key)
        if known is None or (now >= known.until and not known.count):
            self._waiting[key] = Waiting(now + self._seconds)
            return True
        if not known.count:
            known.first = ordinal
        known.count += 1
        if len(known.rows) < _SHOWN:
            known.rows.append(dict(row))
        return False

    def due(self, now: float, *, is_over: bool) -> Iterator[tuple[str, Waiting]]:
        """The digests that are to be sent, by key."""
        for key, each in list(self._waiting.items()):
            if each.count and (is_over or now >= each.until):
                yield key, each
            elif not each.count and now >= each.until:
                del self._waiting[key]

    def sent(self, key: str, now: float) -> None:
        """Take note that a digest was sent."""
        self._waiting[key] = Waiting(now + self._seconds)
        self._store()

    def taken(self, delivery: int) -> None:
        """Store what waits, durable on return: the rows of a delivery are sent or wait."""
        self._delivered = delivery
        self._store()

    def _store(self) -> None:
        waiting = {key: asdict(each) for key, each in self._waiting.items()}
        document = {"delivered": self._delivered, "waiting": waiting}
        replace_bytes(self._path, json.dumps(document).encode())
