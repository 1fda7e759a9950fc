"""What the parts of the demo share: lines while nothing else is shown, and commands that work as they are copied."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

#: seconds between two lines
_EVERY_SECONDS = 10.0


@contextmanager
def heartbeat(console: Console, what: str, every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """Print a line every few seconds until the block ends.

    Args:
        console: where to.
        what: what takes so long, as 'Spark starts'.
        every_seconds: time between two lines.
    """
    is_over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not is_over.wait(every_seconds):
            console.print(f"  {what}: {time.monotonic() - began:.0f} s so far", highlight=False)

    thread = threading.Thread(target=tell, daemon=True, name="penstock-demo-heartbeat")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def penstock_command() -> str:
    """Return how to call this installation of Penstock: 'penstock', or its path where the shell finds none."""
    if shutil.which("penstock"):
        return "penstock"
    own = Path(sys.executable).with_name("penstock")
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)
