"""Keeps the screen of a command for what Penstock says: no traceback is printed, whoever prints it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from penstock.errors import MistakesError, PenstockError, masked
from penstock.redaction import masked_known
from penstock.spark.sessions.output import OUTPUT


def run_app(app: Callable[[], object]) -> None:
    """Run a command line, and exit with 2 on the user's mistake, 1 on anything else, each with one line on the screen."""
    with kept_clean():
        try:
            app()
        except PenstockError as error:
            tell(error.whole if isinstance(error, MistakesError) else str(error))
            sys.exit(error.exit_code)
        except Exception as error:
            tell_unforeseen(error)
            sys.exit(1)


@contextmanager
def kept_clean() -> Iterator[None]:
    """Within it, what Spark prints is kept from the screen, a warning is its line, and a thread that fails is told as `tell_unforeseen` does."""
    handler = _Handler()
    root = logging.getLogger()
    before, threading.excepthook = threading.excepthook, _tell_of_thread
    root.addHandler(handler)
    OUTPUT.keep_off_the_screen()
    try:
        yield
    finally:
        root.removeHandler(handler)
        threading.excepthook = before


class _Handler(logging.Handler):
    """Prints what a warning says, and writes its traceback where Spark's go."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Does so."""
        try:
            tell(f"{record.levelname.lower()}: {record.getMessage()}", style="yellow")
            if record.exc_info is not None:
                OUTPUT.take(f"{masked(self.format(record), record.exc_info[1])}\n")
        except Exception:
            self.handleError(record)


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    if isinstance(failed.exc_value, Exception):
        tell_unforeseen(failed.exc_value)


def tell_unforeseen(error: Exception) -> None:
    """Prints one line on an error that is a fault of Penstock's, and writes its traceback and Spark's last lines to a file."""
    what = masked(traceback.format_exception_only(error)[0].splitlines()[0], error)
    try:
        number, path = tempfile.mkstemp(".log", "penstock-error-")
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            file.write(masked("".join(traceback.format_exception(error)), error))
            if lines := OUTPUT.last:
                file.write(masked("".join(["\nSpark's last lines:\n", *lines]), error))
        where = f"The traceback is in {path}; please report it."
    except OSError as second:
        where = f"Cannot write its traceback: {second.strerror or second}"
    tell(f"Unexpected error: {what}. {where}")


def tell(told: str, style: str = "red") -> None:
    """Prints a line on the standard error."""
    Console(stderr=True).print(
        f"penstock: {masked_known(told)}", style=style, markup=False, highlight=False, soft_wrap=True
    )
