"""Logs in folders of their own, with a ledger of their own."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.storage.ledgers import LedgerFolder
from penstock.spark.storage.stored_log import StoredLog


def log_at(folder: Path) -> StoredLog:
    """The log of a folder."""
    return StoredLog(LedgerFolder(folder), "log", folder / "files")
