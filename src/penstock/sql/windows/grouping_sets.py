"""Grouping sets over the keys of a view, and calls of `grouping` and `grouping_id`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import GroupingSet
from penstock.sql.text.clauses import Clause
from penstock.sql.text.grouping import ALLOWED_SETS, GroupBy
from penstock.sql.text.lexing import arguments, is_call, spelling, without_parentheses

_CALLS = ("grouping", "grouping_id")
#: a column that is the grouping ID, as in Hive
ID_COLUMN = "GROUPING__ID"
#: the place of a grouping expression that is the window
WINDOW = -1


def is_grouping(tokens: Sequence[Token], position: int) -> bool:
    """Whether `grouping` or `grouping_id` is called there."""
    return is_call(tokens, position) and tokens[position].text.lower() in _CALLS


@dataclass(frozen=True, slots=True)
class GroupingColumns:
    """What `grouping` and `grouping_id` are about.

    Attributes:
        spelled: how each grouping expression is spelled, the window too, in the order in which GROUP BY has them first.
        name: the name of the grouping ID in the expressions over groups; None without grouping sets.
    """

    spelled: tuple[tuple[str, ...], ...]
    name: str | None

    def rewrite(self, clause: Clause, tokens: Sequence[Token], position: int) -> tuple[str, int]:
        """Reads the call that begins there, for which `is_grouping` holds.

        Args:
            clause: the text the tokens come from.
            tokens: those of the clause.
            position: of the function's name.

        Returns:
            The expression over groups, and the position after the call.

        Raises:
            SqlError: no grouping sets, or other arguments than grouping expressions.
        """
        found, end = arguments(tokens, position + 1)
        call = clause.part(tokens[position].start, tokens[end - 1].end + 1)
        function = tokens[position].text.lower()
        if self.name is None:
            message = f"{function}() needs grouping sets. {ALLOWED_SETS}"
            raise call.error(SqlError, message)
        given = [spelling(without_parentheses(list(tokens[first:last]))) for first, last in found]
        if function == "grouping_id":
            if given and given != list(self.spelled):
                message = (
                    "grouping_id() takes no argument, or all grouping expressions in the order of GROUP BY."
                )
                raise call.error(SqlError, message)
            return self.name, end
        if len(given) != 1 or given[0] not in self.spelled:
            message = "grouping() takes one grouping expression. Write the expression itself, not its alias."
            raise call.error(SqlError, message)
        bit = 1 << (len(self.spelled) - 1 - self.spelled.index(given[0]))
        # of what workers compute: the bit as a number of Spark's type
        return f"CASE WHEN ({self.name} & {bit}L) = 0L THEN 0Y ELSE 1Y END", end


def grouping_sets(group_by: GroupBy, places: Sequence[int]) -> tuple[GroupingSet, ...]:
    """The grouping sets of a view.

    Args:
        group_by: what stands behind GROUP BY, with grouping sets.
        places: of each entry the number of its key, or WINDOW.

    Raises:
        UnsupportedError: a set is there twice, or lacks the window.
    """
    assert group_by.sets is not None
    order = list(dict.fromkeys(places))
    found: dict[int, GroupingSet] = {}
    for own in group_by.sets:
        columns = {places[entry] for entry in own}
        whole = group_by.written[0] if len(group_by.written) == 1 else None
        if WINDOW in order and WINDOW not in columns:
            place = whole or group_by.entries[places.index(WINDOW)]
            message = (
                "A grouping set without the window is not supported: it would never be final. Put the window into every set, or "
                "beside them: GROUP BY window(...), ROLLUP(keys)."
            )
            raise place.error(UnsupportedError, message)
        id_ = sum(1 << bit for bit, each in enumerate(reversed(order)) if each not in columns)
        if id_ in found:
            place = group_by.entries[own[0]] if own else whole or group_by.written[-1]
            named = ", ".join({places[entry]: group_by.entries[entry].text for entry in own}.values())
            message = (
                f"Grouping set ({named}) occurs twice: Spark gives each of its rows twice. Leave one out, or list the sets "
                "with GROUPING SETS."
            )
            raise place.error(UnsupportedError, message)
        found[id_] = GroupingSet(tuple(sorted(columns - {WINDOW})), id_)
    return tuple(found.values())
