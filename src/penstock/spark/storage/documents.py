"""Small JSON documents, each with a checksum of itself: the one gate through which stored documents are written and read.

The first member of a file's document, `crc`, is the CRC-32 of the bytes behind it. Files of older layouts have none: they are read
so that the layout can be refused by its number. Documents of the ledger have the ledger's checksums.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.errors import DamagedError
from penstock.spark.storage.ledger_documents import StoredDocument, parsed
from penstock.spark.storage.store_paths import ObjectPath, StorePath, replace_content
from penstock.stores.durable import put_bytes_if_absent

#: where a document is: a file, or a document of the ledger
Place = StorePath | StoredDocument
CHECKSUM = "crc"
#: how a document with a checksum begins, whatever name and digits it has: these may be what is damaged
_SEAL = re.compile(rb'\{"([^"]*)":"([^"]{8})",')


class Encoded(str):
    """The JSON text of a value: what rarely changes is encoded once, however often the document is written."""

    __slots__ = ()


def encoded(value: Any, default: Callable[[Any], Any] | None = None) -> Encoded:
    """A value as JSON; see `sealed`."""
    if isinstance(value, Encoded):
        return value
    return Encoded(json.dumps(value, separators=(",", ":"), default=default))


def encoded_list(values: Iterable[Encoded]) -> Encoded:
    """A list of values."""
    return Encoded(f"[{','.join(values)}]")


def encoded_member(name: str, value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """A member of an object, as `encoded_object` takes it; see `sealed`."""
    return f"{json.dumps(name)}:{encoded(value, default)}"


def encoded_object(members: Iterable[str]) -> Encoded:
    """An object of members."""
    return Encoded(f"{{{','.join(members)}}}")


def plain(document: Mapping[str, Any]) -> bytes:
    """A document as the ledger stores it, which has checksums of its own; its values may be `Encoded`."""
    return encoded_object(encoded_member(name, value) for name, value in document.items()).encode()


def sealed(document: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> bytes:
    """A document as it is stored, with its checksum.

    Args:
        document: its members, one at least; their values may be `Encoded`.
        default: what becomes of a value that JSON does not know; by default a TypeError.
    """
    members = (encoded_member(name, value, default) for name, value in document.items())
    behind = encoded_object(members).encode()[1:]
    return b'{"%s":"%08x",%s' % (CHECKSUM.encode(), zlib.crc32(behind), behind)


def unsealed(content: bytes, path: Place, kind: str) -> dict[str, Any]:
    """The document that some bytes hold, without its checksum.

    Args:
        content: as `sealed` gave it, or JSON without a checksum.
        path, kind: where it was read, and what it is; for messages.

    Raises:
        DamagedError: it is not what was written.
    """
    seal = _SEAL.match(content)
    if seal is not None:
        checksum = b"%08x" % zlib.crc32(content[seal.end() :])
        if seal.groups() != (CHECKSUM.encode(), checksum):
            raise DamagedError(str(path), f"({kind}) is damaged: its content does not match its checksum")
    document = parsed(content, path, kind)
    if seal is not None:
        del document[CHECKSUM]
    return document


def replace_json(path: Place, document: Mapping[str, Any]) -> None:
    """Writes a document under its final name in one atomic step, durable on return."""
    if isinstance(path, StoredDocument):
        path.replace(plain(document))
    else:
        replace_content(path, sealed(document))


def put_json_if_absent(path: Place, document: Mapping[str, Any]) -> bool:
    """Like `replace_json`, but leaves an existing document alone and returns False."""
    if isinstance(path, StoredDocument):
        return path.put(plain(document))
    if not isinstance(path, ObjectPath):
        return put_bytes_if_absent(path, sealed(document))
    return path.files.put_new(path.place, sealed(document))


def read_json(path: Place, kind: str) -> dict[str, Any] | None:
    """A document, or None where there is no such file.

    Args:
        path: where.
        kind: what it is, for messages.

    Raises:
        DamagedError: it is not what was written.
    """
    if isinstance(path, StoredDocument):
        content = path.get()
        return None if content is None else parsed(content, path, kind)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return unsealed(content, path, kind)
