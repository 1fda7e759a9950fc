"""The outline of a condition: each part with its own text, so that Spark can judge every part by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from penstock.sql.conditions.nodes import Condition, Holds, Is, Junction, Not, Operand, operands, render
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.text.lexing import NESTING, token_kinds, tokenize

#: the values that a condition may have
TRUTHS: frozenset[bool | None] = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class Outline:
    """A condition, or a part of one, as Spark can evaluate it alone.

    Attributes:
        text: Spark SQL.
        kind: `and`, `or`, `not`, `is` for a condition of others; `test` for one that compares values.
        parts: the conditions within it, from left to right; of a test those after WHEN.
        operands: of a test the computed values that it compares: Spark SQL, columns and literals left out.
        names: of a test the upper-cased words in it, columns among them.
        accepted: of an `is` the truth values of its part for which it is true.
    """

    text: str
    kind: str
    parts: tuple[Outline, ...] = ()
    operands: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    accepted: frozenset[bool | None] = frozenset()

    @property
    def conjuncts(self) -> tuple[Outline, ...]:
        """The parts that must all be true: those of a conjunction, otherwise the condition itself."""
        return self.parts if self.kind == "and" else (self,)


def outline(text: str) -> Outline:
    """Outline the text of a WHERE clause.

    Args:
        text: Spark SQL.

    Raises:
        SqlError: it is no condition.
        UnsupportedError: it has a subquery.
    """
    return _outlined(parse_condition(text), text)


def _outlined(condition: Condition, text: str) -> Outline:
    own = text[condition.start : condition.end]
    place = (condition.start, condition.end)
    match condition:
        case Junction(children=children) if all((each.start, each.end) != place for each in children):
            kind = "and" if condition.conjunctive else "or"
            return Outline(own, kind, tuple(_outlined(each, text) for each in children))
        case Junction(children=children):
            # LIKE ANY and the like, whose parts have no text of their own
            kind = "and" if condition.conjunctive else "or"
            return Outline(own, kind, tuple(_test(each, render(each)) for each in children))
        case Not(child=child) if (child.start, child.end) != place:
            return Outline(own, "not", (_outlined(child, text),))
        case Is(child=child, truth=truth):
            return Outline(own, "is", (_outlined(child, text),), accepted=frozenset({truth}))
        case Not(child=Is(child=child, truth=truth)):
            return Outline(own, "is", (_outlined(child, text),), accepted=TRUTHS - {truth})
    return _test(condition, own)


def _test(condition: Condition, text: str) -> Outline:
    found = list(operands(condition))
    computed = [
        each.text
        for each in found
        if each.literal is None and each.column is None and not isinstance(condition, Holds)
    ]
    return Outline(
        text,
        "test",
        tuple(part for each in found for part in _cases(each)),
        tuple(dict.fromkeys(computed)),
        tuple(dict.fromkeys(name for each in found for name in each.names)),
    )


def _cases(operand: Operand) -> Iterator[Outline]:
    """The conditions after WHEN of an operand that is one CASE without a value to compare."""
    tokens = tokenize(operand.text)
    kinds = token_kinds(tokens)
    if kinds[:2] != [TokenType.CASE, TokenType.WHEN]:
        return
    depth, begun = 0, 0
    for token, kind in zip(tokens, kinds, strict=True):
        depth += NESTING.get(kind, 0)
        if depth == 1 and kind is TokenType.WHEN:
            begun = token.end + 1
        elif depth == 1 and kind is TokenType.THEN:
            yield outline(operand.text[begun : token.start].strip())
