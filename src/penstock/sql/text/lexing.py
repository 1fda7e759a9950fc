"""Tokens of Spark SQL text, with the places they come from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.databricks import DatabricksParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError


class _SparkWithPaths(Spark):
    """Reads `value:path` too, which Spark takes of a VARIANT.

    A parser of our own would inherit from sqlglot's. No class can where sqlglot is compiled (`sqlglot[c]`).
    """

    Parser = DatabricksParser


_SPARK, _SPARK_WITH_PATHS = Spark(), _SparkWithPaths()
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
#: what brackets and CASE add to the depth, and their ends take away
NESTING = {
    **dict.fromkeys((*_OPENING, TokenType.CASE), 1),
    **dict.fromkeys((*_CLOSING, TokenType.END), -1),
}
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
#: a cast `::`, and the word in the middle of AT TIME ZONE: like a subscript they make another operand of one
_SUFFIXES = (TokenType.DCOLON, TokenType.TIME)
#: how deep parentheses, brackets, CASE, operators before an operand and subscripts behind one may be nested
MOST_NESTED = 500
#: what is nested less deep needs no more calls within calls than Python allows by itself
_SHALLOW = 20
#: calls within calls that a level may take
_CALLS = 100
_QUOTES = {"'": "string", '"': "string", "`": "quoted name"}

#: comparisons, as Spark writes them
COMPARISONS = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
    TokenType.NULLSAFE_EQ: "<=>",
}
#: tokens after which an expression begins: END there is no end of a CASE, but a name
_EXPECTING = (
    {*COMPARISONS}
    | {TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.L_PAREN, TokenType.L_BRACKET}
    | {TokenType.COMMA, TokenType.DOT, TokenType.ALIAS, TokenType.SELECT, TokenType.DISTINCT, TokenType.WHERE}
    | {TokenType.GROUP_BY, TokenType.HAVING, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.BETWEEN}
    | {TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.PLUS, TokenType.DASH, TokenType.STAR}
    | {TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.DPIPE, TokenType.AMP, TokenType.PIPE}
    | {TokenType.CARET, TokenType.TILDE}
)
#: tokens that no expression begins with: CASE before them is a name
_CONTINUING = (
    {*COMPARISONS}
    | {TokenType.AND, TokenType.OR, TokenType.IS, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE}
    | {TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM}
)
#: tokens behind which another operand begins, for sure: < and > enclose the types of a cast too
_NEXT_OPERAND = _EXPECTING - {TokenType.LT, TokenType.GT}
#: tokens behind which no join begins
_BEFORE_NAMES = _EXPECTING | {TokenType.FROM, TokenType.JOIN, TokenType.ON}


def token_kinds(tokens: Sequence[Token]) -> list[TokenType]:
    """The type of each token, where END, CASE, SEMI and ANTI that are names are `VAR`."""
    kinds: list[TokenType] = []
    #: brackets and CASEs that are open, innermost last
    opened: list[TokenType] = []
    for position, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.END:
            if (not opened or opened[-1] is not TokenType.CASE) or kinds[-1] in _EXPECTING:
                kind = TokenType.VAR
            else:
                opened.pop()
        elif kind is TokenType.CASE:
            following = tokens[position + 1].token_type if position + 1 < len(tokens) else None
            if following is None or following in _CONTINUING:
                kind = TokenType.VAR
            else:
                opened.append(kind)
        elif kind in (TokenType.SEMI, TokenType.ANTI):
            following = tokens[position + 1].token_type if position + 1 < len(tokens) else None
            if following is not TokenType.JOIN or (kinds and kinds[-1] in _BEFORE_NAMES):
                kind = TokenType.VAR
        elif kind in _OPENING:
            opened.append(kind)
        elif kind in _CLOSING:
            while opened and opened.pop() is TokenType.CASE:
                pass
        kinds.append(kind)
    return kinds


def tokenize(text: str, offset: int = 0, whole: str | None = None) -> list[Token]:
    """Splits Spark SQL text into tokens whose `start` and `end` (inclusive) are offsets in `text`.

    The word FROM of `IS [NOT] DISTINCT FROM` has the type `DISTINCT`: it begins no clause.

    Args:
        text: what to split.
        offset: where `text` begins in `whole`.
        whole: the text in which a mistake is shown.

    Raises:
        SqlError: a string, name or comment that does not end; or more than `MOST_NESTED` levels.
    """
    try:
        tokens: list[Token] = _SPARK.tokenize(text)
    except TokenError as error:
        start, what = _unterminated(text)
        raise SqlError(
            f"The {what} that starts here is not closed.",
            text if whole is None else whole,
            offset + start,
            offset + len(text),
        ) from error
    _make_room(tokens, offset, text if whole is None else whole)
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.FROM and _compares(tokens, position):
            tokens[position] = _retyped(token, TokenType.DISTINCT)
    return tokens


def _compares(tokens: Sequence[Token], position: int) -> bool:
    """Whether a FROM is that of `IS [NOT] DISTINCT FROM`."""
    before = [token.token_type for token in tokens[max(0, position - 3) : position]]
    return before[-2:] == [TokenType.IS, TokenType.DISTINCT] or before == [
        TokenType.IS,
        TokenType.NOT,
        TokenType.DISTINCT,
    ]


def parse_expression(text: str) -> exp.Expression:
    """What sqlglot makes of an expression, with or without an alias.

    Raises:
        ParseError: it is none.
    """
    tokens = _SPARK.tokenize(text)
    # another parser for what needs it alone: it takes some names of columns for functions
    has_paths = any(token.token_type is TokenType.COLON for token in tokens)
    if has_paths:
        tokens = [_quoted(token) if token.text.upper() == "CURDATE" else token for token in tokens]
    trees = (_SPARK_WITH_PATHS if has_paths else _SPARK).parser().parse(tokens, text)
    if not trees or not isinstance(trees[0], exp.Expression):
        raise ParseError("No expression was found.")
    return trees[0]


def parse_whole_query(text: str) -> exp.Expression:
    """What sqlglot makes of a query.

    Raises:
        ParseError: it is none.
    """
    tokens = _SPARK.tokenize(text)
    kinds = token_kinds(tokens)
    named = []
    for position, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if token.token_type is not kind:
            token = _as_name(token)
        elif kind is TokenType.WINDOW and is_call(tokens, position):
            # no clause WINDOW, which sqlglot takes it for behind GROUP BY
            token = _retyped(token, TokenType.VAR)
        named.append(token)
    has_paths = any(token.token_type is TokenType.COLON for token in tokens)
    trees = (_SPARK_WITH_PATHS if has_paths else _SPARK).parser().parse(named, text)
    if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
        raise ParseError("No query was found.")
    return trees[0]


def _quoted(token: Token) -> Token:
    """A name as if in backquotes, so that it is no function without parentheses; other tokens as they are."""
    return _as_name(token) if token.token_type is TokenType.VAR else token


def _as_name(token: Token) -> Token:
    """A word as if in backquotes."""
    return _retyped(token, TokenType.IDENTIFIER)


def _retyped(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end)


def _make_room(tokens: Sequence[Token], offset: int, whole: str) -> None:
    """Lets Python go as deep as some tokens are nested.

    Whatever follows goes down their tree by recursion, a few dozen calls a level at most.

    Raises:
        SqlError: they are nested more than `MOST_NESTED` deep.
    """
    deepest = prefixes = 0
    #: of each open level, the outermost first: how many subscripts, casts and the like its operand has so far
    suffixes = [0]
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if kind in _OPENING or kind is TokenType.CASE:
            suffixes.append(0)
        elif kind in _CLOSING or kind is TokenType.END:
            suffixes = suffixes[:-1] or [0]
            suffixes[-1] += kind is TokenType.R_BRACKET
        elif kind in _SUFFIXES:
            suffixes[-1] += 1
        elif kind is TokenType.SEMICOLON:
            suffixes = [0]
        elif kind in _NEXT_OPERAND:
            suffixes[-1] = 0
        depth = len(suffixes) - 1 + sum(suffixes)
        deepest = max(deepest, depth, prefixes)
        if deepest > MOST_NESTED:
            message = f"This is nested more than {MOST_NESTED} levels deep. Remove parentheses, or move a part to its own view."
            raise SqlError(message, whole, offset + token.start, offset + token.end + 1)
    if deepest > _SHALLOW:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), MOST_NESTED * _CALLS))


def _unterminated(text: str) -> tuple[int, str]:
    """Where the quotation or comment begins that runs to the end of the text."""
    position = 0
    while position < len(text):
        character = text[position]
        if text.startswith("--", position):
            end = text.find("\n", position)
        elif text.startswith("/*", position):
            end = text.find("*/", position + 2)
            if end < 0:
                return position, "comment"
        elif character in _QUOTES:
            end = position + 1
            while end < len(text) and text[end] != character:
                end += 2 if text[end] == "\\" and character != "`" else 1
            if end >= len(text):
                return position, _QUOTES[character]
        else:
            end = position
        position = len(text) if end < 0 else end + 1
    return 0, "text"


def name_of(token: Token) -> str | None:
    """The name a token spells where a name may stand, or None."""
    if token.token_type is TokenType.IDENTIFIER or token.token_type is TokenType.VAR:
        return token.text
    if token.text and (token.text[0].isalpha() or token.text[0] == "_") and token.text.isidentifier():
        return token.text if token.token_type is not TokenType.STRING else None
    return None


def spelling(tokens: Iterable[Token]) -> tuple[str, ...]:
    """What some tokens say, whatever the case and the quotes of names, blanks and comments."""
    return tuple(
        f"'{token.text}'"
        if (name := name_of(token)) is None and token.token_type in _STRINGS
        else token.text
        if name is None
        else name.upper()
        for token in tokens
    )


def is_call(tokens: Sequence[Token], position: int) -> bool:
    """Whether the token there is the name of a function that is called."""
    return (
        name_of(tokens[position]) is not None
        and position + 1 < len(tokens)
        and tokens[position + 1].token_type is TokenType.L_PAREN
        and (position == 0 or tokens[position - 1].token_type is not TokenType.DOT)
    )


def outer(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """The tokens that are in no brackets, the brackets around others among them, and their places."""
    depth = 0
    for position, token in enumerate(tokens):
        # behind a parenthesis that closes nothing, nothing is outside of brackets
        depth -= token.token_type in _CLOSING and (depth > 0 or token.token_type is TokenType.R_PAREN)
        if depth == 0:
            yield position, token
        depth += token.token_type in _OPENING


def refuse_unpaired(script: str, tokens: Sequence[Token]) -> None:
    """Refuses the last parenthesis that is not closed, or the first that closes none.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.

    Raises:
        SqlError: there is one.
    """
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                raise SqlError("This parenthesis closes none.", script, token.start, token.end + 1)
            opened.pop()
    if opened:
        raise SqlError("This parenthesis is not closed.", script, opened[-1].start, opened[-1].end + 1)


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Where the bracket at a place is closed; None: nowhere."""
    following = (opening + place for place, _ in outer(tokens[opening:]) if place)
    return next(following, None)


def ranges(tokens: Sequence[Token], first: int, last: int) -> list[tuple[int, int]]:
    """The places between the commas from one token up to another, brackets left alone."""
    commas = [first + at for at, token in outer(tokens[first:last]) if token.token_type is TokenType.COMMA]
    return list(zip([first, *(comma + 1 for comma in commas)], [*commas, last], strict=True))


def arguments(tokens: Sequence[Token], opening: int) -> tuple[list[tuple[int, int]], int]:
    """Token ranges between the commas in parentheses, and the position after the closing one.

    Args:
        tokens: those of a text whose parentheses are balanced.
        opening: position of the opening parenthesis.
    """
    end = closing(tokens, opening)
    found = ranges(tokens, opening + 1, end) if end else ranges(tokens, opening + 1, len(tokens))[:-1]
    return [each for each in found if each[0] < each[1]], end + 1 if end else len(tokens)


def parentheses_in_from(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the parentheses that stand in FROM; None: something else does."""
    source = next((at + 1 for at, token in outer(tokens) if token.token_type is TokenType.FROM), len(tokens))
    if source >= len(tokens) or tokens[source].token_type is not TokenType.L_PAREN:
        return None
    end = closing(tokens, source)
    return None if end is None else (source, end)


def query_in_from(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the parentheses of a query in FROM."""
    place = parentheses_in_from(tokens)
    return None if place is None or tokens[place[0] + 1].token_type is not TokenType.SELECT else place


def query_beneath(
    tokens: Sequence[Token], holds: Callable[[Sequence[Token]], bool]
) -> tuple[int, int] | None:
    """The places of the parentheses of a query in FROM, of the query or of the one in its FROM that ranks.

    Args:
        tokens: those of the query.
        holds: whether the query with these tokens is the wanted one; otherwise None.
    """
    place = query_in_from(tokens)
    if place is None:
        return None
    own = tokens[place[0] + 1 : place[1]]
    if any(token.token_type in (TokenType.OVER, TokenType.QUALIFY) for _, token in outer(own)):
        inner = query_beneath(own, holds)
        return None if inner is None else (place[0] + 1 + inner[0], place[0] + 1 + inner[1])
    return place if holds(own) else None


def single_name(text: str) -> str | None:
    """The name in upper case that is all of a text, parentheses apart."""
    tokens = without_parentheses(tokenize(text))
    name = name_of(tokens[0]) if len(tokens) == 1 else None
    return None if name is None else name.upper()


def own_name(tokens: Sequence[Token]) -> str | None:
    """The name that Spark gives a column or field without an alias; None for other expressions."""
    is_path = len(tokens) % 2 == 1 and all(token.token_type is TokenType.DOT for token in tokens[1::2])
    names = [name_of(token) for token in tokens[::2]]
    return names[-1] if is_path and None not in names else None


def in_parentheses(tokens: Sequence[Token]) -> bool:
    """Whether the first and the last token are a pair of parentheses."""
    return (
        bool(tokens) and tokens[0].token_type is TokenType.L_PAREN and closing(tokens, 0) == len(tokens) - 1
    )


def without_parentheses(tokens: list[Token]) -> list[Token]:
    """The tokens of an expression without parentheses around all of it."""
    while in_parentheses(tokens):
        tokens = tokens[1:-1]
    return tokens


def spelled(expression: str) -> tuple[str, ...]:
    """How an expression is spelled, without parentheses around it."""
    return spelling(without_parentheses(tokenize(expression)))


def ended(text: str) -> str:
    """A text behind which more may be written: on a new line where a remark may run to the end of its last."""
    return f"{text}\n" if "--" in text else text


def enclosed(text: str) -> str:
    """An expression in parentheses."""
    return f"({ended(text)})"


def quote(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"
