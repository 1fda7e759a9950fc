"""The clauses of joins with the newest row: MATCH_CONDITION behind ASOF JOIN, and FOR SYSTEM_TIME AS OF."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.tokenizer_core import TokenType

from penstock.sql.joins.query import AS_OF, JoinSource
from penstock.sql.text.lexing import closing
from penstock.sql.text.parts import Splitter, parse_tree

#: the word before the condition of an ASOF JOIN that says which rows may be the newest one
MATCH = "MATCH_CONDITION"
#: the join with the newest row that Spark answers in a refreshed view
LATERAL = "[LEFT] JOIN LATERAL (SELECT * FROM r WHERE r.key = l.key AND r.time <= l.time ORDER BY r.time DESC LIMIT 1) AS r"
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
        if self.kind() is TokenType.FOR:
            return self._of_time(source)
        return source

    def _matched(self, source: JoinSource) -> JoinSource:
        if source.alias.upper() == MATCH and self.kind() is TokenType.L_PAREN:
            source = replace(source, alias=source.source)
        elif not self.accept_words(MATCH):
            raise self.expected(f"{MATCH} (a.time >= {source.alias}.time)")
        if self.kind() is not TokenType.L_PAREN:
            raise self.expected("a condition in parentheses")
        first, end = self.position + 1, closing(self.tokens, self.position)
        self.position = len(self.tokens) if end is None else end
        if end is None:
            raise self.expected("a closing parenthesis")
        if first == end:
            raise self.expected("a condition")
        clause = self._clause(first, end)
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
            if not self.accept_words(word):
                raise self.expected(word)
        first = self.position
        self.name("the event time of an input before, such as a.time")
        while self.kind() is TokenType.DOT:
            self.position += 1
            self.name("the name of a column")
        moment = self._clause(first, self.position)
        alias = source.alias
        if self.kind() is TokenType.ALIAS or (
            alias == source.source and self.kind() in (TokenType.VAR, TokenType.IDENTIFIER)
        ):
            self.position += self.kind() is TokenType.ALIAS
            alias = self.name("a name")
        return replace(source, word=AS_OF[source.word], alias=alias, moment=moment)
