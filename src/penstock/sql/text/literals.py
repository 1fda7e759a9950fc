"""Literals of Spark SQL: what they are and the values they stand for."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(StrEnum):
    """The Spark type family of a literal."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    #: TINYINT to BIGINT
    INTEGER = "INTEGER"
    DECIMAL = "DECIMAL"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"


Value = int | float | Decimal | str | bytes | datetime | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a condition.

    Attributes:
        kind: its type family.
        value: a date is days since 1970-01-01; a timestamp microseconds since then, or a `datetime`
            whose zone is the session's where it has none.
    """

    kind: Kind
    value: Value


_NUMBER = re.compile(
    r"(?P<minus>-)?\s*(?P<digits>\d+\.\d*|\.\d+|\d+)(?P<exponent>[eE][+-]?\d+)?(?P<suffix>BD|[LSYFD])?",
    re.IGNORECASE | re.ASCII,
)
_INTEGER_RANGES = {
    "Y": (-(2**7), 2**7 - 1),
    "S": (-(2**15), 2**15 - 1),
    "L": (LONG_MIN, LONG_MAX),
}


def number(text: str) -> Literal | None:
    """The literal that `text` spells as Spark reads numbers, or None."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    digits = ("-" if match["minus"] else "") + match["digits"]
    exponent = match["exponent"] or ""
    suffix = (match["suffix"] or "").upper()
    if suffix == "BD" or (not suffix and not exponent and "." in digits):
        value = Decimal(digits + exponent)
        return Literal(Kind.DECIMAL, value) if len(value.as_tuple().digits) <= 38 else None
    if suffix in ("F", "D") or exponent:
        real = float(digits + exponent)
        if suffix == "F":
            try:
                real = struct.unpack("f", struct.pack("f", real))[0]
            except OverflowError:
                return None
        if abs(real) == float("inf"):
            return None
        return Literal(Kind.FLOAT if suffix == "F" else Kind.DOUBLE, real)
    if "." in digits:
        return None
    whole = int(digits)
    low, high = _INTEGER_RANGES.get(suffix, (LONG_MIN, LONG_MAX))
    if low <= whole <= high:
        return Literal(Kind.INTEGER, whole)
    return Literal(Kind.DECIMAL, Decimal(whole)) if not suffix and len(digits.lstrip("-")) <= 38 else None


_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))",
    re.DOTALL,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string(raw: str) -> str:
    """The value of one quoted string, as Spark unescapes it.

    Args:
        raw: the literal with its quotes and an optional prefix r; a doubled quote inside is one.
    """
    return strings([raw])


def strings(raws: Sequence[str]) -> str:
    """The value of quoted strings side by side, each as `string` takes it.

    Spark holds them in UTF-16 meanwhile: escapes of two surrogates make one character, a lone one `?`.
    """
    text = "".join(map(_unquoted, raws))
    if not _SURROGATE.search(text):
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub("?", paired)


def _unquoted(raw: str) -> str:
    if raw[0] in "rR":
        return raw[2:-1]
    body = raw[1:-1].replace(raw[0] * 2, raw[0])
    return _ESCAPE.sub(_unescape, body)


def _unescape(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if other is None:
        return _utf16(int(short or long, 16))
    return _ESCAPED.get(other, other)


def _utf16(code: int) -> str:
    """A code point as Java writes it: two surrogates beyond 16 bits, also for what is no code point."""
    if code <= 0xFFFF:
        return chr(code)
    return chr(((code >> 10) + 0xD7C0) & 0xFFFF) + chr((code & 0x3FF) + 0xDC00)


_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4}-\d{1,2}-\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?(?P<zone> *[A-Za-z+-].*)?)?)?",
    re.ASCII,
)


def parse_date(text: str) -> int | None:
    """Days since the epoch of `yyyy-[m]m-[d]d`; None for what only Spark reads."""
    match = _DATE.fullmatch(text.strip(" "))
    if match is None:
        return None
    try:
        day = date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None
    return day.toordinal() - EPOCH.toordinal()


def parse_timestamp(text: str) -> datetime | None:
    """The time that `yyyy-[m]m-[d]d[ [h]h:[m]m[:[s]s[.ffffff][zone]]]` spells, aware if zoned.

    None for what only Spark reads.
    """
    match = _TIMESTAMP.fullmatch(text.strip(" "))
    if match is None:
        return None
    try:
        year, month, day = (int(part) for part in match["date"].split("-"))
        return datetime(
            year,
            month,
            day,
            int(match["hour"] or 0),
            int(match["minute"] or 0),
            int(match["second"] or 0),
            int((match["fraction"] or "0").ljust(6, "0")[:6]),
            None if match["zone"] is None else time_zone(match["zone"].strip(" ")),
        )
    except ValueError:
        return None


#: names of zones that Java knows beside those of the time zone database
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<digits>\d|\d\d|\d{4}|\d\d:\d\d|\d{6}|\d\d:\d\d:\d\d)", re.ASCII
)
_LONGEST_OFFSET = timedelta(hours=18)


@lru_cache(maxsize=64)
def time_zone(name: str) -> tzinfo:
    """The time zone that Spark understands by a name: of the database, `Z`, `+08:00`, `GMT+8`, `PST`.

    Raises:
        ValueError: it is none.
    """
    spelled = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1)
    spelled = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", spelled)
    spelled = _SHORT_ZONES.get(spelled, spelled)
    if spelled in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(spelled)
    if match is None:
        try:
            return ZoneInfo(spelled)
        except (KeyError, OSError, ValueError):
            raise ValueError(f"{name} is not a time zone") from None
    digits = match["digits"].replace(":", "")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4] or 0), int(digits[4:] or 0)
    delta = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59 or delta > _LONGEST_OFFSET:
        raise ValueError(f"{name} is not a time zone: offsets are of at most 18 hours")
    return timezone(-delta if match["sign"] == "-" else delta)


def microseconds(moment: datetime, zone: str) -> int:
    """Microseconds since the epoch; a naive time is local to `zone` (a gap moves it forward).

    Raises:
        ValueError: the zone is none.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=time_zone(zone))
    return (moment - EPOCH) // timedelta(microseconds=1)


def local_microseconds(moment: datetime) -> int:
    """Microseconds from 1970-01-01 00:00:00 to the time on the clock, whatever its zone."""
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
