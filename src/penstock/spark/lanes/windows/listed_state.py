"""The state of a lane's shards as the ledger lists it: one commit publishes a cut, and lists the files that go with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import DamagedError
from penstock.spark.lanes.windows.shard_state import StateFile
from penstock.spark.storage.formats import WINDOW_STATE
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.store_paths import name_below


@dataclass(frozen=True, slots=True)
class ListedState:
    """The state of all shards after a cut.

    Attributes:
        plan: the plan version that they followed last; None before the first cut.
        shards: the files of each, the oldest first.
        progress: how far the views are answered whose rows others read, as `Progress`.
    """

    plan: int | None
    shards: tuple[tuple[StateFile, ...], ...]
    progress: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return {file.name for own in self.shards for file in own}


class ListedStates:
    """Lists the state of the shards of one lane.

    Args:
        layout: output and checkpoint folders.
        name: what the state is under.
        shards: how many.
    """

    def __init__(self, layout: Layout, name: str, shards: int) -> None:
        self._layout = layout
        self._name = name
        self._shards = shards

    @property
    def place(self) -> StoredDocument:
        """The list."""
        return self._layout.window_state(self._name)

    def newest(self) -> ListedState:
        """The state after the newest published cut."""
        document = WINDOW_STATE.read(self.place)
        if document is None:
            return ListedState(None, ((),) * self._shards)
        shards = tuple(tuple(StateFile(*file) for file in own) for own in document["shards"])
        return ListedState(document["plan"], shards, document["progress"])

    def before(self, cut: int) -> ListedState:
        """The state before a cut.

        Raises:
            DamagedError: the list is of another cut, or missing.
        """
        document = WINDOW_STATE.read(self.place)
        if (-1 if document is None else document["cut"]) != cut - 1:
            found = "is missing" if document is None else f"is that of cut {document['cut']}"
            raise DamagedError(str(self.place), f"({WINDOW_STATE.kind}) {found}; cut {cut} is next")
        return self.newest()

    def remove_unlisted(self) -> None:
        """Deletes the files that attempts before have left."""
        layout = self._layout
        listed = self.newest().names
        folder = name_below(layout.checkpoint, layout.window_states(self._name))
        gone = [
            each.name for each in layout.log_store.list(folder) if each.name.rpartition("/")[2] not in listed
        ]
        if gone:
            # fails if another run has taken over, whose files these may be
            layout.ledger.writer.commit()
            layout.log_store.delete(gone)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files that are needed no more."""
        layout = self._layout
        folder = layout.window_states(self._name)
        layout.log_store.delete(name_below(layout.checkpoint, folder / name) for name in names)

    def document(self, cut: int, state: ListedState) -> dict[str, Any]:
        """The list of the state after a cut."""
        shards: Sequence[Any] = [[[file.name, file.size] for file in own] for own in state.shards]
        return WINDOW_STATE.stamped(
            {"cut": cut, "plan": state.plan, "shards": shards, "progress": state.progress}
        )
