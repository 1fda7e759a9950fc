"""Documents in the ledger of a results folder: one under a key, or all of a kind under their numbers or names."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import DamagedError, UnexpectedDocumentError
from penstock.spark.storage.ledgers import LedgerFolder
from penstock.stores.keys import Key
from penstock.stores.ledger import ABSENT, Entry, Range


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """One document; it says where it is where it is shown as text.

    Attributes:
        ledger: whose.
        key: of it.
    """

    ledger: LedgerFolder
    key: Key

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.key))} in {self.ledger}"

    def get(self) -> bytes | None:
        """Its content; None where it does not exist."""
        reader = self.ledger.reader
        return None if reader is None else reader.get(self.key)

    def exists(self) -> bool:
        """Whether it exists."""
        return self.get() is not None

    def signature(self) -> int | None:
        """What changes with its content; None where it does not exist."""
        content = self.get()
        return None if content is None else zlib.crc32(content)

    def replace(self, content: bytes) -> None:
        """Store it, durable on return."""
        self.ledger.writer.commit({self.key: content})

    def put(self, content: bytes) -> bool:
        """Store it unless it exists; returns False where it does."""
        try:
            self.ledger.writer.commit({self.key: content}, expect={self.key: ABSENT})
        except UnexpectedDocumentError:
            return False
        return True

    def remove(self) -> None:
        """Remove it; one that does not exist is none."""
        self.ledger.writer.commit(deletes=[self.key])


@dataclass(frozen=True, slots=True)
class StoredDocuments:
    """The documents of one kind: their keys differ in the last part.

    Attributes:
        ledger: whose.
        prefix: the parts of their keys before.
    """

    ledger: LedgerFolder
    prefix: Key

    def __str__(self) -> str:
        return str(StoredDocument(self.ledger, self.prefix))

    def __getitem__(self, name: int | str) -> StoredDocument:
        return StoredDocument(self.ledger, (*self.prefix, name))

    def __iter__(self) -> Iterator[StoredDocument]:
        return (StoredDocument(self.ledger, key) for key in self._keys())

    def exists(self) -> bool:
        """Whether one exists."""
        return next(self._keys(), None) is not None

    def numbers(self) -> list[int]:
        """The numbers of those that exist, ascending."""
        return [key[-1] for key in self._keys() if isinstance(key[-1], int)]

    @property
    def last(self) -> int:
        """The largest number of those that exist; -1 where none does."""
        reader = self.ledger.reader
        found = () if reader is None else reader.keys(Range(self.prefix, before=""), reverse=True)
        return next((key[-1] for key in found if isinstance(key[-1], int)), -1)

    def between(self, first: int, last: int, kind: str) -> dict[int, dict[str, Any]]:
        """Those that exist of some numbers, in order; all of one state of the ledger.

        Args:
            first, last: the numbers, both included.
            kind: what they are, for messages.

        Raises:
            DamagedError: one is no JSON object.
        """
        reader = self.ledger.reader
        found = () if reader is None else reader.scan(Range(self.prefix, after=first - 1, before=last + 1))
        return {
            key[-1]: parsed(content, self[key[-1]], kind)
            for key, content in found
            if isinstance(key[-1], int)
        }

    def since(self, first: int, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the numbers and documents from a number on, in order; all of one state of the ledger.

        Args:
            first: the number.
            kind: what they are, for messages.

        Raises:
            DamagedError: one is no JSON object.
        """
        reader = self.ledger.reader
        for key, content in () if reader is None else reader.scan(Range(self.prefix, after=first - 1)):
            if isinstance(key[-1], int):
                yield key[-1], parsed(content, self[key[-1]], kind)

    def all(self, kind: str) -> dict[int | str, dict[str, Any]]:
        """Those that exist by number or name, in this order; all of one state of the ledger.

        Args:
            kind: what they are, for messages.

        Raises:
            DamagedError: one is no JSON object.
        """
        return {key[-1]: parsed(content, self[key[-1]], kind) for key, content in self._entries()}

    def names(self) -> list[str]:
        """The names of those that exist, in order."""
        return [key[-1] for key in self._keys() if isinstance(key[-1], str)]

    def remove(self, names: Iterable[int | str]) -> None:
        """Remove some of them in one commit."""
        if gone := [(*self.prefix, name) for name in names]:
            self.ledger.writer.commit(deletes=gone)

    def groups(self) -> list[str]:
        """The parts of keys behind the prefix under which documents exist, in order."""
        reader = self.ledger.reader
        found: list[str] = []
        if reader is None:
            return found
        after: str | int | None = None
        while (key := next(reader.keys(Range(self.prefix, after)), None)) is not None:
            after = key[len(self.prefix)]
            found.append(str(after))
        return found

    def _keys(self) -> Iterator[Key]:
        reader, length = self.ledger.reader, len(self.prefix) + 1
        found = () if reader is None else reader.keys(Range(self.prefix))
        return (key for key in found if len(key) == length)

    def _entries(self) -> list[Entry]:
        reader, length = self.ledger.reader, len(self.prefix) + 1
        found = () if reader is None else reader.scan(Range(self.prefix))
        return [entry for entry in found if len(entry.key) == length]


def commit(
    puts: Mapping[StoredDocument, Mapping[str, Any]],
    deletes: Iterable[StoredDocument] = (),
    expect: Mapping[StoredDocument, bytes | None] | None = None,
    beneath: Iterable[Range] = (),
) -> None:
    """Change several documents of one ledger: all of the changes or none, durable on return.

    Args:
        puts: what is stored.
        deletes: what is removed.
        expect: what must be stored before, None: nothing.
        beneath: ranges of keys that are removed.

    Raises:
        UnexpectedDocumentError: something else than `expect` is stored.
    """
    (ledger,) = {document.ledger for document in puts}
    ledger.writer.commit(
        {document.key: json.dumps(value, separators=(",", ":")).encode() for document, value in puts.items()},
        [*(document.key for document in deletes), *beneath],
        {document.key: content for document, content in (expect or {}).items()},
    )


def parsed(content: bytes, where: object, kind: str) -> dict[str, Any]:
    """The JSON object that some bytes are.

    Args:
        content: the bytes.
        where, kind: where they were read, and what they are; for messages.

    Raises:
        DamagedError: they are something else.
    """
    if not content:
        raise DamagedError(str(where), f"({kind}) is damaged: it is empty")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(
            str(where), f"({kind}) is damaged: it is not a complete JSON document: {error}"
        ) from None
    if not isinstance(document, dict):
        raise DamagedError(str(where), f"({kind}) is damaged: it is not a JSON object")
    return document
