"""Keys of the ledger as bytes in the same order: parts are compared one after the other, integers before strings.

A string ends with a zero byte, and a zero byte inside it is followed by 0xFF. No kind of part begins with 0xFF, so the keys
beneath a key are those between it and itself with 0xFF appended. Source: the tuple layer of FoundationDB.
"""

from __future__ import annotations

from typing import TypeAlias

#: parts of a key: strings, and integers of 64 bits
Key: TypeAlias = tuple[str | int, ...]

_INT, _STR = b"\x01", b"\x02"
_OFFSET = 1 << 63
#: appended to a key: the begin of all keys beneath it, and their end
BENEATH, BEYOND = b"\x00", b"\xff"


def encoded_key(key: Key) -> bytes:
    """Return the key of a document as bytes.

    Raises:
        ValueError: it is empty, or a part is neither a string of characters nor an integer of 64 bits.
    """
    if not key:
        raise ValueError("the key of a document in the ledger cannot be empty")
    return encoded_prefix(key)


def encoded_prefix(key: Key) -> bytes:
    """Return what the bytes of all keys at and beneath a key begin with; see `encoded_key`."""
    return b"".join(map(_encoded_part, key))


def _encoded_part(part: str | int) -> bytes:
    if isinstance(part, str):
        return _STR + part.encode().replace(b"\0", b"\0\xff") + b"\0"
    if isinstance(part, int) and not isinstance(part, bool) and -_OFFSET <= part < _OFFSET:
        return _INT + (part + _OFFSET).to_bytes(8, "big")
    raise ValueError(f"{part!r} cannot be part of a key of the ledger: strings and integers of 64 bits can")


def decoded_key(content: bytes) -> Key:
    """Return the key that some bytes are.

    Raises:
        ValueError: they are none.
    """
    parts: list[str | int] = []
    place = 0
    while place < len(content):
        kind, begin = content[place : place + 1], place + 1
        if kind == _INT:
            place = begin + 8
            if place > len(content):
                raise ValueError("a key of the ledger is cut off")
            parts.append(int.from_bytes(content[begin:place], "big") - _OFFSET)
        elif kind == _STR:
            end = content.index(0, begin)
            while content[end + 1 : end + 2] == BEYOND:
                end = content.index(0, end + 2)
            parts.append(content[begin:end].replace(b"\0\xff", b"\0").decode())
            place = end + 1
        else:
            raise ValueError("bytes are no key of the ledger")
    return tuple(parts)
