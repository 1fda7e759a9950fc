"""Numbers for the distinct columns of a matrix of codes, by a hash table that is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled


@compiled(nogil=True)
def number_classes(
    codes: npt.NDArray[np.uint32],
    slots: npt.NDArray[np.int32],
    members: npt.NDArray[np.uint32],
    count: int,
    out: npt.NDArray[np.int32],
) -> int:
    """Numbers the columns of `codes`; those that are new get the next numbers.

    Args:
        codes: uint32[attributes, rows].
        slots: int32[power of two], numbers of classes by hash, -1 where free; changed.
        members: uint32[most classes, attributes], the codes of each class; changed.
        count: classes that are known.
        out: int32[rows], the class of each row; written.

    Returns:
        How many classes are known then; -1 if there is no room for them: `out` is not complete, `slots` and `members`
        have to be made anew.
    """
    width, rows = codes.shape
    mask = len(slots) - 1
    for row in range(rows):
        mixed = np.uint64(0x9E3779B97F4A7C15)
        for attribute in range(width):
            mixed = (mixed ^ np.uint64(codes[attribute, row])) * np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & np.uint64(mask))
        while True:
            number = slots[slot]
            if number < 0:
                if count == len(members) or 2 * count > mask:
                    return -1
                for attribute in range(width):
                    members[count, attribute] = codes[attribute, row]
                slots[slot] = count
                out[row] = count
                count += 1
                break
            is_same = True
            for attribute in range(width):
                if members[number, attribute] != codes[attribute, row]:
                    is_same = False
                    break
            if is_same:
                out[row] = number
                break
            slot = (slot + 1) & mask
    return count


@compiled(nogil=True)
def spread(
    rows: npt.NDArray[np.int64],
    classes: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    queries: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.int32],
) -> None:
    """Writes the queries of each row's class to the row's place.

    Args:
        rows: int64[n].
        classes: int32[n], the class of each.
        starts, queries: class c has queries[starts[c]:starts[c + 1]].
        offsets: int64[all rows + 1], where each row's queries begin.
        out: int32[], written.
    """
    for number in range(len(rows)):
        place = offsets[rows[number]]
        first = starts[classes[number]]
        for step in range(starts[classes[number] + 1] - first):
            out[place + step] = queries[first + step]
