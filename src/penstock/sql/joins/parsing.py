"""From tokens to a join view's query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.joins.existence import ExistenceTest, existence_test
from penstock.sql.joins.query import AS_OF, MOST_INPUTS, JoinQuery, JoinSource, JoinWord, Membership
from penstock.sql.joins.version_clauses import VersionSplitter
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import is_call, outer, query_beneath, token_kinds
from penstock.sql.text.parts import INSTEAD_OF_A_SUBQUERY, JOINS, UNSUPPORTED, Item, parse_tree, refuse
from penstock.sql.text.query import parse_input

ALLOWED_JOIN = (
    "Allowed in a join view: SELECT scalar expressions FROM a JOIN b ON condition [JOIN c ON condition ...] WHERE condition. "
    "One of the joins may be LEFT, LEFT SEMI, LEFT ANTI, ASOF or LEFT ASOF JOIN; the first may be RIGHT JOIN or FULL JOIN. Any others with "
    "static tables may be LEFT JOIN. "
    "USING (columns) may replace ON. "
    f"At most {MOST_INPUTS} inputs."
)

_JOINS = JOINS | {TokenType.ASOF}
#: what joins are called, and what to do instead
_REFUSED_JOINS = {
    TokenType.CROSS: ("CROSS JOIN", "write JOIN ... ON with a condition on columns of both inputs"),
    TokenType.NATURAL: ("NATURAL JOIN", "write JOIN ... USING (columns)"),
}
#: words before JOIN that may stand there
_WORDS = {
    (): JoinWord.INNER,
    (TokenType.INNER,): JoinWord.INNER,
    (TokenType.LEFT,): JoinWord.LEFT,
    (TokenType.LEFT, TokenType.OUTER): JoinWord.LEFT,
    (TokenType.RIGHT,): JoinWord.RIGHT,
    (TokenType.RIGHT, TokenType.OUTER): JoinWord.RIGHT,
    (TokenType.FULL,): JoinWord.FULL,
    (TokenType.FULL, TokenType.OUTER): JoinWord.FULL,
    (TokenType.SEMI,): JoinWord.SEMI,
    (TokenType.LEFT, TokenType.SEMI): JoinWord.SEMI,
    (TokenType.ANTI,): JoinWord.ANTI,
    (TokenType.LEFT, TokenType.ANTI): JoinWord.ANTI,
    (TokenType.ASOF,): JoinWord.AS_OF,
    (TokenType.INNER, TokenType.ASOF): JoinWord.AS_OF,
    (TokenType.LEFT, TokenType.ASOF): JoinWord.LEFT_AS_OF,
    (TokenType.LEFT, TokenType.OUTER, TokenType.ASOF): JoinWord.LEFT_AS_OF,
}
_ABOVE = "make the join a view, and declare a window view over it"
_REFUSED = {
    exp.Query: f"A subquery is not supported yet; {INSTEAD_OF_A_SUBQUERY}. {ALLOWED_JOIN}",
    exp.AggFunc: f"An aggregate function in a join view is not supported; {_ABOVE}. {ALLOWED_JOIN}",
    exp.Window: f"A window function is not supported yet. {ALLOWED_JOIN}",
    exp.UDTF: f"A function that returns several rows is not supported yet. {ALLOWED_JOIN}",
    exp.Aliases: f"A list of names is not supported yet. {ALLOWED_JOIN}",
}
#: what ends a condition
_ENDS = {
    **UNSUPPORTED,
    TokenType.WHERE: "WHERE",
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.COMMA: "A list of tables",
}


def is_join(tokens: Sequence[Token]) -> bool:
    """Whether a query selects from several tables, the one of an EXISTS or IN among them."""
    depth, after_from = 0, False
    for position, kind in enumerate(token_kinds(tokens)):
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth:
            continue
        if not after_from:
            after_from = kind is TokenType.FROM
        elif kind is TokenType.COMMA or _is_join_word(kind, tokens, position):
            return True
        elif kind is TokenType.WHERE:
            return existence_test(token_kinds(tokens), position + 1) is not None
        elif kind in _ENDS:
            return False
    return False


def joined_in_from(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the parentheses of a query in FROM that joins and does not group; see `query_beneath`."""

    def joins(own: Sequence[Token]) -> bool:
        return is_join(own) and all(token.token_type is not TokenType.GROUP_BY for _, token in outer(own))

    return query_beneath(tokens, joins)


def _is_join_word(kind: TokenType, tokens: Sequence[Token], position: int) -> bool:
    """Whether a join begins there; LEFT and RIGHT are functions too."""
    return kind in _JOINS and not (kind in (TokenType.LEFT, TokenType.RIGHT) and is_call(tokens, position))


def parse_join_query(script: str, tokens: Sequence[Token]) -> JoinQuery:
    """Reads a query for which `is_join` holds.

    Raises:
        UnsupportedError: a kind of join, a clause or a function that no join view may have.
        SqlError: no query, two inputs of one name, or a hint that only window views can have.
    """
    return _JoinSplitter(script, tokens, ALLOWED_JOIN).join()


class _JoinSplitter(VersionSplitter):
    def join(self) -> JoinQuery:
        hints, items = self._head()
        if self.distinct is not None:
            place = self.distinct
            raise place.error(UnsupportedError, f"DISTINCT is not supported yet. {self.allowed}")
        for name, (start, end) in hints.places.items():
            if name != "STATE_TTL":
                message = f"{name} needs GROUP BY; a join view has none. Allowed in a join view: STATE_TTL('1 hour')."
                raise SqlError(message, self.script, start, end)
        sources = [self._named()]
        while (kind := self.kind()) in _JOINS or kind is TokenType.COMMA:
            sources.append(self._joined(sources))
        where = self._where(sources)
        return JoinQuery(tuple(sources), tuple(map(self._checked, items)), where, hints)

    def _named(self) -> JoinSource:
        """The name of an input and its alias."""
        if self.kind() is TokenType.LATERAL:
            raise self._unsupported("LATERAL")
        source, clause, alias, within = self._source()
        inner = parse_input(self.script, within) if within else None
        if alias is None and self.tokens[self.position - 1].token_type is TokenType.ALIAS:
            alias = self.name("A name")
        return JoinSource(source, alias or source, clause, inner=inner)

    def _joined(self, before: Sequence[JoinSource]) -> JoinSource:
        """The next input, from JOIN to the end of its condition."""
        start = self.position
        word = self._word()
        self._refuse_words(before, word, self._clause(start, self.position))
        found = self._versions(replace(self._named(), word=word))
        self._refuse_input(before, found)
        if self.kind() is TokenType.USING:
            if word is JoinWord.FULL:
                one = found.alias
                instead = f"write ON, and coalesce({before[0].alias}.column, {one}.column) in the SELECT list"
                raise self._unsupported("USING in a FULL JOIN", instead=instead)
            return replace(found, using=self._using())
        if not self.accept(TokenType.ON):
            if found.match is not None:
                message = (
                    f"A{found.word.article} {found.word} needs ON with an equality, as in ON {before[0].alias}.key = {found.alias}.key: the newest row is "
                    "that of a key."
                )
                raise found.clause.error(UnsupportedError, message)
            message = (
                f"No condition joins {found.alias}. A cross join is not supported: add ON and a condition on columns "
                f"of {found.alias} and {before[0].alias if len(before) == 1 else 'an input before it'}. {ALLOWED_JOIN}"
            )
            raise found.clause.error(UnsupportedError, message)
        return replace(found, on=self._condition())

    def _refuse_input(self, before: Sequence[JoinSource], found: JoinSource) -> None:
        """Makes sure that there are not too many inputs, and that none before has the name of this one."""
        # LEFT JOINs with static tables are not counted; which those are is known later
        counted = [each for each in before if each.word is not JoinWord.LEFT]
        if len(counted) == MOST_INPUTS and found.word is not JoinWord.LEFT:
            raise self._at(found, f"A join of more than {MOST_INPUTS} inputs")
        namesake = next((each for each in before if each.alias.upper() == found.alias.upper()), None)
        if namesake is not None:
            message = (
                f"Two inputs have the name {found.alias}. Give each its own name, as in "
                f"{namesake.source} AS a JOIN {found.source} AS b."
            )
            raise found.clause.error(SqlError, message)

    def _refuse_words(self, before: Sequence[JoinSource], word: JoinWord, clause: Clause) -> None:
        """Makes sure that a join may stand behind those before it."""
        outer = [each.word for each in before if each.word is not JoinWord.INNER]
        earlier = next((each for each in outer if each is not JoinWord.LEFT), None)
        what = ""
        # which of several joins with the newest row is refused, is known where static tables are
        if word is JoinWord.LEFT or (word in AS_OF.values() and earlier in AS_OF.values()):
            return
        if earlier is JoinWord.FULL:
            what = f"A{word.article} {word} after a {earlier}"
        elif earlier is not None and word is not JoinWord.INNER:
            what = f"A{word.article} {word} and a{earlier.article} {earlier} in one view"
        elif len(before) > 1 and word in (JoinWord.RIGHT, JoinWord.FULL):
            what = f"A {word} of more than two inputs"
        if what:
            raise clause.error(UnsupportedError, f"{what} is not supported yet. {self.allowed}")

    def _word(self) -> JoinWord:
        """Moves past the words of a join."""
        kind = self.kind()
        if kind is TokenType.COMMA:
            raise self._unsupported("A list of tables", "", "write JOIN ... ON")
        refused = _REFUSED_JOINS.get(kind or TokenType.JOIN)
        if refused is not None:
            raise self._unsupported(refused[0], instead=refused[1])
        words: tuple[TokenType, ...] = ()
        while (kind := self.kind()) is not None and (*words, kind) in _WORDS:
            words = (*words, kind)
            self.position += 1
        if not self.accept(TokenType.JOIN):
            raise self.expected("JOIN")
        return _WORDS[words]

    def _using(self) -> tuple[Clause, ...]:
        self.position += 1
        if self.kind() is not TokenType.L_PAREN:
            raise self.expected("a list of columns in parentheses")
        names: list[Clause] = []
        while self.kind() is not TokenType.R_PAREN or not names:
            self.position += 1
            self.name("the name of a column")
            names.append(self._clause(self.position - 1, self.position))
            if self.kind() not in (TokenType.COMMA, TokenType.R_PAREN):
                raise self.expected("a comma or a closing parenthesis")
        self.position += 1
        return tuple(names)

    def _existing(self, before: Sequence[JoinSource], test: ExistenceTest) -> JoinSource:
        """What an EXISTS asks for, joined; the tokens are those of its query."""
        start = self._clause(0, len(self.tokens))
        while self.kind() not in (TokenType.FROM, None):
            if self.kind() is TokenType.L_PAREN:
                raise self._unsupported("A function in the SELECT list of EXISTS", instead="write SELECT 1")
            self.position += 1
        if not self.accept(TokenType.FROM):
            raise self.expected("FROM")
        self._refuse_words(before, test.word, start)
        found = replace(self._named(), word=test.word, is_tested=True)
        self._refuse_input(before, found)
        if not self.accept(TokenType.WHERE):
            raise self.expected("WHERE and a condition on both inputs")
        on = self._condition()
        if self.kind() is not None:
            raise self._expected_clause("the end of the query in EXISTS")
        return replace(found, on=on)

    def _member(
        self, before: Sequence[JoinSource], test: ExistenceTest, operand: Clause, clause: Clause
    ) -> JoinSource:
        """What an IN asks for, joined; the tokens are those of its query."""
        hints, items = self._head()
        if hints or len(items) > 1 or self.tokens[items[0][0]].token_type is TokenType.STAR:
            message = f"The query in IN selects one column, without hints. Write EXISTS to compare several. {self.allowed}"
            raise clause.error(UnsupportedError, message)
        self._refuse_words(before, test.word, clause)
        column = self._checked(items[0]).expression
        member = Membership(operand, column, clause)
        found = replace(self._named(), word=test.word, member=member, is_tested=True)
        self._refuse_input(before, found)
        if self.accept(TokenType.WHERE):
            found = replace(found, on=self._condition())
        if self.kind() is not None:
            message = (
                "The query in IN reads one input and has WHERE at most. Make it a view, and name that in IN."
            )
            raise UnsupportedError(message, self.script, *self.place())
        return found

    def _condition(self, test: ExistenceTest | None = None) -> Clause:
        """The condition that begins here, up to the next join or clause; true stands for a test in it."""
        first, depth = self.position, 0
        while (kind := self.kind()) is not None:
            if test is not None and self.position == test.first:
                self.position = test.last
                continue
            nesting = self._nesting()
            if depth == 0 and (
                _is_join_word(kind, self.tokens, self.position)
                or (kind in _ENDS and not (kind in UNSUPPORTED and self._is_name()))
            ):
                break
            if kind is TokenType.SELECT:
                raise self._unsupported("A subquery", instead=INSTEAD_OF_A_SUBQUERY)
            depth += nesting
            self.position += 1
        if first == self.position:
            raise self.expected("a condition")
        clause = self._clause(first, self.position)
        if test is not None:
            start, end = (
                place - clause.start
                for place in (self.tokens[test.first].start, self.tokens[test.last - 1].end + 1)
            )
            text = f"{clause.text[:start]}{'TRUE'.ljust(end - start)}{clause.text[end:]}"
            clause = replace(clause, text=text)
        _refuse(parse_tree(clause), clause)
        return clause

    def _where(self, sources: list[JoinSource]) -> Clause | None:
        """The condition after WHERE, behind which nothing follows; what an EXISTS or IN asks for becomes a source."""
        where = None
        if self.accept(TokenType.WHERE):
            test = existence_test(self.kinds, self.position)
            if test is not None:
                inner = _JoinSplitter(self.script, self.tokens[test.inner : test.last - 1], self.allowed)
                if test.operand is None:
                    sources.append(inner._existing(sources, test))
                else:
                    operand, whole = self._clause(*test.operand), self._clause(test.first, test.last)
                    _refuse(parse_tree(operand), operand)
                    sources.append(inner._member(sources, test, operand, whole))
            where = self._condition(test)
        kind = self.kind()
        if kind is None:
            return where
        if kind is TokenType.GROUP_BY or kind is TokenType.HAVING:
            raise self._unsupported("An aggregation in a join view", "", _ABOVE)
        if kind in UNSUPPORTED and kind not in _JOINS:
            raise self._unsupported(UNSUPPORTED[kind])
        raise self._expected_clause(
            "JOIN, WHERE or the end of the query" if where is None else "the end of the query"
        )

    def _checked(self, places: tuple[int, int]) -> Item:
        item = self._item(*places)
        if item.tree is not None:
            _refuse(item.tree, item.clause)
        return item

    def _at(self, source: JoinSource, what: str) -> UnsupportedError:
        return source.clause.error(UnsupportedError, f"{what} is not supported yet. {self.allowed}")


def _refuse(tree: exp.Expression, clause: Clause) -> None:
    refuse(tree, clause, _REFUSED, f"in a join view is not supported; {_ABOVE}. {ALLOWED_JOIN}")
