"""A process with a running lane over a log that lies there."""

from __future__ import annotations

from penstock.spark.storage.layout import Layout
from plain_live import answer_both
from plain_running import answer


def main(layout: Layout) -> None:
    """Answers all that is in the log, an entry a cut, and ends."""
    ledger = layout.ledger.open()
    answer(layout)
    ledger.close()


def main_with_a_ranking(layout: Layout, limit: int) -> None:
    """Likewise, with a ranking over the running view."""
    ledger = layout.ledger.open()
    answer_both(layout, limit)
    ledger.close()
