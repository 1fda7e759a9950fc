"""A ledger beside a dictionary: whatever is committed, both read the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slatedb.uniffi import ObjectStore

from forms import examples
from penstock.errors import UnexpectedDocumentError
from penstock.stores.keys import Key, decoded_key, encoded_key
from penstock.stores.ledger import Ledger, Range
from penstock.stores.slate_ledger import CopiedView, SlateLedger
from penstock.stores.slate_place import SlatePlace
from penstock.stores.sqlite_ledger import SqliteLedger

#: few of them, so that they meet; the last ones are prefixes of each other or of what encoding adds
PARTS = st.one_of(
    st.integers(-2, 3), st.sampled_from(["", "a", "ab", "a\0", "a\0\xff", "ä", "\U0001f40b", "\0", "b"])
)
ANY_PARTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=5))
PREFIXES = st.lists(PARTS, max_size=3).map(tuple)
KEYS = st.lists(PARTS, min_size=1, max_size=3).map(tuple)
OTHER = (bool(1), 2**63, -(2**63) - 1, 1.5, None, "\ud800", b"a")
COMMITS = st.lists(
    st.tuples(
        st.dictionaries(KEYS, st.binary(max_size=4), max_size=4),
        st.lists(
            st.one_of(KEYS, st.builds(Range, PREFIXES, st.none() | PARTS, st.none() | PARTS)), max_size=2
        ),
    ),
    max_size=6,
)


def _order(key: Key) -> list[tuple[bool, str | int]]:
    return [(isinstance(part, str), part) for part in key]


def _is_within(key: Key, within: Range) -> bool:
    size = len(within.prefix)
    if key[:size] != within.prefix:
        return False
    if within.after is None and within.before is None:
        return True
    if len(key) == size:
        return False
    part = _order(key)[size]
    return (within.after is None or part > _order((within.after,))[0]) and (
        within.before is None or part < _order((within.before,))[0]
    )


@given(st.lists(st.lists(ANY_PARTS, min_size=1, max_size=4).map(tuple)))
def test_encoded_keys_are_in_order_and_are_read_back(keys: list[Key]) -> None:
    encoded = [encoded_key(key) for key in keys]
    assert [decoded_key(each) for each in encoded] == keys
    assert sorted(encoded) == [encoded_key(key) for key in sorted(keys, key=_order)]


@pytest.mark.parametrize("part", OTHER, ids=repr)
def test_what_cannot_be_part_of_a_key_is_refused(part: object) -> None:
    with pytest.raises(ValueError, match=r"surrogates|part of a key"):
        encoded_key(("a", part))  # type: ignore[arg-type]


def test_no_document_has_the_empty_key() -> None:
    with pytest.raises(ValueError, match="cannot be empty"):
        encoded_key(())


@contextmanager
def _sqlite() -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        yield ledger
        ledger.close()
        again = SqliteLedger(Path(folder) / "ledger.db")
        again.close()


@contextmanager
def _slate() -> Iterator[Ledger]:
    ledger = SlateLedger(SlatePlace(ObjectStore.resolve("memory:///"), "ledger", "memory:///ledger"))
    yield ledger
    ledger.close()


@pytest.mark.parametrize("opened", [_sqlite, _slate])
def test_a_ledger_reads_what_a_dictionary_does(opened) -> None:
    @settings(max_examples=examples(100))
    @given(
        COMMITS,
        st.builds(Range, PREFIXES, st.none() | PARTS, st.none() | PARTS),
        st.booleans(),
        st.none() | st.integers(0, 3),
    )
    def agree(commits, within: Range, reverse: bool, limit: int | None) -> None:
        model: dict[Key, bytes] = {}
        with opened() as ledger:
            for puts, deletes in commits:
                # what is expected is sometimes true
                expect = {key: model.get(key, b"") for key in [*puts][:1]}
                is_true = all(model.get(key) == document for key, document in expect.items())
                try:
                    ledger.commit(puts, deletes, expect)
                except UnexpectedDocumentError:
                    assert not is_true
                    continue
                assert is_true
                for each in deletes:
                    gone = (
                        [key for key in model if _is_within(key, each)] if isinstance(each, Range) else [each]
                    )
                    for key in gone:
                        model.pop(key, None)
                model.update(puts)
            wanted = [(key, model[key]) for key in sorted(model, key=_order)]
            assert list(ledger.scan()) == wanted
            assert all(ledger.get(key) == document for key, document in wanted)
            found = [entry for entry in wanted if _is_within(entry[0], within)]
            found = (found[::-1] if reverse else found)[:limit]
            copy = CopiedView([(encoded_key(key), document) for key, document in wanted])
            for view in (ledger, copy):
                assert list(islice(view.scan(within, reverse), limit)) == found
                assert list(islice(view.keys(within, reverse), limit)) == [key for key, _ in found]
                assert not within.prefix or view.get(within.prefix) == model.get(within.prefix)

    agree()
