"""The events of Nexmark: persons, auctions and bids of an online auction, from a seed.

The model is the one that Beam and Flink publish: of 50 events 1 is a person, 3 are auctions and 46 bids; half of the bids go to a hot
auction, three quarters of the auctions have a hot seller, and three quarters of the bids a hot bidder. `extra`, which only pads records
there, is a short text here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

#: the streams, in the order in which their events follow each other in a group
STREAMS = ("person", "auction", "bid")
EVENT_TIME = "date_time"
#: of so many events
GROUP, PERSONS, AUCTIONS = 50, 1, 3
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5
#: how many people and auctions are about, and how many ids ahead of those that exist an event may name
_ACTIVE_PEOPLE, _IN_FLIGHT, _LEAD = 1_000, 100, 10
#: one of so many is hot
_HOT = 100
_CHANNELS = 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_BEGIN = datetime(2015, 7, 15, tzinfo=UTC)
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_SQL_TYPES = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.timestamp("us", "UTC"): "TIMESTAMP"}
#: rows of `side_input`, the table that q13 joins with
_SIDE_ROWS = 10_000

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """What is generated.

    Attributes:
        events: number of events of all streams.
        seed: of all random draws.
        rate: events a second of event time.
        disorder_seconds: an event arrives up to so much later than its event time; 0: in order.
    """

    events: int
    seed: int = 1
    rate: float = 10_000.0
    disorder_seconds: float = 0.0

    def tables(self) -> dict[str, pa.Table]:
        """The events by stream, in the order in which they arrive, with a column `arrives` that says when."""
        rng = np.random.default_rng(self.seed)
        numbers = np.arange(self.events, dtype=np.int64)
        offsets = numbers % GROUP
        is_person, is_bid = offsets < PERSONS, offsets >= PERSONS + AUCTIONS
        made: Mapping[str, tuple[npt.NDArray[np.bool_], Callable[[Numbers, np.random.Generator], pa.Table]]]
        made = {
            "person": (is_person, self._persons),
            "auction": (~is_person & ~is_bid, self._auctions),
            "bid": (is_bid, self._bids),
        }
        found = {}
        for stream, (wanted, make) in made.items():
            own = numbers[wanted]
            table = make(own, rng)
            late = rng.uniform(0, self.disorder_seconds * 1e6, len(own)).astype(np.int64)
            arrives = self._times(own) + late
            table = table.append_column("arrives", pa.array(arrives))
            found[stream] = table.take(pa.array(np.argsort(arrives, kind="stable")))
        return found

    def _times(self, numbers: Numbers) -> Numbers:
        begin = int(_BEGIN.timestamp() * 1e6)
        return (begin + numbers * (1e6 / self.rate)).astype(np.int64)

    def _persons(self, numbers: Numbers, rng: np.random.Generator) -> pa.Table:
        rows = len(numbers)
        first, last = _drawn(rng, _FIRST_NAMES, rows), _drawn(rng, _LAST_NAMES, rows)
        card = rng.integers(0, 10_000, (rows, 4))
        return pa.table(
            {
                "id": _FIRST_ID + _last_person(numbers),
                "name": [f"{one} {two}" for one, two in zip(first, last, strict=True)],
                "email_address": [f"{one}@{two}.com".lower() for one, two in zip(first, last, strict=True)],
                "credit_card": [" ".join(f"{part:04d}" for part in each) for each in card.tolist()],
                "city": _drawn(rng, _CITIES, rows),
                "state": _drawn(rng, _STATES, rows),
                EVENT_TIME: _moments(self._times(numbers)),
                "extra": _texts(rng, rows, 20),
            }
        )

    def _auctions(self, numbers: Numbers, rng: np.random.Generator) -> pa.Table:
        rows = len(numbers)
        hot = _last_person(numbers) // _HOT * _HOT
        seller = np.where(rng.integers(0, 4, rows) > 0, hot, _any_person(numbers, rng))
        initial = _prices(rng, rows)
        times = self._times(numbers)
        horizon = int(_IN_FLIGHT * GROUP / AUCTIONS * 1e6 / self.rate)
        return pa.table(
            {
                "id": _FIRST_ID + _last_auction(numbers),
                "item_name": _texts(rng, rows, 12),
                "description": _texts(rng, rows, 40),
                "initial_bid": initial,
                "reserve": initial + _prices(rng, rows),
                EVENT_TIME: _moments(times),
                "expires": _moments(times + 1 + rng.integers(0, max(2 * horizon, 1), rows)),
                "seller": _FIRST_ID + seller,
                "category": _FIRST_CATEGORY + rng.integers(0, _CATEGORIES, rows),
                "extra": _texts(rng, rows, 40),
            }
        )

    def _bids(self, numbers: Numbers, rng: np.random.Generator) -> pa.Table:
        rows = len(numbers)
        hot_auction = _last_auction(numbers) // _HOT * _HOT
        auction = np.where(rng.integers(0, 2, rows) > 0, hot_auction, _any_auction(numbers, rng))
        hot_bidder = _last_person(numbers) // _HOT * _HOT + 1
        bidder = np.where(rng.integers(0, 4, rows) > 0, hot_bidder, _any_person(numbers, rng))
        channel, url = _channels(rng, rows)
        return pa.table(
            {
                "auction": _FIRST_ID + auction,
                "bidder": _FIRST_ID + bidder,
                "price": _prices(rng, rows),
                "channel": channel,
                "url": url,
                EVENT_TIME: _moments(self._times(numbers)),
                "extra": _texts(rng, rows, 20),
            }
        )


def side_input() -> pa.Table:
    """The table that q13 joins bids with."""
    keys = np.arange(_SIDE_ROWS)
    return pa.table({"key": keys, "value": [f"value {key}" for key in keys.tolist()]})


def write_nexmark(folder: Path, generated: Nexmark, files: int) -> dict[str, list[Path]]:
    """Writes the streams as Parquet files, and `side_input`.

    Args:
        folder: gets a folder for each of them.
        generated: the events.
        files: so many for each stream; what arrives together is in the files of one number.

    Returns:
        The files of each stream, in the order in which they are to be read.
    """
    tables = generated.tables()
    arrivals = np.sort(np.concatenate([table.column("arrives").to_numpy() for table in tables.values()]))
    bounds = [arrivals[len(arrivals) * number // files] for number in range(1, files)]
    written: dict[str, list[Path]] = {}
    for stream, table in tables.items():
        (folder / stream).mkdir(parents=True, exist_ok=True)
        places = [0, *np.searchsorted(table.column("arrives").to_numpy(), bounds).tolist(), table.num_rows]
        own = table.drop_columns(["arrives"])
        for number, (first, last) in enumerate(pairwise(places)):
            path = folder / stream / f"{number:05d}.parquet"
            pq.write_table(own.slice(first, last - first), path)
            written.setdefault(stream, []).append(path)
    (folder / "side_input").mkdir(exist_ok=True)
    pq.write_table(side_input(), folder / "side_input" / "0.parquet")
    return written


def nexmark_tables(folder: Path) -> str:
    """The CREATE TABLE statements over the files of `write_nexmark`."""
    streams = (
        f"CREATE TABLE {stream} USING parquet OPTIONS (path '{folder / stream}', event_time '{EVENT_TIME}');\n"
        for stream in STREAMS
    )
    side = f"CREATE TABLE side_input USING parquet OPTIONS (path '{folder / 'side_input'}', static 'true');\n"
    return "".join(streams) + side


def json_records(events: pa.Table) -> Iterator[str]:
    """Yield the events of a stream as JSON objects, in the order in which they arrive: the values of a topic."""
    own = [name for name in events.column_names if name != "arrives"]
    for row in events.select(own).to_pylist():
        yield json.dumps({name: _plain(value) for name, value in row.items()})


def nexmark_topics(address: str, prefix: str = "") -> str:
    """The CREATE TABLE statements over topics of such records, whose names are those of the streams.

    Args:
        address: of the Kafka broker.
        prefix: what the topics' names begin with.
    """
    tables = Nexmark(GROUP).tables()
    statements = []
    for stream, events in tables.items():
        columns = ", ".join(
            f"{field.name} {_SQL_TYPES[field.type]}" for field in events.schema if field.name != "arrives"
        )
        options = (
            f"kafka.bootstrap.servers '{address}', subscribe '{prefix}{stream}', event_time '{EVENT_TIME}'"
        )
        statements.append(f"CREATE TABLE {stream} ({columns}) USING kafka OPTIONS ({options});\n")
    return "".join(statements)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _last_person(numbers: Numbers) -> Numbers:
    """The number of the newest person when an event happens."""
    return numbers // GROUP * PERSONS + np.minimum(numbers % GROUP, PERSONS - 1)


def _last_auction(numbers: Numbers) -> Numbers:
    """Likewise of the newest auction."""
    group, offset = numbers // GROUP, numbers % GROUP
    group = np.where(offset < PERSONS, group - 1, group)
    place = np.where((offset < PERSONS) | (offset >= PERSONS + AUCTIONS), AUCTIONS - 1, offset - PERSONS)
    return np.maximum(group * AUCTIONS + place, 0)


def _any_person(numbers: Numbers, rng: np.random.Generator) -> Numbers:
    people = _last_person(numbers) + 1
    active = np.minimum(people, _ACTIVE_PEOPLE)
    chosen: Numbers = (rng.random(len(numbers)) * (active + _LEAD)).astype(np.int64)
    return people - active + chosen


def _any_auction(numbers: Numbers, rng: np.random.Generator) -> Numbers:
    newest = _last_auction(numbers)
    oldest = np.maximum(newest - _IN_FLIGHT, 0)
    return oldest + (rng.random(len(numbers)) * (newest - oldest + 1 + _LEAD)).astype(np.int64)


def _prices(rng: np.random.Generator, rows: int) -> Numbers:
    prices: Numbers = np.round(np.power(10.0, rng.random(rows) * 6) * 100).astype(np.int64)
    return prices


def _channels(rng: np.random.Generator, rows: int) -> tuple[list[str], list[str]]:
    is_hot = (rng.integers(0, 2, rows) > 0).tolist()
    hot, other = (rng.integers(0, most, rows).tolist() for most in (len(_HOT_CHANNELS), _CHANNELS))
    base = "https://www.nexmark.com/a/b/item.htm?query=1"
    channels, urls = [], []
    for number in range(rows):
        if is_hot[number]:
            channels.append(_HOT_CHANNELS[hot[number]])
            urls.append(base.replace("/a/b", f"/hot/{hot[number]}"))
        else:
            channels.append(f"channel-{other[number]}")
            # one in ten has no id
            urls.append(base if other[number] % 10 == 0 else f"{base}&channel_id={other[number]}")
    return channels, urls


def _texts(rng: np.random.Generator, rows: int, length: int) -> list[str]:
    letters = np.ascontiguousarray(_LETTERS[rng.integers(0, len(_LETTERS), (rows, length))])
    return cast(list[str], letters.view(f"U{length}").ravel().tolist())


def _drawn(rng: np.random.Generator, words: Sequence[str], rows: int) -> list[str]:
    return [words[place] for place in rng.integers(0, len(words), rows).tolist()]


def _moments(times: Numbers) -> pa.Array:
    return pa.array(times).cast(pa.timestamp("us", "UTC"))
