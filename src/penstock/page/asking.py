"""Questions that only Spark can answer: `penstock why` and `penstock try` in a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException

from penstock.errors import InputError, PenstockError
from penstock.page import priority
from penstock.page.listening import METRICS_TOKEN_VARIABLE, TOKEN_VARIABLE
from penstock.spark.storage.store_paths import StorePath

#: seconds after which a question is given up, and bytes of an answer
_MOST_SECONDS, _MOST_BYTES = 120.0, 4_000_000
#: characters of a text that is tried, and of a reason
_MOST_TEXT, _MOST_REASON = 50_000, 4_000
_SAID = "penstock: "
#: starts Penstock
_PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


class NotAnsweredError(PenstockError):
    """Spark has given no answer."""


@dataclass(frozen=True, slots=True)
class Script:
    """The script by which questions are answered.

    Attributes:
        path: of it.
        functions: the Python file with its functions; None: it has none.
        settings: options with settings of Spark and Penstock, such as `--conf=KEY=VALUE`.
    """

    path: Path
    functions: Path | None = None
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path, functions: Path | None, conf: Sequence[str], tune: Sequence[str]) -> Script:
        """The script of a command.

        Args:
            path, functions: see above.
            conf: Spark's settings, each KEY=VALUE.
            tune: Penstock's settings, each NAME=VALUE.
        """
        settings = (*(f"--conf={pair}" for pair in conf), *(f"--set={pair}" for pair in tune))
        return cls(path.absolute(), functions and functions.absolute(), settings)

    @property
    def options(self) -> list[str]:
        """The options of `penstock why` and `penstock try`."""
        return [*self._named, *self.settings]

    @property
    def words(self) -> str:
        """The script as a shell takes it; without the settings, which may have secrets."""
        return shlex.join([str(self.path), *self._named])

    @property
    def _named(self) -> list[str]:
        return [] if self.functions is None else [f"--functions={self.functions}"]


class Asking:
    """Answers questions by a script.

    Args:
        script: None: nothing can be asked.
        folder: the results folder.
    """

    def __init__(self, script: Script | None, folder: str | StorePath) -> None:
        self.script = script
        self._folder = folder
        self._is_busy = False

    async def why(
        self, view: str, *, row: str | None, quarantined: int | None, relation: str | None = None
    ) -> bytes:
        """What `penstock why` says of a tuple.

        Args:
            view: the view's name.
            row: the tuple as a JSON object; or
            quarantined: a record of the quarantine, 1 the newest.
            relation: of a join view the input that the tuple is of; None: the one whose columns fit best.

        Raises:
            InputError: neither or both are given, the row is no JSON object, or Spark refuses the question.
            NotAnsweredError: Spark gives no answer, or not in time.
        """
        if (row is None) == (quarantined is None):
            raise InputError("Give either a row or the number of a quarantined record.")
        if row is not None:
            _check_object(row)
        options = [
            f"--quarantined={quarantined}" if row is None else f"--row={row}",
            f"--output={self._folder}",
        ]
        options += [] if relation is None else [f"--input={_text(relation)}"]
        return await self._answered("why", options, [view])

    async def attempt(self, view: str, *, sql: str | None, since: str | None) -> bytes:
        """What `penstock try` says of a view, or of a draft.

        Args:
            view: the view's name.
            sql: the SELECT of a draft; None: the view itself.
            since: the earliest event time; None: any.

        Raises:
            InputError, NotAnsweredError: as `why`.
        """
        options = [] if sql is None else [f"--sql={_text(sql)}"]
        options += [] if since is None else [f"--since={_text(since)}"]
        return await self._answered("try", options, [view] if sql is None else [])

    async def _answered(self, command: str, options: Sequence[str], names: Sequence[str]) -> bytes:
        if self.script is None:
            raise InputError(
                "The page knows no script. Start it with --script SCRIPT, or ask on the command line."
            )
        if self._is_busy:
            raise HTTPException(429, "The page answers another question; try again when it is done.")
        self._is_busy = True
        try:
            return await _output(
                [
                    *(command, "--format=json"),
                    *options,
                    *self.script.options,
                    "--",
                    str(self.script.path),
                    *names,
                ]
            )
        finally:
            self._is_busy = False


def _text(given: str) -> str:
    """A text that a command line can have."""
    if len(given) > _MOST_TEXT or "\0" in given:
        raise InputError(f"A text of at most {_MOST_TEXT:,} characters is allowed, NUL is not.")
    return given


def _check_object(row: str) -> None:
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError('The row is no JSON object. Write one such as {"id": 1}.')


async def _output(arguments: Sequence[str]) -> bytes:
    """What a command of Penstock prints."""
    secret = (TOKEN_VARIABLE, METRICS_TOKEN_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in secret}
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as refused:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", priority.__name__, *_PENSTOCK, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=said,
            stderr=refused,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None, "it is a pipe"
        try:
            code = await asyncio.wait_for(process.wait(), _MOST_SECONDS)
        except TimeoutError:
            raise NotAnsweredError(
                f"Spark has not answered within {_MOST_SECONDS:.0f} s. Ask on the command line, which has no limit."
            ) from None
        finally:
            # the time is over, the reader has left or the page ends: the other end sees that this one is closed
            process.stdin.close()
            await process.wait()
        for file in (said, refused):
            file.seek(0)
        if code:
            reason = _reason(refused.read(_MOST_BYTES).decode(errors="replace"))
            raise InputError(reason) if code == InputError.exit_code else NotAnsweredError(reason)
        answer = said.read(_MOST_BYTES + 1)
    if len(answer) > _MOST_BYTES:
        raise NotAnsweredError(f"The answer has more than {_MOST_BYTES:,} bytes. Ask on the command line.")
    return answer


def _reason(printed: str) -> str:
    """The last thing that a command said."""
    found = f"\n{printed}".rpartition(f"\n{_SAID}")[2].strip()
    return found[:_MOST_REASON] or "Penstock has ended without a reason."
