"""The UNION ALL views of a run: which there are, and what they ask of streams."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spark.lanes.asking import Asked
from penstock.spark.lanes.cuts import forget_lane
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.unions import (
    RegisteredUnion,
    UnionDefinition,
    read_unions,
    store_unions,
)


class UnionViews:
    """Keeps the register of UNION ALL views; one thread changes it at a time.

    A view begins with what comes to its streams after it was declared: tuples before that were not kept for it.

    Args:
        layout: output and checkpoint folders.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: replaced as a whole
        self.register = read_unions(layout)

    @property
    def unions(self) -> tuple[RegisteredUnion, ...]:
        """The views that are answered."""
        return self.register.unions

    def settle(self, wanted: Mapping[str, UnionDefinition]) -> tuple[RegisteredUnion, ...]:
        """Makes the register hold these views and no others, durable on return.

        Args:
            wanted: the views by name.

        Returns:
            Those that are answered no more and have left something; see `forget`.
        """
        known = {each.definition.name: each.definition.id for each in self.unions}
        dropped = [name for name, id_ in known.items() if name not in wanted or wanted[name].id != id_]
        register = self.register.without(dropped) if dropped else self.register
        for name, definition in wanted.items():
            if register.of(name) is None:
                register = register.with_union(definition)
        if register != self.register:
            store_unions(self._layout, register)
            self.register = register
        return tuple(each for each in register.gone if self._layout.lanes[each.lane].exists())

    def forget(self, gone: RegisteredUnion) -> None:
        """Removes what the lane of a dropped view has left beside its results; the lane does not run."""
        forget_lane(self._layout, gone.lane, gone.definition.streams)

    def asked(self, stream: str) -> list[Asked]:
        """What the views ask of a stream."""
        return [
            Asked(
                each.lane,
                each.definition.name,
                tuple(branch.demand for branch in each.definition.branches if branch.stream == stream),
                reads_again=False,
            )
            for each in self.unions
        ]
