"""The page of the demo remains for a person, and for nobody else."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.cli.demo import keep_page


def test_at_a_terminal_the_page_remains_until_ctrl_c() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    written = io.StringIO()
    keep_page(Console(file=written, force_terminal=True, color_system=None), interrupted)
    assert written.getvalue() == "The page remains open. Ctrl-C ends it.\n"


def test_without_a_terminal_the_demo_ends() -> None:
    def wait() -> None:
        raise AssertionError("it waits for nobody")

    keep_page(Console(file=io.StringIO(), force_terminal=False), wait)
