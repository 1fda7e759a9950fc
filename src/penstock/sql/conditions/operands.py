"""What the operands of predicates are: columns, literals, constants, or expressions over columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.plan.expressions import ExpressionHost, Raised
from penstock.sql.conditions.comparisons import is_comparable
from penstock.sql.conditions.nodes import Condition, Operand, Predicate, operands, parts, predicates
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.literals import Kind, Literal

ALLOWED_ALONE = (
    "Allowed without Spark: comparisons, BETWEEN, IN and IS of a column with literals of its own type family; LIKE and ILIKE, "
    "also ANY and ALL, with constant patterns; RLIKE with a constant regular expression of the subset in "
    "docs/reference/predicates.md; text functions such as lower(), contains() and length(); boolean columns, AND, OR and NOT."
)

#: names that Spark computes although no parentheses follow
BARE_FUNCTIONS = {"CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME"} | {
    "CURRENT_TIMESTAMP",
    "CURRENT_USER",
    "LOCALTIMESTAMP",
    "SESSION_USER",
    "USER",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A column of the stream, or an expression that can become one.

    Attributes:
        expression: Spark SQL text.
        name: the stream's column, or None for an expression.
        type: Arrow type.
        ordered: whether its values compare as `penstock.plan.selection.Domain` says.
    """

    expression: str
    name: str | None
    type: pa.DataType
    ordered: bool


class Operands:
    """Tells operands apart, with Spark's help where they are more than columns and literals.

    Args:
        schema: the stream's columns.
        host: Spark's analysis of expressions; None where there is no Spark.
    """

    def __init__(self, schema: pa.Schema, host: ExpressionHost | None) -> None:
        self.host = host
        self._names = schema.names
        self._columns: dict[str, Compared] = {}
        self._ambiguous: dict[str, list[str]] = {}
        for column in schema:
            self._ambiguous.setdefault(column.name.upper(), []).append(column.name)
            compared = Compared(quote(column.name), column.name, column.type, is_comparable(column.type))
            self._columns.setdefault(column.name.upper(), compared)
        self._expressions: dict[str, Compared] = {}
        #: what the host said of string columns and of functions
        self._plain: dict[str, bool] = {}
        self._built_in: dict[str, bool] = {}
        self._constants: dict[str, Literal | None] = {}
        self._places: dict[str, tuple[Clause, int, int]] = {}

    def analyse(
        self, parsed: Sequence[tuple[Clause, Condition | None]], is_read: Callable[[Predicate], bool]
    ) -> None:
        """Learns about all operands of many conditions at once.

        Args:
            parsed: the conditions and their texts.
            is_read: whether a predicate needs nothing of its operands but columns; asked once columns are known.

        Raises:
            UnknownNameError: a column that does not exist, or one of several by that name.
            UnsupportedError: without a host, an expression that only Spark computes.
            SqlError: what Spark refuses. In all cases with the place underlined.
        """
        self._learn_names(parsed)
        expressions: dict[str, None] = {}
        constants: dict[str, None] = {}
        for clause, condition in parsed:
            for predicate in predicates(condition) if condition is not None else ():
                own = [each for each in operands(predicate) if each.literal is None]
                if any(each.column is None for each in own) and is_read(predicate):
                    own = [part for each in own for part in parts(each) if part.column is not None]
                for operand in own:
                    if operand.text in self._expressions:
                        continue
                    if operand.column is not None:
                        if operand.column.upper() in self._columns:
                            continue
                        if operand.column.upper() not in BARE_FUNCTIONS or operand.text[0] == "`":
                            raise self._unknown(clause, operand)
                    self.require_spark(clause, operand.text, operand.start, operand.end)
                    expressions[operand.text] = None
                    if not self.has_columns(operand):
                        constants[operand.text] = None
        if self.host is not None and expressions:
            self._ask(self.host, list(expressions), constants)

    def _learn_names(self, parsed: Sequence[tuple[Clause, Condition | None]]) -> None:
        """Asks which string columns compare by their bytes, and which functions are Spark's own."""
        strings: dict[str, None] = {}
        functions: dict[str, None] = {}
        for clause, condition in parsed:
            for operand in operands(condition) if condition is not None else ():
                for part in parts(operand):
                    column = self.column(part)
                    if part.call is not None:
                        functions[part.call.function] = None
                    elif column is not None:
                        self._refuse_ambiguous(clause, part)
                        if pa.types.is_string(column.type):
                            strings[column.expression] = None
        if self.host is None:
            return
        self._plain |= zip(strings, self.host.plain(list(strings)) if strings else (), strict=True)
        for name, column in self._columns.items():
            if column.expression in strings:
                self._columns[name] = replace(column, ordered=self._plain[column.expression])
        self._built_in |= zip(
            functions, self.host.built_in(list(functions)) if functions else (), strict=True
        )

    def moved(self, host: ExpressionHost) -> bool:
        """Asks another host from now on; False, and nothing changes, where its answers so far might have been others."""
        if self._expressions or self._constants:
            return False
        if self._plain and host.plain(list(self._plain)) != list(self._plain.values()):
            return False
        if self._built_in and host.built_in(list(self._built_in)) != list(self._built_in.values()):
            return False
        self.host = host
        return True

    def is_built_in(self, function: str) -> bool:
        """Whether a function, its name in upper case, is Spark's own and works as it does by default."""
        return self._built_in.get(function, True)

    def require_spark(self, clause: Clause, text: str, start: int, end: int) -> None:
        """Notes where an expression is used that has to be computed.

        Raises:
            UnsupportedError: there is no Spark.
        """
        if self.host is None:
            raise clause.error(
                UnsupportedError, f"Only Spark can compute `{text}`. {ALLOWED_ALONE}", start, end
            )
        self._places.setdefault(text, (clause, start, end))

    def column(self, operand: Operand) -> Compared | None:
        """The column that an operand names, if it is a bare name and there is one."""
        return None if operand.column is None else self._columns.get(operand.column.upper())

    def has_columns(self, operand: Operand) -> bool:
        """Whether a column is named in an operand."""
        return any(name in self._columns for name in operand.names)

    def add(self, name: str, column: Compared) -> None:
        """Adds a column that is not the stream's: the values of a call."""
        self._columns[name.upper()] = column

    def compared(self, operand: Operand) -> Compared | None:
        """The column or expression an operand stands for; None for a constant."""
        column = self.column(operand)
        if column is not None:
            return column
        if operand.literal is not None or operand.text in self._constants:
            return None
        return self._expressions[operand.text]

    def has_expression(self, condition: Condition) -> bool:
        """Whether a condition has operands other than columns and literals."""
        return any(
            operand.literal is None and operand.text in self._expressions for operand in operands(condition)
        )

    def literal(self, operand: Operand) -> Literal | None:
        """The value of an operand; None if it is no constant, or one without an ordered value."""
        return operand.literal if operand.literal is not None else self._constants.get(operand.text)

    def as_moment(self, operand: Operand, kind: pa.DataType) -> Literal | None:
        """A string as Spark casts it to a date or timestamp; None if there is no Spark or it fails."""
        if self.host is None:
            return None
        name = "DATE" if pa.types.is_date(kind) else "TIMESTAMP" if kind.tz is not None else "TIMESTAMP_NTZ"
        text = f"CAST({operand.text} AS {name})"
        if text not in self._constants:
            self._constants[text] = _literal(kind, self.host.constants([text])[0])
        return self._constants[text]

    def placed(self, error: SqlError) -> SqlError:
        """A host's error, underlined where the expression was first used."""
        place = self._places.get(error.text)
        if place is None:
            return error
        clause, start, end = place
        if clause.text[start:end] == error.text:
            start, end = start + error.start, start + error.end
        elif (found := clause.text.find(words := error.text[error.start : error.end], start, end)) >= 0:
            start, end = found, found + len(words)
        return clause.at(error, start, end)

    def _ask(self, host: ExpressionHost, expressions: list[str], constants: dict[str, None]) -> None:
        try:
            types = host.types(expressions)
            plain = host.plain(expressions)
            valued = [
                (text, kind)
                for text, kind, ordered in zip(expressions, types, plain, strict=False)
                if text in constants and ordered
            ]
            values = host.constants([text for text, _ in valued])
        except SqlError as error:
            raise self.placed(error) from None
        for text, kind, ordered in zip(expressions, types, plain, strict=False):
            self._expressions[text] = Compared(text, None, kind, ordered and is_comparable(kind))
        self._constants.update(dict.fromkeys(constants))
        for (text, kind), value in zip(valued, values, strict=True):
            self._constants[text] = _literal(kind, value)

    def _refuse_ambiguous(self, clause: Clause, operand: Operand) -> None:
        found = self._ambiguous[(operand.column or "").upper()]
        if len(found) > 1:
            raise clause.error(
                UnknownNameError,
                f"{operand.text} is ambiguous: it can mean {', '.join(found)}. Names are case-insensitive; rename one of them.",
                operand.start,
                operand.end,
            )

    def _unknown(self, clause: Clause, operand: Operand) -> UnknownNameError:
        error = UnknownNameError.among("Column", operand.text, self._names, "Existing columns")
        return clause.at(error, operand.start, operand.end)


def _literal(kind: pa.DataType, value: object) -> Literal | None:
    """A constant that Spark computed, as a literal."""
    if isinstance(value, Raised):
        return None
    if value is None:
        return Literal(Kind.NULL, None)
    if isinstance(value, Decimal):
        return Literal(Kind.DECIMAL, value)
    if pa.types.is_timestamp(kind):
        family = Kind.TIMESTAMP_NTZ if kind.tz is None else Kind.TIMESTAMP
    else:
        families = {
            pa.bool_(): Kind.BOOLEAN,
            pa.float32(): Kind.FLOAT,
            pa.float64(): Kind.DOUBLE,
            pa.string(): Kind.STRING,
            pa.binary(): Kind.BINARY,
            pa.date32(): Kind.DATE,
        }
        found = Kind.INTEGER if pa.types.is_signed_integer(kind) else families.get(kind)
        if found is None:
            return None
        family = found
    assert isinstance(value, int | float | str | bytes)
    return Literal(family, value)
