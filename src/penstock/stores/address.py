"""Addresses of stores: what `--output` and `--checkpoint` name, and the files and the ledger that lie there."""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from penstock.errors import ConnectionFailedError, InputError, StoreFailedError
from penstock.stores.durable import make_folder
from penstock.stores.file_cache import FileCache
from penstock.stores.files import Files
from penstock.stores.ledger import Ledger, LedgerReader
from penstock.stores.local_files import LocalFiles
from penstock.stores.object_failures import failures, short
from penstock.stores.object_files import ObjectFiles
from penstock.stores.sqlite_ledger import SqliteLedger, SqliteReader

if TYPE_CHECKING:
    from penstock.stores.slate_place import SlatePlace

#: schemes of object stores, those that mean the same included
_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "azure": "az"}
_STORES = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
#: what a store's options begin with, also in the environment
_PREFIXES = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_",)}
#: variables of the environment that travel to tasks: a machine of a cluster may lack them
_TRAVELLING = {
    "s3": (
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "aws_region",
        "aws_default_region",
        "aws_endpoint_url",
        "aws_endpoint_url_s3",
        "aws_virtual_hosted_style_request",
        "aws_skip_signature",
    ),
    "gs": ("google_service_account", "google_application_credentials"),
    "az": (
        "azure_storage_account_name",
        "azure_storage_account_key",
        "azure_storage_sas_token",
        "azure_storage_endpoint",
    ),
}
_ONE_SLASH = re.compile(r"(?P<scheme>s3a?|gs|az|azure):/(?P<rest>[^/].*)")
_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
#: repetitions of a request: the first look gives up sooner, so that a wrong endpoint is found in seconds
_RETRIES = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
_FIRST_RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
#: file systems that several machines share: SQLite's files would be damaged there
_SHARED = re.compile(r"nfs|cifs|smb|ceph|glusterfs|lustre|9p|afs|gpfs|beegfs|fuse\.")
_MOUNTS = Path("/proc/mounts")
#: of the ledger: a file of SQLite, and what is below it in a store of objects
_COPIES = "penstock-copies-"
_SQLITE_NAME, LEDGER_NAME = "ledger.db", "ledger"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where files and a ledger lie.

    Attributes:
        scheme: `file`, `s3`, `gs` or `az`.
        bucket: of an object store; empty for a folder.
        path: within the bucket, without slashes at its ends; of a folder: its absolute path.
        options: of the object store, by the names of its variables of the environment in lower case.
    """

    scheme: str
    bucket: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, text: str, options: Mapping[str, str] | None = None) -> StoreAddress:
        """Return the address that a user has written.

        Args:
            text: a path, `file://` and a path, or scheme, bucket and prefix such as `s3://bucket/prefix`.
            options: of the store, by the names of its variables of the environment, in any case; they go before these.

        Raises:
            InputError: it is none, or an option is not the store's.
        """
        found = _URL.match(text)
        slip = _ONE_SLASH.fullmatch(text)
        if slip:
            raise InputError(
                f"{text}: did you mean {slip['scheme']}://{slip['rest']}? Write ./{text} for a folder of this name"
            )
        if not found:
            return cls("file", "", str(Path(text).absolute()))
        scheme, parts = found.group(1).lower(), urlsplit(text)
        if scheme == "file":
            if parts.netloc not in ("", "localhost") or not parts.path:
                raise InputError(f"{text}: write file:///path with three slashes, or the path alone")
            return cls("file", "", str(Path(unquote(parts.path)).absolute()))
        if scheme not in _SCHEMES:
            raise InputError(
                f"{text}: {scheme}:// is not supported here. Use a path, file://, s3://, gs:// or az://; mount other stores "
                "as a folder"
            )
        if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            shown = f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise InputError(f"{shown}: write {scheme}://BUCKET/PREFIX, without a query or credentials")
        scheme = _SCHEMES[scheme]
        given = {name.lower(): value for name, value in (options or {}).items()}
        for name in given:
            if not name.startswith(_PREFIXES[scheme]):
                raise InputError(
                    f"store.{name} is not an option of {scheme}:// stores: their names begin with {_PREFIXES[scheme][0]}, "
                    "as those of the environment do"
                )
        path = "/".join(part for part in parts.path.split("/") if part)
        return cls(scheme, parts.netloc, path, given)

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of this machine, or one that it has mounted."""
        return self.scheme == "file"

    def __truediv__(self, part: str) -> StoreAddress:
        """Return the address of something beneath this one."""
        return StoreAddress(self.scheme, self.bucket, f"{self.path}/{part}".lstrip("/"), self.options)

    def pinned(self) -> StoreAddress:
        """Return this address with the options of the environment, so that it means the same on another machine."""
        return StoreAddress(self.scheme, self.bucket, self.path, self.configuration())

    def files(self, cache: FileCache | None = None) -> Files:
        """Return the files at this address.

        Args:
            cache: of copies of remote files, for this store during one life of it; None: a folder of this process.
        """
        if self.is_local:
            return LocalFiles(Path(self.path))
        if cache is None:
            _remove_copies_of_ended()
            folder = Path(tempfile.mkdtemp(prefix=f"{_COPIES}{os.getpid()}-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            cache = FileCache(folder)
        return ObjectFiles(self.store(), str(self), cache)

    def ledger(self) -> Ledger:
        """Return the ledger at this address, opened for writing: the writer before is fenced; see `Ledger`."""
        if self._has_sqlite():
            return SqliteLedger(Path(self.path) / _SQLITE_NAME)
        from penstock.stores.slate_ledger import SlateLedger

        if self.is_local:
            make_folder(Path(self.path) / LEDGER_NAME)
        return SlateLedger(self._slate())

    def ledger_reader(self) -> LedgerReader:
        """Return the ledger at this address, opened for reading.

        Raises:
            FileNotFoundError: no ledger is there.
            ConnectionFailedError: no such bucket, wrong credentials, no permission.
        """
        if self._has_sqlite():
            return SqliteReader(Path(self.path) / _SQLITE_NAME)
        if self.is_local and not (place := Path(self.path) / LEDGER_NAME).is_dir():
            raise FileNotFoundError(errno.ENOENT, "the ledger does not exist", str(place))
        from penstock.stores.slate_ledger import SlateReader

        return SlateReader(self._slate())

    def check(self) -> None:
        """Make sure that a run can work with this store, before it starts.

        Raises:
            ConnectionFailedError: no such bucket, wrong credentials, no permission, or no conditional writes.
            StoreFailedError: it does not answer.
        """
        if self.is_local:
            return
        store, probe = self._store(_FIRST_RETRIES), f"_penstock/probe-{uuid.uuid4().hex}"
        with failures(str(self)):
            # of a bucket that does not exist, some stores say so here alone
            next(iter(store.list("_penstock", chunk_size=1)), None)
            store.put(probe, b"", mode="create")
            try:
                store.put(probe, b"", mode="create")
            except AlreadyExistsError:
                is_conditional = True
            else:
                is_conditional = False
            store.delete(probe)
        if not is_conditional:
            raise ConnectionFailedError(
                f"{self}: the store lacks conditional writes (put if absent), which Penstock needs; use another store"
            )

    def has_objects(self) -> bool:
        """Return whether an object is at this address of an object store, or below it, which also shows that it can be read.

        Raises:
            ConnectionFailedError: no such bucket, wrong credentials, no permission, or the store does not answer.
        """
        bucket = StoreAddress(self.scheme, self.bucket, "", self.options)._store(_FIRST_RETRIES)
        try:
            with failures(str(self), "reading and listing"):
                if next(iter(bucket.list(self.path or None, chunk_size=1)), None):
                    return True
                with suppress(FileNotFoundError):
                    return bool(self.path and bucket.head(self.path))
        except StoreFailedError as error:
            raise ConnectionFailedError(f"{self}: the store does not answer: {error.strerror}") from error
        return False

    def _has_sqlite(self) -> bool:
        """Whether the ledger is one of SQLite: as it was created, else by the file system."""
        return self.is_local and ledger_path(Path(self.path)).name == _SQLITE_NAME

    def _slate(self) -> SlatePlace:
        """Where the ledger of SlateDB is; its store reads the environment alone."""
        # half a second, which local folders do without
        from slatedb.uniffi import ObjectStore as SlateStore

        from penstock.stores.slate_place import SlatePlace

        ledger = self / LEDGER_NAME
        if not self.is_local:
            # SlateDB repeats for long what never succeeds
            with failures(str(self), "reading and listing"):
                next(iter(self._store(_FIRST_RETRIES).list(f"{LEDGER_NAME}/manifest", chunk_size=1)), None)
        if self.is_local:
            return SlatePlace(SlateStore.resolve("file:///"), ledger.path.lstrip("/"), str(ledger))
        for name, value in self.configuration().items():
            os.environ[name.upper()] = value
        if self._is_plain_http():
            os.environ["AWS_ALLOW_HTTP" if self.scheme == "s3" else "AZURE_ALLOW_HTTP"] = "true"
        return SlatePlace(SlateStore.resolve(f"{self.scheme}://{self.bucket}"), ledger.path, str(ledger))

    def configuration(self) -> dict[str, str]:
        """Return the store's options: those of the environment, and those of the address, which go before them."""
        found = {
            name: os.environ[name.upper()]
            for name in _TRAVELLING.get(self.scheme, ())
            if name.upper() in os.environ
        }
        return found | dict(self.options)

    def _is_plain_http(self) -> bool:
        return any(
            value.startswith("http://") for name, value in self.configuration().items() if "endpoint" in name
        )

    def store(self) -> ObjectStore:
        """Return obstore's client of this address, which must be one of an object store."""
        return self._store(_RETRIES)

    def _store(self, retries: Mapping[str, Any]) -> ObjectStore:
        # each kind has types of its own for what are mappings
        kind: Any = _STORES[self.scheme]
        for name, value in self.configuration().items():
            if "endpoint" in name and not value.startswith(("http://", "https://")):
                raise InputError(f"{name.upper()} is {value}: write http:// or https:// before it")
        client = {"allow_http": True} if self._is_plain_http() else {}
        try:
            store: ObjectStore = kind.from_url(
                str(self), config=self.configuration(), client_options=client, retry_config=dict(retries)
            )
        except (BaseError, ValueError) as error:
            raise InputError(f"{self}: {short(error)}") from error
        return store


def _remove_copies_of_ended() -> None:
    """Delete the copies of this user's processes that have ended: Spark's workers end without a word."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_COPIES}*-*"):
        process = folder.name.removeprefix(_COPIES).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and _MOUNTS.exists():
            shutil.rmtree(folder, ignore_errors=True)


def export_options(options: Mapping[str, str]) -> None:
    """Set options of stores as variables of this process's environment, which every store and Spark follow.

    Args:
        options: by the names of the variables, in any case.

    Raises:
        InputError: one is no option of a store.
    """
    known = tuple(prefix for prefixes in _PREFIXES.values() for prefix in prefixes)
    for name in options:
        if not name.lower().startswith(known):
            raise InputError(
                f"store.{name} is not an option of a store: their names begin with {', '.join(known)}"
            )
    os.environ.update({name.upper(): value for name, value in options.items()})


def ledger_path(folder: Path) -> Path:
    """Return where the ledger of a folder is, or would be: a file of SQLite, or a folder of SlateDB."""
    file, database = folder / _SQLITE_NAME, folder / LEDGER_NAME
    if file.exists() or (not database.is_dir() and not is_shared(folder)):
        return file
    return database


def is_shared(folder: Path) -> bool:
    """Return whether a folder is on a file system that several machines share."""
    if not _MOUNTS.exists():
        return False
    nearest = folder.resolve()
    mounts = {}
    for line in _MOUNTS.read_text().splitlines():
        _, place, kind, *_ = line.split()
        mounts[place.encode().decode("unicode_escape")] = kind
    while str(nearest) not in mounts and nearest != nearest.parent:
        nearest = nearest.parent
    return bool(_SHARED.match(mounts.get(str(nearest), "")))
