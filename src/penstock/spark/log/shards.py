"""Shards of the keyed query: how many, and the grouping key of each.

Spark's hash puts exactly one of the keys in each shuffle partition. Number and keys are fixed with the
checkpoint: state that was written for one number of partitions is of no use to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from penstock.errors import DamagedError, InputError
from penstock.spark.storage.formats import SHARDS
from penstock.spark.storage.layout import Layout

_SEED = 42
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class KeyedContext:
    """What every shard of a keyed query knows.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        identity: of the checkpoint: tells caches of two of them apart.
        keys: grouping keys of the shards.
        after: the entry of the log before the first one of a shard that has no state; -1 for the beginning.
    """

    layout: Layout
    stream: str
    identity: str
    keys: tuple[int, ...]
    after: int = -1


def shard_keys(partitions: int) -> tuple[int, ...]:
    """The grouping key of each shard: the least integer that Spark puts in the partition of that number."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(spark_hash(key) % partitions, key)
        if len(found) == partitions:
            break
    return tuple(found[partition] for partition in range(partitions))


def fixed_shards(layout: Layout, stream: str, cores: int, wanted: int | None) -> tuple[int, ...]:
    """The keys of a stream's shards, fixed by whoever asks first.

    Envelope files name a shard by its place in the tuple, 0 .. number of shards - 1.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        cores: number of shards where neither the checkpoint nor the user says one.
        wanted: what the user set, if anything.

    Raises:
        InputError: the checkpoint has another number of shards than the user wants.
        DamagedError: what fixed it is missing.
    """
    path = layout.shards(stream)
    if not path.exists() and any(layout.keyed_spark(stream).glob("offsets/[0-9]*")):
        raise DamagedError(str(path), f"({SHARDS.kind}) is missing")
    SHARDS.put(path, {"keys": shard_keys(wanted or cores)})
    document = SHARDS.read(path)
    assert document is not None, "it has just been put"
    keys = tuple(document["keys"])
    if wanted not in (None, len(keys)):
        raise InputError(
            f"settings: shards is {wanted}, but the checkpoint of stream {stream} has {len(keys)}. "
            "Remove the setting, or start with a new checkpoint and a new output folder"
        )
    return keys


def spark_hash(value: int) -> int:
    """What Spark's `hash` gives for an INT: Murmur3 of 32 bits with seed 42."""
    mixed = _rotated(value * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    state = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD
