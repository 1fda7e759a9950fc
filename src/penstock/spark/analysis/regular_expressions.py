"""Constant regular expressions that fail at rows: Java refuses them, or they lack the group that a function takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.errors import SqlError
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.catalyst_trees import CATALYST, Node, projection, tree
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.literals import string

#: what a text has where it calls one of the functions
_CALLED = re.compile(r"regexp|rlike|split", re.IGNORECASE)
#: functions that take a group of their pattern, by Catalyst's node
_GROUPED = {"RegExpExtract": "regexp_extract", "RegExpExtractAll": "regexp_extract_all"}
_REPLACE = "RegExpReplace"
_OTHERS = ("RLike", "StringSplit", "RegExpCount", "RegExpSubStr", "RegExpInStr")
#: nodes whose second child is the pattern
_PATTERNED = {*_GROUPED, _REPLACE, *_OTHERS}


def refuse_patterns(expressions: Sequence[str], selection: DataFrame) -> None:
    """Make sure that the constant patterns of expressions can be matched.

    Args:
        expressions: what the user wrote.
        selection: the analysed selection of them.

    Raises:
        SqlError: Java refuses a pattern, or it lacks a group; the pattern is the place.
    """
    if any(map(_CALLED.search, expressions)):
        trees = projection(selection._jdf.queryExecution().analyzed().toJSON())
        for text, each in zip(expressions, trees, strict=True):
            _refuse(text, [each], selection)


def refuse_patterns_of_query(query: str, frame: DataFrame) -> None:
    """Likewise for a whole query and its frame."""
    if _CALLED.search(query):
        plan = json.loads(frame._jdf.queryExecution().analyzed().toJSON())
        _refuse(query, _trees(plan), frame)


def _refuse(text: str, trees: Iterable[Node], frame: DataFrame) -> None:
    for node in _nodes(trees):
        if node.name in _PATTERNED and (pattern := _constant(node.children[1])) is not None:
            told = _mistake(frame, node, pattern)
            if told is not None:
                raise SqlError(told, text, *_place(text, pattern))


def _mistake(frame: DataFrame, node: Node, pattern: str) -> str | None:
    compiled = java_class(frame.sparkSession, "java.util.regex.Pattern").compile
    try:
        groups = compiled(pattern).matcher("").groupCount()
    except (PySparkException, Py4JJavaError) as error:
        return f"Every row would fail here: invalid regular expression: {_reason(error)}"
    if node.name == _REPLACE and (replacement := _constant(node.children[2])) is not None:
        try:
            # with an empty alternative it matches whatever else it needs
            compiled(f"|{pattern}").matcher("").replaceAll(replacement)
        except (PySparkException, Py4JJavaError) as error:
            return f"Rows that match would fail here: the replacement {replacement!r} is invalid: {_reason(error)}"
    if node.name not in _GROUPED or (index := _constant(node.children[2], "integer")) is None:
        return None
    if 0 <= int(index) <= groups:
        return None
    name = _GROUPED[node.name]
    count = {0: "no group", 1: "one group"}.get(groups, f"{groups} groups")
    default = ", as it does where no group is given" if int(index) == 1 else ""
    return (
        f"Rows that match would fail here: {name} takes group {index} of the pattern{default}, but the pattern has {count}. "
        f"Write {name}(s, p, 0) for the whole match, or parentheses around a part of the pattern."
    )


def _constant(node: Node, kind: str = "string") -> str | None:
    """The value of a literal of a type; None of anything else and of NULL."""
    if node.name != "Literal" or not str(node.fields.get("dataType")).startswith(kind):
        return None
    value = node.fields.get("value")
    return None if value is None else str(value)


def _reason(error: Exception) -> str:
    """The first line of what Java says."""
    java = re.search(r"Exception: ([^\n]+)", str(error)) if isinstance(error, Py4JJavaError) else None
    return java[1] if java is not None else str(error).splitlines()[0]


def _place(text: str, pattern: str) -> tuple[int, int]:
    """Where a text has a pattern; all of it where it is written in pieces."""
    for each in tokenize(text):
        written = text[each.start : each.end + 1]
        if written[0] in "'\"rR" and written[-1] in "'\"" and string(written) == pattern:
            return each.start, each.end + 1
    return 0, len(text)


def _nodes(trees: Iterable[Node]) -> Iterator[Node]:
    left = list(trees)
    while left:
        node = left.pop()
        yield node
        left.extend(node.children)


def _trees(plan: Any) -> Iterator[Node]:
    """The expressions of all nodes of a plan, those in subqueries too."""
    if isinstance(plan, dict):
        plan = list(plan.values())
    if not isinstance(plan, list):
        return
    if plan and isinstance(plan[0], dict) and str(plan[0].get("class", "")).startswith(CATALYST):
        yield tree(plan)
    for each in plan:
        yield from _trees(each)
