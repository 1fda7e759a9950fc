"""Rules: views that files declare, each read by itself, so that a mistake in one is a mistake of that one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import InputError, SqlError, UnsupportedError
from penstock.sql.script.parsing import parse_statement, split_statements
from penstock.sql.script.queries import parse_query
from penstock.sql.script.statements import CreateView
from penstock.sql.text.lexing import name_of

_BREAK = "\n"
#: how a text of statements begins, behind comments
_STATEMENT_WORDS = (TokenType.CREATE, TokenType.INSERT, TokenType.DROP)
_STATEMENTS = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*(CREATE|INSERT|DROP)\b", re.IGNORECASE | re.DOTALL)
#: characters of a reason
_LONGEST_REASON = 300
_EXPECTED = "Expected a condition, a SELECT, or CREATE VIEW statements."


@dataclass(frozen=True, slots=True)
class Rule:
    """A view that a file declares.

    Attributes:
        view: the view.
        file: the file.
        place: where it begins: the file, or the file and its row.
        text: the text in which a mistake of it is underlined.
        line: the number of that text's first line in the file; None where rows have no lines.
    """

    view: CreateView
    file: str
    place: str
    text: str
    line: int | None

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name

    def refused(self, error: InputError) -> RefusedRule:
        """Return that the rule is refused for a mistake."""
        return RefusedRule(
            self.name,
            self.file,
            store_path(error, self.file, self.place, self.text, self.line),
            reason_of(error),
        )


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """A rule that was not declared.

    Attributes:
        name: of its view; None where the file does not even say which.
        file: the file.
        place: the file, and the line or row where known.
        reason: why, in one line.
        kept: the views whose last good definition runs instead.
    """

    name: str | None
    file: str
    place: str
    reason: str
    kept: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.place}: {f'{self.name}: ' if self.name else ''}{self.told}"

    @property
    def told(self) -> str:
        """The reason, and whether an earlier definition runs."""
        if not self.kept:
            return self.reason
        runs = (
            "the last good definitions of its views run"
            if self.name is None
            else "its last good definition runs"
        )
        return f"{self.reason} ({runs})"


def rules_of_file(
    text: str, file: str, name: str, stream: str | None, aggregates: Collection[str]
) -> Iterator[Rule | RefusedRule]:
    """Yield the rules of a file: a condition or SELECT, which is one rule, or CREATE VIEW statements.

    Args:
        text: what the file has.
        file: its name in messages.
        name: of the view where the file is one rule.
        stream: what a condition is over.
        aggregates: names of the user's aggregates.
    """
    try:
        statements = split_statements(text)
    except SqlError as error:
        known = None if _STATEMENTS.match(text) else name
        yield RefusedRule(known, file, store_path(error, file, file, text, 1), reason_of(error))
        return
    if not statements or statements[0][0].token_type not in _STATEMENT_WORDS:
        yield rule_of_text(text, file, file, name, stream, aggregates, 1)
        return
    for tokens in statements:
        try:
            statement = parse_statement(text, tokens, aggregates)
            if not isinstance(statement, CreateView):
                message = "A file of rules has CREATE VIEW statements only. Move this one to the script."
                raise UnsupportedError(message, text, tokens[0].start, tokens[-1].end + 1)
        except SqlError as error:
            yield RefusedRule(
                _declared(tokens), file, store_path(error, file, file, text, 1), reason_of(error)
            )
        else:
            yield Rule(statement, file, f"{file}:{text.count(_BREAK, 0, statement.start) + 1}", text, 1)


def rule_of_text(
    text: str,
    file: str,
    place: str,
    name: str,
    stream: str | None,
    aggregates: Collection[str],
    line: int | None = None,
) -> Rule | RefusedRule:
    """Return the rule that is a condition or a SELECT.

    Args:
        text: the condition or SELECT; a `;` may follow.
        file: the file that has it.
        place: where it begins, for messages.
        name: of its view.
        stream: what a condition is over.
        aggregates: names of the user's aggregates.
        line: the number of its first line in the file; None where it has no lines of its own.
    """
    whole = text
    try:
        statements = split_statements(text)
        if len(statements) != 1:
            raise SqlError(
                f"{'The rule is empty' if not statements else 'This is more than one rule'}. {_EXPECTED}"
            )
        if statements[0][0].token_type in _STATEMENT_WORDS:
            raise SqlError("This is a statement. Expected a condition or a SELECT.")
        query = whole = text[: statements[0][-1].end + 1]
        if statements[0][0].token_type is not TokenType.SELECT:
            if stream is None:
                raise SqlError("This is a condition. Name its stream: CREATE VIEWS FROM 'path' ON stream.")
            query = whole = f"SELECT * FROM `{stream.replace('`', '``')}` WHERE\n{query}"
            line = None if line is None else line - 1
        view = CreateView(name, parse_query(query, aggregates), query, 0, len(query))
    except SqlError as error:
        return RefusedRule(name, file, store_path(error, file, place, whole, line), reason_of(error))
    return Rule(view, file, place, query, line)


def store_path(error: InputError, file: str, place: str, text: str, line: int | None) -> str:
    """Return where a mistake is: the file and the line where the error knows it, else the place of the rule.

    Args:
        error: the mistake.
        file: the file.
        place: where the rule begins.
        text: the text that the rule was read from.
        line: the number of its first line in the file; None where it has no lines of its own.
    """
    if line is None or not isinstance(error, SqlError) or not error.text or error.text != text:
        return place
    return f"{file}:{text.count(_BREAK, 0, error.start) + line}"


def reason_of(error: InputError) -> str:
    """Return what is wrong, in one line that does not list hundreds of columns."""
    told = error.message if isinstance(error, SqlError) else str(error)
    return textwrap.shorten(told, _LONGEST_REASON, placeholder=" ...")


def _declared(tokens: Sequence[Token]) -> str | None:
    """The name of the view that a statement with a mistake declares."""
    words = [each.text.upper() for each in tokens[:4]]
    declared = 4 if words == ["CREATE", "OR", "REPLACE", "VIEW"] else 2
    if words[:1] != ["CREATE"] or words[declared - 1 : declared] != ["VIEW"] or len(tokens) <= declared:
        return None
    return name_of(tokens[declared])
