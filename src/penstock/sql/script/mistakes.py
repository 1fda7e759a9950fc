"""The mistakes of one script, collected so that all of them are reported together."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.errors import ConnectionFailedError, InputError, MistakesError, SqlError
from penstock.sql.script.statements import CreateView, InsertInto, Query, sources_of

#: after so many mistakes nothing more is looked for
_MOST = 100
_UNUSABLE = re.compile(r"table (?P<table>[^:]+): (?P<reason>.*)", re.DOTALL)


@dataclass(slots=True, eq=False)
class Mistakes:
    """Collect the mistakes of a script, and the names that they leave undeclared.

    Attributes:
        found: the mistakes.
        hides_any: whether what was refused may declare any name: files of rules.
    """

    found: list[InputError] = field(default_factory=list)
    hides_any: bool = False
    #: names that refused statements declare, in upper case
    _refused: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether enough mistakes were found to stop looking for others."""
        return len(self.found) >= _MOST

    def add(self, error: InputError, *names: str) -> None:
        """Add a mistake, and the names that its statement would declare."""
        self.found.append(error)
        self.refuse(*names)

    def refuse(self, *names: str) -> None:
        """Note names that remain undeclared, so that no mistake that follows from this is reported."""
        self._refused.update(name.upper() for name in names)

    def take_back(self, name: str) -> None:
        """Forget that a name remains undeclared: it is dropped, or declared anew, so that what reads it later is judged."""
        self._refused.discard(name.upper())

    @contextmanager
    def collected(self, *names: str) -> Iterator[None]:
        """Add the mistake that ends the block, if one does; arguments as of `add`."""
        try:
            yield
        except InputError as error:
            self.add(error, *names)

    def follow(self, names: Iterable[str], known: Container[str]) -> bool:
        """Return whether a statement cannot be judged because of earlier mistakes.

        Args:
            names: of what the statement needs.
            known: names that exist, in upper case.
        """
        needed = [name.upper() for name in names]
        return any(name in self._refused or (self.hides_any and name not in known) for name in needed)

    def independent(self, views: Mapping[str, CreateView], known: Iterable[str]) -> dict[str, CreateView]:
        """Return the views that can be judged, and refuse the others; `known` as of `follow`, in any case."""
        names = {name.upper() for name in known} if self.hides_any else set()
        found: dict[str, CreateView] = {}
        for name, view in views.items():
            if self.follow(read_by(view.query), names):
                self.refuse(name)
            else:
                found[name] = view
                names.add(name.upper())
        return found

    def raise_any(self) -> None:
        """Raise what was found, if anything was.

        Raises:
            InputError: the only mistake, or a `MistakesError` of all, in the order of their places.
        """
        found = _merged(sorted(self.found, key=_place))
        if len(found) == 1:
            raise found[0]
        if found:
            raise MistakesError(found, is_whole=not self.is_full)


def read_by(query: Query) -> Iterator[str]:
    """Yield the names of what a query reads."""
    yield from (source for source, _ in sources_of(query))


def placed(error: InputError, statement: CreateView | InsertInto) -> InputError:
    """Return the mistake of a statement, at the place of the statement where it has none of its own."""
    if type(error) is InputError:
        error = SqlError(str(error))
    if not isinstance(error, SqlError) or error.text:
        return error
    _, clause = sources_of(statement.query)[0]
    return error.at(clause.script, statement.start, statement.end)


def _merged(found: Iterable[InputError]) -> list[InputError]:
    """Return mistakes; one for all tables that cannot be reached or used for the same reason, at the place of the first."""
    kept: list[InputError] = []
    tables: dict[str, dict[str, None]] = {}
    for each in found:
        told = _of_table(each)
        if told is None or told["reason"] not in tables:
            kept.append(each)
        if told is not None:
            tables.setdefault(told["reason"], {})[told["table"]] = None
    return [_of_tables(each, tables) for each in kept]


def _of_table(error: InputError) -> re.Match[str] | None:
    """Which table cannot be reached or used, and why."""
    return _UNUSABLE.fullmatch(error.message) if isinstance(error, ConnectionFailedError) else None


def _of_tables(error: InputError, tables: Mapping[str, Iterable[str]]) -> InputError:
    told = _of_table(error)
    names = [] if told is None else [*tables[told["reason"]]]
    if told is None or len(names) == 1 or not isinstance(error, ConnectionFailedError):
        return error
    message = f"tables {', '.join(names)}: {told['reason']}"
    return type(error)(message, error.text, error.start, error.end)


def _place(error: InputError) -> tuple[bool, int]:
    """Mistakes with a place come first, in their order."""
    has_place = isinstance(error, SqlError) and bool(error.text)
    return not has_place, error.start if isinstance(error, SqlError) and has_place else 0
