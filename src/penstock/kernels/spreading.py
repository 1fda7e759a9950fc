"""Rows that several queries share, spread over these: which pairs of a row and a query are merged, and their sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Limbs = npt.NDArray[np.uint64]


@compiled(nogil=True)
def rows_by_query(offsets: Longs, queries: Ints, count: int) -> tuple[Longs, Longs]:
    """Turns matches by row into matches by query.

    Args:
        offsets, queries: row i satisfies queries[offsets[i]:offsets[i + 1]].
        count: queries are below it.

    Returns:
        int64[count + 1] and int64[pairs]: query q is satisfied by rows[starts[q]:starts[q + 1]], ascending.
    """
    starts = np.zeros(count + 1, np.int64)
    for query in queries:
        starts[query + 1] += 1
    for query in range(count):
        starts[query + 1] += starts[query]
    rows = np.empty(len(queries), np.int64)
    places = starts.copy()
    for row in range(len(offsets) - 1):
        for pair in range(offsets[row], offsets[row + 1]):
            query = queries[pair]
            rows[places[query]] = row
            places[query] += 1
    return starts, rows


@compiled(nogil=True)
def number_set_cells(
    order: Longs,
    groups: Longs,
    sets: Ints,
    starts: Longs,
    pool: Ints,
    cell_of: Longs,
    queries: Ints,
    first_rows: Longs,
    bounds: Longs,
) -> int:
    """Numbers the cells of rows that are spread over the queries of their sets: one for each group and query, as they are first met.

    Args:
        order: rows to spread, those of a group together.
        groups: int64[all rows], the group of each.
        sets: int32[all rows], the set of each.
        starts, pool: set s holds pool[starts[s]:starts[s + 1]].
        cell_of: int64[queries], -1 everywhere.
        queries, first_rows: written: the query of each cell and one of its rows; at least as long as there are cells.
        bounds: int64[groups to spread + 1], written: where the cells of each group begin, with the end.

    Returns:
        The number of cells.
    """
    count = base = known = 0
    group = -1
    for row in order:
        if groups[row] != group:
            group, base = groups[row], count
            bounds[known] = count
            known += 1
        own = sets[row]
        for place in range(starts[own], starts[own + 1]):
            query = pool[place]
            if cell_of[query] < base:
                cell_of[query] = count
                queries[count] = query
                first_rows[count] = row
                count += 1
    bounds[known] = count
    return count


@compiled(nogil=True)
def add_by_sets(
    values: npt.NDArray[np.generic],
    order: Longs,
    groups: Longs,
    sets: Ints,
    starts: Longs,
    pool: Ints,
    queries: Ints,
    bounds: Longs,
    added: npt.NDArray[np.generic],
    sums: npt.NDArray[np.generic],
) -> None:
    """Adds values[row] to the sums of the cells of its row, in order, without a list of pairs.

    Args:
        values: of all rows.
        order, groups, sets, starts, pool: as `number_set_cells` takes them.
        queries, bounds: of the cells, as it writes them.
        added: of all queries, 0 everywhere.
        sums: written, of the cells.
    """
    place = known = 0
    while place < len(order):
        group = groups[order[place]]
        while place < len(order) and groups[order[place]] == group:
            row = order[place]
            own, value = sets[row], values[row]
            for member in range(starts[own], starts[own + 1]):
                added[pool[member]] += value
            place += 1
        for cell in range(bounds[known], bounds[known + 1]):
            sums[cell] = added[queries[cell]]
            added[queries[cell]] = 0
        known += 1


@compiled(nogil=True)
def list_set_pairs(
    order: Longs,
    groups: Longs,
    sets: Ints,
    starts: Longs,
    pool: Ints,
    cell_of: Longs,
    rows: Longs,
    cells: Longs,
) -> None:
    """Lists each row once for each query of its set.

    Args:
        order, groups, sets, starts, pool, cell_of: as `number_set_cells` takes them.
        rows, cells: written: int64[pairs], the row and the cell of each pair.
    """
    pairs = count = base = 0
    group = -1
    for row in order:
        if groups[row] != group:
            group, base = groups[row], count
        own = sets[row]
        for place in range(starts[own], starts[own + 1]):
            query = pool[place]
            cell = cell_of[query]
            if cell < base:
                cell = count
                cell_of[query] = cell
                count += 1
            rows[pairs] = row
            cells[pairs] = cell
            pairs += 1


@compiled(nogil=True)
def number_window_cells(
    codes: Longs,
    first: Longs,
    last: Longs,
    windows: Longs,
    cell_of: Longs,
    first_rows: Longs,
    cell_windows: Longs,
) -> int:
    """Numbers the cells of windows, one for each window and code, as they are first met.

    Args:
        codes: int64[all rows], the group of each.
        first, last, windows: int64[ranges]: rows first, ..., last - 1 belong to the window; those of a window together.
        cell_of: int64[codes], -1 everywhere.
        first_rows, cell_windows: written: one row and the window of each cell; at least as long as there are cells.

    Returns:
        The number of cells.
    """
    count = base = 0
    for place in range(len(first)):
        if place and windows[place] != windows[place - 1]:
            base = count
        for row in range(first[place], last[place]):
            code = codes[row]
            if cell_of[code] < base:
                cell_of[code] = count
                first_rows[count] = row
                cell_windows[count] = windows[place]
                count += 1
    return count


@compiled(nogil=True)
def add_by_windows(
    values: npt.NDArray[np.generic],
    codes: Longs,
    first: Longs,
    last: Longs,
    windows: Longs,
    cell_of: Longs,
    sums: npt.NDArray[np.generic],
) -> None:
    """Adds values[row] to the sum of its cell in each window, in order, without a list of pairs.

    Args:
        values: of all rows.
        codes, first, last, windows, cell_of: as `number_window_cells` takes them.
        sums: of the cells.
    """
    count = base = 0
    for place in range(len(first)):
        if place and windows[place] != windows[place - 1]:
            base = count
        for row in range(first[place], last[place]):
            code = codes[row]
            cell = cell_of[code]
            if cell < base:
                cell = count
                cell_of[code] = cell
                count += 1
            sums[cell] += values[row]


@compiled(nogil=True)
def list_window_pairs(
    codes: Longs,
    first: Longs,
    last: Longs,
    windows: Longs,
    cell_of: Longs,
    rows: Longs,
    cells: Longs,
) -> None:
    """Lists each row once for each window that holds it.

    Args:
        codes, first, last, windows, cell_of: as `number_window_cells` takes them.
        rows, cells: written: int64[pairs], the row and the cell of each pair.
    """
    pairs = count = base = 0
    for place in range(len(first)):
        if place and windows[place] != windows[place - 1]:
            base = count
        for row in range(first[place], last[place]):
            code = codes[row]
            cell = cell_of[code]
            if cell < base:
                cell = count
                cell_of[code] = cell
                count += 1
            rows[pairs] = row
            cells[pairs] = cell
            pairs += 1


@compiled(nogil=True)
def add_up(values: npt.NDArray[np.generic], rows: Longs, cells: Longs, sums: npt.NDArray[np.generic]) -> None:
    """Adds values[row] to sums[cell] for each pair, in order."""
    for pair in range(len(rows)):
        sums[cells[pair]] += values[rows[pair]]


@compiled(nogil=True)
def add_limbs(values: Limbs, rows: Longs, cells: Longs, sums: Limbs) -> None:
    """The like for integers of several 64-bit limbs, uint64[n, limbs], the least significant first; sums wrap."""
    for pair in range(len(rows)):
        carry = np.uint64(0)
        for limb in range(values.shape[1]):
            value = values[rows[pair], limb]
            total = sums[cells[pair], limb] + value
            wrapped = total < value
            summed = total + carry
            carry = np.uint64(1) if wrapped or summed < total else np.uint64(0)
            sums[cells[pair], limb] = summed


@compiled(nogil=True)
def take_extremes(
    values: Longs, is_there: npt.NDArray[np.bool_], rows: Longs, cells: Longs, least: bool, found: Longs
) -> None:
    """Writes the least or the largest values[row] to found[cell]; rows where there is none are left out."""
    for pair in range(len(rows)):
        row = rows[pair]
        if is_there[row]:
            value, cell = values[row], cells[pair]
            if (least and value < found[cell]) or (not least and value > found[cell]):
                found[cell] = value
