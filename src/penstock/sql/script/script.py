"""Scripts: statements that declare streams, standing queries, and where their results go."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.sql.conditions.shapes import PLAIN
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.parsing import StatementParser, divided
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.script.statements import (
    SINKS,
    CreateTable,
    CreateView,
    CreateViews,
    InsertInto,
    Script,
    Statement,
    sources_of,
)
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.query import SelectQuery

#: a view whose text may have a known shape
_NO_NAMES = KnownNames()
_VIEW = re.compile(
    rf"\s*(?P<create>CREATE)\s+VIEW\s+(?P<name>[A-Za-z_]\w*)\s+AS\s+(?P<query>SELECT\b{PLAIN}(?<!\s))\s*;",
    re.ASCII | re.IGNORECASE,
)


def parse_script(text: str, known: KnownNames = _NO_NAMES, aggregates: Collection[str] = ()) -> Script:
    """Parses a script and checks that every name exists once, before its use.

    Names of views that CREATE VIEWS may declare are not checked behind such a statement.

    Args:
        text: statements separated by `;`.
        known: names that exist already.
        aggregates: names of the user's aggregates.

    Raises:
        DuplicateNameError: a name is taken.
        UnknownNameError: no such table or view.
        UnsupportedError: a statement or query Penstock does not run, or INSERT INTO what is no table.
        SqlError: anything else that is no such script. All with the place underlined.
    """
    names = ChainMap[str, str]({}, known)  # type: ignore[arg-type]
    views: set[str] = set()
    statements: list[Statement] = []
    targets: dict[str, tuple[int, int]] = {}
    has_rules = False
    for parser, statement in _statements(text, aggregates):
        if isinstance(statement, CreateTable):
            parser.declare(statement.name, names)
        elif isinstance(statement, CreateViews):
            if statement.stream is not None and statement.stream.upper() not in names:
                raise UnknownNameError(_missing(statement.stream, names), *statement.at("on"))
            has_rules = True
        else:
            for source, clause in sources_of(statement.query):
                # what files of rules declare is known once they are read
                if source.upper() not in names and not has_rules:
                    raise clause.error(UnknownNameError, _missing(source, names), 0, len(clause.text))
            if isinstance(statement, CreateView):
                parser.declare(statement.name, names)
                views.add(statement.name.upper())
            elif statement.table.upper() not in names:
                sinks = [
                    each.name for each in statements if isinstance(each, CreateTable) and each.source in SINKS
                ]
                message = (
                    f"Table {statement.table} does not exist. INSERT INTO needs a table USING kafka or console; "
                    f"existing ones: {', '.join(sinks) or 'none'}."
                )
                raise UnknownNameError(message, text, *parser.name_place)
            elif (kind := _kind(statement.table.upper(), views, known)) != "table":
                told = f"{statement.table} is a {kind}. INSERT INTO needs a table USING kafka or console."
                raise UnsupportedError(told, text, *parser.name_place)
            else:
                targets[statement.table.upper()] = parser.name_place
        statements.append(statement)
    _refuse_read_targets(text, statements, targets)
    return Script(text, tuple(statements))


def _statements(text: str, aggregates: Collection[str]) -> Iterator[tuple[StatementParser, Statement]]:
    """The statements of a script, each with its parser; views of a shape that is known need none of their tokens."""
    shapes = SelectionShapes()
    position = 0
    while position < len(text):
        view = _VIEW.match(text, position)
        if view is not None and (query := shapes.find(text, *view.span("query"))) is not None:
            parser = StatementParser(text, (), aggregates, name_place=view.span("name"))
            yield (
                parser,
                CreateView(view["name"], query, view["query"], view.start("create"), view.end("query")),
            )
            position = view.end()
            continue
        end, tokens = _next_statements(text, position)
        for part in divided(text, tokens):
            parser = StatementParser(text, part, aggregates)
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


def _refuse_read_targets(
    text: str, statements: Sequence[Statement], targets: Mapping[str, tuple[int, int]]
) -> None:
    """Refuses INSERT INTO a table that the script also reads."""
    for statement in statements:
        if isinstance(statement, CreateTable):
            continue
        for source in _read_by(statement):
            if source.upper() in targets:
                message = (
                    f"INSERT INTO cannot write to {source}, because the script reads it as a stream. Declare another table "
                    "USING kafka or console."
                )
                raise UnsupportedError(message, text, *targets[source.upper()])


def _read_by(statement: CreateView | CreateViews | InsertInto) -> Iterator[str]:
    """The names of what a statement reads."""
    if isinstance(statement, CreateViews):
        yield from () if statement.stream is None else (statement.stream,)
    else:
        yield from (source for source, _ in sources_of(statement.query))


def _kind(name: str, views: Collection[str], known: KnownNames) -> str:
    return "view" if name in views else known.kind(name) or "table"


def _missing(name: str, names: Mapping[str, str]) -> str:
    return f"Table or view {name} does not exist. Existing ones: {', '.join(names.values()) or 'none'}"
