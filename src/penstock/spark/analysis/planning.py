"""What Spark raises at before it reads a row: constants it computes, patterns it compiles, code it generates for an expression.

A try form does not catch that, so that one such expression stops every job it is part of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from penstock.errors import SqlError
from penstock.spark.analysis.catalyst import java_class, unlogged
from penstock.spark.recovery.messages import without_bypass
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.literals import string

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
#: Spark runs without generated code what is too long for the JVM
_TOO_LONG = ("ompile", "64 KB", "JaninoRuntimeException")
#: the class and the first line of a Java error
_JAVA_REASON = re.compile(r"^(?:: )?(?:[a-z][\w$]*\.)+(\w+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)
_TOO_DEEP = "StackOverflowError"
_NAME = re.compile(r"\w+|`[^`]+`")
#: (settings, schema, text) of what Spark has planned in this process: what is declared is planned once, not at its binding again
_planned: set[tuple[bytes, str, str]] = set()
_KEPT = 100_000


#: what Spark says of a pattern of times that only its versions before 3 had
_NO_PATTERN = re.compile(r"Fail to recognize '(.*)' pattern in the DateTimeFormatter", re.DOTALL)
#: letters of weeks, outside of quotes
_WEEKS = re.compile(r"^(?:[^']|'[^']*')*?[wW]")


def failures(
    table: DataFrame, expressions: Sequence[str], column: Callable[[SparkSession, str], Column]
) -> dict[str, str]:
    """The expressions at which Spark raises before it reads a row, with what it says.

    Args:
        table: what they are computed from; it is not read.
        expressions: their texts.
        column: gives the column of a text, `gate.computed` or one that catches what rows raise.
    """
    place = _settings(table.sparkSession), table.schema.json()
    unseen = [text for text in expressions if (*place, text) not in _planned and not _NAME.fullmatch(text)]
    failed = _failures(table, unseen, column) if unseen else {}
    if len(_planned) > _KEPT:
        _planned.clear()
    _planned.update((*place, text) for text in unseen if text not in failed)
    return failed


def _settings(spark: SparkSession) -> bytes:
    """A digest of a session's settings: some, such as `spark.sql.legacy.timeParserPolicy`, decide what Spark raises at."""
    return sha256(spark._jsparkSession.conf().getAll().toString().encode()).digest()


def _failures(
    table: DataFrame, expressions: Sequence[str], column: Callable[[SparkSession, str], Column]
) -> dict[str, str]:
    """As `failures`, by halving what fails."""
    columns = [column(table.sparkSession, text) for text in expressions]
    message = _raised(table.select(*columns))
    if message is None:
        return {}
    if len(expressions) == 1:
        return {expressions[0]: message}
    middle = len(expressions) // 2
    return {
        **_failures(table, expressions[:middle], column),
        **_failures(table, expressions[middle:], column),
    }


def refused(text: str, message: str) -> SqlError:
    """The refusal of an expression at which Spark raises, its offending literal marked where the message quotes one."""
    pattern = _NO_PATTERN.search(message)
    told = f"Spark fails here before it reads a row: {_reason(message)}"
    told = told if pattern is None else _of_pattern(pattern[1])
    literals = [text[each.start : each.end + 1] for each in tokenize(text) if text[each.start] in "'\""]
    quoted = [each for each in literals if _quotes(message, each[1:-1]) or _quotes(message, string(each))]
    marked = max(quoted, key=len, default=text)
    start = text.index(marked)
    return SqlError(told, text, start, start + len(marked))


def _of_pattern(pattern: str) -> str:
    """What is wrong with a pattern of times that Spark does not recognize."""
    if _WEEKS.search(pattern):
        return f"'{pattern}' is not a pattern of times: weeks have no letter. Write extract(YEAROFWEEK FROM time) and extract(WEEK FROM time)."
    meant = pattern.replace("Y", "y")
    if "M" in meant:
        meant = meant.replace("D", "d")
    near = "." if meant == pattern else f"; did you mean '{meant}'?"
    return (
        f"'{pattern}' is not a pattern of times{near} Letters: y year, M month, d day, H hour, m minute, s second, S its fraction, E day of the "
        "week. All: https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
    )


def _reason(message: str) -> str:
    """Spark's reason in one line, without its class, its stack and the marks of a regular expression."""
    kind, text = java.groups() if (java := _JAVA_REASON.search(message)) else ("", message)
    told = " ".join(without_bypass(text.partition("SQLSTATE")[0]).split())
    if kind == "PatternSyntaxException":
        return f"invalid regular expression: {told}"
    return told.partition("] ")[2] if told.startswith("[") else told


def _quotes(message: str, value: str) -> bool:
    """Whether a message quotes a value: in quotes, on a line of its own, or as a word of some length."""
    if f"'{value}'" in message or value in map(str.strip, message.splitlines()):
        return True
    return len(value) > 1 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", message) is not None


def _raised(selection: DataFrame) -> str | None:
    """What Spark raises at when it optimizes a selection and generates its code, if it does."""
    try:
        with unlogged():
            _generate(selection)
    except (PySparkException, Py4JJavaError) as error:
        message = str(error)
        if _TOO_DEEP in message:
            return "this is nested too deeply."
        return None if any(each in message for each in _TOO_LONG) else message
    return None


def _generate(selection: DataFrame) -> None:
    """Makes the code of each projection in a selection, and what that holds beside its code, as a task would."""
    spark = selection.sparkSession
    attributes = java_class(spark, f"{_EXPRESSIONS}package$AttributeSeq")
    references = java_class(spark, f"{_EXPRESSIONS}BindReferences")
    generator = java_class(spark, f"{_EXPRESSIONS}codegen.GenerateUnsafeProjection")
    plan = selection._jdf.queryExecution().optimizedPlan()
    while True:
        if plan.nodeName() == "Project":
            columns = attributes(plan.child().output())
            generator.generate(references.bindReferences(plan.projectList(), columns), False)
        if plan.children().isEmpty():
            return
        plan = plan.children().head()
