"""Ledgers that tests write themselves, without a run that has them open."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark.storage.ledgers import LedgerFolder
from penstock.stores.ledger import Ledger

_opened_by_a_run = LedgerFolder.writer


class BriefLedger:
    """Opens the ledger of a folder for each commit, unless a run has it open.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: LedgerFolder) -> None:
        self._folder = folder

    def commit(self, *args: Any, **kwargs: Any) -> None:
        ledger = self._folder.open()
        try:
            ledger.commit(*args, **kwargs)
        finally:
            ledger.close()


def commit_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test change documents where no run has their ledger open."""

    def writer(folder: LedgerFolder) -> Ledger | BriefLedger:
        try:
            return _opened_by_a_run.fget(folder)
        except RuntimeError:
            return BriefLedger(folder)

    monkeypatch.setattr(LedgerFolder, "writer", property(writer))
