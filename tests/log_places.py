"""Logs in folders of their own, with a ledger of their own."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.storage.ledgers import LedgerFolder
from penstock.spark.storage.stored_log import StoredLog


def log_at(folder: Path) -> StoredLog:
    """The log of a folder, whose ledger is open for writing."""
    ledger = LedgerFolder(folder)
    try:
        _ = ledger.writer
    except RuntimeError:
        ledger.open()
    return StoredLog(ledger, "log", folder / "files")
