"""Code blocks of documentation pages, and what runs them in their order.

| block | what becomes of it |
|---|---|
| any language with `title="FILE"` | written to FILE; `title="FILE (add)"` appends |
| `sh` | its commands run: those of `penstock` in this process, all others but `make` in bash |
| `text` behind `sh` or `python` | its lines are printed by that block, in any order and among others |
| `python` without a title | executed, with the names of earlier blocks of the page |
| `sql` without a title | a script of its own for `penstock check` |

While a `penstock run` without `--available-now` runs, the blocks behind it are played beside it, up to the next
run or the end of the page; then the run gets the signal of Ctrl-C.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commands import alone
from penstock.cli.main import main

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_LONG_RUN = re.compile(r"^penstock run (?!.*--available-now)", re.MULTILINE)
_ANSWERED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the file it is the text of (empty: none), its text and the lines it prints."""

    language: str
    title: str
    text: str
    printed: tuple[str, ...] = ()


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page; a `text` block is what the one before it prints."""
    found: list[Block] = []
    for language, title, text in _BLOCK.findall(page):
        if language == "text" and not title:
            lines = tuple(line.strip() for line in text.splitlines() if line.strip())
            found[-1] = replace(found[-1], printed=lines)
        else:
            found.append(Block(language, title, text))
    return found


class Player:
    """Plays the blocks of a page in the current folder.

    Args:
        prepare: called with the text of each SQL block before `penstock check` reads it.
    """

    def __init__(self, prepare: Callable[[str], None]) -> None:
        self._prepare = prepare
        self._names: dict[str, Any] = {"__name__": "page"}

    def play(self, page: list[Block]) -> None:
        """Play the blocks.

        Raises:
            AssertionError: a command fails, or prints something else than the page shows.
        """
        waiting = list(page)
        while waiting:
            block = waiting.pop(0)
            if block.language == "sh" and _LONG_RUN.search(block.text):
                following = next((n for n, later in enumerate(waiting) if "penstock run" in later.text), None)
                beside, waiting = waiting[:following], waiting[following:] if following is not None else []
                self._run_beside(block, beside)
            else:
                _compare(self._printed(block, penstock), block)

    def _printed(self, block: Block, call: Callable[[list[str]], str]) -> str:
        if block.title:
            return _write(block)
        if block.language == "sh":
            return "".join(_command(command, call) for command in _commands(block.text))
        with _captured() as printed:
            if block.language == "python":
                exec(compile(block.text, "page", "exec"), self._names)
            elif block.language == "sql":
                self._prepare(block.text)
                Path("page.sql").write_text(block.text)
                call(["check", "page.sql"])
        return printed.buffer.getvalue().decode()

    def _run_beside(self, block: Block, beside: list[Block]) -> None:
        """Run the one command of `block` until the blocks beside it are played."""
        failed: list[BaseException] = []
        over = threading.Event()

        def play_beside() -> None:
            try:
                _retry(_is_reported, over)
                for one in beside:
                    _retry(
                        lambda one=one: _compare(self._printed(one, penstock_process), one), over, one.printed
                    )
            except BaseException as error:
                failed.append(error)
            finally:
                if not over.is_set():
                    os.kill(os.getpid(), signal.SIGINT)

        player = threading.Thread(target=play_beside, daemon=True)
        player.start()
        (command,) = _commands(block.text)
        try:
            _compare(_command(command, penstock), block)
        finally:
            over.set()
            player.join()
        if failed:
            raise failed[0]


def penstock(arguments: list[str]) -> str:
    """Run the command in this process, on the Spark session there is; return what it prints."""
    before, code = sys.argv, None
    sys.argv = ["penstock", *arguments]
    with _captured() as printed:
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.argv = before
    text = printed.buffer.getvalue().decode()
    assert not code, (arguments, text)
    return text


@contextlib.contextmanager
def _captured() -> Iterator[io.TextIOWrapper]:
    """Standard output, whether it is written as text or as bytes."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with contextlib.redirect_stdout(printed):
        yield printed


def penstock_process(arguments: list[str]) -> str:
    """Run the command in a process of its own; return what it prints."""
    done = alone(*arguments)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def _command(command: str, call: Callable[[list[str]], str]) -> str:
    words = shlex.split(command, comments=True)
    return call(words[1:]) if words[0] == "penstock" else _bash(command)


def _commands(text: str) -> Iterator[str]:
    """Each `penstock` command alone, and what stands between two of them together."""
    others: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("penstock "):
            if others:
                yield "\n".join(others)
            others = []
            yield line
        elif line.strip() and not line.startswith(("make ", ". .venv/")):
            others.append(line)
    if others:
        yield "\n".join(others)


def _bash(text: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", text],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=_ANSWERED_SECONDS,
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    return done.stdout


def _write(block: Block) -> str:
    name, _, added = block.title.partition(" ")
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if added == "(add)" else ""
    path.write_text(before + block.text)
    return ""


def _compare(printed: str, block: Block) -> None:
    missing = Counter(block.printed) - Counter(line.strip() for line in printed.splitlines())
    assert not missing, f"{block.text}does not print {list(missing)}, but\n{printed}"


def _is_reported() -> None:
    assert any(Path.cwd().rglob("status.json")), "no run reports its status"


def _retry(check: Callable[[], None], over: threading.Event, prints: object = True) -> None:
    """Repeat a check that fails until it passes, `over` is set or it takes too long; one that prints nothing is made once."""
    until = time.monotonic() + _ANSWERED_SECONDS
    while True:
        try:
            return check()
        except AssertionError:
            if not prints or over.is_set() or time.monotonic() > until:
                raise
            over.wait(0.5)
