"""The two forms of the tests: `make test` runs the short one, `make test-all` (`PENSTOCK_TESTS=all`) all of them.

Tests marked `long` are of the second form alone; others may try more there.
"""

from __future__ import annotations

import os

ALL = os.environ.get("PENSTOCK_TESTS") == "all"


def examples(full: int) -> int:
    """The number of random examples to try: so many, a quarter of them in the short form."""
    return full if ALL else max(1, full // 4)
