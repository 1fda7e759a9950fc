"""The files of a shard's state are what was written, few, and refused where they are damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.errors import DamagedError
from penstock.spark.lanes.windows import shard_state
from penstock.spark.lanes.windows.shard_state import (
    Changes,
    Place,
    StateFile,
    StateFiles,
    StoredChange,
    check_state,
)
from penstock.spark.storage.layout import Layout

STREAM = "s"
#: pieces of panes by place
Model = dict[Place, list[bytes]]
#: of a cut: a pane's place, how many of its pieces stay (more than it has: all), the pieces that follow; an operator that is dropped
Step = tuple[list[tuple[Place, int, list[bytes]]], int | None]

places = st.tuples(st.integers(0, 2), st.sampled_from([-20, 0, 20, 40]))
# a piece of each is told from others by its content
pieces = st.lists(
    st.one_of(st.binary(max_size=9), st.integers(0, 255).map(lambda byte: bytes([byte]) * 5_000)), max_size=3
)
steps = st.tuples(
    st.lists(st.tuples(places, st.integers(0, 5), pieces), max_size=5, unique_by=lambda each: each[0]),
    st.none() | st.integers(0, 2),
)


def files_of(folder: Path) -> tuple[StateFiles, Path]:
    layout = Layout(folder / "out", folder / "checkpoint")
    return StateFiles(
        layout.log_store, layout.checkpoint, layout.window_states(STREAM)
    ), layout.window_states(STREAM)


def changed(model: Model, step: Step) -> Changes:
    """Brings the model to the end of a cut; what the cut has changed."""
    found: dict[Place, StoredChange] = {}
    panes, dropped = step
    for place in [place for place in model if place[0] == dropped]:
        del model[place]
        found[place] = StoredChange(0, ())
    for place, stay, added in panes:
        older = model.pop(place, [])
        kept = min(stay, len(older))
        if place[0] == dropped:
            kept = 0
        found[place] = StoredChange(kept, added)
        if kept or added:
            model[place] = [*older[:kept], *added]
    return found


def read(states: StateFiles, files: list[StateFile], wanted: set[Place] | None = None) -> Model:
    found = states.panes(files, states.places(files) if wanted is None else wanted)
    return {place: list(own) for place, own in found.items()}


@given(st.lists(steps, max_size=25), st.data())
def test_what_is_read_is_what_was_written(cuts: list[Step], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        states, _ = files_of(Path(folder))
        model: Model = {}
        files: list[StateFile] = []
        for cut, step in enumerate(cuts):
            before = list(files)
            held = {place: list(own) for place, own in model.items()}
            files = states.write(before, f"{cut:010d}-00000", changed(model, step), b"cut %d" % cut)
            assert states.scalars(files[-1]) == b"cut %d" % cut
            assert read(states, files) == model
            assert read(states, before) == held, "the state before stays as it is"
            some = data.draw(st.sets(places))
            assert read(states, files, some) == {place: model[place] for place in some & model.keys()}
        assert len({file.name for file in files}) == len(files)


@given(st.lists(steps, min_size=2, max_size=12), st.data())
def test_what_a_reader_has_is_brought_up_to_date_by_the_files_it_does_not_know(
    cuts: list[Step], data: st.DataObject
) -> None:
    """As long as the oldest file is the one it knows."""
    with TemporaryDirectory() as folder:
        states, _ = files_of(Path(folder))
        model: Model = {}
        history: list[tuple[list[StateFile], Model]] = []
        for cut, step in enumerate(cuts):
            files = states.write(history[-1][0] if history else [], str(cut), changed(model, step), b"")
            history.append((files, {place: list(own) for place, own in model.items()}))
        known, found = history[data.draw(st.integers(0, len(history) - 2))]
        files, _ = history[-1]
        if files[0] != known[0]:
            return
        unknown = states.places(file for file in files if file not in known)
        unchanged = {place: own for place, own in found.items() if place not in unknown}
        assert {**unchanged, **read(states, files, unknown)} == model


@settings(max_examples=examples(20))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 300, 20_000]),
    st.sampled_from([0, 700, 30_000]),
    st.booleans(),
)
def test_files_are_few_however_many_cuts(seed: int, piece: int, scalars: int, is_growing: bool) -> None:
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        states, _ = files_of(Path(folder))
        model: Model = {}
        files: list[StateFile] = []
        written = 0
        for cut in range(120):
            start = 20 * (cut // 3 if is_growing else int(rng.integers(0, 8)))
            step: list[tuple[Place, int, list[bytes]]] = [((0, start), 9, [bytes([cut]) * piece])]
            if not is_growing:
                step = [((0, start), int(rng.integers(0, 4)), [bytes([cut]) * piece])]
            files = states.write(files, f"{cut:010d}", changed(model, (step, None)), b"x" * scalars)
            written += files[-1].size
            whole = sum(file.size for file in files)
            assert len(files) <= 3 + math.log2(whole)
            assert whole <= 40_000 + 6 * (scalars + sum(len(each) for own in model.values() for each in own))
        assert read(states, files) == model
        # a byte is written a logarithmic number of times
        assert written <= 120 * (scalars + 4_000) * 3 + 120 * piece * 2 * math.log2(120)


def test_a_pane_that_is_gone_leaves_nothing_in_the_oldest_file(tmp_path: Path) -> None:
    states, _ = files_of(tmp_path)
    files = states.write([], "0", {(0, 0): StoredChange(0, [b"a"]), (1, 0): StoredChange(0, [b"b"])}, b"")
    files = states.write(files, "1", {(0, 0): StoredChange(0, ())}, b"")
    assert len(files) == 1
    assert states.places(files) == {(1, 0)}


def two_files(states: StateFiles) -> list[StateFile]:
    large = {(0, start): StoredChange(0, [bytes(range(256)) * 400]) for start in (0, 20)}
    files = states.write([], "0", large, b"older")
    files = states.write(files, "1", {(0, 20): StoredChange(1, [b"more"])}, b"newer")
    assert len(files) == 2
    return files


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def _lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 8)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _with_another_length(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\xff" * 8 + content[8:])


def _with_another_head(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[16 + content[16:].index(b"format")] ^= 1
    path.write_bytes(content)


def _with_another_piece(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.rindex(b"more") if b"more" in content else len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        _cut_short,
        _lengthened,
        _emptied,
        _with_another_length,
        _with_another_head,
        _with_another_piece,
    ],
)
@pytest.mark.parametrize("is_known", [False, True], ids=["unread", "its head was read before"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Any, which: int, is_known: bool) -> None:
    states, folder = files_of(tmp_path)
    files = two_files(states)
    if is_known:
        assert len(read(states, files)) == 2
    damage(folder / files[which].name)
    with pytest.raises(DamagedError) as raised:
        check_state(folder / files[which].name, files[which])
    assert str(folder / files[which].name) in str(raised.value)
    if is_known and damage not in (Path.unlink, _emptied, _with_another_piece):
        # what lies before the pieces is in memory; the pieces are as they were
        return
    with pytest.raises(DamagedError) as raised:
        read(states, files)
    assert str(folder / files[which].name) in str(raised.value)
    with pytest.raises(DamagedError) as raised:
        states.write(files, "2", {(0, 0): StoredChange(0, [b"all" * 400_000])}, b"")
    assert str(folder / files[which].name) in str(raised.value)


def test_a_piece_that_is_missing_is_found_where_the_head_is_in_memory(tmp_path: Path) -> None:
    states, folder = files_of(tmp_path)
    files = two_files(states)
    assert len(read(states, files)) == 2
    path = folder / files[0].name
    path.write_bytes(path.read_bytes()[:-1_000])
    with pytest.raises(DamagedError, match=files[0].name):
        read(states, files)


def test_heads_in_memory_are_bounded(tmp_path: Path) -> None:
    states, _ = files_of(tmp_path)
    shard_state._head.cache_clear()
    files: list[StateFile] = []
    model: Model = {}
    for cut in range(3 * shard_state._KEPT_HEADS):
        files = states.write(files, str(cut), changed(model, ([((0, cut % 5), 0, [b"x"])], None)), b"")
        read(states, files)
    assert shard_state._head.cache_info().currsize <= shard_state._KEPT_HEADS


def test_changes_that_follow_each_other_are_one() -> None:
    base = [b"a", b"b", b"c"]

    def after(older: list[bytes], change: StoredChange) -> list[bytes]:
        return [*older[: change.kept], *change.pieces]

    changes: Mapping[str, StoredChange] = {
        "fewer": StoredChange(1, [b"d"]),
        "more": StoredChange(3, [b"e", b"f"]),
        "gone": StoredChange(0, ()),
        "shorter": StoredChange(2, ()),
    }
    for first in changes.values():
        for second in changes.values():
            middle = after(base, first)
            if second.kept <= len(middle):
                assert after(base, second.after(first)) == after(middle, second)
