"""Where everything lies: the output folder users read and the checkpoint they keep."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import (
    CheckpointError,
    ConnectionFailedError,
    DamagedError,
    FencedError,
    InputError,
    StoreFailedError,
)
from penstock.spark.storage.documents import put_json_if_absent, read_json, replace_json
from penstock.spark.storage.formats import other_version
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.ledgers import LedgerFolder, RunLedger
from penstock.spark.storage.names import on_disk
from penstock.spark.storage.spark_checkpoints import (
    copy_checkpoints,
    folder_name,
    remove_other_checkpoints,
)
from penstock.spark.storage.store_paths import ObjectPath, StorePath, files_in, remove_folder, store_path
from penstock.spark.storage.stored_log import StoredLog
from penstock.stores.durable import make_folder
from penstock.stores.files import Files
from penstock.stores.ledger import Writer

#: kinds of the files that a log names; they are the log's once they are published
PARTIALS_FILES, VALUES_FILES, TUPLES_FILES = LOG_KINDS = ("partials", "values", "tuples")
#: kind of the files that the log of a view's rows names: those that were published
ROWS_FILES = "rows"
#: what `status.json` is, for messages
STATUS = "the status of the newest run"
#: what `identity.json` is, for messages
IDENTITY = "which checkpoint a folder belongs to"
#: what the document is that names them, for messages
_SPARK_FOLDERS = "the folders of Spark's checkpoints"
#: version of both layouts; a checkpoint of another version is refused
LAYOUT_VERSION = 9


def is_of_log(kind: str) -> bool:
    """Whether files of a kind are the log's; those of tuples have the demand in theirs, `tuples/3`."""
    return kind.partition("/")[0] in LOG_KINDS


def tuples_kind(demand: int) -> str:
    """The kind of the files that hold the tuples of a demand."""
    return f"{TUPLES_FILES}/{demand}"


def demand_of(kind: str) -> int | None:
    """The demand whose tuples files of a kind hold; None where they hold something else."""
    folder, _, demand = kind.partition("/")
    return int(demand) if folder == TUPLES_FILES else None


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one run.

    Attributes:
        output: the results folder.
        checkpoint: the folder a restart needs.
        run: the epoch in which the run has opened the ledger; what it stages lies apart from what a fenced run still stages.
    """

    output: StorePath
    checkpoint: StorePath
    run: int = 0

    def matches(self, stream: str) -> StorePath:
        """Tuples that satisfied a query, with the names of the queries."""
        return self.output / "matches" / on_disk(stream)

    def quarantine(self, stream: str) -> StorePath:
        """Records that could not be read, with the reason."""
        return self.output / "quarantine" / on_disk(stream)

    @property
    def files(self) -> Files:
        """The files of the results folder."""
        return files_in(self.output)

    @property
    def log_store(self) -> Files:
        """The files of the checkpoint: those that logs name."""
        return files_in(self.checkpoint)

    def sweep(self) -> None:
        """Delete what puts that were killed have left in both folders."""
        self.files.sweep()
        if not (isinstance(self.checkpoint, Path) and self.output in self.checkpoint.parents):
            self.log_store.sweep()

    def replaced(self, query: str) -> StoredDocuments:
        """The published files of a query that merged ones have replaced, until they are deleted."""
        return StoredDocuments(self.ledger, ("replaced", query))

    def manifests(self, query: str) -> StoredDocuments:
        """What a query has published: a manifest for each batch, and one for those whose files are merged."""
        return StoredDocuments(self.ledger, ("batch", query))

    def queries(self) -> list[str]:
        """The queries that have published something."""
        return StoredDocuments(self.ledger, ("batch",)).groups()

    def logs(self) -> list[str]:
        """The streams and views that have a log, by its name."""
        return StoredDocuments(self.ledger, ("log",)).names()

    def planned(self) -> list[str]:
        """The streams that have plan versions."""
        return StoredDocuments(self.ledger, ("plan",)).groups()

    @property
    def local(self) -> Path:
        """The folder of what this machine alone needs: beside an object store one of the machine's, which may be lost."""
        own = self.output / "_penstock"
        if isinstance(own, Path):
            return own
        name = hashlib.sha256(str(own).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / name

    def staging(self, query: str, batch: int) -> tuple[StorePath, Path]:
        """Folders of what tasks of a batch leave for later tasks of it: on any worker, and on the same one."""
        below = f"{self.run}/{on_disk(query)}/{batch}"
        return self._staged / below, self.local / "staging" / below

    @property
    def _staged(self) -> StorePath:
        return self.output / "_penstock" / "staging"

    @property
    def ledger(self) -> LedgerFolder:
        """The documents of both folders."""
        return LedgerFolder(self.output / "_penstock")

    @property
    def catalog(self) -> StoredDocument:
        """The streams and views of the newest plan, for readers of the folder."""
        return StoredDocument(self.ledger, ("catalog",))

    @property
    def catalog_bases(self) -> StoredDocuments:
        """What the catalog is stored as the difference from, where it has many views."""
        return StoredDocuments(self.ledger, ("catalog_base",))

    @property
    def status(self) -> StorePath:
        """What the newest run says of itself, for `penstock status`."""
        return self.output / "_penstock" / "status.json"

    @property
    def events(self) -> Path:
        """One decision or measurement a line; of an object store the copies there are `EventCopies`."""
        return (self.output if isinstance(self.output, Path) else self.local) / "events.jsonl"

    @property
    def session(self) -> StoredDocument:
        """What the session that the views were bound under has to keep to."""
        return StoredDocument(self.ledger, ("session",))

    def plans(self, stream: str) -> StoredDocuments:
        """Plan versions of a stream."""
        return StoredDocuments(self.ledger, ("plan", stream))

    def plan_bases(self, stream: str) -> StoredDocuments:
        """What plan versions of many views are stored as the difference from."""
        return StoredDocuments(self.ledger, ("plan_base", stream))

    def bindings(self, stream: str) -> StoredDocuments:
        """Which plan version each batch is bound to."""
        return StoredDocuments(self.ledger, ("binding", stream))

    def spark(self, stream: str) -> StorePath:
        """Spark's own checkpoint of the stream's ingest query."""
        return self.checkpoint / on_disk(stream) / folder_name(self._spark_number())

    @property
    def _spark_folders(self) -> StoredDocument:
        """Which of the folders of Spark's checkpoints are the run's, see `folder_name`."""
        return StoredDocument(self.ledger, ("spark_checkpoints",))

    def _spark_number(self) -> int:
        document = read_json(self._spark_folders, _SPARK_FOLDERS)
        return 0 if document is None else int(document["number"])

    def _part_spark_from(self, before: Writer | None, epoch: int) -> None:
        """Gives the run Spark checkpoints that a run of another host, which may still write, does not write to.

        Args:
            before: who opened the ledger last. If another one opened it after the newest run that got this far, it ended
                before, and it is not known who still writes.
            epoch: of the run.
        """
        document = read_json(self._spark_folders, _SPARK_FOLDERS)
        number = 0 if document is None else int(document["number"])
        remove_other_checkpoints(self.checkpoint, number)
        is_known = document is None or before is None or document["epoch"] == before.epoch
        if not is_known or (before is not None and before.is_elsewhere and not before.is_closed):
            copy_checkpoints(self.checkpoint, number, epoch)
            number = epoch
        replace_json(self._spark_folders, {"number": number, "epoch": epoch})

    def backfilled(self, stream: str) -> StoredDocuments:
        """Which operators that began in mid-stream are settled."""
        return StoredDocuments(self.ledger, ("backfilled", stream))

    def log(self, stream: str) -> StoredLog:
        """The log: what the ingest query hands on, an entry a published batch and those between them."""
        return StoredLog(self.ledger, stream, self.checkpoint / on_disk(stream) / "log" / "files")

    def log_files(self, stream: str, kind: str) -> StorePath:
        """The files of one kind that the log's entries name."""
        return self.log(stream).files / kind

    def programs(self, stream: str) -> StoredDocuments:
        """The window views of each plan version."""
        return StoredDocuments(self.ledger, ("program", stream))

    def operators(self, stream: str) -> StoredDocuments:
        """The window views of each operator, as they were bound."""
        return StoredDocuments(self.ledger, ("operator", stream))

    def shards(self, stream: str) -> StoredDocument:
        """How many shards a stream's window views have."""
        return StoredDocument(self.ledger, ("shards", stream))

    def window_state(self, stream: str) -> StoredDocument:
        """The files of the state of a stream's window views."""
        return StoredDocument(self.ledger, ("window_state", stream))

    def corrections(self, stream: str) -> StoredDocuments:
        """The final windows that cuts of a stream's window lane met tuples of, until they are corrected."""
        return StoredDocuments(self.ledger, ("correction", stream))

    def window_states(self, stream: str) -> StorePath:
        """The folder of these files."""
        return self.checkpoint / on_disk(stream) / "windows"

    def waiting(self, lane: str) -> StoredDocument:
        """The groups of a lane's views that could not be answered, until they are."""
        return StoredDocument(self.ledger, ("waiting", lane))

    def waiting_rows(self, lane: str) -> StorePath:
        """The folder of their files."""
        return self.checkpoint / "_lanes" / on_disk(lane) / "waiting"

    def cuts(self, lane: str) -> StoredDocuments:
        """The cuts of a lane that are not done with."""
        return StoredDocuments(self.ledger, ("cut", lane))

    def lane_views(self, kind: str) -> StoredDocument:
        """The views of a kind that has lanes of its own."""
        return StoredDocument(self.ledger, (kind,))

    def call_statistics(self, stream: str) -> StoredDocument:
        """What the order of a stream's calls of users' functions goes on from: it changes speed alone."""
        return StoredDocument(self.ledger, ("call_statistics", stream))

    @property
    def plan_statistics(self) -> StoredDocuments:
        """What a lane goes on from when it plans, by lane: it changes speed alone."""
        return StoredDocuments(self.ledger, ("plan_statistics",))

    @property
    def deadlines(self) -> StoredDocument:
        """The views with a deadline."""
        return StoredDocument(self.ledger, ("deadlines",))

    @property
    def lanes(self) -> StoredDocuments:
        """The lanes that have begun, by name: no other reader of a log is one."""
        return StoredDocuments(self.ledger, ("lane",))

    @property
    def sinks(self) -> StoredDocuments:
        """How far each sink has come, by name."""
        return StoredDocuments(self.ledger, ("sink",))

    def static_tables(self, lane: str) -> StorePath:
        """The files of the static tables that a lane joins with."""
        return self.checkpoint / "_lanes" / on_disk(lane) / "static"

    def static_versions(self, lane: str) -> StoredDocuments:
        """The version of each static table that a lane joins with, by number of the input."""
        return StoredDocuments(self.ledger, ("static", lane))

    @property
    def spark_log(self) -> Path:
        """What Spark's JVM and its Python workers print."""
        return self.local / "spark.log"

    def results(self, view: str) -> StorePath:
        """Results of a window or join view."""
        return self.output / "results" / on_disk(view)

    def misses(self, view: str) -> StorePath:
        """The windows of a view with a deadline that were not released in time."""
        return self.output / "misses" / on_disk(view)

    def result_views(self, stream: str) -> StoredDocuments:
        """What readers must know of a stream's window views: one an operator."""
        return StoredDocuments(self.ledger, ("result_views", stream))

    def read_files(self, stream: str) -> Path:
        """What each file was when it was read, one line a file."""
        folder = self.checkpoint if isinstance(self.checkpoint, Path) else self.local
        return folder / on_disk(stream) / "files.jsonl"

    def topics(self, stream: str) -> StoredDocument:
        """Which topics a stream reads: their ids by name."""
        return StoredDocument(self.ledger, ("topics", stream))

    def replay(self, stream: str) -> Path:
        """The arrival-ordered copy that a replay source plays.

        Raises:
            InputError: the checkpoint is in an object store.
        """
        if isinstance(self.checkpoint, ObjectPath):
            raise InputError(
                f"table {stream}: a replay needs a checkpoint in a local folder, and {self.checkpoint} is none. Name one with "
                "--checkpoint"
            )
        return self.checkpoint / on_disk(stream) / "replay"

    def has_replay(self, stream: str) -> bool:
        """Whether a stream has a copy that a replay source plays."""
        return isinstance(self.checkpoint, Path) and self.replay(stream).is_dir()

    @classmethod
    def of(cls, output: str | StorePath, checkpoint: str | StorePath | None) -> Layout:
        """The layout of two folders; the checkpoint lies inside the results where none is named.

        Args:
            output, checkpoint: paths, or addresses of object stores.

        Raises:
            InputError: one is neither.
        """
        folder = store_path(output)
        return cls(folder, store_path(checkpoint) if checkpoint else folder / "_penstock" / "checkpoint")

    def check(self) -> None:
        """Makes sure that both folders can be used, and together; changes nothing.

        Raises:
            InputError: the output is something else than a results folder.
            ConnectionFailedError: a folder cannot be written.
            CheckpointError: the output holds the results of another checkpoint, the checkpoint was written by an incompatible
                version, or a run that lives uses both.
            DamagedError: the ledger is missing or damaged.
        """
        self._check_fit()
        self._refuse_in_use()

    def _check_fit(self) -> None:
        try:
            if self.output.is_file() or (
                self.output.is_dir()
                and next(iter(self.output.iterdir()), None) is not None
                and not (self.output / "_penstock").is_dir()
            ):
                raise InputError(
                    f"output folder {self.output} exists and is not a results folder of Penstock. Name a new or an empty folder."
                )
            for folder in (self.output, self.checkpoint):
                _refuse_unusable(folder)
            checkpoint = read_json(self.checkpoint / "identity.json", IDENTITY)
            results = read_json(self.output / "_penstock" / "identity.json", IDENTITY)
        except OSError as error:
            raise _unusable(error, self.output) from error
        for what, identity in (
            (f"checkpoint {self.checkpoint}", checkpoint),
            (f"output {self.output}", results),
        ):
            if identity is not None:
                _refuse_other_layout(what, identity)
        if results is not None and checkpoint is None:
            missing = self.checkpoint / "identity.json" if self.checkpoint.is_dir() else self.checkpoint
            raise CheckpointError(
                f"output folder {self.output} has results, but its checkpoint {missing} does not exist. Restore it, name "
                "the right checkpoint folder, or start with a new output folder"
            )
        if results is not None and results != checkpoint:
            raise CheckpointError(
                f"output folder {self.output} has the results of another checkpoint than {self.checkpoint}. Use the "
                "checkpoint that it was written with, or a new output folder"
            )
        if results is None and checkpoint is not None and not self.ledger.path.exists() and self._is_used():
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} belongs to another output folder than {self.output}. Name the output folder that "
                "it was written with, or a new checkpoint"
            )
        self.refuse_lost_ledger()

    def _is_used(self) -> bool:
        """Whether a stream has begun in the checkpoint."""
        return any(path.is_dir() for path in self.checkpoint.iterdir())

    def refuse_lost_ledger(self) -> None:
        """Makes sure that a folder with results has its ledger.

        Raises:
            CheckpointError: another version wrote the folder.
            DamagedError: the ledger is missing.
        """
        if self.ledger.path.exists():
            return
        identity = read_json(self.output / "_penstock" / "identity.json", IDENTITY)
        if identity is not None:
            _refuse_other_layout(f"output {self.output}", identity)
            raise DamagedError(str(self.ledger), "(the ledger of the results folder) is missing")

    def _refuse_in_use(self) -> None:
        instead = "or name another output folder and checkpoint"
        if self.ledger.run is not None:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} is in use by another run of this process; stop that first, {instead}"
            )
        owner = self.ledger.owner()
        if owner is not None and owner.is_running and not owner.is_this_process:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} is in use by {owner.name()}. Stop that process, {instead}"
            )

    def open(
        self,
        lives: Callable[[], bool] = lambda: False,
        on_fenced: Callable[[FencedError], None] = lambda _: None,
    ) -> RunLedger:
        """Creates both folders, makes sure that they belong together, and opens the ledger for writing.

        What runs before have staged is removed.

        Args:
            lives: whether the run that it is opened for still runs.
            on_fenced: called by the thread whose commit failed because another process has taken over.

        Returns:
            The ledger. The run closes it at its end.

        Raises:
            InputError: as `check`.
        """
        self.check()
        reader = self.ledger.reader
        before = None if reader is None else reader.writer()
        try:
            if not isinstance(self.output, Path):
                _make_private(self.local.parent)
            for folder in (self.checkpoint, self.output / "_penstock", self.local):
                if isinstance(folder, Path):
                    make_folder(folder)
            identity = self.checkpoint / "identity.json"
            put_json_if_absent(identity, {"id": uuid.uuid4().hex, "layout": LAYOUT_VERSION})
            known = read_json(identity, IDENTITY)
            assert known is not None, "it has just been put"
            # before the folder says that it has one
            ledger = self.ledger.open(lives, on_fenced)
        except OSError as error:
            raise _unusable(error, self.output) from error
        try:
            put_json_if_absent(self.output / "_penstock" / "identity.json", known)
            self._check_fit()
            self._part_spark_from(before, ledger.writer().epoch)
            for staged in (self._staged, self.local / "staging"):
                remove_folder(staged)
        except BaseException as error:
            ledger.close()
            if isinstance(error, OSError):
                raise _unusable(error, self.output) from error
            raise
        return ledger


def _refuse_other_layout(what: str, identity: Mapping[str, Any]) -> None:
    found = identity.get("layout")
    if found != LAYOUT_VERSION:
        raise CheckpointError(f"the {what} {other_version(found, LAYOUT_VERSION, 'layout')}")


def _make_private(folder: Path) -> None:
    """Makes a folder that nobody else reads or writes; raises OSError where another user has made it."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    made = folder.lstat()
    if made.st_uid != os.getuid() or not stat.S_ISDIR(made.st_mode):
        raise PermissionError(errno.EACCES, "another user has created it", str(folder))
    folder.chmod(0o700)


def _refuse_unusable(folder: StorePath) -> None:
    """Raises OSError where a folder could not be made or written to."""
    if isinstance(folder, ObjectPath):
        folder.address.check()
        return
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def _unusable(error: OSError, output: StorePath) -> ConnectionFailedError:
    if isinstance(error, StoreFailedError):
        return ConnectionFailedError(f"{error.filename or output}: {error.strerror}")
    return ConnectionFailedError(
        f"cannot write to {error.filename or output}: {error.strerror}. "
        "Make the output and checkpoint folders writable"
    )
