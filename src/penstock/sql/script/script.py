"""Scripts: statements that declare streams, standing queries, and where their results go."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import DuplicateNameError, InputError, SqlError, UnknownNameError, UnsupportedError
from penstock.sql.conditions.shapes import PLAIN
from penstock.sql.joins.parsing import is_join, parse_join_query
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import name_of, tokenize
from penstock.sql.text.literals import string
from penstock.sql.text.parts import split_query
from penstock.sql.text.query import SelectQuery, parse_selection
from penstock.sql.windows.aggregate_calls import is_aggregate, is_users_aggregate
from penstock.sql.windows.parsing import parse_window_query
from penstock.sql.windows.query import WindowQuery

ALLOWED = (
    "Allowed statements: CREATE TABLE name [(column type, ...)] USING source OPTIONS (key 'value', ...), "
    "CREATE VIEW name AS SELECT ..., CREATE VIEWS FROM 'path' ON stream, INSERT INTO name SELECT ..."
)

#: formats of files with rules, by the ending of their names
RULE_FORMATS = {
    "sql": "sql",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
}
#: what the columns of a table of rules are called, unless options name them
_RULE_COLUMNS = {"name": "name", "condition": "condition"}

#: sources of tables that INSERT INTO writes to
SINKS = ("kafka", "console")
#: what to do instead of a statement of another kind, by how it begins
_INSTEAD = {
    "CREATE OR REPLACE": "Edit the script; `penstock run --watch` applies the change.",
    "DROP": "Remove the statement from the script; `penstock run --watch` applies the change.",
    "ALTER": "Edit the script; `penstock run --watch` applies the change.",
    "SHOW": "`penstock status DIR` lists streams and views.",
    "DESCRIBE": "`penstock explain SCRIPT` shows columns and views.",
    "CREATE FUNCTION": "Register functions with `--functions FILE` or `Engine.function`.",
    "CREATE TEMPORARY": "Write CREATE VIEW name AS SELECT ...",
    "SELECT": "Write CREATE VIEW name AS SELECT ...",
    "WITH": "Write a CREATE VIEW for each query.",
}
#: how statements begin, and nothing within one
_BEGINNINGS = (
    (TokenType.CREATE, TokenType.TABLE),
    (TokenType.CREATE, TokenType.VIEW),
    (TokenType.INSERT, TokenType.INTO),
)
_FIRST = frozenset(kind for kind, _ in _BEGINNINGS)
#: CREATE VIEWS FROM 'path'; VIEWS may be a name as well
_RULES = (TokenType.CREATE, TokenType.VAR, TokenType.FROM, TokenType.STRING)

#: a view whose text may have a known shape
_VIEW = re.compile(
    rf"\s*(?P<create>CREATE)\s+VIEW\s+(?P<name>[A-Za-z_]\w*)\s+AS\s+(?P<query>SELECT\b{PLAIN}(?<!\s))\s*;",
    re.ASCII | re.IGNORECASE,
)

#: what a view may be
Query = SelectQuery | WindowQuery | JoinQuery


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column: its name and its type as Spark SQL writes it."""

    name: str
    type_sql: str


class _Placed:
    """A statement that knows where its parts stand in the script."""

    __slots__ = ()
    start: int
    end: int
    text: str
    places: dict[str, tuple[int, int]]

    def at(self, part: str = "") -> tuple[str, int, int]:
        """The script and the place of a part in it, for a `SqlError`; the first one's where there is no such part."""
        return self.text, *self.places.get(part, self.places.get("", (self.start, self.end)))

    @contextmanager
    def pointing(self) -> Iterator[None]:
        """Gives mistakes that know of no place in a text the statement's."""
        try:
            yield
        except SqlError as error:
            if error.text:
                raise
            raise type(error)(error.message, *self.at()) from error
        except InputError as error:
            raise SqlError(str(error), *self.at()) from error


@dataclass(frozen=True, slots=True)
class CreateTable(_Placed):
    """`CREATE TABLE name [(columns)] USING source OPTIONS (...)`.

    Attributes:
        name: the table's name.
        columns: declared columns; () leaves them to the source.
        source: the word after USING, in lower case.
        options: keys in lower case.
        start, end: place in the script.
        text: the script.
        places: where parts of the statement stand in it: "" the name, options by key, columns by name.
    """

    name: str
    columns: tuple[Column, ...]
    source: str
    options: dict[str, str] = field(repr=False)
    start: int
    end: int
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CreateView:
    """`CREATE VIEW name AS query`.

    Attributes:
        name: the view's name.
        query: the parsed query.
        text: the query's SQL.
        start, end: place of the statement in the script.
    """

    name: str
    query: Query
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CreateViews(_Placed):
    """`CREATE VIEWS FROM 'path' [ON stream] [USING format] [OPTIONS (name 'column', condition 'column')]`.

    Attributes:
        path: the files: a name, a folder or a pattern.
        stream: what conditions are over; None: files have whole statements.
        format: `sql`, `csv`, `json` or `parquet`.
        name_column, condition_column: columns of a table of rules.
        start, end: place in the script.
        text: the script.
        places: where parts of the statement stand in it: "" the path, and `on`.
    """

    path: str
    stream: str | None
    format: str
    name_column: str
    condition_column: str
    start: int = field(compare=False)
    end: int = field(compare=False)
    text: str = field(default="", repr=False, compare=False)
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class InsertInto:
    """`INSERT INTO table query`: the query's rows also go to a declared table."""

    table: str
    query: Query
    text: str
    start: int
    end: int


Statement = CreateTable | CreateView | CreateViews | InsertInto


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and its statements in order."""

    text: str
    statements: tuple[Statement, ...]

    @property
    def tables(self) -> tuple[CreateTable, ...]:
        """The tables in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateTable))

    @property
    def views(self) -> tuple[CreateView, ...]:
        """The views in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateView))

    @property
    def rules(self) -> tuple[CreateViews, ...]:
        """The CREATE VIEWS statements in order."""
        return tuple(item for item in self.statements if isinstance(item, CreateViews))

    @property
    def is_empty(self) -> bool:
        """Whether it declares nothing that runs."""
        return not (self.views or self.rules or self.inserts)

    @property
    def inserts(self) -> tuple[InsertInto, ...]:
        """The INSERT INTO statements in order."""
        return tuple(item for item in self.statements if isinstance(item, InsertInto))


def parse_script(
    text: str, known: Mapping[str, str] = MappingProxyType({}), aggregates: Collection[str] = ()
) -> Script:
    """Parses a script and checks that every name exists once, before its use.

    Args:
        text: statements separated by `;`.
        known: names that exist already, each with what has it: `table`, `stream` or `view`.
        aggregates: names of the user's aggregates.

    Raises:
        DuplicateNameError: a name is taken.
        UnknownNameError: no such table or view.
        UnsupportedError: a statement or query Penstock does not run, or INSERT INTO what is no table.
        SqlError: anything else that is no such script. All with the place underlined.
    """
    names = {name.upper(): name for name in known}
    kinds = {name.upper(): kind for name, kind in known.items()}
    statements: list[Statement] = []
    targets: dict[str, tuple[int, int]] = {}
    for parser, statement in _statements(text, aggregates):
        if isinstance(statement, CreateTable):
            parser.declare(statement.name, names)
        elif isinstance(statement, CreateViews):
            if statement.stream is not None and statement.stream.upper() not in names:
                raise UnknownNameError(_missing(statement.stream, names), *statement.at("on"))
        else:
            for source, clause in sources_of(statement.query):
                if source.upper() not in names:
                    raise clause.error(UnknownNameError, _missing(source, names), 0, len(clause.text))
            if isinstance(statement, CreateView):
                parser.declare(statement.name, names)
                kinds[statement.name.upper()] = "view"
            elif statement.table.upper() not in names:
                sinks = [
                    each.name for each in statements if isinstance(each, CreateTable) and each.source in SINKS
                ]
                message = (
                    f"Table {statement.table} does not exist. INSERT INTO needs a table USING kafka or console; "
                    f"existing ones: {', '.join(sinks) or 'none'}."
                )
                raise UnknownNameError(message, text, *parser.name_place)
            elif (kind := kinds.get(statement.table.upper(), "table")) != "table":
                told = f"{statement.table} is a {kind}. INSERT INTO needs a table USING kafka or console."
                raise UnsupportedError(told, text, *parser.name_place)
            else:
                targets[statement.table.upper()] = parser.name_place
        statements.append(statement)
    _refuse_read_targets(text, statements, targets)
    return Script(text, tuple(statements))


def _statements(text: str, aggregates: Collection[str]) -> Iterator[tuple[_StatementParser, Statement]]:
    """The statements of a script, each with its parser; views of a shape that is known need none of their tokens."""
    shapes = SelectionShapes()
    position = 0
    while position < len(text):
        view = _VIEW.match(text, position)
        if view is not None and (query := shapes.find(text, *view.span("query"))) is not None:
            parser = _StatementParser(text, (), aggregates, name_place=view.span("name"))
            yield (
                parser,
                CreateView(view["name"], query, view["query"], view.start("create"), view.end("query")),
            )
            position = view.end()
            continue
        end, tokens = _next_statements(text, position)
        for part in _split(text, tokens):
            parser = _StatementParser(text, part, aggregates)
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


def split_statements(text: str) -> list[Sequence[Token]]:
    """Splits a text into the tokens of its statements.

    Raises:
        SqlError: it cannot be split into tokens, or a `;` is missing.
    """
    return list(_split(text, tokenize(text)))


def parse_statement(text: str, tokens: Sequence[Token], aggregates: Collection[str] = ()) -> Statement:
    """Parses one statement of a text, without a look at the others; raises as `parse_script`."""
    return _StatementParser(text, tokens, aggregates).parse()


def parse_query(text: str, aggregates: Collection[str] = (), shapes: SelectionShapes | None = None) -> Query:
    """Parses the text of one query.

    Args:
        text: the query.
        aggregates: names of the user's aggregates.
        shapes: of selections that were parsed with the same aggregates; this one is added.

    Raises:
        SqlError: as `parse_script`.
    """
    place = len(text) - len(text.lstrip()), len(text.rstrip())
    if shapes is not None and (known := shapes.find(text, *place)) is not None:
        return known
    tokens = tokenize(text)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlError("The query is missing.", text, 0, len(text))
    query = _parse(text, tokens, aggregates)
    if shapes is not None and isinstance(query, SelectQuery):
        shapes.learn(text, *place, query)
    return query


def sources_of(query: Query) -> tuple[tuple[str, Clause], ...]:
    """The names of the tables and views a query selects from, and where they were written."""
    if isinstance(query, JoinQuery):
        return tuple((each.source, each.clause) for each in query.sources)
    return ((query.source, query.source_clause),)


#: how a view calls an aggregate of the user's
_FORM = "SELECT /*+ DEADLINE('3 seconds') */ ... GROUP BY window(time, 'size')"
_NEEDED = f"Allowed: {_FORM}."


def _parse(script: str, tokens: Sequence[Token], aggregates: Collection[str]) -> Query:
    users = {name.upper() for name in aggregates}
    if is_join(tokens):
        _refuse_aggregates(script, tokens, users, _NEEDED)
        return parse_join_query(script, tokens)
    parts = split_query(script, tokens)
    if parts.where is not None:
        end = parts.where.start + len(parts.where.text)
        _refuse_in_where(script, [each for each in tokens if parts.where.start <= each.start < end], users)
    if parts.group_by is None:
        _refuse_aggregates(script, tokens, users, _NEEDED)
        return parse_selection(parts)
    # of LOSS without DEADLINE that is said
    if parts.hints.deadline_seconds is None and parts.hints.loss is None:
        _refuse_aggregates(script, tokens, users, "Add the hint: SELECT /*+ DEADLINE('3 seconds') */ ...")
    return parse_window_query(parts, users)


def _refuse_aggregates(script: str, tokens: Sequence[Token], users: Collection[str], needed: str) -> None:
    for position, token in enumerate(tokens):
        if is_users_aggregate(tokens, position, users):
            message = f"Your aggregate {token.text} needs GROUP BY window(...) and a deadline. {needed}"
            raise UnsupportedError(message, script, token.start, token.end + 1)


def _refuse_in_where(script: str, tokens: Sequence[Token], users: Collection[str]) -> None:
    for position, token in enumerate(tokens):
        message = f"WHERE cannot use an aggregate such as {token.text}"
        if is_aggregate(tokens, position) and not any(each.token_type is TokenType.SELECT for each in tokens):
            message += "; use GROUP BY window(...) and HAVING."
        elif is_users_aggregate(tokens, position, users):
            message += f". Use HAVING: {_FORM} HAVING {token.text}(...) ..."
        else:
            continue
        raise UnsupportedError(message, script, token.start, token.end + 1)


def _missing(name: str, names: dict[str, str]) -> str:
    return f"Table or view {name} does not exist. Existing ones: {', '.join(names.values()) or 'none'}"


def _split(text: str, tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    first = 0
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            if position > first:
                yield tokens[first:position]
            first = position + 1
        elif position > first and token.token_type in _FIRST and _begins(tokens[position : position + 4]):
            raise SqlError("The ; before this statement is missing.", text, token.start, token.end + 1)
    if first < len(tokens):
        yield tokens[first:]


def _begins(tokens: Sequence[Token]) -> bool:
    """Whether four tokens begin a statement."""
    kinds = tuple(each.token_type for each in tokens)
    return kinds[:2] in _BEGINNINGS or (kinds == _RULES and tokens[1].text.upper() == "VIEWS")


@dataclass(slots=True)
class _StatementParser:
    """Recursive descent over one statement's tokens."""

    script: str
    tokens: Sequence[Token]
    #: names of the user's aggregates
    aggregates: Collection[str]
    position: int = 0
    #: place of the name that the statement declares or inserts into
    name_place: tuple[int, int] = field(default=(0, 0))
    #: of a table: see `CreateTable`
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def parse(self) -> Statement:
        if self._accept(TokenType.CREATE):
            if self._accept(TokenType.TABLE):
                return self._table()
            if self._accept(TokenType.VIEW):
                name = self._declared_name()
                if not self._accept(TokenType.ALIAS):
                    raise self._fail("Expected AS here.")
                return CreateView(name, *self._query())
            if self._accept_word("VIEWS"):
                return self._views()
            raise self._refuse()
        if self._accept(TokenType.INSERT):
            if not self._accept(TokenType.INTO):
                raise self._refuse()
            self._accept(TokenType.TABLE)
            return InsertInto(self._declared_name(), *self._query())
        raise self._refuse()

    def declare(self, name: str, names: dict[str, str]) -> None:
        """Adds a name to those that exist."""
        if name.upper() in names:
            raise DuplicateNameError(
                f"{name} exists already. Names are case-insensitive; choose another name.",
                self.script,
                *self.name_place,
            )
        names[name.upper()] = name

    def _query(self) -> tuple[Query, str, int, int]:
        if self.position == len(self.tokens):
            raise self._fail("Expected a query here.")
        tokens = self.tokens[self.position :]
        text = self.script[tokens[0].start : tokens[-1].end + 1]
        return _parse(self.script, tokens, self.aggregates), text, self.tokens[0].start, tokens[-1].end + 1

    def _table(self) -> CreateTable:
        name = self._declared_name()
        columns: tuple[Column, ...] = ()
        if self._accept(TokenType.L_PAREN):
            columns = self._columns()
        if not self._accept(TokenType.USING):
            raise self._fail("Expected USING and a source here.")
        self.places["using"] = self._place()
        source = self._name("the name of a source").lower()
        options: dict[str, str] = {}
        while self.position < len(self.tokens):
            if not self._accept_word("OPTIONS"):
                raise self._fail("Expected OPTIONS (key 'value', ...) or the end of the statement here.")
            self._options(options)
        return CreateTable(
            name,
            columns,
            source,
            options,
            self.tokens[0].start,
            self.tokens[-1].end + 1,
            self.script,
            {**self.places, "": self.name_place},
        )

    def _views(self) -> CreateViews:
        if not self._accept(TokenType.FROM):
            raise self._fail("Expected FROM and the path of files with rules here.")
        begin = self._place()[0]
        if self._kind() not in (TokenType.STRING, TokenType.RAW_STRING):
            raise self._fail("Expected the path of files with rules here, in quotes.")
        path = self._string()
        self.places[""] = begin, self.tokens[self.position - 1].end + 1
        stream, form = None, RULE_FORMATS.get(path.rpartition(".")[2].lower())
        if self._accept(TokenType.ON):
            self.places["on"] = self._place()
            stream = self._name("the name of a stream")
        if self._accept(TokenType.USING):
            place = self._place()
            form = RULE_FORMATS.get(self._name("the format of the rules").lower())
            if form is None:
                message = "Rules have the format sql, csv, json or parquet."
                raise UnsupportedError(message, self.script, *place)
        if form is None:
            message = "The path does not end in a format of rules. Add USING sql, csv, json or parquet."
            raise SqlError(message, self.script, *self.places[""])
        columns = dict(_RULE_COLUMNS)
        if self._accept_word("OPTIONS"):
            given: dict[str, str] = {}
            self._options(given)
            unknown = next((key for key in given if key not in columns or form == "sql"), None)
            if unknown is not None:
                allowed = "none, for files of SQL" if form == "sql" else ", ".join(columns)
                message = f"Rules have no option {unknown}. Allowed: {allowed}."
                raise UnsupportedError(message, self.script, *self.places[unknown])
            columns |= given
        if self.position < len(self.tokens):
            raise self._fail("Expected ON stream, USING format, OPTIONS or the end of the statement here.")
        return CreateViews(
            path,
            stream,
            form,
            columns["name"],
            columns["condition"],
            self.tokens[0].start,
            self.tokens[-1].end + 1,
            self.script,
            self.places,
        )

    def _columns(self) -> tuple[Column, ...]:
        columns: list[Column] = []
        while True:
            place = self._place()
            name = self._name("the name of a column")
            if any(name.upper() == column.name.upper() for column in columns):
                raise DuplicateNameError(f"Column {name} is declared twice.", self.script, *place)
            columns.append(Column(name, self._type()))
            self.places[name] = place
            if self._accept(TokenType.R_PAREN):
                return tuple(columns)
            if not self._accept(TokenType.COMMA):
                raise self._fail("Expected a comma or a closing parenthesis here.")

    def _type(self) -> str:
        """The text of a type, up to the comma or parenthesis after it."""
        first, depth = self.position, 0
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            if depth == 0 and token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                break
            if token.token_type in (TokenType.NOT, TokenType.DEFAULT, TokenType.COMMENT):
                raise self._fail("A column declaration consists of a name and a type.", UnsupportedError)
            depth += sum({"(": 1, "<": 1, ")": -1, ">": -1}.get(mark, 0) for mark in token.text)
            self.position += 1
        if self.position == first:
            raise self._fail("Expected a type here.")
        return self.script[self.tokens[first].start : self.tokens[self.position - 1].end + 1]

    def _options(self, options: dict[str, str]) -> None:
        if not self._accept(TokenType.L_PAREN):
            raise self._fail("Expected a list of options in parentheses here.")
        while not self._accept(TokenType.R_PAREN):
            place = self._place()
            key = self._option_key()
            if key in options:
                raise DuplicateNameError(f"Option {key} is given twice.", self.script, *place)
            self.places[key] = place[0], self.tokens[self.position - 1].end + 1
            self._accept(TokenType.EQ)
            options[key] = self._option_value()
            if not self._accept(TokenType.COMMA) and self._kind() is not TokenType.R_PAREN:
                raise self._fail("Expected a comma or a closing parenthesis here.")

    def _option_key(self) -> str:
        if self._kind() is TokenType.STRING:
            return self._string().lower()
        parts = [self._name("the name of an option")]
        while self._accept(TokenType.DOT):
            parts.append(self._name("the name of an option"))
        return ".".join(parts).lower()

    def _option_value(self) -> str:
        if self._kind() in (TokenType.STRING, TokenType.RAW_STRING):
            return self._string()
        start, end = self._place()
        if self._accept(TokenType.DASH):
            end = self._place()[1]
        if self._kind() not in (TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE):
            raise self._fail("Expected a value here: a string, a number, true or false.")
        self.position += 1
        return self.script[start:end]

    def _string(self) -> str:
        """One string; a doubled quote inside makes two tokens of it."""
        start, end = self._place()
        self.position += 1
        while self._kind() is TokenType.STRING and self._place()[0] == end:
            end = self._place()[1]
            self.position += 1
        return string(self.script[start:end])

    def _declared_name(self) -> str:
        self.name_place = self._place()
        name = self._name("A name")
        if self._kind() is TokenType.DOT:
            raise self._fail("Names of tables and views have one part, without dots.", UnsupportedError)
        return name

    def _name(self, what: str) -> str:
        name = name_of(self.tokens[self.position]) if self.position < len(self.tokens) else None
        if name is None:
            raise self._fail(f"Expected {what} here.")
        self.position += 1
        return name

    def _kind(self) -> TokenType | None:
        return self.tokens[self.position].token_type if self.position < len(self.tokens) else None

    def _accept(self, kind: TokenType) -> bool:
        if self._kind() is not kind:
            return False
        self.position += 1
        return True

    def _accept_word(self, word: str) -> bool:
        if self._kind() is None or self.tokens[self.position].text.upper() != word:
            return False
        self.position += 1
        return True

    def _place(self) -> tuple[int, int]:
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token.start, token.end + 1

    def _fail(self, message: str, kind: type[SqlError] = SqlError) -> SqlError:
        return kind(message, self.script, *self._place())

    def _refuse(self) -> UnsupportedError:
        end = self.tokens[min(self.position, len(self.tokens) - 1)].end + 1
        begin = " ".join(token.text.upper() for token in self.tokens[:3])
        instead = next((told for word, told in _INSTEAD.items() if f"{begin} ".startswith(f"{word} ")), "")
        message = " ".join(("This statement is not supported.", *filter(None, (instead,)), ALLOWED))
        return UnsupportedError(message, self.script, self.tokens[0].start, end)
