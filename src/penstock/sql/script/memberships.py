"""`[NOT] IN (SELECT ...)`, which no view may have: the message has the text with EXISTS, which a view may have."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.joins.parsing import is_join, parse_join_query
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import name_of, quote, token_kinds, tokenize
from penstock.sql.text.parts import parse_tree

_OPENING = (TokenType.L_PAREN, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.END)
#: what stands before a predicate
_BEFORE = (TokenType.WHERE, TokenType.AND, TokenType.OR, TokenType.NOT)


def refuse_membership(script: str, tokens: Sequence[Token]) -> None:
    """Refuses the first `IN (SELECT ...)` of a query, if the query is allowed with EXISTS in its place.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.

    Raises:
        UnsupportedError: there is one; the message has the text with EXISTS.
    """
    if not any(each.token_type is TokenType.SELECT for each in tokens[1:]):
        return
    kinds = token_kinds(tokens)
    for position, kind in enumerate(kinds):
        opened = [TokenType.L_PAREN, TokenType.SELECT]
        if kind is TokenType.IN and kinds[position + 1 : position + 3] == opened:
            _refuse(script, tokens, kinds, position)
            return


def _refuse(script: str, tokens: Sequence[Token], kinds: Sequence[TokenType], position: int) -> None:
    """Refuses the test at a position, if it can be written with EXISTS."""
    end = position - (kinds[position - 1] is TokenType.NOT)
    start = first = _operand_start(kinds, end)
    last = _closing(kinds, position + 1)
    if first is None or start is None or last is None:
        return
    if kinds[first - 1] is TokenType.NOT and end == position:
        start -= 1
    is_negated = start < first or end < position
    word = "NOT EXISTS" if is_negated else "EXISTS"
    text = _existence(script, tokens, tokens[first:end], tokens[position + 3 : last], word)
    if text is None or not _is_allowed(script, tokens, start, last, text):
        return
    nulls = " NOT EXISTS also keeps tuples of which a compared value is NULL." if is_negated else ""
    message = (
        f"{'NOT IN' if is_negated else 'IN'} (SELECT ...) is not supported yet. Write {text}.{nulls} Between two streams, the "
        "condition also has to bound the distance of their event times."
    )
    raise UnsupportedError(message, script, tokens[start].start, tokens[last].end + 1)


def _operand_start(kinds: Sequence[TokenType], end: int) -> int | None:
    """The number of the first token of the operand that ends there; None: it has none."""
    depth = 0
    for position in range(end - 1, -1, -1):
        kind = kinds[position]
        depth += (kind in _CLOSING) - (kind in _OPENING)
        if depth < 0 or (depth == 0 and kind in _BEFORE):
            return position + 1 if position + 1 < end else None
    return None


def _closing(kinds: Sequence[TokenType], opening: int) -> int | None:
    """The number of the token that closes a parenthesis."""
    depth = 0
    for position in range(opening, len(kinds)):
        depth += (kinds[position] in _OPENING) - (kinds[position] in _CLOSING)
        if depth == 0:
            return position
    return None


def _existence(
    script: str, tokens: Sequence[Token], operand: Sequence[Token], inner: Sequence[Token], word: str
) -> str | None:
    """The test with EXISTS; None of a query that is more than a column of one input.

    Args:
        script: the text.
        tokens: those of the query.
        operand: those before IN.
        inner: those of the query within, behind SELECT.
        word: EXISTS or NOT EXISTS.
    """
    kinds = token_kinds(inner)
    if TokenType.FROM not in kinds:
        return None
    source = kinds.index(TokenType.FROM)
    found = _input(tokens)
    read = _input(inner)
    if read is None or found is None or read[0].upper() == found[0].upper():
        return None
    behind = kinds[read[1] :]
    if TokenType.COMMA in kinds[:source] or (behind and behind[0] is not TokenType.WHERE):
        return None
    try:
        column = _qualified(script, read[0], inner[:source])
        compared = _qualified(script, "" if is_join(tokens) else found[0], operand)
    except SqlError:
        return None
    condition = f"{column} = {compared}"
    if behind:
        rest = inner[read[1] + 1 :]
        within = _text(script, rest)
        condition += f" AND {f'({within})' if TokenType.OR in token_kinds(rest) else within}"
    return f"{word} (SELECT 1 {_text(script, inner[source : read[1]])} WHERE {condition})"


def _input(tokens: Sequence[Token]) -> tuple[str, int] | None:
    """What the first input of a query is called, and the number of the token behind it."""
    kinds = token_kinds(tokens)
    position, depth = 0, 0
    # not that of EXTRACT
    while position < len(kinds) and (depth or kinds[position] is not TokenType.FROM):
        depth += (kinds[position] in _OPENING) - (kinds[position] in _CLOSING)
        position += 1
    position += 1
    if position > len(tokens):
        return None
    if position == len(tokens) or name_of(tokens[position]) is None:
        return None
    called = position
    position += 1
    if kinds[position : position + 1] == [TokenType.ALIAS]:
        position += 1
    if kinds[position : position + 1] in ([TokenType.VAR], [TokenType.IDENTIFIER]):
        called = position
        position += 1
    return tokens[called].text, position


def _qualified(script: str, source: str, tokens: Sequence[Token]) -> str:
    """The text of an expression, with the name of its input, if one is given, before the names of columns that have none."""
    text = script[tokens[0].start : tokens[-1].end + 1]
    if not source:
        return " ".join(text.split())
    named = source if source.isidentifier() else quote(source)
    bare = (node for node in parse_tree(Clause.alone(text)).find_all(exp.Column) if len(node.parts) == 1)
    for start in sorted((node.parts[0].meta["start"] for node in bare), reverse=True):
        text = f"{text[:start]}{named}.{text[start:]}"
    return " ".join(text.split())


def _text(script: str, tokens: Sequence[Token]) -> str:
    return " ".join(script[tokens[0].start : tokens[-1].end + 1].split()) if tokens else ""


def _is_allowed(script: str, tokens: Sequence[Token], first: int, last: int, text: str) -> bool:
    """Whether the query is one of a join view with another text in place of some tokens."""
    written = f"{script[tokens[0].start : tokens[first].start]}{text}{script[tokens[last].end + 1 : tokens[-1].end + 1]}"
    rewritten = tokenize(written)
    if not is_join(rewritten):
        return False
    try:
        parse_join_query(written, rewritten)
    except SqlError:
        return False
    return True
