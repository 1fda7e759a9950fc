"""How many random examples are tried."""

from __future__ import annotations

import os


def examples(full: int) -> int:
    """So many in the full form (`make equality`, `PENSTOCK_EQUALITY=full`), a third of them otherwise."""
    return full if os.environ.get("PENSTOCK_EQUALITY") == "full" else max(1, full // 3)
