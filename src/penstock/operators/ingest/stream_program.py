"""What an ingest batch is matched by: one compiled plan version of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.operators.functions.judging import (
    CallsProgram,
)
from penstock.operators.ingest.derived import DerivedLayout
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.tuple_stage import TupleProgram
from penstock.operators.scalars.columns import ComputedColumns
from penstock.operators.selection.selector import SelectionPlan
from penstock.operators.windows.pane_plan import PaneProgram
from penstock.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class StreamProgram:
    """One compiled plan version of a stream, as shipped to the workers.

    Attributes:
        stream: name of the stream.
        version: number of the plan version; stage caches are keyed by it.
        plan: the compiled queries: views, conditions of `windows`, and what is lost to errors.
        outcomes: which of them is which.
        columns: the tuple's own columns, in order.
        event_time: the event time column, or None.
        derived: how derived columns reach the worker, or None where there are none.
        settings: frozen settings.
        windows: the window operators, or None where there are none.
        tuples: what readers of the log have asked for, or None where they have not.
        definitions: which definition of each selection view answers; () where all are the first ones.
        calls: the calls of users' functions, or None where there are none.
        computed: the derived columns that the worker computes, or None where there are none; there is no `derived` then.
        stored: those of `columns`, in their order, that matched tuples are stored with; None: all.
    """

    stream: str
    version: int
    plan: SelectionPlan
    outcomes: Outcomes
    columns: tuple[str, ...]
    event_time: str | None
    derived: DerivedLayout | None
    settings: Settings
    windows: PaneProgram | None = None
    tuples: TupleProgram | None = None
    definitions: tuple[int, ...] = ()
    calls: CallsProgram | None = None
    computed: ComputedColumns | None = None
    stored: tuple[str, ...] | None = None

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns that matched tuples are stored with."""
        return self.columns if self.stored is None else self.stored

    @property
    def views(self) -> list[str]:
        """Names of the selection views, in the order of their numbers."""
        return self.plan.names[: self.outcomes.views]

    @property
    def attributes(self) -> list[str]:
        """The columns that are compared, as the selector takes them."""
        return self.plan.columns

    @property
    def needed(self) -> list[str]:
        """The columns of the stream, and those that Spark computes, which `MapStage.process` needs, each once."""
        return self._read_for(self.used)

    @property
    def gathered(self) -> list[str]:
        """Those of `needed` that are needed of tuples which satisfy no condition."""
        return self._read_for(self.used_always)

    @property
    def observed(self) -> list[str]:
        """The columns that `MapStage.observe_times` needs: one, or none."""
        return [] if self.time is None else self._read_for([self.time])

    @property
    def needed_untimed(self) -> list[str]:
        """Those of `needed` that are needed where the event times are counted already."""
        return self._read_for([*self.attributes, *self._given])

    @property
    def only_counts_times(self) -> bool:
        """Whether event times are counted, and needed for nothing else."""
        others = self.windows is not None or self.tuples is not None
        return (
            not others and self.observed == [self.event_time] and self.event_time not in self.needed_untimed
        )

    @property
    def time(self) -> str | None:
        """The column of event times: that of the windows where there are any."""
        return self.event_time if self.windows is None else self.windows.time

    @property
    def used(self) -> list[str]:
        """All columns that are judged or gathered, computed ones among them, each once."""
        return list(dict.fromkeys([*self.attributes, *self._given, *self.used_always]))

    @property
    def _given(self) -> list[str]:
        """Those of `used` that users' functions are given."""
        return [] if self.calls is None else self.calls.columns

    @property
    def used_always(self) -> list[str]:
        """Those of `used` that are used of tuples which satisfy no condition."""
        wanted = [
            *(self.windows.columns if self.windows else ()),
            *(self.tuples.columns if self.tuples else ()),
        ]
        return list(dict.fromkeys(wanted if self.event_time is None else [*wanted, self.event_time]))

    @property
    def dictionaries(self) -> list[str]:
        """Columns of text that are compared only, and by their distinct values."""
        if self.plan.rules is None:
            return []
        gathered = {*self.gathered, *self._read_for(self._given)}
        texts = [column for each in self.plan.rules.attributes if each.is_text for column in each.columns]
        return [column for column in dict.fromkeys(texts) if column not in gathered]

    @property
    def wants_every_tuple(self) -> bool:
        """Whether some window operator or reader has no condition."""
        return any(each is not None and each.wants_every_tuple for each in (self.windows, self.tuples))

    def _read_for(self, names: Sequence[str]) -> list[str]:
        """The columns that are needed for some that are used, each once."""
        return list(dict.fromkeys(names)) if self.computed is None else self.computed.read_for(names)
