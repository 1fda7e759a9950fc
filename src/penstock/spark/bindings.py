"""Which plan answers which batch, durably: plan versions and bindings under the checkpoint.

Before anything else, a batch is bound to a plan version by put-if-absent; a replay of the batch
finds the binding and is answered by the same views, whatever has been registered since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from penstock.errors import CheckpointError
from penstock.spark.failpoints import failpoint
from penstock.spark.files import numbered, put_json_if_absent, read_json
from penstock.spark.layout import Layout


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A selection view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        condition: its WHERE text over the stream's columns; `TRUE` where it has none.
        projection: (SQL text, output name or None where Spark names it) pairs, or None for `*`.
    """

    name: str
    id: str
    sql: str
    condition: str
    projection: tuple[tuple[str, str | None], ...] | None


class PlanLog:
    """The plan versions of one stream and the batches bound to them."""

    def __init__(self, layout: Layout, stream: str) -> None:
        self._plans = layout.plans(stream)
        self._bindings = layout.bindings(stream)
        self._stream = stream

    def newest(self) -> int | None:
        """Number of the newest stored plan version, or None."""
        versions = numbered(self._plans)
        return versions[-1] if versions else None

    def store(self, version: int, views: Mapping[str, ViewDefinition]) -> None:
        """Stores a plan version; it must be a new one.

        Raises:
            CheckpointError: another run has stored that version.
        """
        document = {"version": version, "views": [asdict(view) for view in views.values()]}
        if not put_json_if_absent(self._plans / f"{version}.json", document):
            raise CheckpointError(
                f"plan version {version} of stream {self._stream} was stored by another run; "
                "a checkpoint belongs to one run at a time"
            )

    def load(self, version: int) -> dict[str, ViewDefinition]:
        """The views of a stored plan version.

        Raises:
            CheckpointError: it is not there.
        """
        document = read_json(self._plans / f"{version}.json")
        if document is None:
            raise CheckpointError(
                f"plan version {version} of stream {self._stream} is missing in {self._plans}"
            )
        return {view["name"]: _definition(view) for view in document["views"]}

    def bound(self, batch: int) -> int | None:
        """The plan version a batch is bound to, or None."""
        document = read_json(self._bindings / f"{batch}.json")
        return None if document is None else int(document["version"])

    def bind(self, batch: int, version: int) -> int:
        """Binds a batch to a version unless it is bound already; returns the version it is bound to."""
        put_json_if_absent(self._bindings / f"{batch}.json", {"version": version})
        failpoint("bound", batch)
        bound = self.bound(batch)
        assert bound is not None, "a binding is never removed before its batch is published"
        return bound

    def forget(self, before_batch: int, keep_plans: int) -> None:
        """Removes the bindings of batches before one, and plan versions that no batch can need."""
        for batch in numbered(self._bindings):
            if batch < before_batch:
                (self._bindings / f"{batch}.json").unlink()
        needed = {self.bound(batch) for batch in numbered(self._bindings)}
        for version in numbered(self._plans)[:-keep_plans]:
            if version not in needed:
                (self._plans / f"{version}.json").unlink()


def _definition(document: dict[str, object]) -> ViewDefinition:
    projection = document["projection"]
    pairs = None if projection is None else tuple((sql, name) for sql, name in projection)  # type: ignore[attr-defined]
    return ViewDefinition(**{**document, "projection": pairs})  # type: ignore[arg-type]
