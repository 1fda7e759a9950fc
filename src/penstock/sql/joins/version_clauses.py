"""The clauses of joins with the newest row: MATCH_CONDITION behind ASOF JOIN, and FOR SYSTEM_TIME AS OF."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.tokenizer_core import TokenType

from penstock.sql.joins.query import AS_OF, JoinSource
from penstock.sql.text.lexing import name_of
from penstock.sql.text.parts import Splitter, parse_tree

#: the word before the condition of an ASOF JOIN that says which rows may be the newest one
MATCH = "MATCH_CONDITION"
_SYSTEM_TIME = ("SYSTEM_TIME", "AS", "OF")


class VersionSplitter(Splitter):
    """Finds the clauses that only joins with the newest row have."""

    def _versions(self, source: JoinSource) -> JoinSource:
        """An input behind a join, with what says which of its rows is the newest, up to its ON or USING.

        Raises:
            UnsupportedError: another join than INNER and LEFT has such a clause.
            SqlError: the clause is missing, or not as it must be.
        """
        if source.word in AS_OF.values():
            return self._matched(source)
        if self._kind() is TokenType.FOR:
            return self._of_time(source)
        return source

    def _matched(self, source: JoinSource) -> JoinSource:
        if source.alias.upper() == MATCH and self._kind() is TokenType.L_PAREN:
            source = replace(source, alias=source.source)
        elif self._kind() is not None and self.tokens[self.position].text.upper() == MATCH:
            self.position += 1
        else:
            raise self._expected(f"{MATCH} (a.time >= {source.alias}.time)")
        if self._kind() is not TokenType.L_PAREN:
            raise self._expected("a condition in parentheses")
        first, depth = self.position + 1, 1
        while depth:
            self.position += 1
            if self._kind() is None:
                raise self._expected("a closing parenthesis")
            depth += (self._kind() is TokenType.L_PAREN) - (self._kind() is TokenType.R_PAREN)
        if first == self.position:
            raise self._expected("a condition")
        clause = self._clause(first, self.position)
        self.position += 1
        parse_tree(clause)
        return replace(source, match=clause)

    def _of_time(self, source: JoinSource) -> JoinSource:
        if source.word not in AS_OF:
            raise self._unsupported(
                f"FOR SYSTEM_TIME AS OF behind a {source.word}", instead="write JOIN or LEFT JOIN"
            )
        self.position += 1
        for word in _SYSTEM_TIME:
            if self._kind() is None or self.tokens[self.position].text.upper() != word:
                raise self._expected(word)
            self.position += 1
        first = self.position
        self._name("the event time of an input before, such as a.time")
        while self._kind() is TokenType.DOT:
            self.position += 1
            self._name("the name of a column")
        moment = self._clause(first, self.position)
        alias = source.alias
        if self._kind() is TokenType.ALIAS or (
            alias == source.source and self._kind() in (TokenType.VAR, TokenType.IDENTIFIER)
        ):
            self.position += self._kind() is TokenType.ALIAS
            alias = self._name("a name")
        return replace(source, word=AS_OF[source.word], alias=alias, moment=moment)

    def _name(self, what: str) -> str:
        """Moves past a name."""
        name = name_of(self.tokens[self.position]) if self._kind() is not None else None
        if name is None:
            raise self._expected(what)
        self.position += 1
        return name
