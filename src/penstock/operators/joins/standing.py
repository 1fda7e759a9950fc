"""Which versions remain of an input with versions: those that some left row may still meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.joins.newest import Identities


def standing(
    versions: pa.Table, keys: Sequence[str], time: str, until: int, identities: Identities
) -> pa.Table:
    """Return the versions that are later than a moment, and of each key the newest one up to it.

    Args:
        versions: the versions; those with a NULL key are left out, as nothing equals them.
        keys: names of the columns that are the key.
        time: name of the event time, without NULL.
        until: the moment, microseconds.
        identities: orders versions of one event time.
    """
    for name in keys:
        versions = versions.filter(versions.column(name).is_valid())
    if not versions.num_rows:
        return versions
    times = versions.column(time).cast(pa.int64()).to_numpy()
    is_old = times <= until
    groups, own = _groups(versions, keys)[is_old], times[is_old]
    order = np.lexsort((identities.of_rows(versions.filter(pa.array(is_old))), own, groups))
    is_last = np.append(groups[order][1:] != groups[order][:-1], True) if len(own) else np.zeros(0, np.bool_)
    kept = ~is_old
    kept[np.flatnonzero(is_old)[order[is_last]]] = True
    return versions.filter(pa.array(kept))


def _groups(table: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each row; rows with different keys have different ones."""
    found = np.zeros(table.num_rows, np.int64)
    for name in keys:
        encoded = table.column(name).dictionary_encode()
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)
        found = found * (codes.max() + 1) + codes
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found
