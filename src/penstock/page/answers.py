"""Values of the page's answers: times as epoch seconds, numbers that JSON knows, texts of bounded length."""

from __future__ import annotations

import json
import math
import zlib
from datetime import datetime
from typing import Any

#: characters of a text in a list; its own page shows it whole
LISTED = 300


def epoch(time_text: object) -> float | None:
    """A moment of the event log as seconds since the epoch; None where it is none."""
    try:
        return datetime.fromisoformat(str(time_text)).timestamp()
    except ValueError:
        return None


def seconds(microseconds: float | None) -> float | None:
    """Microseconds as seconds."""
    return None if microseconds is None else microseconds / 1e6


def cut(text: str, most: int = LISTED) -> str:
    """A text with at most so many characters, the last an ellipsis where some are missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_name(name: str) -> str:
    """A name in a list: a long one is cut, and ends with a checksum, so that the page finds the whole one by it."""
    if len(name) <= LISTED:
        return name
    return f"{name[: LISTED - 9]}…{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


def encoded(answer: Any) -> bytes:
    """An answer as JSON; a number that JSON does not know becomes null."""
    try:
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
            "utf-8", "replace"
        )
    except ValueError:
        return encoded(_finite(answer))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
