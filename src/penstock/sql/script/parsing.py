"""Parsing the tokens of one statement of a script, without a look at the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import DuplicateNameError, SqlError, UnsupportedError
from penstock.sql.script.commands import parse_command
from penstock.sql.script.field_paths import path_names, path_place
from penstock.sql.script.foreign_forms import refuse_foreign_type
from penstock.sql.script.queries import parse_tokens
from penstock.sql.script.refusals import refusal
from penstock.sql.script.statements import (
    Column,
    CreateTable,
    CreateView,
    CreateViews,
    DropView,
    InsertInto,
    Parsed,
    Query,
    Retain,
)
from penstock.sql.text.cursor import Cursor
from penstock.sql.text.hints import refuse_misplaced_hints
from penstock.sql.text.lexing import tokenize

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

_NO_SOURCE = "Expected USING and a source here, then OPTIONS (path '...', event_time 'column'), in place of WITH (...)."
#: what other systems declare between columns
_NO_COLUMNS = {
    "WATERMARK FOR": "Write OPTIONS (event_time 'column') behind the columns; late tuples correct what they change.",
    "PRIMARY KEY": "Leave it out; a sink takes OPTIONS (mode 'upsert', key 'column').",
}
#: how statements begin, and nothing within one
_BEGINNINGS = (
    (TokenType.CREATE, TokenType.TABLE),
    (TokenType.CREATE, TokenType.VIEW),
    (TokenType.CREATE, TokenType.OR),
    (TokenType.DROP, TokenType.VIEW),
    (TokenType.INSERT, TokenType.INTO),
)
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_FIRST = frozenset(kind for kind, _ in _BEGINNINGS)
#: CREATE VIEWS FROM 'path'; VIEWS may be a name as well
_RULES = (TokenType.CREATE, TokenType.VAR, TokenType.FROM, TokenType.STRING)


def split_statements(text: str) -> list[Sequence[Token]]:
    """Splits a text into the tokens of its statements.

    Raises:
        SqlError: it cannot be split into tokens, or a `;` is missing.
    """

    def refuse(error: SqlError) -> None:
        raise error

    return list(divided(text, tokenize(text), refuse))


def parse_statement(text: str, tokens: Sequence[Token], aggregates: Collection[str] = ()) -> Parsed:
    """Parses one statement of a text, without a look at the others; raises as `parse_script`."""
    return StatementParser(text, tokens, aggregates).parse()


def divided(
    text: str, tokens: Sequence[Token], missing: Callable[[SqlError], None]
) -> Iterator[Sequence[Token]]:
    """The tokens of each statement of a text.

    Args:
        text: the text.
        tokens: its tokens.
        missing: takes the mistake in where the `;` before a statement is missing; if it returns, the statement begins there.
    """
    first = 0
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            if position > first:
                yield tokens[first:position]
            first = position + 1
        elif position > first and token.token_type in _FIRST and _begins(tokens[position : position + 4]):
            missing(SqlError("The ; before this statement is missing.", text, token.start, token.end + 1))
            yield tokens[first:position]
            first = position
    if first < len(tokens):
        yield tokens[first:]


def _begins(tokens: Sequence[Token]) -> bool:
    """Whether four tokens begin a statement."""
    kinds = tuple(each.token_type for each in tokens)
    return kinds[:2] in _BEGINNINGS or (kinds == _RULES and tokens[1].text.upper() == "VIEWS")


class StatementParser(Cursor):
    """Recursive descent over one statement's tokens.

    Args:
        script: the text the tokens come from.
        tokens: those of the statement.
        aggregates: names of the user's aggregates.
        name_place: place of the name that the statement declares or inserts into, where that is known.
    """

    def __init__(
        self,
        script: str,
        tokens: Sequence[Token],
        aggregates: Collection[str],
        name_place: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(script, tokens)
        self.aggregates = aggregates
        self.name_place = name_place
        #: of a table: see `CreateTable`
        self.places: dict[str, tuple[int, int]] = {}

    def parse(self) -> Parsed:
        refuse_misplaced_hints(self.script, self.tokens)
        if self.accept(TokenType.CREATE):
            if self.accept(TokenType.TABLE):
                return self._table()
            if self.accept(TokenType.VIEW):
                return self._view()
            if self.accept_words("OR", "REPLACE", "VIEW"):
                return replace(self._view(), replaces=True)
            if self.accept_words("VIEWS"):
                return self._views()
            raise refusal(self.script, self.tokens, self.position)
        if self.accept_words("DROP", "VIEW"):
            if_exists = self.accept_words("IF", "EXISTS")
            dropped = DropView(self._declared_name(), if_exists)
            if self.kind() is TokenType.COMMA:
                raise self.fail(
                    "DROP VIEW takes one view. Write a statement for each: DROP VIEW a; DROP VIEW b;"
                )
            if self.position < len(self.tokens):
                raise self.expected("the end of the statement")
            return dropped
        if self.accept(TokenType.INSERT):
            if not self.accept(TokenType.INTO):
                raise refusal(self.script, self.tokens, self.position)
            self.accept(TokenType.TABLE)
            name = self._declared_name()
            self._refuse_columns(name)
            return InsertInto(name, *self._query())
        if (command := parse_command(self)) is not None:
            return command
        raise refusal(self.script, self.tokens, self.position)

    def declare(self, name: str, names: MutableMapping[str, str]) -> None:
        """Adds a name to those that exist."""
        if name.upper() in names:
            raise DuplicateNameError(
                f"{name} exists already. Names are case-insensitive; choose another name.",
                self.script,
                *self.name_place,
            )
        names[name.upper()] = name

    def _refuse_columns(self, sink: str) -> None:
        """Refuses a list of columns behind the name of a sink; a query in parentheses is none."""
        queries = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.L_PAREN)
        if self.kind() is not TokenType.L_PAREN or self.kind(1) in queries:
            return
        start, last = self.position, self.position
        while last + 1 < len(self.tokens) and self.kinds[last] is not TokenType.R_PAREN:
            last += 1
        message = (
            f"INSERT INTO takes no list of columns. Write INSERT INTO {sink} SELECT ..., and select the columns in the "
            "order of the sink, with its names."
        )
        raise UnsupportedError(message, self.script, self.tokens[start].start, self.tokens[last].end + 1)

    def _query(self) -> tuple[Query, str, int, int]:
        if self.position == len(self.tokens):
            raise self.expected("a query")
        tokens = self.tokens[self.position :]
        text = self.script[tokens[0].start : tokens[-1].end + 1]
        return (
            parse_tokens(self.script, tokens, self.aggregates),
            text,
            self.tokens[0].start,
            tokens[-1].end + 1,
        )

    def _view(self) -> CreateView:
        if self.accept_words("IF", "NOT", "EXISTS"):
            message = "IF NOT EXISTS is not supported. Write CREATE VIEW, or CREATE OR REPLACE VIEW for an earlier view to give way."
            raise UnsupportedError(message, self.script, self.tokens[2].start, self.tokens[4].end + 1)
        name = self._declared_name()
        retain = self._retain()
        if not self.accept(TokenType.ALIAS):
            raise self.expected("AS")
        return CreateView(name, *self._query(), retain)

    def _table(self) -> CreateTable:
        if self.accept_words("IF", "NOT", "EXISTS"):
            message = "IF NOT EXISTS is not supported. Leave it out: a script declares each table once."
            raise UnsupportedError(message, self.script, self.tokens[2].start, self.tokens[4].end + 1)
        name = self._declared_name()
        columns: tuple[Column, ...] = ()
        if self.accept(TokenType.L_PAREN):
            columns = self._columns()
        if self.kind() is TokenType.ALIAS and self.kind(1) in (TokenType.SELECT, TokenType.WITH):
            raise self.fail(
                f"A table is an input or a sink. To name a query, write CREATE VIEW {name} AS SELECT ...",
                UnsupportedError,
            )
        if not self.accept(TokenType.USING):
            instead = ", in place of WITH (...)" if self.kind() is TokenType.WITH else ""
            raise self.fail(
                f"Expected USING and a source here, then OPTIONS (path '...', event_time 'column'){instead}."
            )
        self.places["using"] = self.place()
        source = self.name("the name of a source").lower()
        options: dict[str, str] = {}
        while self.position < len(self.tokens):
            if not self.accept_words("OPTIONS"):
                raise self.expected("OPTIONS (key 'value', ...) or the end of the statement")
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

    def _retain(self) -> Retain | None:
        """The property `retain` of a view."""
        if not self.accept_words("TBLPROPERTIES"):
            return None
        given: dict[str, str] = {}
        self._options(given)
        unknown = next((key for key in given if key != "retain"), None)
        if unknown is not None:
            message = f"Views have no property {unknown}. Allowed: retain '30 days'."
            raise UnsupportedError(message, self.script, *self.places[unknown])
        return Retain.of(given["retain"], self.script, *self.places["retain"]) if given else None

    def _views(self) -> CreateViews:
        if not self.accept(TokenType.FROM):
            raise self.expected("FROM and the path of files with rules")
        begin = self.place()[0]
        if self.kind() not in _STRINGS:
            raise self.fail("Expected the path of files with rules here, in quotes.")
        path = self.string_value()
        self.places[""] = begin, self.tokens[self.position - 1].end + 1
        stream, form = None, RULE_FORMATS.get(path.rpartition(".")[2].lower())
        if self.accept(TokenType.ON):
            self.places["on"] = self.place()
            stream = self.name("the name of a stream")
        if self.accept(TokenType.USING):
            place = self.place()
            form = RULE_FORMATS.get(self.name("the format of the rules").lower())
            if form is None:
                message = "Rules have the format sql, csv, json or parquet."
                raise UnsupportedError(message, self.script, *place)
        if form is None:
            message = "The path does not end in a format of rules. Add USING sql, csv, json or parquet."
            raise SqlError(message, self.script, *self.places[""])
        columns = dict(_RULE_COLUMNS)
        if self.accept_words("OPTIONS"):
            given: dict[str, str] = {}
            self._options(given)
            unknown = next((key for key in given if key not in columns or form == "sql"), None)
            if unknown is not None:
                allowed = "none, for files of SQL" if form == "sql" else ", ".join(columns)
                message = f"Rules have no option {unknown}. Allowed: {allowed}."
                raise UnsupportedError(message, self.script, *self.places[unknown])
            columns |= given
        if self.position < len(self.tokens):
            raise self.expected("ON stream, USING format, OPTIONS or the end of the statement")
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
            place = self.place()
            begin = " ".join(token.text.upper() for token in self.tokens[self.position : self.position + 2])
            for words, instead in _NO_COLUMNS.items():
                if f"{begin} ".startswith(f"{words} "):
                    raise self.fail(f"{words} is not supported. {instead}", UnsupportedError)
            name = self.name("the name of a column")
            if self.kind() is TokenType.ALIAS:
                instead = f"Compute {name} in a view."
                if self.accept_words("AS", "PROCTIME"):
                    self.position -= 2
                    instead = f"Leave {name} out, and write OPTIONS (arrival '{name}') behind the columns: Penstock adds the column."
                raise self.fail(f"A table has no computed columns. {instead}", UnsupportedError)
            if any(name.upper() == column.name.upper() for column in columns):
                raise DuplicateNameError(f"Column {name} is declared twice.", self.script, *place)
            columns.append(Column(name, self._type(), self._path(name)))
            self.places[name] = place
            if self.accept(TokenType.R_PAREN):
                return tuple(columns)
            if not self.accept(TokenType.COMMA):
                raise self.expected("a comma or a closing parenthesis")

    def _path(self, column: str) -> tuple[str, ...]:
        """The names of a column's PATH; () without one."""
        if not self.accept_words("PATH"):
            return ()
        if self.kind() not in _STRINGS:
            raise self.fail("Expected a path in quotes here, such as '$.after.id'.")
        begin = self.place()[0]
        text = self.string_value()
        place = self.places[path_place(column)] = begin, self.tokens[self.position - 1].end + 1
        try:
            return path_names(text)
        except ValueError as error:
            raise SqlError(f"Column {column}: {error}", self.script, *place) from None

    def _type(self) -> str:
        """The text of a type, up to PATH, or the comma or parenthesis after it."""
        first, depth = self.position, 0
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            if depth == 0 and token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                break
            if depth == 0 and self.position > first and token.text.upper() == "PATH":
                break
            if token.token_type in (TokenType.NOT, TokenType.DEFAULT, TokenType.COMMENT):
                raise self.fail(
                    "A column declaration consists of a name, a type and, for fields within records, PATH '$.object.field'.",
                    UnsupportedError,
                )
            depth += sum({"(": 1, "<": 1, ")": -1, ">": -1}.get(mark, 0) for mark in token.text)
            self.position += 1
        if self.position == first:
            raise self.expected("a type")
        refuse_foreign_type(self.script, self.tokens[first : self.position])
        return self.script[self.tokens[first].start : self.tokens[self.position - 1].end + 1]

    def _options(self, options: dict[str, str]) -> None:
        if not self.accept(TokenType.L_PAREN):
            raise self.expected("a list of options in parentheses")
        while not self.accept(TokenType.R_PAREN):
            place = self.place()
            key = self._option_key()
            if key in options:
                raise DuplicateNameError(f"Option {key} is given twice.", self.script, *place)
            self.places[key] = place[0], self.tokens[self.position - 1].end + 1
            self.accept(TokenType.EQ)
            options[key] = self._option_value()
            if not self.accept(TokenType.COMMA) and self.kind() is not TokenType.R_PAREN:
                raise self.expected("a comma or a closing parenthesis")

    def _option_key(self) -> str:
        if self.kind() is TokenType.STRING:
            return self.string_value().lower()
        parts = [self.name("the name of an option")]
        while self.accept(TokenType.DOT):
            parts.append(self.name("the name of an option"))
        return ".".join(parts).lower()

    def _option_value(self) -> str:
        if self.kind() in _STRINGS:
            return self.string_value()
        start, end = self.place()
        if self.accept(TokenType.DASH):
            if self.kind() is not TokenType.NUMBER:
                raise self.fail(
                    "The name of an option with a hyphen needs quotes: 'catalog.s3.access-key-id'."
                )
            end = self.place()[1]
        if self.kind() not in (TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE):
            raise self.fail("Expected a value here: a string, a number, true or false.")
        self.position += 1
        return self.script[start:end]

    def _declared_name(self) -> str:
        self.name_place = self.place()
        if self.kind() is TokenType.STRING:
            text = self.tokens[self.position].text
            raise self.fail(f"A string cannot be a name. Quote names with backticks: `{text}`.")
        name = self.name("a name")
        if self.kind() is TokenType.DOT:
            raise self.fail("Names of tables and views have one part, without dots.", UnsupportedError)
        return name
