"""What processes do with stores that are killed, full or fenced, and what must be left after it."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.stores.files import Files
from penstock.stores.ledger import Ledger, Range

#: documents that a range delete leaves
_KEPT = 3


def commit_numbers(ledger: Ledger, first: int, last: int, acknowledged: Path) -> None:
    """Commits numbers, three documents and a range delete each, and tells each that was acknowledged."""
    told = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(first, last):
        ledger.commit(
            {
                ("newest",): b"%d" % number,
                ("number", number): b"x" * 500,
                ("again", "newest"): b"%d" % number,
            },
            [Range(("number",), before=number - _KEPT)],
        )
        os.write(told, b"%d\n" % number)
    os.close(told)


def check_numbers(ledger: Ledger, acknowledged: Path) -> int:
    """Makes sure that a ledger has whole commits, all that were acknowledged and at most one more; the next number."""
    told = [int(line) for line in acknowledged.read_text().splitlines()] if acknowledged.exists() else []
    newest = ledger.get(("newest",))
    assert newest == ledger.get(("again", "newest"))
    last = -1 if newest is None else int(newest)
    numbers = [key[1] for key, _ in ledger.scan(Range(("number",)))]
    assert numbers == list(range(max(0, last - _KEPT), last + 1))
    assert last - (told[-1] if told else -1) in (0, 1)
    return last + 1


OLD, NEW = b"old" * 10_000, b"new" * 20_000


def put_files(files: Files, acknowledged: Path) -> None:
    """Replaces one file, puts another one from a local file, deletes a third, and tells what was acknowledged."""
    staged = files.staging("b/staged")
    staged.write_bytes(NEW)
    files.put_all({"a/replaced": NEW, "b/staged": staged})
    acknowledged.write_text("put")
    files.delete(["a/deleted"])
    acknowledged.write_text("put and deleted")


def prepare_files(files: Files) -> None:
    """Puts what `put_files` finds."""
    files.put_all({"a/replaced": OLD, "a/deleted": OLD})


def check_files(files: Files, acknowledged: Path) -> None:
    """Makes sure that each file is whole, and that what was acknowledged has happened."""
    told = acknowledged.read_text() if acknowledged.exists() else ""
    found = {file.name: files.get(file.name) for file in files.list()}
    assert found["a/replaced"] in ((NEW,) if told else (OLD, NEW))
    assert found.pop("b/staged", NEW) == NEW
    assert found.pop("a/deleted", OLD) == OLD
    if told:
        assert files.get("b/staged") == NEW
    if told == "put and deleted":
        assert "a/deleted" not in {file.name for file in files.list()}
    assert found.keys() == {"a/replaced"}
