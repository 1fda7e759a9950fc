"""In which line of a local file a quarantined record stands."""

from __future__ import annotations

import codecs
from collections import Counter, deque
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from penstock.spark.tasks.parquet_files import other_kind

#: larger files are not read again for it
_MOST_BYTES = 64 << 20


def with_lines(origins: pa.Array, records: pa.Array, encoding: str = "utf-8") -> pa.Array:
    """Origins with `:line` behind the path where a record is a line of a plain local file, which is read once.

    Of a text that has more lines than there are records nothing is told: another task may have read the others.

    Args:
        origins: string; paths as `file:/...`, or anything else, which stays as it is.
        records: binary, the text of each record in UTF-8.
        encoding: of the files.
    """
    told = origins.to_pylist()
    wanted: dict[str, dict[str, deque[int]]] = {}
    for number, (origin, record) in enumerate(zip(told, records, strict=True)):
        if origin is not None and origin.startswith("file:/") and record.is_valid:
            text = record.as_py().decode("utf-8", errors="replace")
            wanted.setdefault(origin, {}).setdefault(text, deque()).append(number)
    for origin, places in wanted.items():
        for number, line in _lines(origin, places, encoding):
            told[number] = f"{origin}:{line}"
    return pa.array(told, pa.string())


def _lines(origin: str, places: dict[str, deque[int]], encoding: str) -> list[tuple[int, int]]:
    """(number of the record, line) of those that are found; equal records take their lines in order."""
    path = Path("/" + unquote(origin.removeprefix("file:")).lstrip("/"))
    found: list[tuple[str, int, int]] = []
    times: Counter[str] = Counter()
    try:
        if path.stat().st_size > _MOST_BYTES or other_kind(str(path)) is not None:
            return []
        name = codecs.lookup(encoding).name
        with path.open(
            encoding="utf-8-sig" if name == "utf-8" else name, errors="replace", newline=""
        ) as file:
            for line, ended in enumerate(file, 1):
                text = ended.rstrip("\r\n")
                place = places.get(text)
                if place is None:
                    continue
                times[text] += 1
                if place:
                    found.append((text, place.popleft(), line))
    except (OSError, LookupError):
        return []
    told = Counter(text for text, _, _ in found)
    return [(number, line) for text, number, line in found if times[text] == told[text]]
