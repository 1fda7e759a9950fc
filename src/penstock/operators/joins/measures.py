"""What joining costs, counted as it is done: the planner derives costs and selectivities of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class StepMeasure:
    """What a step of a probe order did.

    Attributes:
        tuples: joined rows that came in.
        probes: of rows that searched sorted parts, summed over rows and parts: 1 + log2(1 + rows of the part / rows that
            searched it), which is what a galloping search compares.
        built: tuples of the probed input that were copied into a table.
        looked: pairs that were looked at.
        pairs: joined rows that went out.
        alone: rows that went out without a partner, of a step into an optional input.
        build_seconds: processor time of the table.
        seconds: processor time of everything else.
    """

    tuples: int = 0
    probes: float = 0.0
    built: int = 0
    looked: int = 0
    pairs: int = 0
    alone: int = 0
    build_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class DecodeMeasure:
    """What decoding joined rows took.

    Attributes:
        rows: joined rows.
        seconds: processor time.
    """

    rows: int = 0
    seconds: float = 0.0


@contextmanager
def building(measure: StepMeasure) -> Iterator[None]:
    """Adds the processor time of a block to `build_seconds`."""
    began = time.thread_time()
    try:
        yield
    finally:
        measure.build_seconds += time.thread_time() - began


@contextmanager
def timing(measure: StepMeasure | DecodeMeasure) -> Iterator[None]:
    """Adds the processor time of a block to `seconds`."""
    began = time.thread_time()
    try:
        yield
    finally:
        measure.seconds += time.thread_time() - began
