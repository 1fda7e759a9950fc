"""Packets as a stream engine is given them, and what has become of the packets created up to a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import OptionError

#: moment at which a simulated network begins, unless another one is named
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

#: how the fates of packets begin that the network lost; the cause follows
LOST_FOR = "lost: "

#: the moments in which a network lies; beyond them programs differ on what a moment is
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)

_MOMENT = pa.timestamp("us", "UTC")
#: columns of a packet that came through: which sensor measured what and when, when the packet came, by which channel (0, 1) and
#: over how many links
ARRIVED = pa.schema(
    [
        ("sensor", pa.int32()),
        ("sequence", pa.int64()),
        ("value", pa.float64()),
        ("measured", _MOMENT),
        ("arrived", _MOMENT),
        ("channel", pa.int8()),
        ("hops", pa.int8()),
    ]
)
#: columns of a packet that never came, and why
LOST = pa.schema(
    [*(ARRIVED.field(name) for name in ("sensor", "sequence", "value", "measured")), ("fate", pa.string())]
)


def beginning_of(text: str, seconds: float) -> datetime:
    """The moment at which a network begins.

    Args:
        text: the moment; in UTC unless it says otherwise.
        seconds: for how long the network is simulated.

    Raises:
        OptionError: it is none, or the network would lie before 1970 or after 9998.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"Option start is '{text}'; allowed: a moment such as '2026-01-01 00:00:00'", "start"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment < _EARLIEST or _LATEST - moment < timedelta(seconds=seconds):
        raise OptionError(
            f"Option start is '{text}'; allowed: a moment from 1970 on that leaves the {seconds:g} simulated seconds before 9999",
            "start",
        )
    return moment


def microseconds(moment: datetime) -> int:
    """A moment as microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def arrived_readings(packets: pa.Table, beginning: datetime) -> pa.Table:
    """The packets that came through, in order of arrival.

    Args:
        packets: of a `NetworkTrace`.
        beginning: the moment at which the network begins.

    Returns:
        Columns as `ARRIVED`.
    """
    came = packets.filter(packets["arrived"].is_valid())
    in_order = came.sort_by([(name, "ascending") for name in ("arrived", "sensor", "sequence")])
    return _with_moments(in_order, beginning, ARRIVED)


def lost_readings(packets: pa.Table, beginning: datetime) -> pa.Table:
    """The packets that never came, in order of creation; those that were under way when the simulation ended among them.

    Args:
        packets: of a `NetworkTrace`.
        beginning: the moment at which the network begins.

    Returns:
        Columns as `LOST`.
    """
    return _with_moments(packets.filter(packets["arrived"].is_null()), beginning, LOST)


def _with_moments(packets: pa.Table, beginning: datetime, schema: pa.Schema) -> pa.Table:
    first = microseconds(beginning)
    columns = dict(zip(packets.column_names, packets.columns, strict=True))
    columns["measured"] = pc.add(packets["created"], first).cast(_MOMENT)
    columns["arrived"] = pc.add(packets["arrived"], first).cast(_MOMENT)
    columns["fate"] = packets["fate"].cast(pa.string())
    return pa.table([columns[name] for name in schema.names], schema=schema)


#: later than any arrival, microseconds
_NEVER = np.iinfo(np.int64).max


class PacketCounts:
    """Counts the packets of a trace up to a moment of its time.

    Args:
        packets: of a `NetworkTrace`: `created`, `arrived` and `fate`.
    """

    def __init__(self, packets: pa.Table) -> None:
        fates = packets["fate"].cast(pa.string())
        self._created = _moments(packets["created"])
        self._arrived = _moments(packets["arrived"])
        coming = packets.filter(pc.invert(pc.starts_with(fates, LOST_FOR)))
        #: of each packet that the network does not lose when it is created, and when it has arrived
        self._begins = coming["created"].to_numpy()
        self._ends = pc.fill_null(coming["arrived"], _NEVER).to_numpy()
        self._lost = {
            fate.removeprefix(LOST_FOR): _moments(packets["created"].filter(pc.equal(fates, fate)))
            for fate in sorted(fates.unique().to_pylist())
            if fate.startswith(LOST_FOR)
        }

    def until(self, time_us: int) -> dict[str, Any]:
        """What has become of the packets created up to a moment.

        Args:
            time_us: microseconds since the network began.

        Returns:
            `created`; of these `arrived` by then, `lost` by cause (those that the network loses, from their creation on), and
            `under_way`: they arrive later, or the simulation ends before they do. The first is the sum of the others.
        """
        created, arrived = _count(self._created, time_us), _count(self._arrived, time_us)
        lost = {fate: _count(moments, time_us) for fate, moments in self._lost.items()}
        return {
            "created": created,
            "arrived": arrived,
            "under_way": int(np.count_nonzero((self._begins <= time_us) & (time_us < self._ends))),
            "lost": {fate: count for fate, count in lost.items() if count},
        }


def _moments(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.sort(column.drop_null().to_numpy())
    return found


def _count(moments: npt.NDArray[np.int64], time_us: int) -> int:
    return int(np.searchsorted(moments, time_us, side="right"))
