"""How many shards the window views of a stream are divided into."""

from __future__ import annotations

from penstock.errors import DamagedError, InputError
from penstock.spark.storage.formats import SHARDS
from penstock.spark.storage.layout import Layout


def fixed_shards(layout: Layout, stream: str, cores: int, wanted: int | None) -> int:
    """Return the number of a stream's shards, fixed by whoever asks first.

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
    if not path.exists() and layout.window_state(stream).exists():
        raise DamagedError(str(path), f"({SHARDS.kind}) is missing")
    SHARDS.put(path, {"shards": wanted or cores})
    document = SHARDS.read(path)
    assert document is not None, "it has just been put"
    shards = int(document["shards"])
    if wanted not in (None, shards):
        raise InputError(
            f"settings: shards is {wanted}, but the checkpoint of stream {stream} has {shards}. "
            "Remove the setting, or start with a new checkpoint and a new output folder"
        )
    return shards
