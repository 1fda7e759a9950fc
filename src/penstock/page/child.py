"""Starts the page of a run as a process of its own, so that nothing that the page does touches the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import InputError
from penstock.page.asking import Script
from penstock.page.listening import LOOPBACK, METRICS_TOKEN_VARIABLE, TOKEN_VARIABLE, Place
from penstock.spark.storage.store_paths import StorePath, store_path

#: seconds that the page has to end, after which it is killed
_ENDING_SECONDS = 5.0


def page_address(text: str, option: str = "--page") -> tuple[str, int]:
    """The host and port of an option: `8080`, `0.0.0.0:8080` or `[::1]:8080`.

    Args:
        text: what was given.
        option: the option that it was given for.

    Raises:
        InputError: it has another form.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise InputError(
            f"{option} {text}: write {option} PORT or {option} HOST:PORT; port 0 takes a free one."
        )
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


@contextmanager
def page_beside(folder: str | StorePath, *places: Place, script: Script | None = None) -> Iterator[None]:
    """Has a process serve the page of a results folder, until the block is left or this process is gone.

    What asks before the other process is ready waits for it.

    Args:
        folder: the results folder; it may not exist yet.
        places: its addresses, at most one with and one without the page; they are the other process's from now on.
        script: by which the page answers what needs Spark; None: it does not.
    """
    tokens = {
        METRICS_TOKEN_VARIABLE if place.metrics_alone else TOKEN_VARIABLE: place.rules.token
        for place in places
    }
    others = (TOKEN_VARIABLE, METRICS_TOKEN_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in others}
    environment |= {name: token for name, token in tokens.items() if token is not None}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "penstock.cli.main", "page"),
            *(
                f"--{'metrics-' if place.metrics_alone else ''}listening={place.listening.fileno()}"
                for place in places
            ),
            *([] if script is None else [f"--script={script.path}", *script.options]),
            *("--", str(store_path(folder))),
        ],
        stdin=subprocess.PIPE,
        env=environment,
        pass_fds=[place.listening.fileno() for place in places],
        # Ctrl-C ends the run; the page ends with it
        start_new_session=True,
    )
    for place in places:
        place.listening.close()
    assert process.stdin is not None, "it is a pipe"
    try:
        yield
    finally:
        # the other end sees that this one is closed
        process.stdin.close()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
