"""What the status says of input of which nothing could be read, and of sums that do not fit their type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.monitor.figures import counted

#: what helps against a reason, by what it speaks of; the first that fits
_REMEDIES = (
    (
        r"nano|logicalType: timestamp",
        "Write Parquet timestamps in microseconds (pandas: to_parquet(..., coerce_timestamps='us')).",
    ),
    (r"csv", "Compare the options sep and header, and the declared columns, with a line of the file."),
    (r"not a JSON object", "Write one JSON object a line."),
    (
        r"json",
        "Compare the declared columns with a record. If an object spans several lines, set the option multiLine 'true'.",
    ),
    (r"utf-?8|encoding", "Set the option encoding to the encoding of the files."),
    (r"bytes|large|max_record", "Raise the setting max_record_bytes, or split the records."),
    (r"type|parquet|unreadable", "Declare each column with the type that the files have."),
)
_ANY = "Compare the declared columns and options of the table with a record."


def nothing_read(stream: Mapping[str, Any]) -> str:
    """Format that every record of a stream so far was set aside, why most were, and what may help; "" where one was read.

    Args:
        stream: its counts `tuples` and `quarantined`, and where they are known `aside` (why a file was unreadable, the newest)
            and `samples` (records by reason).
    """
    reasons: Mapping[str, int] = stream.get("quarantined") or {}
    if stream.get("tuples") or not reasons:
        return ""
    most = _most(reasons)
    sample = (stream.get("samples") or {}).get(most) or {}
    remedy = _remedy(most, str(sample.get("reason") or ""), str(stream.get("aside") or ""))
    count = sum(reasons.values())
    if sample.get("origin"):
        most = f"{most} (for example {sample['origin']})"
    what = "the only record so far was" if count == 1 else f"all {count:,} records so far were"
    why = most if len(reasons) == 1 else f"most for: {most}"
    return f"NOTHING READ: {what} set aside, {why}. {remedy}"


def static_aside(table: Mapping[str, Any]) -> str:
    """Format how many records of a static table were set aside, and why most were; "" where none was.

    Args:
        table: its counts `rows` (that take part in the view) and `malformed` (records by reason).
    """
    reasons: Mapping[str, int] = table.get("malformed") or {}
    if not reasons:
        return ""
    most = _most(reasons)
    count = counted(sum(reasons.values()), "record")
    told = f"{count} set aside, {'all' if len(reasons) == 1 else 'most'}: {most}"
    return told if table.get("rows") != 0 else f"NO ROWS: {told}. {_remedy(most)}"


def _most(reasons: Mapping[str, int]) -> str:
    return max(reasons, key=lambda reason: reasons[reason])


def _remedy(*texts: str) -> str:
    text = " ".join(texts)
    return next((told for pattern, told in _REMEDIES if re.search(pattern, text, re.IGNORECASE)), _ANY)


def overflow_words(rows: int) -> str:
    """Format in how many rows of windows a SUM or AVG is NULL because it does not fit its type; "" where in none."""
    if not rows:
        return ""
    return f"{counted(rows, 'row')} with NULL for a SUM or AVG that does not fit its type"
