"""Calls of users' functions that the worker computes: read from predicates that need nothing but one call's value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from penstock.errors import SqlError
from penstock.plan.calls import Argument, UserCall
from penstock.plan.expressions import Derived
from penstock.sql.conditions.nodes import Between, Compare, Holds, IsNull, Like, Member, Operand, Predicate
from penstock.sql.conditions.operands import Compared, Operands

_Key = tuple[str, tuple[Argument, ...]]


@dataclass(slots=True)
class Calls:
    """Reads predicates on calls.

    Attributes:
        functions: names, in upper case, of the functions that take arrays and return one.
        operands: tells what operands are.
        free_name: gives a name that no column has, from one that is wanted.
        by_name: the calls that were read, by the names of their columns.
        derived: the columns that are computed for their arguments, by text.
    """

    functions: Collection[str]
    operands: Operands
    free_name: Callable[[str], str]
    by_name: dict[str, UserCall] = field(default_factory=dict)
    derived: dict[str, Derived] = field(default_factory=dict)
    _names: dict[_Key, str] = field(default_factory=dict)

    def over_value(self, predicate: Predicate) -> Predicate | None:
        """The predicate with a column in the place of a call; None where it is none on one call and constants."""
        if not self.functions:
            return None
        match predicate:
            case Compare(left=left, right=right):
                if self._is_call(left) and self._is_constant(right):
                    value = self._value(left)
                    return None if value is None else replace(predicate, left=value)
                if self._is_call(right) and self._is_constant(left):
                    value = self._value(right)
                    return None if value is None else replace(predicate, right=value)
                return None
            case Between(operand=operand, low=low, high=high):
                others: tuple[Operand, ...] = (low, high)
            case Member(operand=operand, items=items):
                others = items
            case Like(operand=operand, pattern=pattern):
                others = (pattern,)
            case IsNull(operand=operand) | Holds(operand=operand):
                others = ()
        if not (self._is_call(operand) and all(map(self._is_constant, others))):
            return None
        value = self._value(operand)
        return None if value is None else replace(predicate, operand=value)

    def needed(self, names: Collection[str]) -> tuple[tuple[UserCall, ...], tuple[Derived, ...]]:
        """Some calls, those that are their arguments before them, and the columns that are computed for them."""
        found: dict[str, UserCall] = {}

        def add(name: str) -> None:
            call = self.by_name[name]
            for each in call.arguments:
                if each.column in self.by_name:
                    add(each.column)
            found.setdefault(name, call)

        for name in names:
            add(name)
        taken = {each.column for call in found.values() for each in call.arguments}
        return tuple(found.values()), tuple(each for each in self.derived.values() if each.name in taken)

    def _is_call(self, operand: Operand) -> bool:
        return operand.call is not None and operand.call.function in self.functions

    def _is_constant(self, operand: Operand) -> bool:
        return self.operands.literal(operand) is not None

    def _value(self, operand: Operand) -> Operand | None:
        """The column of a call's values."""
        compared = self.operands.compared(operand)
        name = None if compared is None else self._read(operand)
        if compared is None or name is None:
            return None
        self.operands.add(name, Compared(operand.text, name, compared.type, compared.ordered))
        return replace(operand, column=name, names=(name.upper(),), call=None)

    def _read(self, operand: Operand) -> str | None:
        """The name of the column of a call's values; None where only Spark can compute an argument."""
        assert operand.call is not None, "it is a call"
        assert self.operands.host is not None, "functions are Spark's"
        arguments = []
        for each in operand.call.arguments:
            argument = self._argument(each)
            if argument is None:
                return None
            arguments.append(argument)
        key = operand.call.function, tuple(arguments)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self.free_name(f"__f{len(self._names)}")
            (kind,) = self.operands.host.types([operand.text])
            errors = {each.name: each.error_column for each in self.derived.values()}
            raising = (errors.get(each.column or "") for each in arguments)
            self.by_name[name] = UserCall(
                name, operand.text, key[0], key[1], kind, tuple(each for each in raising if each is not None)
            )
        return name

    def _argument(self, operand: Operand) -> Argument | None:
        if operand.literal is not None:
            return Argument(None, operand.text)
        column = self.operands.column(operand)
        if column is not None:
            return Argument(column.name, None)
        if self._is_call(operand):
            name = self._read(operand)
            return None if name is None else Argument(name, None)
        if any(name in self.functions for name in operand.names):
            return None
        if not self.operands.has_columns(operand):
            return Argument(None, operand.text)
        known = self._derive(operand.text)
        return None if known is None else Argument(known.name, None)

    def _derive(self, text: str) -> Derived | None:
        """The column that is computed for an argument; None where it is no expression."""
        host = self.operands.host
        assert host is not None, "functions are Spark's"
        if text not in self.derived:
            try:
                (kind,), (may_raise,) = host.types([text]), host.may_raise([text])
            except SqlError:
                return None
            name = self.free_name(f"__a{len(self.derived)}")
            self.derived[text] = Derived(name, text, kind, f"{name}_error" if may_raise else None)
        return self.derived[text]
