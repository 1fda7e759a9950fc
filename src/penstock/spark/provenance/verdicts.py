"""What Spark makes of each part of a condition, for one tuple: one job, and one more for each part that raises."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.provenance import Judged, Value, Verdict
from penstock.spark.analysis.catalyst import unlogged
from penstock.spark.analysis.expressions import first_sentence
from penstock.spark.analysis.gate import boxed, computed, tried
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.read import TO_JSON
from penstock.sql.conditions.outline import Outline

_VERDICTS: Mapping[bool | None, Verdict] = {True: "true", False: "false", None: "NULL"}
#: the verdict of one part that decides a condition of several
_DECIDING: Mapping[str, Verdict] = {"and": "false", "or": "true"}


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
    verdict: Verdict = "error" if own.error is not None else _VERDICTS[own.value]
    deciding = _DECIDING.get(part.kind)
    if verdict == "error" and any(each.verdict == deciding for each in parts):
        assert deciding is not None, "parts have verdicts"
        verdict = deciding
    seen = [(name, quoted(name)) for name in _named(part, columns)]
    seen += [(text, text) for text in part.operands]
    values = (Value(name, found[text].value, found[text].error) for name, text in seen)
    return Judged(part.text, part.kind, verdict, own.error, tuple(values), parts)


def holds(spark: SparkSession, part: Outline) -> Column:
    """A condition in its try form: where a test raises it is NULL, and other parts may still decide."""
    if part.kind in _DECIDING:
        join = Column.__and__ if part.kind == "and" else Column.__or__
        return reduce(join, (holds(spark, each) for each in part.parts))
    if part.kind == "not":
        return ~holds(spark, part.parts[0])
    return tried(spark, part.text)


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
