"""Every condition Penstock reports, in one view.

A user's mistake is an `InputError` (exit code 2). Its message names the thing, the place and
what is allowed; where the place is in SQL text, `SqlError` underlines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any, Self

from penstock.redaction import masked_known, secrets_masked, without_secrets

#: mistakes that the message on several lists
_LISTED = 20


class PenstockError(Exception):
    """Root of all conditions that Penstock raises."""

    #: exit code of the command line when this condition ends a run
    exit_code = 1


class InputError(PenstockError, ValueError):
    """A mistake in what the user asked for: exit code 2, nothing was started."""

    exit_code = 2


class OptionError(InputError):
    """An option has a value that is not allowed.

    Args:
        message: which value, and what is allowed.
        option: its name.
    """

    def __init__(self, message: str, option: str) -> None:
        self.message = message
        self.option = option
        super().__init__(message)

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return type(self), (self.message, self.option)


class SqlError(InputError):
    """A mistake at a place in SQL text.

    Args:
        message: what is wrong and what is allowed.
        text: the whole SQL text.
        start: offset in characters of the first offending character.
        end: offset after the last one.

    Secrets in the options of its tables are masked wherever the error is shown.
    """

    def __init__(self, message: str, text: str = "", start: int = 0, end: int = 0) -> None:
        self.message = secrets_masked(message, text)
        self.text = text
        self.start = start
        self.end = end
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.render()

    def __reduce__(self) -> tuple[type[SqlError], tuple[str, str, int, int], dict[str, Any]]:
        return type(self), (self.message, self.text, self.start, self.end), vars(self)

    def at(self, text: str, start: int, end: int) -> Self:
        """Return the same mistake at another place; arguments as of `SqlError`."""
        moved = copy(self)
        SqlError.__init__(moved, self.message, text, start, end)
        return moved

    def render(self) -> str:
        """The message with the offending line of SQL underlined."""
        if not self.text:
            return self.message
        text, start, end = without_secrets(self.text, self.start, self.end)
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        number = self.text.count("\n", 0, self.start) + 1
        column = start - line_start
        width = max(1, min(end, line_start + len(line)) - start)
        margin = f"line {number}: "
        return f"{self.message}\n  {margin}{line}\n  {' ' * (len(margin) + column)}{'^' * width}"


class MistakesError(SqlError):
    """A script has several mistakes.

    Args:
        mistakes: in the order in which the message lists them; the message counts those behind the twentieth.
        is_whole: whether the script has no others.
    """

    def __init__(self, mistakes: Sequence[InputError], is_whole: bool = True) -> None:
        self.mistakes = tuple(mistakes)
        self.is_whole = is_whole
        many = f"{'' if is_whole else 'at least '}{len(self.mistakes)}"
        parts = [f"The script has {many} mistakes.", *map(str, self.mistakes[:_LISTED])]
        if (more := len(self.mistakes) - _LISTED) > 0:
            parts.append(f"and {'' if is_whole else 'at least '}{more} more")
        super().__init__("\n\n".join(parts))

    @property
    def whole(self) -> str:
        """The message with every mistake that was found."""
        first, *_ = self.message.split("\n\n", 1)
        return "\n\n".join([first, *map(str, self.mistakes)])

    def __reduce__(self) -> tuple[type[MistakesError], tuple[tuple[InputError, ...], bool]]:  # type: ignore[override]
        return type(self), (self.mistakes, self.is_whole)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one is near, if there is one."""
    spelled = {each.upper(): each for each in known}
    near = get_close_matches(name.upper(), spelled, 1, cutoff=0.75)
    # of short names, letters that changed places are not near enough
    near = near or [each for each in spelled if sorted(each) == sorted(name.upper())]
    return spelled[near[0]] if near else None


def meant(name: str, known: Iterable[str]) -> str:
    """Return how a message of an unknown name goes on: '; did you mean weight?' where a known one is near, otherwise '.'."""
    near = nearest(name, known)
    return "." if near is None else f"; did you mean {near}?"


def masked(told: str, error: BaseException | None) -> str:
    """What is told of an error, with the secrets masked of the scripts that it and what it comes from point at, and of URIs.

    Args:
        told: the text, such as a traceback.
        error: the error.
    """
    left, known = [error], set()
    while left:
        each = left.pop()
        if each is None or id(each) in known:
            continue
        known.add(id(each))
        if isinstance(each, SqlError):
            told = secrets_masked(told, each.text)
        left += [each.__cause__, each.__context__]
    return masked_known(told)


class UnknownNameError(SqlError):
    """A table, view, column or function that does not exist.

    Args:
        message, text, start, end: see `SqlError`.
        name: the unknown one; empty where the message is about something else, such as a name with two meanings.
        near: the known one that is asked about, if one is near.
        known: those that exist there.
    """

    def __init__(
        self,
        message: str,
        text: str = "",
        start: int = 0,
        end: int = 0,
        name: str = "",
        near: str | None = None,
        known: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.near = near
        self.known = tuple(known)
        super().__init__(message, text, start, end)

    @classmethod
    def among(
        cls,
        what: str,
        name: str,
        known: Iterable[str],
        listed: str = "",
        *,
        owner: str = "",
        most: int | None = None,
        rest: str = "",
    ) -> Self:
        """Return the refusal of a name, at no place yet: see `at`.

        Args:
            what: what has such a name, as the message begins: `Column`.
            name: the unknown one.
            known: those that exist; the message asks whether one that is near is meant.
            listed: what introduces the list of them, such as `Existing columns`; empty: the message lists none.
            owner: what has none of that name, if that is to be said: `x has no column y` instead of `Column y does not exist`.
            most: how many are listed; None: all.
            rest: how the message ends.
        """
        names = tuple(known)
        near = nearest(name, names)
        shown = ", ".join(names[:most]) or "none"
        more = "" if most is None or len(names) <= most else f" and {len(names) - most} more"
        begin = f"{owner} has no {what} {name}" if owner else f"{what} {name} does not exist"
        begin += "." if near is None else f"; did you mean {near}?"
        end = ". ".join(filter(None, (listed and f"{listed}: {shown}{more}", rest)))
        return cls(f"{begin} {end}".strip(), name=name, near=near, known=names)


class UngroupedError(SqlError):
    """A column that is neither grouped nor aggregated; whether its source has it is not known yet.

    Args:
        message, text, start, end: see `SqlError`.
        column: its name.
        source: the table or view after FROM.
        keys: the columns in GROUP BY: the name of each, and where it begins and ends, counted from `start`.
    """

    def __init__(
        self,
        message: str,
        text: str = "",
        start: int = 0,
        end: int = 0,
        column: str = "",
        source: str = "",
        keys: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        self.column = column
        self.source = source
        self.keys = tuple(keys)
        super().__init__(message, text, start, end)


class TypeMismatchError(SqlError):
    """Values that cannot be compared or computed with one another."""


class UnsupportedError(SqlError):
    """A construct that Penstock does not run."""


class StatementError(UnsupportedError):
    """A statement that no script has, whatever its query is."""


class MisplacedAggregateError(UnsupportedError):
    """An aggregate function where Spark has none either, or a user's one, which Spark does not know."""


class DuplicateNameError(SqlError):
    """A name that is taken."""


class ConnectionFailedError(SqlError):
    """A path, topic, broker, master or Java that cannot be reached or used."""


class StreamFailedError(PenstockError):
    """A running stream failed; `__cause__` is why. A start with the same checkpoint continues from there."""


class StartStoppedError(PenstockError):
    """A run was stopped before all its streams had started. A start with the same checkpoint starts them."""


class StoppedOutsideError(PenstockError):
    """Something outside Penstock stopped a streaming query of Spark before its end."""


class FunctionFailedError(PenstockError):
    """A user's function raised, ended the worker, or returned another type or length than it is registered with."""


class FunctionRaisedError(FunctionFailedError):
    """A user's function raised for some of its arguments."""


class AggregateFailedError(PenstockError):
    """A user's aggregate raised, or returned a value that does not fit its type: a window failed."""


class SinkFailedError(PenstockError):
    """A sink failed to write the rows of a view; `__cause__` is why.

    Args:
        sink: name of the table or function.
        view: name of the view.
    """

    def __init__(self, sink: str, view: str) -> None:
        self.sink = sink
        self.view = view
        super().__init__(f"sink {sink} of view {view} failed")


class CheckpointError(InputError):
    """A checkpoint that does not fit the run, or that another run uses."""


class FencedError(PenstockError):
    """Another process, or another run of this one, has taken over a ledger: this run has ended.

    Args:
        ledger: where the ledger is.
        successor: who has taken over, such as `process 12 of host a`.
    """

    def __init__(self, ledger: str, successor: str) -> None:
        self.ledger = ledger
        self.successor = successor
        super().__init__(
            f"{successor} has taken over {ledger}. This run has stopped and publishes nothing more. Let the other run continue, or "
            "stop it and start this one again. To run both, name another output folder and checkpoint for one of them"
        )

    def __reduce__(self) -> tuple[type[FencedError], tuple[str, str]]:
        return type(self), (self.ledger, self.successor)


class StoreFailedError(PenstockError, OSError):
    """A store of files or a ledger did not answer, or failed, after the usual retries."""


class UnexpectedDocumentError(PenstockError):
    """A commit to a ledger expected another document than is stored; nothing was changed.

    Args:
        ledger: where the ledger is.
        key: of the document.
    """

    def __init__(self, ledger: str, key: tuple[str | int, ...]) -> None:
        self.ledger = ledger
        self.key = key
        super().__init__(f"{ledger}: the document {key} is not the expected one")

    def __reduce__(self) -> tuple[type[UnexpectedDocumentError], tuple[str, tuple[str | int, ...]]]:
        return type(self), (self.ledger, self.key)


class DamagedError(CheckpointError):
    """A stored document or file is missing, cut off, or holds something else than what was written.

    Args:
        path: the file.
        fault: what is wrong with it, as the rest of a sentence that begins with the path.
    """

    def __init__(self, path: str, fault: str) -> None:
        self.path = path
        self.fault = fault
        super().__init__(
            f"{path} {fault}; restore it from a copy of the folder, or start with a new checkpoint and a new output "
            "folder, which answers everything that the source still has"
        )

    def __reduce__(self) -> tuple[type[DamagedError], tuple[str, str]]:
        return type(self), (self.path, self.fault)
