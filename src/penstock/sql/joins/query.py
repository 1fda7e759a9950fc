"""Join views: `SELECT columns and expressions FROM a JOIN b ON ... [JOIN c ...] [WHERE ...]`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints
from penstock.sql.text.parts import Item
from penstock.sql.text.query import SelectQuery

#: inputs that a join view may have
MOST_INPUTS = 6


class JoinWord(StrEnum):
    """How an input is joined with those before it, as Spark SQL writes it."""

    INNER = "JOIN"
    LEFT = "LEFT JOIN"
    RIGHT = "RIGHT JOIN"
    FULL = "FULL JOIN"
    SEMI = "LEFT SEMI JOIN"
    ANTI = "LEFT ANTI JOIN"
    AS_OF = "ASOF JOIN"
    LEFT_AS_OF = "LEFT ASOF JOIN"

    @property
    def article(self) -> str:
        """What the article `a` ends in before it."""
        return "n" if self.startswith("A") else ""


#: only the inputs before it are seen behind it
EXISTENCE = (JoinWord.SEMI, JoinWord.ANTI)
#: of the input behind it only the newest row that matches is joined; by the word of a join on all rows that match
AS_OF = {JoinWord.INNER: JoinWord.AS_OF, JoinWord.LEFT: JoinWord.LEFT_AS_OF}


def joined_name(text: str) -> str:
    """Name of the view that a join in FROM becomes, by its text."""
    return f"joined_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Membership:
    """`x [NOT] IN (SELECT y FROM ...)`.

    Attributes:
        operand: x, over the inputs before.
        column: y, over the input after FROM.
        clause: the test as a whole.
    """

    operand: Clause
    column: Clause
    clause: Clause


@dataclass(frozen=True, slots=True)
class JoinSource:
    """An input as it was written.

    Attributes:
        source: name of a table or view.
        alias: how the query calls it; its name where it has no alias.
        clause: where the name was written.
        on: the condition after ON, by which it is joined with the inputs before it.
        using: the names after USING.
        word: how it is joined.
        is_tested: whether it is what an EXISTS or IN asks for; `on` is then the condition after WHERE of its query, in which bare names
            are those of its own columns first.
        inner: the selection in parentheses that `source` is a name for; None: that of a table or view, or it is flattened.
        below: the selection that `source` stands for, over a table; None for a table.
        member: of IN what is tested; `on` may be None then.
        match: the condition after MATCH_CONDITION of an ASOF JOIN.
        moment: what was written after FOR SYSTEM_TIME AS OF instead.
    """

    source: str
    alias: str
    clause: Clause
    on: Clause | None = None
    using: tuple[Clause, ...] = ()
    word: JoinWord = JoinWord.INNER
    below: SelectQuery | None = None
    member: Membership | None = None
    match: Clause | None = None
    moment: Clause | None = None
    inner: SelectQuery | None = None
    is_tested: bool = False

    @property
    def relation(self) -> str:
        """The table beneath."""
        return self.source if self.below is None else self.below.source


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A join of two or more inputs.

    Attributes:
        sources: the inputs in the order of the text.
        items: the SELECT list.
        where: the condition after WHERE.
        hints: STATE_TTL bounds the event times of streams that no condition bounds.
        selected: of a selection over a join view, flattened: the selections over the join, the one on its rows first.
        looked_up: aliases of the sources behind LEFT JOIN that are lookups, see `JoinPlan`; the binder finds them.
    """

    sources: tuple[JoinSource, ...]
    items: tuple[Item, ...]
    where: Clause | None
    hints: Hints = field(default_factory=Hints)
    selected: tuple[SelectQuery, ...] = ()
    looked_up: tuple[str, ...] = ()

    @property
    def outer(self) -> JoinSource | None:
        """The source behind the word that is no JOIN, lookups left out; None in an inner join."""
        outer = (each for each in self.sources if each.word is not JoinWord.INNER)
        return next((each for each in outer if each.alias not in self.looked_up), None)

    @property
    def numbered(self) -> tuple[JoinSource, ...]:
        """The inputs in the order of the plan: that in which rows may have no partner last, behind it the lookups."""
        lookups = [each for each in self.sources if each.alias in self.looked_up]
        optional = self.outer
        if optional is not None and optional.word is JoinWord.RIGHT:
            optional = self.sources[0]
        last = [*([] if optional is None else [optional]), *lookups]
        return (*(each for each in self.sources if each not in last), *last)
