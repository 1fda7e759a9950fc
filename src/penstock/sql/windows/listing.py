"""LISTAGG in the terms of collected values: what is collected of tuples, and how a group's values are joined.

Collected values ascend (`penstock.operators.windows.of_values`). Where the order is another one than theirs, a text is collected that has
the keys of the order before the value; they are taken apart and sorted over the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.spark_types import spark_name
from penstock.sql.text.lexing import ended

#: what is between the keys of an order and the value; no key has it
_BAR = "'|'"


@dataclass(frozen=True, slots=True)
class Listing:
    """How the values of a group become one.

    Attributes:
        delimiter: Spark SQL text of a constant; None: nothing is between the values.
        directions: of each key of ORDER BY, whether the largest is first, and whether NULL is.
        is_distinct: whether equal values count once.
    """

    delimiter: str | None
    directions: tuple[tuple[bool, bool], ...] = ()
    is_distinct: bool = False

    def sql(self, arguments: Sequence[str]) -> str:
        """The call in Spark SQL, of the value and the keys."""
        value, *keys = map(ended, arguments)
        items = [value] if self.delimiter is None else [value, ended(self.delimiter)]
        text = f"listagg({'DISTINCT ' * self.is_distinct}{', '.join(items)})"
        if not keys:
            return text
        order = [
            f"{key} {'DESC' if is_descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
            for key, (is_descending, nulls_first) in zip(keys, self.directions, strict=True)
        ]
        return f"{text} WITHIN GROUP (ORDER BY {', '.join(order)})"


@dataclass(frozen=True, slots=True)
class Operand:
    """The value of a call, or a key of its order.

    Attributes:
        text: in Spark SQL, see `ended`.
        type: its type.
        is_compared: whether Penstock compares values of that type as Spark does.
    """

    text: str
    type: pa.DataType
    is_compared: bool

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.type))

    @property
    def is_binary(self) -> bool:
        return bool(pa.types.is_binary(self.type))

    @property
    def is_moment(self) -> bool:
        """Whether two values may have one text: those of the hour that comes twice when daylight saving time ends."""
        return bool(pa.types.is_timestamp(self.type) and self.type.tz is not None)

    @property
    def is_floating(self) -> bool:
        """Whether equal values may have two texts: those of zero."""
        return bool(pa.types.is_floating(self.type))

    @property
    def is_ordered(self) -> bool:
        """Whether ORDER BY may name it."""
        types = pa.types
        is_number = types.is_integer(self.type) or types.is_decimal(self.type) or self.is_floating
        is_time = types.is_date(self.type) or types.is_timestamp(self.type)
        is_plain = self.is_text or self.is_binary or types.is_boolean(self.type)
        return self.is_compared and bool(is_number or is_time or is_plain)

    @property
    def written(self) -> str:
        """It as text, bytes as hexadecimal digits."""
        if self.is_text:
            return self.text
        return f"hex({self.text})" if self.is_binary else f"CAST({self.text} AS STRING)"


def collected(value: Operand, keys: Sequence[Operand], listing: Listing, group: str) -> tuple[str, str]:
    """What is collected, and what a group says, in Spark SQL.

    Args:
        value: what is listed.
        keys: of ORDER BY, one a direction of the listing; (): the value itself, in the first direction of the listing, ascending without one.
        listing: how the values are joined; the keys have one direction.
        group: the column of a group's collected values.
    """
    is_descending = bool(listing.directions) and listing.directions[0][0]
    directions = listing.directions or ((False, True),)
    if not keys and value.is_floating and not listing.is_distinct:
        keys = [value]
    if keys:
        own, values = _keyed(value, list(zip(keys, directions, strict=True)), group)
    elif value.is_floating or not value.is_ordered or (value.is_moment and listing.is_distinct):
        own, values = value.written, group
    else:
        own, values = value.text, group
        if not value.is_text:
            values = (
                f"transform({group}, v -> hex(v))" if value.is_binary else f"CAST({group} AS ARRAY<STRING>)"
            )
    if is_descending and not keys:
        values = f"reverse({values})"
    joined = _joined(values, listing.delimiter, is_binary=value.is_binary)
    return own, f"(CASE WHEN size({group}) > 0 THEN {joined} END)"


def _joined(values: str, delimiter: str | None, *, is_binary: bool) -> str:
    if is_binary:
        between = "''" if delimiter is None else f"hex(coalesce(CAST({ended(delimiter)} AS BINARY), X''))"
        return f"unhex(array_join({values}, {between}))"
    between = "''" if delimiter is None else f"coalesce(CAST({ended(delimiter)} AS STRING), '')"
    return f"array_join({values}, {between})"


def _keyed(value: Operand, keys: Sequence[tuple[Operand, tuple[bool, bool]]], group: str) -> tuple[str, str]:
    """A text of the keys and the value, and a group's values in the order of the keys; those of equal keys by themselves."""
    parts = [f"coalesce({_coded(key)}, '')" for key, _ in keys]
    own = f"concat({f', {_BAR}, '.join([*parts, value.written])})"
    fields = []
    for number, (key, (is_descending, nulls_first)) in enumerate(keys):
        part = f"nullif(split_part(v, {_BAR}, {number + 1}), '')"
        if is_descending == nulls_first:
            # within a struct, NULL is the least
            fields.append(f"'n{number}', {part} IS NULL")
        fields.append(f"'k{number}', {_decoded(part, key)}")
    fields.append(f"'v', substring(v, length(substring_index(v, {_BAR}, {len(keys)})) + 2)")
    is_ascending = "false" if keys[0][1][0] else "true"
    ordered = f"sort_array(transform({group}, v -> named_struct({', '.join(fields)})), {is_ascending})"
    return own, f"transform({ordered}, v -> v.v)"


def _coded(key: Operand) -> str:
    """A key as a text that is not empty and has no bar; it may have another order than the key."""
    if key.is_text or key.is_binary:
        return f"concat('x', hex({key.text}))"
    return f"CAST(unix_micros({key.text}) AS STRING)" if key.is_moment else key.written


def _decoded(text: str, key: Operand) -> str:
    """What has the order of the key, of its text."""
    if key.is_text or key.is_binary:
        # digits are ordered as the bytes are
        return text
    return f"CAST({text} AS {'BIGINT' if key.is_moment else spark_name(key.type)})"
