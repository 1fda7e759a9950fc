"""Scripts: statements that declare streams, standing queries, and where their results go."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeGuard

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import InputError, SqlError, UnknownNameError, UnsupportedError
from penstock.sql.conditions.shapes import PLAIN
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.commands import COMMANDS
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.mistakes import Mistakes, read_by
from penstock.sql.script.parsing import StatementParser, divided
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.script.statements import (
    SINKS,
    Asking,
    CreateTable,
    CreateView,
    CreateViews,
    Describe,
    DropView,
    InsertInto,
    Parsed,
    Script,
    SetValue,
    ShowViews,
    Statement,
    sources_of,
)
from penstock.sql.text.lexing import name_of, tokenize
from penstock.sql.text.query import SelectQuery

#: a view whose text may have a known shape
_NO_NAMES = KnownNames()
_VIEW = re.compile(
    rf"\s*(?P<create>CREATE)(?P<replace>\s+OR\s+REPLACE)?\s+VIEW\s+(?P<name>[A-Za-z_]\w*)\s+AS\s+(?P<query>SELECT\b{PLAIN}(?<!\s))\s*;",
    re.ASCII | re.IGNORECASE,
)

#: words at the beginning of a statement, among which is the name that it declares
_FIRST_WORDS = 6
#: options of tables that are read, without underscores
_OF_INPUTS = {"subscribe", "subscribepattern", "assign", "startingoffsets", "eventtime", "arrival", "static"}
_ANY_SINK = f"{', '.join(SINKS[:-1])} or {SINKS[-1]}"


def parse_script(
    text: str,
    known: KnownNames = _NO_NAMES,
    aggregates: Collection[str] = (),
    mistakes: Mistakes | None = None,
) -> Script:
    """Parses a script and checks that every name exists once, before its use.

    Names of views that CREATE VIEWS may declare are not checked behind such a statement.

    Args:
        text: statements separated by `;`.
        known: names that exist already.
        aggregates: names of the user's aggregates.
        mistakes: takes the mistakes in, and what they leave undeclared; None: they are raised.

    Raises:
        DuplicateNameError: a name is taken.
        UnknownNameError: no such table or view.
        UnsupportedError: a statement or query Penstock does not run, or INSERT INTO what is no table.
        SqlError: anything else that is no such script. All with the place underlined.
        MistakesError: several of these.
    """
    names = _Names(text, known, Mistakes() if mistakes is None else mistakes)
    for parser, statement in _statements(text, aggregates, names.mistakes):
        names.take(parser, statement)
    names.refuse_targets()
    if mistakes is None:
        names.mistakes.raise_any()
    return Script(
        text,
        tuple(names.statements),
        frozenset(names.targets),
        tuple(names.apart),
        tuple(names.settings),
        tuple(names.asked),
    )


class _Names:
    """Takes the statements of a script in, one by one, and makes sure that every name exists once, before its use.

    Args:
        text: the script.
        known: as of `parse_script`.
        mistakes: takes the mistakes in.
    """

    def __init__(self, text: str, known: KnownNames, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.statements: list[Statement] = []
        #: the tables of INSERT INTO, in upper case, each with the place of its name
        self.targets: dict[str, tuple[int, int]] = {}
        #: see `Script.apart`
        self.apart: list[tuple[CreateView, ...]] = []
        #: see `Script`
        self.settings: list[SetValue] = []
        self.asked: list[Asking] = []
        #: views whose definition is not known any more, in upper case: what a refused statement made of them
        self._unclear: set[str] = set()
        #: names that refused statements have behind that of what they declare, in upper case: tables that they read
        self._mentioned: set[str] = set()
        #: views that could not be dropped, in upper case
        self._undropped: set[str] = set()
        #: INSERT INTO a table that does not exist, each with the place of its name
        self._loose_inserts: list[tuple[InsertInto, tuple[int, int]]] = []
        self._text = text
        self._known = known
        self._names = ChainMap[str, str]({}, known)  # type: ignore[arg-type]
        #: views of the script, in upper case
        self._views: set[str] = set()
        #: whether files of rules may declare names
        self._has_rules = False

    def take(self, parser: StatementParser, statement: Parsed | None) -> None:
        """Takes a statement in; None: it has a mistake of its own."""
        if statement is None:
            self._pass_over(parser)
            return
        if isinstance(statement, SetValue):
            self.settings.append(statement)
            return
        if isinstance(statement, ShowViews | Describe):
            self.asked.append(statement)
            return
        if isinstance(statement, DropView):
            self._unclear.discard(statement.name.upper())
            if self.mistakes.follow([statement.name], self._names):
                self.mistakes.take_back(statement.name)
                return
            with self.mistakes.collected():
                self._drop(parser, statement)
            return
        declared = [statement.name] if isinstance(statement, CreateTable | CreateView) else []
        if isinstance(statement, InsertInto) and self._kind(statement.table) == "table":
            self.targets[statement.table.upper()] = parser.name_place
        # what files of rules declare is known once they are read
        needed = list(_needed_by(statement))
        follows = self.mistakes.follow(needed, self._names)
        follows |= any(name.upper() in self._unclear for name in needed)
        if isinstance(statement, CreateViews):
            self._has_rules = True
            self.mistakes.hides_any |= follows
        taken = {name.upper() for name in declared if name.upper() in self._names}
        if follows:
            self.mistakes.refuse(*(() if taken else declared))
            self._unclear |= taken
            return
        try:
            if self._check(parser, statement):
                self.statements.append(statement)
        except InputError as error:
            self.mistakes.add(error, *(() if taken else declared))
            self._mentioned.update(name.upper() for name in _read_by(statement))
            self._unclear |= taken

    def refuse_targets(self) -> None:
        """Refuses INSERT INTO a table that the script also reads, or that does not exist."""
        loose = [statement for statement, _ in self._loose_inserts]
        read = {source.upper(): source for each in (*self.statements, *loose) for source in _read_by(each)}
        tables = [each for each in self.statements if isinstance(each, CreateTable)]
        sinks = [
            each.name
            for each in tables
            if each.source in SINKS
            and each.name.upper() not in read.keys() | self._mentioned
            and _OF_INPUTS.isdisjoint(option.replace("_", "") for option in each.options)
        ]
        for insert, place in self._loose_inserts:
            rest = (
                f"INSERT INTO needs a table USING {_ANY_SINK}; existing ones: {', '.join(sinks) or 'none'}."
            )
            error = UnknownNameError.among("Table", insert.table, sinks, rest=rest)
            self.mistakes.add(error.at(self._text, *place))
        for target, place in self.targets.items():
            if target in read:
                message = (
                    f"INSERT INTO cannot write to {read[target]}, because the script reads it as a stream. Declare another "
                    f"table USING {_ANY_SINK}."
                )
                self.mistakes.add(UnsupportedError(message, self._text, *place), target)

    def _pass_over(self, parser: StatementParser) -> None:
        """Notes what a statement with a mistake would have declared, as far as its first words tell."""
        words = [token.text.upper() for token in parser.tokens[:2]]
        if words[0] in COMMANDS:
            return
        named = [name for token in parser.tokens[:_FIRST_WORDS] if (name := name_of(token)) is not None]
        self.mistakes.refuse(*(name for name in named if name.upper() not in self._names))
        self._mentioned.update(
            name.upper() for token in parser.tokens[3:] if (name := name_of(token)) is not None
        )
        begin, end = parser.name_place
        declared = self._text[begin:end].strip("`")
        if words == ["INSERT", "INTO"]:
            self.targets[declared.upper()] = parser.name_place
        if words in (["CREATE", "OR"], ["DROP", "VIEW"]) and declared.upper() in self._views:
            self._unclear.add(declared.upper())
            if words[0] == "DROP":
                self._undropped.add(declared.upper())
        if words == ["CREATE", "VIEWS"]:
            self.mistakes.hides_any = True

    def _check(self, parser: StatementParser, statement: Statement) -> bool:
        """Makes sure of the names of a statement; whether it is one of the script: one that is not has had its mistake reported."""
        names = self._names
        if isinstance(statement, CreateTable):
            parser.declare(statement.name, names)
        elif isinstance(statement, CreateViews):
            if statement.stream is not None and statement.stream.upper() not in names:
                self.mistakes.hides_any = True
                raise _missing(statement.stream, names).at(*statement.at("on"))
        else:
            for source, clause in sources_of(statement.query):
                if source.upper() not in names and not self._has_rules:
                    raise clause.at(_missing(source, names))
            if isinstance(statement.query, RefreshedQuery) and not self._has_rules:
                statement.query.refuse_without_views(lambda name: self._kind(name) == "view")
            if isinstance(statement, CreateView):
                return self._declare(parser, statement)
            self._check_target(parser, statement)
            return statement.table.upper() in names
        return True

    def _declare(self, parser: StatementParser, statement: CreateView) -> bool:
        """Declares a view, or replaces one; one whose name is taken is set apart. Returns as `_check`."""
        name = statement.name.upper()
        if name in self._views and name in self._undropped:
            self._undropped.discard(name)
            self._unclear.add(name)
            self._set_apart(statement)
            return False
        try:
            if statement.replaces and name in self._names and self._kind(name) == "view":
                self._forget(parser, statement.name, "Move the new definition before it.")
                self._names[name] = statement.name
            else:
                parser.declare(statement.name, self._names)
        except InputError:
            self._set_apart(statement)
            raise
        self._views.add(name)
        self._unclear.discard(name)
        self.mistakes.take_back(name)
        return True

    def _drop(self, parser: StatementParser, statement: DropView) -> None:
        """Takes back a view of the script."""
        name = statement.name.upper()
        if name in self._undropped:
            return
        if name in self._views:
            self._undropped.add(name)
            self._forget(parser, statement.name, "Drop it first.")
            self._undropped.discard(name)
        elif name in self._names:
            message = (
                f"DROP VIEW takes back a view of the same script. {statement.name} is a {self._kind(name)}"
                f"{' that existed before' if self._known.kind(name) else ''}."
            )
            raise UnsupportedError(message, self._text, *parser.name_place)
        elif not statement.if_exists:
            views = [self._names[each] for each in self._views]
            rest = "DROP VIEW takes back a view of the same script."
            error = UnknownNameError.among("View", statement.name, views, rest=rest)
            raise error.at(self._text, *parser.name_place)

    def _forget(self, parser: StatementParser, view: str, remedy: str) -> None:
        """Removes a view of the script that no other statement reads."""
        name = view.upper()
        for each in self.statements:
            if name in (source.upper() for source in _read_by(each)):
                what = f"INSERT INTO {each.table}" if isinstance(each, InsertInto) else _named(each)
                message = f"{what} reads view {view}. {remedy}"
                raise UnsupportedError(message, self._text, *parser.name_place)
        for each in [each for each in self.statements if _is_view(each, name)]:
            self._set_apart(each)
            self.statements.remove(each)
        self._views.discard(name)
        self._names.maps[0].pop(name, None)

    def _set_apart(self, view: CreateView) -> None:
        """Keeps a view that is not one of the script, or not any more, behind those beneath it."""
        needed = {name.upper() for name in read_by(view.query)}
        beneath: list[CreateView] = []
        for each in reversed(self.statements):
            if isinstance(each, CreateView) and each is not view and each.name.upper() in needed:
                beneath.insert(0, each)
                needed |= {name.upper() for name in read_by(each.query)}
        if not any(_is_view(each, view.name.upper()) for each in beneath):
            self.apart.append((*beneath, view))

    def _check_target(self, parser: StatementParser, statement: InsertInto) -> None:
        if statement.table.upper() not in self._names:
            self._loose_inserts.append((statement, parser.name_place))
            return
        if (kind := self._kind(statement.table)) != "table":
            told = f"{statement.table} is a {kind}. INSERT INTO needs a table USING {_ANY_SINK}."
            raise UnsupportedError(told, self._text, *parser.name_place)

    def _kind(self, name: str) -> str:
        """What has a name: a table, a stream or a view."""
        return "view" if name.upper() in self._views else self._known.kind(name.upper()) or "table"


def _statements(
    text: str, aggregates: Collection[str], mistakes: Mistakes
) -> Iterator[tuple[StatementParser, Parsed | None]]:
    """The statements of a script, each with its parser; views of a shape that is known need none of their tokens.

    None stands for a statement with a mistake. Where the text cannot be split into tokens, nothing follows.
    """
    shapes = SelectionShapes()
    position = 0
    while position < len(text):
        view = _VIEW.match(text, position)
        if view is not None and (query := shapes.find(text, *view.span("query"))) is not None:
            parser = StatementParser(text, (), aggregates, name_place=view.span("name"))
            place = view.start("create"), view.end("query")
            replaces = view["replace"] is not None
            yield parser, CreateView(view["name"], query, view["query"], *place, replaces=replaces)
            position = view.end()
            continue
        try:
            end, tokens = _next_statements(text, position)
        except SqlError as error:
            mistakes.add(error)
            return
        for part in divided(text, tokens, mistakes.add):
            parser = StatementParser(text, part, aggregates)
            statement: Parsed | None = None
            with mistakes.collected():
                statement = parser.parse()
            if (
                view is not None
                and isinstance(statement, CreateView)
                and isinstance(statement.query, SelectQuery)
            ):
                shapes.learn(text, *view.span("query"), statement.query)
            yield parser, statement
        position = end


def _next_statements(text: str, position: int) -> tuple[int, Sequence[Token]]:
    """The tokens of the next statement, or of all that follow where its end cannot be told without them, and where they end."""
    end = text.find(";", position) + 1
    if end:
        with suppress(SqlError):
            tokens = tokenize(text[position:end])
            if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
                return end, _shifted(tokens, position)
    return len(text), _shifted(tokenize(text[position:], position, text), position)


def _shifted(tokens: Sequence[Token], by: int) -> Sequence[Token]:
    for token in tokens:
        token.start += by
        token.end += by
    return tokens


def _is_view(statement: Statement, name: str) -> TypeGuard[CreateView]:
    """Whether a statement declares the view of a name in upper case."""
    return isinstance(statement, CreateView) and statement.name.upper() == name


def _named(statement: Statement) -> str:
    return f"View {statement.name}" if isinstance(statement, CreateView) else "CREATE VIEWS"


def _read_by(statement: Statement) -> Iterator[str]:
    """The names of what a statement reads."""
    if isinstance(statement, CreateViews):
        yield from () if statement.stream is None else (statement.stream,)
    elif not isinstance(statement, CreateTable):
        yield from read_by(statement.query)


def _needed_by(statement: Statement) -> Iterator[str]:
    """The names of what a statement reads and writes to."""
    yield from _read_by(statement)
    if isinstance(statement, InsertInto):
        yield statement.table


def _missing(name: str, names: Mapping[str, str]) -> UnknownNameError:
    return UnknownNameError.among("Table or view", name, names.values(), "Existing ones")
