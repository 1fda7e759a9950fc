"""What every ledger does: one suite for all implementations."""

from __future__ import annotations

import socket
import subprocess
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from penstock.errors import FencedError, UnexpectedDocumentError
from penstock.stores.ledger import ClosedError, Ledger, Range
from store_cases import LEDGERS, LedgerCase


@pytest.fixture(params=LEDGERS, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerCase:
    """A place for a ledger of each kind."""
    return request.param(request, tmp_path)


@pytest.fixture
def ledger(case: LedgerCase) -> Ledger:
    """A new ledger of each kind."""
    return case.opened()


FLIGHTS = Range(("batch", "flights"))


def _filled(ledger: Ledger) -> None:
    ledger.commit({("batch", "flights", number): b"%d" % number for number in range(20)})
    ledger.commit({("batch", "fares", 3): b"other", ("batch",): b"head", ("batch", "flights"): b"its head"})


def test_what_was_committed_is_read_in_order_of_number(ledger: Ledger) -> None:
    _filled(ledger)
    assert ledger.get(("batch", "flights", 17)) == b"17"
    assert ledger.get(("batch", "flights", 20)) is None
    flights = list(ledger.scan(FLIGHTS))
    assert [key for key, _ in flights] == [
        ("batch", "flights"),
        *(("batch", "flights", number) for number in range(20)),
    ]
    assert len(list(ledger.scan())) == 23
    within = ledger.scan(Range(("batch", "flights"), 4, 8))
    assert [document for _, document in within] == [b"5", b"6", b"7"]
    newest = islice(ledger.scan(Range(("batch", "flights"), before=12), reverse=True), 2)
    assert [key[-1] for key, _ in newest] == [11, 10]
    assert list(ledger.scan(Range(("bat",)))) == []


def test_keys_are_listed_without_their_documents(case: LedgerCase) -> None:
    ledger = case.opened()
    _filled(ledger)
    reader = case.reader()
    with reader.snapshot() as view, ledger.snapshot() as own:
        for each in (ledger, reader, view, own):
            assert list(each.keys()) == [key for key, _ in ledger.scan()]
            assert [key[-1] for key in each.keys(Range(("batch", "flights"), 4, 8))] == [5, 6, 7]
            newest = islice(each.keys(Range(("batch", "flights"), before=12), reverse=True), 2)
            assert [key[-1] for key in newest] == [11, 10]
            assert list(each.keys(Range(("bat",)))) == []


@pytest.mark.parametrize("kind", ["opened", "reader"])
def test_what_is_being_read_is_read_to_its_end_though_the_ledger_is_closed(
    case: LedgerCase, kind: str
) -> None:
    ledger = case.opened()
    ledger.commit({("batch", number): b"%d" % number for number in range(1_000)})
    ledger.close()
    read = getattr(case, kind)()
    entries, keys = read.scan(Range(("batch",))), read.keys(Range(("batch",)))
    assert next(entries).document == b"0"
    assert next(keys) == ("batch", 0)
    with read.snapshot() as view:
        read.close()
        assert view.get(("batch", 7)) == b"7"
    assert [key[-1] for key, _ in entries] == list(range(1, 1_000)) == [key[-1] for key in keys]
    for call in (lambda: read.get(("batch", 7)), lambda: list(read.scan()), lambda: list(read.keys())):
        with pytest.raises(ClosedError, match="is closed"):
            call()
    if kind == "opened":
        with pytest.raises(ClosedError, match="is closed"):
            read.commit({("batch", 1): b""})
    again = case.opened()
    assert again.get(("batch", 999)) == b"999"


def test_who_writes_is_running_until_it_closes_the_ledger_or_ends(
    case: LedgerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = case.opened()
    writer = case.reader().writer()
    assert writer.is_running
    assert not replace(writer, since=writer.since - 86_400).is_running, "another process has its number now"
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert not replace(writer, process=ended.pid).is_running
    with monkeypatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: "elsewhere")
        assert writer.is_elsewhere
        assert not writer.is_running
    ledger.close()
    assert not case.reader().writer().is_running


def test_a_commit_deletes_ranges_before_it_puts(ledger: Ledger) -> None:
    _filled(ledger)
    ledger.commit(
        {("batch", "flights", 2): b"again"},
        [Range(("batch", "flights"), before=18), ("batch", "fares", 3), ("no",)],
    )
    assert [(key[-1], document) for key, document in ledger.scan(FLIGHTS)] == [
        ("flights", b"its head"),
        (2, b"again"),
        (18, b"18"),
        (19, b"19"),
    ]
    ledger.commit(deletes=[Range(("batch", "flights"))])
    assert [key for key, _ in ledger.scan()] == [("batch",)]


def test_a_commit_that_expects_something_else_changes_nothing(ledger: Ledger) -> None:
    key = ("binding", "flights", 1)
    ledger.commit({key: b"plan 4"}, expect={key: None})
    for wrong in (None, b"plan 3"):
        with pytest.raises(UnexpectedDocumentError) as raised:
            ledger.commit({key: b"plan 5", ("else",): b""}, [("more",)], expect={key: wrong})
        assert raised.value.key == key
    assert list(ledger.scan()) == [(key, b"plan 4")]
    ledger.commit({key: b"plan 5"}, expect={key: b"plan 4"})
    assert ledger.get(key) == b"plan 5"


def test_documents_outlast_the_writer(case: LedgerCase) -> None:
    ledger = case.opened()
    _filled(ledger)
    before = list(ledger.scan())
    ledger.close()
    ledger.close()
    assert list(case.reader().scan()) == before
    assert list(case.opened().scan()) == before


def test_the_writer_before_is_fenced(case: LedgerCase) -> None:
    first = case.opened()
    first.commit({("a",): b"1"})
    second = case.opened()
    assert second.writer().epoch > 1
    for _ in range(2):
        with pytest.raises(FencedError, match=r"^another run of this process since 20.* UTC has taken over"):
            first.commit({("a",): b"2"})
    assert second.get(("a",)) == b"1"
    second.commit({("a",): b"3"})
    first.close()
    second.commit({("a",): b"4"})
    assert not case.reader().writer().is_closed
    second.close()
    assert case.reader().writer().is_closed
    assert case.reader().get(("a",)) == b"4"


def test_a_reader_follows_the_writer_and_a_snapshot_does_not(case: LedgerCase) -> None:
    ledger = case.opened()
    _filled(ledger)
    reader = case.reader()
    with reader.snapshot() as view:
        assert view.get(("batch", "fares", 3)) == b"other"
        ledger.commit({("batch", "fares", 3): b"changed"}, [Range(("batch", "flights"))])
        assert view.get(("batch", "fares", 3)) == b"other"
        assert len(list(view.scan(FLIGHTS))) == 21
    case.await_equal(lambda: reader.get(("batch", "fares", 3)), b"changed")
    assert list(reader.scan(FLIGHTS)) == []


def test_threads_commit_at_the_same_time(ledger: Ledger) -> None:
    threads = [
        threading.Thread(
            target=lambda name=name: [ledger.commit({(name, number): b"x"}) for number in range(10)]
        )
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [key for key, _ in ledger.scan()] == [(name, number) for name in "abcd" for number in range(10)]
