"""One object, read in parts: by a reader of columns, which needs few of them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from obstore.exceptions import PreconditionError
from obstore.store import ObjectStore

from penstock.stores.address import StoreAddress
from penstock.stores.object_failures import failures

#: what a reader raises whose object was replaced
CHANGED = "the file has changed since its batch began"


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells two contents of an object apart.

    Attributes:
        size: bytes.
        modified_ns: time of the last modification, nanoseconds since the epoch; most stores know seconds.
        etag: the store's own mark of a content; None: it has none.
    """

    size: int
    modified_ns: int
    etag: str | None


def version_of(address: StoreAddress) -> ObjectVersion:
    """Return the version of an object.

    Raises:
        FileNotFoundError: no such object.
        ConnectionFailedError: no such bucket, wrong credentials, no permission.
        StoreFailedError: the store failed.
    """
    with failures(str(address), "reading"):
        found = _store(address).head(address.path)
    return ObjectVersion(found["size"], round(found["last_modified"].timestamp() * 1e9), found["e_tag"])


def names_below(address: StoreAddress) -> Iterator[str]:
    """Yield the names of the objects below an address, relative to it.

    Raises:
        ConnectionFailedError: no such bucket, wrong credentials, no permission.
        StoreFailedError: the store failed.
    """
    with failures(str(address), "listing"):
        for portion in address.store().list():
            for each in portion:
                yield each["path"]


class ObjectReader(io.RawIOBase):
    """A seekable file over one version of an object: a read is one request, and fails if the object was replaced meanwhile.

    Args:
        address: of the object.
        version: the one to read.
    """

    def __init__(self, address: StoreAddress, version: ObjectVersion) -> None:
        super().__init__()
        self._address = address
        self._version = version
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move, and return the new position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._version.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return bytes from the position on: `size` of them, or all that are left.

        Raises:
            OSError: the object was replaced, or is gone; StoreFailedError: the store failed.
            ConnectionFailedError: wrong credentials, no permission.
        """
        end = self._version.size if size < 0 else min(self._position + size, self._version.size)
        if end <= self._position:
            return b""
        with failures(str(self._address), "reading"):
            try:
                found = (
                    _store(self._address)
                    .get(
                        self._address.path,
                        options={"range": (self._position, end), "if_match": self._version.etag},
                    )
                    .bytes()
                )
            except PreconditionError:
                raise OSError(CHANGED) from None
        self._position = end
        return bytes(found)

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        return self.read()


def _store(address: StoreAddress) -> ObjectStore:
    pinned = address.pinned()
    return _opened(pinned.scheme, pinned.bucket, tuple(sorted(pinned.options.items())))


@lru_cache(maxsize=16)
def _opened(scheme: str, bucket: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """A bucket's client: it keeps its connections."""
    return StoreAddress(scheme, bucket, "", dict(options)).store()
