"""Selections over window views: a further condition on the groups, and a SELECT list made of the first one's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnknownNameError, UnsupportedError
from penstock.sql.conditions.operands import BARE_FUNCTIONS
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.parts import ALLOWED_OVER_WINDOWS
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.aggregate_calls import is_aggregate
from penstock.sql.windows.calls import is_window
from penstock.sql.windows.group_expressions import columns_of, refuse_call
from penstock.sql.windows.query import GroupExpression, WindowQuery

#: expressions over groups that need no parentheses
_PLAIN = re.compile(r"_w(\.\w+)?|_[ka]\d+")


def selected_from(below: WindowQuery, selection: SelectQuery) -> WindowQuery:
    """The window view that a selection over a window view is.

    Args:
        below: the window view, flattened.
        selection: the selection.

    Raises:
        UnknownNameError: a name that the window view does not put out.
        UnsupportedError: what is no scalar expression of its columns.
    """
    for output in below.outputs:
        if output.expression == "*":
            place = selection.source_clause
            message = f"{selection.source} is a ranking with `*` in its SELECT list; a selection over it needs names. Name its columns there."
            raise place.error(UnsupportedError, message)
    over = Over(below)
    outputs: list[GroupExpression] = []
    if selection.projection is None:
        outputs += (replace(output, clause=selection.source_clause) for output in below.outputs)
    for item in selection.projection or ():
        if item.is_star:
            outputs += (replace(output, clause=item.clause) for output in below.outputs)
            continue
        outputs.append(GroupExpression(over.rewrite(item.written), item.name, item.clause))
    conditions = tuple(
        GroupExpression(over.rewrite(condition), None, condition) for condition in selection.conditions
    )
    return replace(
        below, outputs=tuple(outputs), having=below.having + conditions, selected=(below, selection)
    )


class Over:
    """Rewrites expressions over a window view's columns to expressions over its groups.

    Args:
        below: the window view.
    """

    def __init__(self, below: WindowQuery) -> None:
        self._names: Mapping[str, str] = {
            output.name.upper(): output.expression
            if _PLAIN.fullmatch(output.expression)
            else f"({output.expression})"
            for output in below.outputs
            if output.name is not None
        }
        self._known = [output.name for output in below.outputs if output.name is not None]
        self._unnamed = [output.clause.text.strip() for output in below.outputs if output.name is None]

    def rewrite(self, clause: Clause) -> str:
        """The expression over `_w`, `_k0`, ... and `_a0`, ... of the view's groups.

        Raises:
            UnknownNameError: a name that the view does not put out.
            UnsupportedError: what is no scalar expression of its columns.
        """
        tokens = tokenize(clause.text, clause.start, clause.script)
        self._refuse(clause, tokens)
        text = clause.text
        for start, column in sorted(columns_of(clause, ALLOWED_OVER_WINDOWS).items(), reverse=True):
            found = self._names.get(column.name.upper())
            if found is not None:
                text = text[:start] + found + text[column.end :]
            elif column.name.upper() not in BARE_FUNCTIONS:
                rest = f"{self._unnamed[0]} has no name: add AS name" if self._unnamed else ""
                error = UnknownNameError.among(
                    "Column", column.name, self._known, "Existing columns", rest=rest
                )
                raise clause.at(error, start, column.end)
        return text.strip()

    def _refuse(self, clause: Clause, tokens: list[Token]) -> None:
        for position, token in enumerate(tokens):
            refuse_call(clause, tokens, position, ALLOWED_OVER_WINDOWS)
            what = None
            if is_aggregate(tokens, position) or is_window(tokens, position):
                what = "An aggregation over a window view needs GROUP BY window(...)"
            elif token.token_type is TokenType.STAR and (
                not position or tokens[position - 1].token_type in (TokenType.L_PAREN, TokenType.COMMA)
            ):
                what = "`*` as an argument is not supported here"
            if what is not None:
                message = f"{what}. {ALLOWED_OVER_WINDOWS}"
                raise clause.error(UnsupportedError, message, token.start, token.end + 1)
