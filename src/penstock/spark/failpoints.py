"""Named places where a test may kill the driver, to prove that a restart mends it.

`PENSTOCK_FAILPOINT=<name>:<batch>` ends the process as `kill -9` would when that batch reaches the
place. Names: bound, staged, half_published, manifest_written, logged, before_commit; of the keyed query, with its own
batches: keyed_staged (its state is committed), keyed_half_published, keyed_manifest_written, keyed_before_commit; of
a backfill, with the first of its operators: backfill_staged, backfill_published, backfill_logged.
"""

from __future__ import annotations

import os
import signal

NAMES = ("bound", "staged", "half_published", "manifest_written", "logged", "before_commit")
KEYED_NAMES = ("keyed_staged", "keyed_half_published", "keyed_manifest_written", "keyed_before_commit")
BACKFILL_NAMES = ("backfill_staged", "backfill_published", "backfill_logged")


def failpoint(name: str, batch: int) -> None:
    """Kills this process if the environment asks for it here."""
    if os.environ.get("PENSTOCK_FAILPOINT") == f"{name}:{batch}":
        os.kill(os.getpid(), signal.SIGKILL)
