"""Disordered streams: tuples in order of arrival, from generators of stated shape and from real flights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SECOND = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Tuples in order of arrival.

    Attributes:
        name: what they are.
        event_time: int64, microseconds.
        arrival_time: int64, microseconds by the same clock, ascending.
        columns: keys and arguments, a row a tuple.
        phases: arrival times at which the disorder changes.
    """

    name: str
    event_time: Ints
    arrival_time: Ints
    columns: pa.Table
    phases: tuple[int, ...] = ()

    @property
    def delays(self) -> Ints:
        """t_max before the tuple less its event time where positive, else 0."""
        newest = np.maximum.accumulate(self.event_time)
        return np.maximum(np.append(self.event_time[:1], newest[:-1]) - self.event_time, 0)

    def figures(self) -> dict[str, float]:
        """Share of late tuples, largest and mean delay in seconds."""
        delays = self.delays / SECOND
        return {
            "tuples": len(delays),
            "late": float(np.mean(delays > 0)),
            "largest_delay": float(delays.max()),
            "mean_delay": float(delays.mean()),
        }


@dataclass(frozen=True, slots=True)
class Disorder:
    """Delays of network and source: most small and exponential, few large and of a heavy tail.

    Attributes:
        jitter: mean of the small delays, seconds.
        share: share of tuples with a large delay.
        scale: median of the large delays, seconds (lognormal).
        spread: sigma of the large ones' logarithm.
        largest: delays are cut there, seconds.
    """

    jitter: float
    share: float
    scale: float
    spread: float
    largest: float

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Delays in seconds."""
        small = rng.exponential(self.jitter, count)
        large = rng.lognormal(np.log(self.scale), self.spread, count)
        return np.minimum(np.where(rng.random(count) < self.share, large, small), self.largest)


#: matched to the two soccer streams of the HPM paper: late tuples 57.58 % and 66.82 %, largest delay
#: 14.2 and 17.1 s, mean delay 34 and 64 ms
GAME_1 = Disorder(0.0050, 0.05, 0.31, 1.2, 14.2)
GAME_2 = Disorder(0.0085, 0.08, 0.36, 1.2, 17.1)


def generated(
    name: str,
    disorder: Sequence[Disorder],
    tuples: int,
    seconds: float,
    seed: int,
    late_shift: float = 0.0,
    variation: float = 0.5,
) -> Arrivals:
    """A stream of uniform rate whose disorder changes at equal distances.

    Args:
        name: what to call it.
        disorder: one a phase.
        tuples, seconds: how many in how long.
        seed: of the generator.
        late_shift: added to the value of a tuple with a large delay, in means of the value.
        variation: coefficient of variation of the values (gamma).
    """
    rng = np.random.default_rng(seed)
    event = np.sort(rng.random(tuples)) * seconds
    phase = np.minimum((event / seconds * len(disorder)).astype(np.int64), len(disorder) - 1)
    delay = np.empty(tuples)
    for number, each in enumerate(disorder):
        own = phase == number
        delay[own] = each.draw(rng, int(own.sum()))
    shape = 1 / variation**2
    value = rng.gamma(shape, 1 / shape, tuples) + late_shift * (delay > 0.25)
    arrival = event + delay
    order = np.argsort(arrival, kind="stable")
    bounds = [number * seconds / len(disorder) * SECOND for number in range(1, len(disorder))]
    return Arrivals(
        name,
        (event[order] * SECOND).astype(np.int64),
        (arrival[order] * SECOND).astype(np.int64),
        pa.table({"value": value[order]}),
        tuple(int(bound) for bound in bounds),
    )


def recorded(name: str, table: pa.Table, event_time: str, arrival_time: str) -> Arrivals:
    """A recorded stream.

    Args:
        name: what to call it.
        table: the tuples.
        event_time, arrival_time: its timestamp columns, without NULL.
    """
    order = pc.sort_indices(table, sort_keys=[(arrival_time, "ascending")])
    played = table.take(order)
    times = [
        played.column(column).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        for column in (event_time, arrival_time)
    ]
    return Arrivals(name, times[0], times[1], played.drop_columns([event_time, arrival_time]))
