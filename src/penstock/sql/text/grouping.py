"""GROUP BY: its grouping expressions, and the grouping sets that GROUPING SETS, ROLLUP and CUBE make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.cursor import Cursor
from penstock.sql.text.lexing import closing, in_parentheses, outer, ranges

#: grouping sets that a view may have
MOST_SETS = 256
ALLOWED_SETS = (
    "Allowed: GROUP BY keys, ROLLUP(keys), CUBE(keys) or GROUPING SETS((keys), ...); or GROUP BY keys WITH ROLLUP, WITH CUBE or "
    "GROUPING SETS((keys), ...)."
)

_ANALYTICS = (TokenType.ROLLUP, TokenType.CUBE, TokenType.GROUPING_SETS)
#: a range of tokens
_Range = tuple[int, int]
#: the places of the entries of a grouping set
_Set = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What stands behind GROUP BY.

    Attributes:
        written: all of it: what its commas part, or one clause where words follow the last expression.
        entries: the grouping expressions, in the order in which they were written.
        sets: of each grouping set the places of its entries; None: all entries together are the one way to group.
    """

    written: tuple[Clause, ...]
    entries: tuple[Clause, ...]
    sets: tuple[_Set, ...] | None = None


def read_group_by(
    script: str, tokens: Sequence[Token], first: int, last: int, clause: Callable[[int, int], Clause]
) -> GroupBy:
    """Reads what stands behind GROUP BY.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.
        first: number of the first token behind GROUP BY.
        last: number of the first one behind the clause.
        clause: gives the text of a range of tokens.

    Raises:
        SqlError: an expression is missing, or grouping sets are written as Spark does not read them.
        UnsupportedError: more than `MOST_SETS` grouping sets.
    """
    reader = _Reader(script, tokens)
    items, sets = reader.read(first, last)
    written, entries = (tuple(clause(*each) for each in every) for every in (items, reader.entries))
    return GroupBy(written, entries, sets)


class _Reader(Cursor):
    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        super().__init__(script, tokens)
        self.entries: list[_Range] = []

    def read(self, first: int, last: int) -> tuple[Sequence[_Range], tuple[_Set, ...] | None]:
        """The ranges of what is written, and the grouping sets."""
        items = ranges(self.tokens, first, last)
        behind = self._behind(*items[-1])
        if behind is not None:
            items[-1] = items[-1][0], behind
            return [(first, last)], self._followed(items, last)
        ways = [self._ways(*item) for item in items]
        if not any(self._is_analytics(begun) for begun, _ in items):
            return items, None
        self._count(prod(map(len, ways)), first, last)
        return items, tuple(tuple(chain(*each)) for each in product(*ways))

    def _followed(self, items: Sequence[_Range], last: int) -> tuple[_Set, ...]:
        """The grouping sets of expressions that words follow."""
        behind = items[-1][1]
        listed = [(self._entry(*item),) for item in items]
        if self.kinds[behind] is TokenType.WITH:
            return self._made(self.kinds[behind + 1], listed, behind, last)
        sets = tuple(self._set(*part) for part in self._parts(behind, last))
        self._count(len(sets), behind, last)
        return sets

    def _behind(self, first: int, last: int) -> int | None:
        """Where `WITH ROLLUP`, `WITH CUBE` or `GROUPING SETS` follows the last expression; None: nowhere."""
        if self.kinds[last - 2 : last] in ([TokenType.WITH, each] for each in _ANALYTICS[:2]):
            return last - 2
        found = (first + at for at, _ in outer(self.tokens[first:last]) if at)
        return next((at for at in found if self.kinds[at] is TokenType.GROUPING_SETS), None)

    def _is_analytics(self, at: int) -> bool:
        """Whether ROLLUP, CUBE or GROUPING SETS begins there."""
        return self.kinds[at : at + 2] in ([each, TokenType.L_PAREN] for each in _ANALYTICS)

    def _ways(self, first: int, last: int) -> tuple[_Set, ...]:
        """The ways in which an item groups: an expression has one."""
        if not self._is_analytics(first):
            return ((self._entry(first, last),),)
        parts = self._parts(first, last)
        if self.kinds[first] is TokenType.GROUPING_SETS:
            ways = (
                self._ways(*part) if self._is_analytics(part[0]) else (self._set(*part),) for part in parts
            )
            found = tuple(chain(*ways))
            self._count(len(found), first, last)
            return found
        return self._made(self.kinds[first], [self._set(*part) for part in parts], first, last)

    def _made(self, kind: TokenType, parts: Sequence[_Set], first: int, last: int) -> tuple[_Set, ...]:
        """The sets of a ROLLUP or CUBE of some parts."""
        is_rollup = kind is TokenType.ROLLUP
        self._count(len(parts) + 1 if is_rollup else 2 ** len(parts), first, last)
        if not all(parts):
            self.position = first
            raise self.fail(f"{self.word()} has the empty set by itself. Remove the empty parentheses.")
        if is_rollup:
            return tuple(tuple(chain(*parts[:count])) for count in range(len(parts), -1, -1))
        return tuple(tuple(chain(*each)) for each in product(*((part, ()) for part in parts)))

    def _parts(self, first: int, last: int) -> list[_Range]:
        """The token ranges between the commas in the parentheses of ROLLUP, CUBE or GROUPING SETS, behind which nothing follows."""
        end = (
            closing(self.tokens, first + 1)
            if self.kinds[first + 1 : first + 2] == [TokenType.L_PAREN]
            else None
        )
        self.position = first + 1 if end is None else end + 1
        if end is None:
            raise self.expected("parentheses with grouping sets")
        if end + 1 < last:
            raise self.fail(
                f"Nothing may follow {self.tokens[first].text.upper()}(...) but a comma. {ALLOWED_SETS}"
            )
        return ranges(self.tokens, first + 2, end)

    def _set(self, first: int, last: int) -> _Set:
        """An expression, or several in parentheses, or none in parentheses."""
        if not in_parentheses(self.tokens[first:last]):
            return (self._entry(first, last),)
        if last - first == 2:
            return ()
        return tuple(self._entry(*each) for each in ranges(self.tokens, first + 1, last - 1))

    def _entry(self, first: int, last: int) -> int:
        """The place of one more grouping expression."""
        self.position = min(first, len(self.tokens) - 1)
        if first == last:
            raise self.expected("a grouping expression")
        for at in range(first, last):
            if self._is_analytics(at) or self.kinds[at] is TokenType.WITH:
                self.position = at
                raise self.fail(f"{self.word()} cannot be part of an expression. {ALLOWED_SETS}")
        if self.kind() is TokenType.GROUPING_SETS or (self.kind() in _ANALYTICS and last - first > 1):
            raise self.fail(f"{self.word()} needs parentheses. {ALLOWED_SETS}")
        self.entries.append((first, last))
        return len(self.entries) - 1

    def _count(self, sets: int, first: int, last: int) -> None:
        """Refuses more grouping sets than a view may have."""
        if sets > MOST_SETS:
            message = f"These are {sets} grouping sets; a view has at most {MOST_SETS}. List those that you need with GROUPING SETS."
            raise UnsupportedError(
                message, self.script, self.tokens[first].start, self.tokens[last - 1].end + 1
            )
