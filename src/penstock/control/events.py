"""What the controller is told. Events are named in the past tense and carry no I/O handles."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement


@dataclass(frozen=True, slots=True, eq=False)
class SelectionsBound:
    """The selections on a stream are new or have changed; statistics of older versions count no more.

    Attributes:
        stream: the stream's name.
        version: the plan version that holds them.
        index: their ASCs.
        running: the arrangement batches are answered by until another is chosen; None: the given order.
        costs: cost of one evaluation of each p-attribute's ASC, in any unit; None: all equal.
    """

    stream: str
    version: int
    index: AscIndex
    running: Arrangement | None = None
    costs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StatisticsReported:
    """A batch of a stream was answered.

    Attributes:
        stream: the stream's name.
        version: the plan version that answered it, by whose region codes the sample is coded.
        tuples: tuples in the batch.
        dropped: those that satisfied no query.
        evaluations: ASC evaluations made, None where the index answered the batch.
        sample: uint32[p-attributes, sampled tuples], region codes in order of arrival.
    """

    stream: str
    version: int
    tuples: int
    dropped: int
    evaluations: int | None
    sample: Codes


Event = SelectionsBound | StatisticsReported
