"""In which line of a local file a quarantined record stands."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

#: larger files are not read again for it, and of a block no more records are looked for
_MOST_BYTES = 64 << 20
_MOST_RECORDS = 1_000


def with_lines(origins: pa.Array, records: pa.Array) -> pa.Array:
    """Origins with `:line` behind the path where a record is a line of a plain local file.

    Args:
        origins: string; paths as `file:/...`, or anything else, which stays as it is.
        records: binary, the text of each record.
    """
    told = origins.to_pylist()
    wanted: dict[str, dict[bytes, deque[int]]] = {}
    for number, (origin, record) in enumerate(zip(told[:_MOST_RECORDS], records, strict=False)):
        if origin is not None and origin.startswith("file:/") and record.is_valid:
            wanted.setdefault(origin, {}).setdefault(record.as_py(), deque()).append(number)
    for origin, places in wanted.items():
        for number, line in _lines(origin, places):
            told[number] = f"{origin}:{line}"
    return pa.array(told, pa.string())


def _lines(origin: str, places: dict[bytes, deque[int]]) -> list[tuple[int, int]]:
    """(number of the record, line) of those that are found; equal records take their lines in order."""
    path = Path("/" + unquote(origin.removeprefix("file:")).lstrip("/"))
    found = []
    missing = sum(map(len, places.values()))
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        with path.open("rb") as file:
            for line, text in enumerate(file, 1):
                place = places.get(text.rstrip(b"\r\n"))
                if place:
                    found.append((place.popleft(), line))
                    missing -= 1
                    if not missing:
                        break
    except OSError:
        return found
    return found
