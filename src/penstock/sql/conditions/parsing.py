"""Parsing conditions of Spark SQL to trees of predicates over operands that stay text.

Follows `booleanExpression`, `predicate` and `valueExpression` of Spark's grammar (SqlBaseParser.g4)
down to the operands of predicates. An operand is a literal, the name of a column, or a piece of
text that only Spark reads: nothing is ever regenerated from a foreign tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.conditions.nodes import (
    Between,
    Call,
    Compare,
    Condition,
    Holds,
    Is,
    IsNull,
    Junction,
    Like,
    Member,
    Not,
    Operand,
)
from penstock.sql.text.cursor import Cursor
from penstock.sql.text.lexing import COMPARISONS, NESTING, outer, ranges, tokenize
from penstock.sql.text.literals import (
    Kind,
    Literal,
    number,
    parse_date,
    parse_timestamp,
    string,
    strings,
)

_OPENING = frozenset(kind for kind, by in NESTING.items() if by > 0)
_CLOSING = NESTING.keys() - _OPENING
_WORDS: dict[TokenType, OneOf["LIKE", "ILIKE", "RLIKE"]] = {
    TokenType.LIKE: "LIKE",
    TokenType.ILIKE: "ILIKE",
    TokenType.RLIKE: "RLIKE",
}
#: what may follow the operand of a predicate, comparisons apart
_SUFFIXES = {TokenType.NOT, TokenType.BETWEEN, TokenType.IN, TokenType.IS, *_WORDS}
_BOUNDARIES = {*COMPARISONS, *_SUFFIXES} | {
    TokenType.AND,
    TokenType.OR,
    TokenType.COMMA,
    TokenType.ESCAPE,
    TokenType.SEMICOLON,
}
_TYPED = {
    "DATE": Kind.DATE,
    "TIMESTAMP": Kind.TIMESTAMP,
    "TIMESTAMP_LTZ": Kind.TIMESTAMP,
    "TIMESTAMP_NTZ": Kind.TIMESTAMP_NTZ,
}


def parse_condition(text: str) -> Condition:
    """Parses the text of a WHERE clause.

    Raises:
        SqlError: no condition, with `text` underlined.
        UnsupportedError: a subquery.
    """
    tokens = tokenize(text)
    if not tokens:
        raise SqlError("The condition is missing.", text, 0, len(text))
    parser = _Parser(text, tokens)
    condition = parser.disjunction()
    if parser.position < len(tokens):
        parser.fail("An operator is missing before this token.")
    return condition


class _Parser(Cursor):
    """Recursive descent over a condition's tokens."""

    def fail(self, message: str, kind: type[SqlError] = SqlError) -> SqlError:
        """Raises a mistake here."""
        if self.position < len(self.tokens):
            raise super().fail(message, kind)
        raise SqlError("The condition is incomplete.", self.script, self.tokens[-1].start, len(self.script))

    def expect(self, kind: TokenType, spelled: str) -> None:
        if not self.accept(kind):
            self.expected(spelled)

    def span(self, first: int) -> tuple[int, int]:
        """Place of the tokens from `first` up to here."""
        return self.tokens[first].start, self.tokens[self.position - 1].end + 1

    def disjunction(self) -> Condition:
        return self._junction(TokenType.OR)

    def _junction(self, operator: TokenType) -> Condition:
        first = self.position
        below = self.negation if operator is TokenType.AND else lambda: self._junction(TokenType.AND)
        children = [below()]
        while self.accept(operator):
            children.append(below())
        if len(children) == 1:
            return children[0]
        return Junction(tuple(children), operator is TokenType.AND, *self.span(first))

    def negation(self) -> Condition:
        first = self.position
        if self.accept(TokenType.NOT):
            return Not(self.negation(), *self.span(first))
        return self.predicate()

    def predicate(self) -> Condition:
        first = self.position
        condition = self._group() or self._comparison()
        if self.kind() in _SUFFIXES:
            return self._suffixed(condition, first)
        return condition

    def _group(self) -> Condition | None:
        """A condition in parentheses, if that is what stands here."""
        if self.kind() is not TokenType.L_PAREN:
            return None
        first = self.position
        end = self._closing(first)
        after = self.kinds[end + 1] if end + 1 < len(self.kinds) else None
        if after is not None and after not in (TokenType.AND, TokenType.OR, TokenType.IS, TokenType.R_PAREN):
            return None
        self.position += 1
        self._refuse_subquery()
        inner = self.disjunction()
        if self.position != end:
            self.position = first
            return None
        self.position += 1
        if isinstance(inner, Holds) and inner.operand.literal is None and inner.operand.column is None:
            place = self.span(first)
            operand = Operand(
                self.script[slice(*place)], *place, names=inner.operand.names, call=inner.operand.call
            )
            return Holds(operand, *place)
        return inner

    def _closing(self, opening: int) -> int:
        """Index of the token that closes the bracket at `opening`."""
        depth = 0
        for index in range(opening, len(self.tokens)):
            depth += NESTING.get(self.kinds[index], 0)
            if depth == 0:
                return index
        token = self.tokens[opening]
        raise SqlError("This parenthesis is not closed.", self.script, token.start, token.end + 1)

    def _comparison(self) -> Condition:
        first = self.position
        left = self.operand()
        kind = self.kind()
        operator = COMPARISONS.get(kind) if kind else None
        if operator is None:
            return Holds(left, *self.span(first))
        self.position += 1
        right = self.operand()
        if self.kind() in COMPARISONS:
            while self.kind() in COMPARISONS:
                self.position += 1
                self.operand()
            return self._opaque(first)
        if operator == "<>":
            return Not(Compare("=", left, right, *self.span(first)), *self.span(first))
        return Compare(operator, left, right, *self.span(first))

    def _opaque(self, first: int) -> Holds:
        """What stands from `first` up to here, left to Spark as a whole."""
        place = self.span(first)
        names = tuple(token.text.upper() for token in self.tokens[first : self.position])
        return Holds(Operand(self.script[slice(*place)], *place, names=names), *place)

    def _suffixed(self, condition: Condition, first: int) -> Condition:
        negated = self.accept(TokenType.NOT)
        operand = condition.operand if isinstance(condition, Holds) else None
        kind = self.kind()
        self.position += 1
        if kind is TokenType.IS and not negated:
            return self._is(condition, operand, first)
        predicate: Condition
        match kind:
            case TokenType.BETWEEN:
                low = self.operand()
                self.expect(TokenType.AND, "AND")
                high = self.operand()
                if operand is None:
                    return self._opaque(first)
                predicate = Between(operand, low, high, *self.span(first))
            case TokenType.IN:
                items = self._items()
                if operand is None:
                    return self._opaque(first)
                predicate = Member(operand, items, *self.span(first))
            case TokenType.LIKE | TokenType.ILIKE | TokenType.RLIKE:
                return self._like(kind, operand, first, negated=negated)
            case _:
                self.position -= 1
                self.expected("BETWEEN, IN, LIKE, ILIKE or RLIKE")
        return Not(predicate, *self.span(first)) if negated else predicate

    def _like(self, kind: TokenType, operand: Operand | None, first: int, *, negated: bool) -> Condition:
        word = _WORDS[kind]
        quantified = self.kind() in (TokenType.ANY, TokenType.ALL, TokenType.SOME)
        if quantified and word == "RLIKE" and self.kind(1) is TokenType.L_PAREN:
            self.fail(
                f"{self.word()} with a list of patterns is allowed after LIKE and ILIKE only. Write one RLIKE a pattern."
            )
        if quantified and word != "RLIKE":
            is_all = self.accept(TokenType.ALL)
            self.position += not is_all
            patterns, escape = self._items(), None
        else:
            is_all = True
            patterns = (self.operand(),)
            if word == "RLIKE" and self.kind() is TokenType.ESCAPE:
                self.fail(
                    "ESCAPE is allowed after LIKE and ILIKE only. In a regular expression, a backslash escapes."
                )
            escape = self.operand() if self.accept(TokenType.ESCAPE) else None
        place = self.span(first)
        if operand is None:
            return self._opaque(first)
        likes = [Like(operand, pattern, escape, *place, word) for pattern in patterns]
        parts: list[Condition] = [Not(like, *place) for like in likes] if negated else [*likes]
        return parts[0] if len(parts) == 1 else Junction(tuple(parts), is_all, *place)

    def _is(self, condition: Condition, operand: Operand | None, first: int) -> Condition:
        negated = self.accept(TokenType.NOT)
        word = self.word()
        self.position += 1
        result: Condition
        if word == "DISTINCT":
            self.expect(TokenType.DISTINCT, "FROM")
            right = self.operand()
            if operand is None:
                return self._opaque(first)
            same = Compare("<=>", operand, right, *self.span(first))
            return same if negated else Not(same, *self.span(first))
        if word not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            self.position -= 1
            self.expected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        place = self.span(first)
        if word == "NULL" and operand is not None:
            result = IsNull(operand, *place)
        else:
            truth = {"TRUE": True, "FALSE": False}.get(word)
            result = Is(condition, truth, *place)
        return Not(result, *place) if negated else result

    def _items(self) -> tuple[Operand, ...]:
        self.expect(TokenType.L_PAREN, "a list in parentheses")
        self._refuse_subquery()
        items = [self.operand()]
        while self.accept(TokenType.COMMA):
            items.append(self.operand())
        self.expect(TokenType.R_PAREN, "a closing parenthesis")
        return tuple(items)

    def _refuse_subquery(self) -> None:
        if self.kind() in (TokenType.SELECT, TokenType.WITH):
            token = self.tokens[self.position]
            raise UnsupportedError(
                "A subquery is not supported yet; make it a view, or JOIN the static table. Allowed in a condition: "
                "columns, literals and scalar functions of one stream.",
                self.script,
                token.start,
                token.end + 1,
            )

    def operand(self) -> Operand:
        """One `valueExpression` without comparison."""
        first = self.position
        kind = self.kind()
        if kind is None or kind in _CLOSING or kind in (TokenType.COMMA, TokenType.SEMICOLON, *COMPARISONS):
            self.expected("a column, literal or expression")
        while self.position < len(self.tokens):
            kind = self.kind()
            if kind in _OPENING:
                end = self._closing(self.position)
                if self.kind(1) in (TokenType.SELECT, TokenType.WITH):
                    self.position += 1
                    self._refuse_subquery()
                self.position = end + 1
            elif kind in _CLOSING or (kind in _BOUNDARIES and self.position > first):
                break
            else:
                self.position += 1
        return self._classified(first, self.position)

    def _classified(self, first: int, last: int) -> Operand:
        tokens = self.tokens[first:last]
        head = tokens[0]
        start, end = head.start, tokens[-1].end + 1
        text = self.script[start:end]
        if len(tokens) == 1:
            kind = head.token_type
            if kind is TokenType.NUMBER:
                return Operand(text, start, end, number(text))
            if kind is TokenType.VAR or kind is TokenType.IDENTIFIER:
                return Operand(text, start, end, None, head.text, (head.text.upper(),))
            if kind is TokenType.NULL:
                return Operand(text, start, end, Literal(Kind.NULL, None))
            if kind in (TokenType.TRUE, TokenType.FALSE):
                return Operand(text, start, end, Literal(Kind.BOOLEAN, kind is TokenType.TRUE))
            if kind not in (TokenType.STRING, TokenType.RAW_STRING) and text.isidentifier():
                return Operand(text, start, end, None, text, (text.upper(),))
        if head.token_type is TokenType.L_PAREN and self._closing(first) == last - 1 and last - first > 2:
            inner = self._classified(first + 1, last - 1)
            if inner.literal is not None and inner.text[0] != "-":
                return Operand(text, start, end, inner.literal)
            if inner.column is not None or inner.call is not None:
                return Operand(text, start, end, None, inner.column, inner.names, inner.call)
        literal = _literal(text, tokens)
        if literal is not None:
            return Operand(text, start, end, literal)
        names = tuple(
            token.text.upper()
            for token in tokens
            if token.token_type not in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER)
        )
        return Operand(_collapsed(text), start, end, names=names, call=self._call(first, last))

    def _call(self, first: int, last: int) -> Call | None:
        """The call of a function by a bare name, if that is what these tokens are."""
        function = self.tokens[first].text.upper()
        if (
            last - first < 4
            or not function.isidentifier()
            or self.kinds[first] in (TokenType.IDENTIFIER, TokenType.STRING)
            or self.kinds[first + 1] is not TokenType.L_PAREN
            or self._closing(first + 1) != last - 1
        ):
            return None
        places = ranges(self.tokens, first + 2, last - 1)
        within = outer(self.tokens[first + 2 : last - 1])
        words = [first + 2 + at for at, token in within if token.token_type is TokenType.IN]
        if function == "POSITION" and words:
            places = [(first + 2, words[0]), (words[0] + 1, last - 1)]
        if any(begin == end for begin, end in places):
            return None
        return Call(function, tuple(self._classified(*each) for each in places))


def _literal(text: str, tokens: Sequence[Token]) -> Literal | None:
    """The literal that several tokens, or a string, spell."""
    head = tokens[0]
    if all(token.token_type in (TokenType.STRING, TokenType.RAW_STRING) for token in tokens):
        return Literal(Kind.STRING, _concatenated(text, tokens))
    if head.token_type in (TokenType.NUMBER, TokenType.DASH, TokenType.DOT):
        return number(text)
    kind = _TYPED.get(head.text.upper())
    if kind is None or len(tokens) != 2 or tokens[1].token_type is not TokenType.STRING:
        return None
    inner = string(text[tokens[1].start - head.start :])
    if kind is Kind.DATE:
        day = parse_date(inner)
        return None if day is None else Literal(kind, day)
    moment = parse_timestamp(inner)
    if moment is None or (kind is Kind.TIMESTAMP_NTZ and moment.tzinfo is not None):
        return None
    return Literal(kind, moment)


def _concatenated(text: str, tokens: Sequence[Token]) -> str:
    """Strings side by side are one string; without a space between, a doubled quote is a quote."""
    base = tokens[0].start
    parts: list[str] = []
    first = 0
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if following is None or following.start != token.end + 1:
            parts.append(text[tokens[first].start - base : token.end + 1 - base])
            first = index + 1
    return strings(parts)


def _collapsed(text: str) -> str:
    """The text with runs of white space as one space, where that cannot change its meaning."""
    if any(mark in text for mark in ("'", '"', "`", "--", "/*")):
        return text
    return " ".join(text.split())
