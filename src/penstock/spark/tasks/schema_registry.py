"""A schema registry's REST interface, as Confluent's has it: what a schema's number means."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from time import monotonic
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from penstock.errors import PenstockError

_SECONDS = 10.0
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND, _FORBIDDEN = 404, (401, 403)
#: of a schema: it is not compatible, or is none
_REFUSED = (409, 422)
#: `error_code` of what a registry has not; any other 404 is not a registry's word
_NO_SUBJECT, _NO_SCHEMA = (40401, 40402), (40403,)
#: a registry has no larger numbers, and takes them for another path
_MOST_NUMBER = 2**31 - 1
#: schemas that a process keeps
_KEPT = 1_000
#: numbers without a schema that a process keeps, and for how long
_ABSENT_KEPT, _ABSENT_SECONDS = 10_000, 10.0
Parsed = TypeVar("Parsed")


class SchemaRegistryError(PenstockError):
    """A schema registry does not answer, or does not let us in."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: the schema; of Protobuf a serialized FileDescriptorProto in base 64.
        references: the name, the subject and the version of each schema that it refers to.
        number: of the schema, where it was asked for by its version.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...]
    number: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry.

    Attributes:
        urls: of its servers, which are asked in turn.
        user_info: `user:password`; empty without.
    """

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)

    @classmethod
    def of(cls, urls: str, user_info: str = "") -> SchemaRegistry:
        """A registry by its option: URLs with commas between, each maybe with `user:password@`.

        Raises:
            ValueError: one is no URL of HTTP.
        """
        found = []
        for url in filter(None, map(str.strip, urls.split(","))):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("is no URL such as 'http://127.0.0.1:8081'")
            user, _, place = parts.netloc.rpartition("@")
            user_info = user_info or user
            found.append(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")))
        if not found:
            raise ValueError("is no URL such as 'http://127.0.0.1:8081'")
        return cls(tuple(found), user_info)

    def by_number(self, number: int) -> RegisteredSchema | None:
        """The schema of a number; None where the registry has none.

        Raises:
            SchemaRegistryError: no server answers, or none lets us in.
        """
        return _by_number(self, number)

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, the oldest first; none where there is no such subject.

        Raises:
            SchemaRegistryError: as above.
        """
        return self._get(f"/subjects/{quote(subject, safe='')}/versions", _NO_SUBJECT, _versions) or []

    def version(self, subject: str, version: int) -> RegisteredSchema | None:
        """A version of a subject; None where there is none.

        Raises:
            SchemaRegistryError: as above.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?format=serialized"
        return self._get(path, _NO_SUBJECT, _schema)

    def register(self, subject: str, text: str) -> int:
        """The number of an Avro schema, which becomes the newest version of a subject unless it is one already.

        Raises:
            ValueError: the registry refuses it: it is not compatible with the versions before, or may not be registered.
            SchemaRegistryError: as above.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self._get(path, (), _number, json.dumps({"schema": text}).encode())
        assert found is not None, "nothing is absent"
        return found

    def protobuf_files(self, schema: RegisteredSchema) -> list[FileDescriptorProto]:
        """The files of a Protobuf schema, each after those that it imports, the schema's own last.

        Raises:
            ValueError: the registry gives them in another form than we read, or lacks one.
            SchemaRegistryError: as above.
        """
        files: dict[str, FileDescriptorProto] = {}
        self._add_files(schema, "", files)
        return list(files.values())

    def _add_files(self, schema: RegisteredSchema, name: str, files: dict[str, FileDescriptorProto]) -> None:
        for imported, subject, version in schema.references:
            if imported not in files:
                found = self.version(subject, version)
                if found is None:
                    raise ValueError(
                        f"the registry has no version {version} of {subject}, which it refers to"
                    )
                self._add_files(found, imported, files)
        file = FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(schema.text, validate=True))
        except (binascii.Error, DecodeError):
            raise ValueError(
                "the registry gives Protobuf schemas as text alone. Name a file of protoc in the option schema.file"
            ) from None
        file.name = name or file.name or "value.proto"
        files[file.name] = file

    def _get(
        self,
        path: str,
        absent: Collection[int],
        parsed: Callable[[Any], Parsed],
        posted: bytes | None = None,
    ) -> Parsed | None:
        """What a server answers; None where it says by an `error_code` in `absent` that it has nothing of that name."""
        told = ""
        for url in self.urls:
            request = Request(url + path, posted, headers={"Accept": _TYPE, "Content-Type": _TYPE})
            if self.user_info:
                token = base64.b64encode(self.user_info.encode()).decode()
                # another host, which a redirection leads to, does not get it
                request.add_unredirected_header("Authorization", f"Basic {token}")
            try:
                with urlopen(request, timeout=_SECONDS) as answer:
                    return parsed(json.load(answer))
            except HTTPError as error:
                if error.code == _NOT_FOUND and _error_code(error) in absent:
                    return None
                if posted is not None and error.code in _REFUSED:
                    raise ValueError(f"the schema registry refuses the schema: {_message(error)}") from None
                told = (
                    f"{url} refuses the user" if error.code in _FORBIDDEN else f"{url} answers {error.code}"
                )
            except (KeyError, TypeError, AttributeError):
                told = f"{url} gives another answer than a schema registry"
            except (URLError, OSError, ValueError, HTTPException) as error:
                told = f"{url}: {getattr(error, 'reason', error)}"
        raise SchemaRegistryError(f"the schema registry does not answer: {told}")


#: until when a number is taken to have no schema, the oldest first
_absent: dict[tuple[SchemaRegistry, int], float] = {}


@lru_cache(maxsize=_KEPT)
def _kept(registry: SchemaRegistry, number: int) -> RegisteredSchema:
    found = registry._get(f"/schemas/ids/{number}?format=serialized", _NO_SCHEMA, _schema)
    if found is None:
        raise LookupError(number)
    return found


def _by_number(registry: SchemaRegistry, number: int) -> RegisteredSchema | None:
    if number > _MOST_NUMBER or monotonic() < _absent.get((registry, number), 0.0):
        return None
    try:
        return _kept(registry, number)
    except LookupError:
        _absent.pop((registry, number), None)
        _absent[registry, number] = monotonic() + _ABSENT_SECONDS
        if len(_absent) > _ABSENT_KEPT:
            _absent.pop(next(iter(_absent)), None)
        return None


def _error_code(error: HTTPError) -> int | None:
    """The registry's own code of an error; None where another server answers."""
    try:
        told = json.load(error)
    except (OSError, ValueError, HTTPException):
        return None
    code = told.get("error_code") if isinstance(told, dict) else None
    return code if isinstance(code, int) else None


def _message(error: HTTPError) -> str:
    """What a registry says of a refusal."""
    try:
        return str(json.load(error)["message"])
    except (OSError, ValueError, HTTPException, KeyError, TypeError):
        return f"it answers {error.code}"


def _number(answer: Any) -> int:
    return int(answer["id"])


def _versions(answer: Any) -> list[int]:
    if not isinstance(answer, list):
        raise TypeError("not a list of versions")
    return [int(each) for each in answer]


def _schema(answer: Any) -> RegisteredSchema:
    kind, text = answer.get("schemaType", "AVRO"), answer["schema"]
    if not isinstance(kind, str) or not isinstance(text, str):
        raise TypeError("not a schema")
    references: Sequence[dict[str, Any]] = answer.get("references") or ()
    return RegisteredSchema(
        kind,
        text,
        tuple((each["name"], each["subject"], int(each["version"])) for each in references),
        answer.get("id"),
    )
