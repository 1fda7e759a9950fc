"""What Spark makes of each part of a condition, for one tuple: one job, and one more for each part that raises."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.provenance import Judged, Value, Verdict
from penstock.spark.analysis.catalyst import unlogged
from penstock.spark.analysis.gate import boxed, computed, tried
from penstock.spark.recovery.messages import first_sentence, quoted
from penstock.spark.results.read import TO_JSON
from penstock.sql.conditions.outline import TRUTHS, Outline

_VERDICTS: Mapping[bool | None, Verdict] = {True: "true", False: "false", None: "NULL"}
#: truth values of which a condition may have to be one
_Wanted = frozenset[bool | None]
_TRUE, _FALSE, _NOT_TRUE, _NOT_FALSE = map(frozenset, ((True,), (False,), (False, None), (True, None)))
#: how a test is asked whether it is one of some truth values
_ASKED: Mapping[_Wanted, str] = {
    _TRUE: "IS TRUE",
    _FALSE: "IS FALSE",
    _NOT_TRUE: "IS NOT TRUE",
    _NOT_FALSE: "IS NOT FALSE",
}
Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an expression is for one tuple: a JSON value, or why Spark cannot compute it."""

    value: Any = None
    error: str | None = None


def answers(tuple_: DataFrame, texts: Iterable[str]) -> dict[str, Answer]:
    """Compute expressions from one tuple.

    Args:
        tuple_: a frame of one row.
        texts: Spark SQL over its columns.

    Returns:
        By text its value; the error where Spark raises one.

    Raises:
        PySparkException: an expression cannot be resolved over the columns.
    """
    spark, wanted = tuple_.sparkSession, list(dict.fromkeys(texts))
    if not wanted:
        return {}
    columns = [boxed(spark, text).alias(f"_{number}") for number, text in enumerate(wanted)]
    asked = tuple_.select(_json(columns))
    try:
        with unlogged():
            found = _read(asked)
    except (PySparkException, Py4JJavaError):
        # a Python function raises outside of any try form
        return {text: _alone(tuple_, text) for text in wanted}
    boxes = (found[f"_{number}"] for number in range(len(wanted)))
    return {
        text: _alone(tuple_, text) if box is None else Answer(box["v"])
        for text, box in zip(wanted, boxes, strict=True)
    }


def texts_of(part: Outline, columns: Sequence[str]) -> Iterator[str]:
    """Everything of a condition that has to be computed to judge it: its parts, computed values and columns."""
    yield part.text
    yield from part.operands
    yield from map(quoted, _named(part, columns))
    for each in part.parts:
        yield from texts_of(each, columns)


def judged(part: Outline, columns: Sequence[str], found: Mapping[str, Answer]) -> Judged:
    """Judge a condition by what its parts are.

    Args:
        part: the condition.
        columns: those of the tuple.
        found: the answers for `texts_of`.
    """
    parts = tuple(judged(each, columns, found) for each in part.parts)
    own = found[part.text]
    verdict = _VERDICTS[own.value] if own.error is None else _decided(part, found)
    seen = [(name, quoted(name)) for name in _named(part, columns)]
    seen += [(text, text) for text in part.operands]
    values = (Value(name, found[text].value, found[text].error) for name, text in seen)
    return Judged(part.text, part.kind, verdict, own.error, tuple(values), parts)


def holds(spark: SparkSession, part: Outline) -> Column:
    """Whether a condition is true, by its tests in their try form: NULL where one raises and the others do not decide."""
    return _known(
        part,
        _TRUE,
        lambda test, wanted: tried(spark, f"({test.text}\n) {_ASKED[wanted]}"),
        lambda parts: reduce(Column.__and__, parts),
        lambda parts: reduce(Column.__or__, parts),
    )


def _decided(part: Outline, found: Mapping[str, Answer]) -> Verdict:
    """The verdict on a condition that raises, if those of its tests that do not raise decide it."""

    def is_known(wanted: _Wanted) -> bool:
        return _known(part, wanted, is_answered, all, any)

    def is_answered(test: Outline, wanted: _Wanted) -> bool:
        answer = found[test.text]
        return answer.error is None and answer.value in wanted

    if is_known(_TRUE):
        return "true"
    if is_known(_FALSE):
        return "false"
    return "NULL" if is_known(_NOT_TRUE) and is_known(_NOT_FALSE) else "error"


def _known(
    part: Outline,
    wanted: _Wanted,
    test: Callable[[Outline, _Wanted], Known],
    every: Callable[[list[Known]], Known],
    some: Callable[[list[Known]], Known],
) -> Known:
    """Whether a condition is known to be one of some truth values: asked of its tests, as `NormalForm` rewrites it.

    Args:
        part: the condition.
        wanted: the truth values, a key of `_ASKED`.
        test: whether a test is known to be one of some.
        every, some: the conjunction and the disjunction of answers.
    """

    def known(child: Outline, wanted: _Wanted) -> Known:
        return _known(child, wanted, test, every, some)

    is_affirmed = True in wanted
    if part.kind in ("and", "or"):
        parts = [known(each, wanted) for each in part.parts]
        return every(parts) if (part.kind == "and") is is_affirmed else some(parts)
    if part.kind == "not":
        return known(part.parts[0], frozenset(None if value is None else not value for value in wanted))
    if part.kind == "is":
        (child,) = part.parts
        accepted = part.accepted if is_affirmed else TRUTHS - part.accepted
        if accepted == {None}:
            return every([known(child, _NOT_TRUE), known(child, _NOT_FALSE)])
        if accepted == {True, False}:
            return some([known(child, _TRUE), known(child, _FALSE)])
        return known(child, accepted)
    return test(part, wanted)


def _named(part: Outline, columns: Sequence[str]) -> list[str]:
    return [name for word in part.names for name in columns if name.upper() == word]


def _json(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns), TO_JSON).alias("line")


def _read(asked: DataFrame) -> dict[str, Any]:
    (row,) = asked.collect()
    found: dict[str, Any] = json.loads(row.line, parse_float=number)
    return found


def _alone(tuple_: DataFrame, text: str) -> Answer:
    try:
        with unlogged():
            return Answer(_read(tuple_.select(_json([computed(tuple_.sparkSession, text).alias("v")])))["v"])
    except (PySparkException, Py4JJavaError) as error:
        return Answer(error=first_sentence(str(error)))


def number(text: str) -> float | str:
    """A number as a float; as its text where no float has its value."""
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text
