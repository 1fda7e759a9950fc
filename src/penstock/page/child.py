"""Starts the page of a run as a process of its own, so that nothing that the page does touches the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import InputError
from penstock.page.asking import Script
from penstock.page.listening import LOOPBACK, TOKEN_VARIABLE, address_of, listen, rules_of

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
def page_beside(
    folder: Path,
    host: str,
    port: int,
    token: str | None,
    *,
    metrics_alone: bool = False,
    script: Script | None = None,
) -> Iterator[str]:
    """Has a process serve the page of a results folder, until the block is left or this process is gone.

    The address is taken at once; what asks before the other process is ready waits for it.

    Args:
        folder: the results folder; it may not exist yet.
        host, port: the address; port 0 for a free one.
        token: what requests have to bring, if one is given.
        metrics_alone: whether it serves /metrics without the page.
        script: by which the page answers what needs Spark; None: it does not.

    Yields:
        The address that a browser opens.

    Raises:
        InputError: the address cannot be used.
    """
    with listen(host, port) as listening:
        rules = rules_of(listening, token)
        address = address_of(listening, rules.token, metrics_alone=metrics_alone)
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        if rules.token is not None:
            environment[TOKEN_VARIABLE] = rules.token
        number = listening.fileno()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.cli.main",
                "page",
                "--listening",
                str(number),
                *(["--metrics-alone"] if metrics_alone else []),
                *([] if script is None else [f"--script={script.path}", *script.options]),
                "--",
                str(folder.absolute()),
            ],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=[number],
            # Ctrl-C ends the run; the page ends with it
            start_new_session=True,
        )
    assert process.stdin is not None, "it is a pipe"
    try:
        yield address
    finally:
        # the other end sees that this one is closed
        process.stdin.close()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
