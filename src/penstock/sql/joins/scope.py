"""Names in a join: which column of which input each stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import UnknownNameError, UnsupportedError
from penstock.sql.conditions.operands import BARE_FUNCTIONS
from penstock.sql.joins.parsing import ALLOWED_JOIN
from penstock.sql.joins.query import JoinWord
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import enclosed
from penstock.sql.text.parts import parse_tree


@dataclass(frozen=True, slots=True)
class Column:
    """A column that an input shows to the query.

    Attributes:
        input: the input's number.
        name: its name.
        text: Spark SQL over the relation's columns.
    """

    input: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in a text.

    Attributes:
        start, end: its place in the text, fields behind it apart.
        target: the column, or the expression that an earlier item of the SELECT list gives this name to.
    """

    start: int
    end: int
    target: Column | Expression


@dataclass(frozen=True, slots=True)
class Expression:
    """A piece of a query over the columns of its inputs.

    Attributes:
        clause: the piece.
        references: the names in it, in order.
    """

    clause: Clause
    references: tuple[Reference, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it is computed from, each once."""
        found: dict[Column, None] = {}
        for reference in self.references:
            target = reference.target
            found.update(dict.fromkeys((target,) if isinstance(target, Column) else target.columns))
        return tuple(found)

    @property
    def inputs(self) -> frozenset[int]:
        """The inputs it is computed from."""
        return frozenset(column.input for column in self.columns)

    @property
    def column(self) -> Column | None:
        """The one column that it is, parentheses apart."""
        if len(self.references) != 1 or not isinstance(target := self.references[0].target, Column):
            return None
        reference = self.references[0]
        around = self.clause.text[: reference.start] + self.clause.text[reference.end :]
        return None if around.strip("() \t\r\n") else target

    def text(self, name: Callable[[Column], str]) -> str:
        """The piece with other names for its columns."""
        text = self.clause.text
        for each in reversed(self.references):
            target = each.target
            written = name(target) if isinstance(target, Column) else enclosed(target.text(name))
            text = text[: each.start] + written + text[each.end :]
        return text

    def part(self, start: int, end: int) -> Expression:
        """The piece between two offsets, neither within a name."""
        return Expression(
            self.clause.part(start, end),
            tuple(
                Reference(each.start - start, each.end - start, each.target)
                for each in self.references
                if start <= each.start and each.end <= end
            ),
        )


class Scope:
    """The columns that a piece of a query sees.

    Args:
        aliases: what the inputs are called.
        columns: by input what it shows.
        visible: the columns that bare names stand for; others, those after USING, need the input's name.
    """

    def __init__(
        self, aliases: Sequence[str], columns: Sequence[Sequence[Column]], visible: Sequence[Column]
    ) -> None:
        self.aliases = aliases
        self.columns = columns
        self.visible = visible
        self._hidden: tuple[Column, ...] = ()
        #: the columns that bare names stand for before others
        self._nearest: Sequence[Column] = ()
        #: the input of a SEMI or ANTI JOIN, its columns and the join
        self._tested: tuple[str, Sequence[Column], JoinWord] | None = None
        self._outputs: Mapping[str, Column | Expression] = {}

    @classmethod
    def over(cls, outputs: Mapping[str, Column | Expression]) -> Scope:
        """The scope of a selection over a join.

        Args:
            outputs: what the join puts out, by name.
        """
        scope = cls((), (), ())
        scope._outputs = outputs
        return scope

    def joined(
        self, alias: str, columns: Sequence[Column], using: Iterable[Clause], *, keeps_right: bool = False
    ) -> Scope:
        """The scope with one more input.

        Args:
            alias: what it is called.
            columns: what it shows.
            using: the names after USING.
            keeps_right: whether bare names of these stand for its columns, as in a RIGHT JOIN.

        Raises:
            UnknownNameError: a name after USING that is no column of both sides, or several.
        """
        right = Scope([alias], [columns], columns)
        pairs = [(self.named(name), right.named(name)) for name in using]
        merged = [pair[keeps_right] for pair in pairs]
        hidden = [pair[not keeps_right] for pair in pairs]
        visible = [column for column in (*self.visible, *columns) if column not in (*merged, *hidden)]
        scope = Scope([*self.aliases, alias], [*self.columns, columns], [*merged, *visible])
        scope._hidden = (*hidden, *self._hidden)
        scope._tested = self._tested
        return scope

    def within(self) -> Scope:
        """The scope of the query of an EXISTS or IN, whose bare names stand for columns of the last input first."""
        scope = Scope(self.aliases, self.columns, self.visible)
        scope._nearest = self.columns[-1]
        return scope

    def before(self, columns: Sequence[Column], word: JoinWord) -> Scope:
        """The scope without its last input, as a SEMI JOIN leaves it, names after USING first.

        Args:
            columns: what that input shows.
            word: the join.
        """
        visible = [column for column in self.visible if column not in columns]
        scope = Scope(self.aliases[:-1], self.columns[:-1], visible)
        scope._hidden = tuple(column for column in self._hidden if column not in columns)
        scope._tested = self.aliases[-1], columns, word
        return scope

    def named(self, clause: Clause) -> Column:
        """The column that a clause names.

        Raises:
            UnknownNameError: there is none, or several.
        """
        found = self.expression(clause).column
        if found is None:
            raise clause.error(UnknownNameError, "Expected the name of a column here.")
        return found

    def star(self, clause: Clause, qualifier: str | None) -> Sequence[Column]:
        """What `*`, or `qualifier.*`, stands for.

        Raises:
            UnknownNameError: no input is called so.
        """
        if qualifier is None:
            return self.visible
        for alias, own in zip(self.aliases, self.columns, strict=True):
            if alias.upper() == qualifier.upper():
                return [column for column in (*self._hidden, *self.visible) if column in own]
        self._refuse_tested(clause, qualifier, None, 0, len(clause.text))
        message = f"No input has the name {qualifier}. Inputs: {', '.join(self.aliases)}"
        raise clause.at(UnknownNameError(message, name=qualifier, known=self.aliases))

    def expression(self, clause: Clause, named: Mapping[str, Expression] | None = None) -> Expression:
        """A piece of the query with its names resolved.

        Args:
            clause: an expression without an alias.
            named: by name in upper case what earlier items of the SELECT list are.

        Raises:
            UnknownNameError: a name that no column has, or several columns.
            UnsupportedError: a star.
            SqlError: no expression.
        """
        found: list[Reference] = []
        for node in parse_tree(clause).find_all(exp.Column):
            parts = [(part.name, part.meta["start"], part.meta["end"] + 1) for part in node.parts]
            if isinstance(node.this, exp.Star):
                message = f"`*` is not supported here. Name the columns. {ALLOWED_JOIN}"
                raise clause.error(UnsupportedError, message)
            target, length = self._resolved(clause, parts, named or {})
            if target is not None:
                found.append(Reference(parts[0][1], parts[length - 1][2], target))
        return Expression(clause, tuple(sorted(found, key=lambda each: each.start)))

    def _resolved(
        self, clause: Clause, parts: Sequence[tuple[str, int, int]], named: Mapping[str, Expression]
    ) -> tuple[Column | Expression | None, int]:
        """What a name stands for, and how many of its parts say so; the others are fields.

        Spark looks for an input and its column first, for a column of any input next.
        """
        first, start, end = parts[0]
        owner = next((n for n, alias in enumerate(self.aliases) if alias.upper() == first.upper()), None)
        if owner is not None and len(parts) > 1:
            found = _called(parts[1][0], self.columns[owner])
            if found:
                return self._single(clause, found, start, parts[1][2]), 2
        if found := _called(first, self._nearest) or _called(first, self.visible):
            return self._single(clause, found, start, end), 1
        output = next((name for name in self._outputs if name.upper() == first.upper()), None)
        if output is not None:
            return self._outputs[output], 1
        if (earlier := named.get(first.upper())) is not None:
            return earlier, 1
        if len(parts) == 1 and first.upper() in BARE_FUNCTIONS:
            return None, 1
        if owner is not None and len(parts) > 1:
            known = [column.name for column in self.columns[owner]]
            error = UnknownNameError.among(
                "column", parts[1][0], known, "Its columns", owner=self.aliases[owner]
            )
            raise clause.at(error, start, parts[1][2])
        column = parts[1][0] if len(parts) > 1 else None
        self._refuse_tested(clause, first, column, start, parts[-1][2] if column else end)
        names = "; ".join(
            f"{alias}: {', '.join(column.name for column in columns)}"
            for alias, columns in zip(self.aliases, self.columns, strict=True)
        )
        if len(parts) > 1 and not self._outputs:
            message = f"No input or column has the name {first} here. Inputs and their columns: {names}"
            raise clause.at(UnknownNameError(message, name=first), start, end)
        if self._outputs:
            error = UnknownNameError.among("Column", first, self._outputs, "Existing columns")
        else:
            known = [column.name for columns in self.columns for column in columns]
            error = UnknownNameError.among("Column", first, known, rest=f"Existing columns of {names}")
        raise clause.at(error, start, end)

    def _refuse_tested(self, clause: Clause, name: str, column: str | None, start: int, end: int) -> None:
        """Refuses a column of the input that a SEMI or ANTI JOIN only tests.

        Args:
            clause: where it is named.
            name: the input's name before the column's, or the column's.
            column: the column, where the input's name stands before it.
            start, end: its place in the clause.

        Raises:
            UnknownNameError: it is one.
        """
        if self._tested is None:
            return
        alias, columns, word = self._tested
        if name.upper() != alias.upper() and (column is not None or not _called(name, columns)):
            return
        message = f"The result of a {word} has no columns of its right side, {alias}. An INNER JOIN has the columns of both sides."
        raise clause.error(UnknownNameError, message, start, end)

    def _single(self, clause: Clause, found: Sequence[Column], start: int, end: int) -> Column:
        if len(found) == 1:
            return found[0]
        owners = [
            alias
            for column in found
            for alias, own in zip(self.aliases, self.columns, strict=True)
            if column in own
        ]
        choices = [f"{alias}.{column.name}" for alias, column in zip(owners, found, strict=True)]
        advice = "Write one of them." if len(set(choices)) == len(choices) else "Rename one."
        message = f"{clause.text[start:end]} is ambiguous: it can mean {' or '.join(choices)}. {advice}"
        raise clause.error(UnknownNameError, message, start, end)


def _called(name: str, columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.name.upper() == name.upper()]
