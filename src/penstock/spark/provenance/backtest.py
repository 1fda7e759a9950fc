"""What a view would have answered over stored tuples, as a batch query of Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import reduce
from typing import Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InputError, UnsupportedError
from penstock.provenance import Backtest, Count, Passed
from penstock.spark.analysis.gate import computed, queried, tried
from penstock.spark.declaring.declared import Declared
from penstock.spark.provenance.joining import joined_rows, taking_part
from penstock.spark.provenance.relations import Relation, find_relation, is_results_folder
from penstock.spark.provenance.rows import some_rows
from penstock.spark.provenance.verdicts import holds
from penstock.spark.provenance.why import refuse_unjudged
from penstock.spark.recovery.causes import cause_of
from penstock.spark.recovery.messages import quoted
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.tasks.dataframe_stage import ORIGIN, REASON
from penstock.sql.conditions.outline import outline
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery
from penstock.sql.windows.query import WindowQuery
from penstock.sql.windows.query_texts import QueryTexts

#: columns beside those of tuples, whose names do not begin like that
_OF, _GOOD, _MATCHES, _RAISES, _PASSES = (
    f"__penstock_{name}" for name in ("of", "good", "matches", "raises", "passes")
)
#: parts of a condition that are counted
_MOST_PARTS = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a backtest is over; see `Engine.backtest`."""

    over: str | None = None
    since: str | datetime | None = None
    until: str | datetime | None = None
    rows: int = 5


@dataclass(slots=True)
class _Read:
    """What has been read for a backtest."""

    spark: SparkSession
    declared: Declared
    wanted: Wanted
    places: dict[str, str] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def tuples(self, name: str) -> DataFrame:
        """The stored tuples of a relation in the wanted span, CORRUPT, REASON and ORIGIN."""
        if name not in self.frames:
            relation = find_relation(self.spark, self.declared, name)
            place = None if name in self.declared.statics else self.wanted.over
            relation = relation.over(place)
            path = relation.stored.path
            assert path is not None, "its place is known"
            self.places[name] = path
            if is_results_folder(path):
                self.notes.append(
                    f"{path} is a results folder: it has only tuples of {name} that a view matched."
                )
            frame = relation.read(self.spark)
            self.frames[name] = (
                frame if name in self.declared.statics else _within(frame, relation, self.wanted)
            )
        return self.frames[name]

    def good(self, name: str) -> DataFrame:
        """Those that fit the columns."""
        return self.tuples(name).where(F.col(REASON).isNull())


def backtest(spark: SparkSession, declared: Declared, view: str, wanted: Wanted) -> Backtest:
    """Say what a view would answer over stored tuples; see `Engine.backtest`.

    Args:
        spark: the session.
        declared: what is declared; it is not changed.
        view: the view's name.
        wanted: over which tuples, and how many rows to show.
    """
    name = declared.view_name(view)
    flat = flatten(declared.views[name].query, declared.queries)
    refuse_unjudged(name, flat)
    if isinstance(flat, WindowQuery) and flat.ranking is not None:
        message = f"View {name} is a ranking, which a backtest cannot answer yet. Run its text with spark.sql over the stored tuples."
        raise flat.window_clause.error(UnsupportedError, message)
    assert not isinstance(flat, UnionQuery), "it was refused"
    read = _Read(spark, declared, wanted)
    try:
        if isinstance(flat, SelectQuery):
            return _of_selection(read, name, flat)
        return _of_rows(read, name, flat)
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"Spark cannot answer view {name} over these tuples: {cause_of(error).told}"
        ) from error


def _of_selection(read: _Read, name: str, flat: SelectQuery) -> Backtest:
    view = read.declared.views[name]
    relation = find_relation(read.spark, read.declared, view.stream)
    tuples = read.tuples(view.stream)
    by: Literal["hour", "file"] = "file" if relation.event_time is None else "hour"
    of = F.col(ORIGIN) if relation.event_time is None else _hour(F.col(quoted(relation.event_time)))
    matches, raises = _condition(read.spark, flat.where)
    good = F.col(REASON).isNull()
    parts = [part for clause in flat.conditions for part in outline(clause.text).conjuncts][:_MOST_PARTS]
    if len(parts) == 1:
        # all that it lets through matches
        parts = []
    passes = [holds(read.spark, part).alias(f"{_PASSES}{number}") for number, part in enumerate(parts)]
    judged = tuples.select(
        "*", of.alias(_OF), good.alias(_GOOD), matches.alias(_MATCHES), raises.alias(_RAISES), *passes
    )
    found = (
        judged.groupBy(_OF)
        .agg(
            F.count("*").alias("tuples"),
            F.count_if(~F.col(_GOOD)).alias("aside"),
            F.count_if(F.col(_GOOD) & F.col(_MATCHES)).alias("matches"),
            F.count_if(F.col(_GOOD) & ~F.col(_MATCHES) & F.col(_RAISES)).alias("raises"),
            F.array(
                *(F.count_if(F.col(_GOOD) & F.col(f"{_PASSES}{number}")) for number in range(len(parts)))
            ).alias("passes"),
        )
        .orderBy(F.col(_OF).asc_nulls_last())
        .collect()
    )
    rows = tuples.where(good & matches)
    shown = rows.select(*map(quoted, relation.schema.fieldNames()))
    if flat.projection is not None:
        shown = rows.select(*_projected(read.spark, flat, relation))
    counts = (Count(row[_OF] or "", row["tuples"] - row["aside"], row["matches"]) for row in found)
    return Backtest(
        name,
        view.definition.sql,
        read.places,
        {view.stream: sum(row["tuples"] - row["aside"] for row in found)},
        sum(row["aside"] for row in found),
        sum(row["matches"] for row in found),
        sum(row["raises"] for row in found),
        by,
        tuple(each for each in counts if each.tuples or each.matches),
        some_rows(shown, read.wanted.rows),
        tuple(
            Passed(" ".join(part.text.split()), sum(row["passes"][number] for row in found))
            for number, part in enumerate(parts)
        ),
        tuple(read.notes),
    )


def _of_rows(read: _Read, name: str, flat: WindowQuery | JoinQuery) -> Backtest:
    """Of a window or join view, whose rows are no tuples."""
    rows, of, by = _rows(read, name, flat)
    found = rows.groupBy(of.alias(_OF)).count().orderBy(F.col(_OF).asc_nulls_last()).collect()
    own = [each for each in rows.columns if each != _OF]
    read_tuples, aside = {}, 0
    for relation, frame in read.frames.items():
        (row,) = frame.agg(
            F.count("*").alias("n"), F.count_if(F.col(REASON).isNotNull()).alias("aside")
        ).collect()
        read_tuples[relation] = row.n - row.aside
        aside += row.aside
    return Backtest(
        name,
        read.declared.views[name].definition.sql,
        read.places,
        read_tuples,
        aside,
        sum(row["count"] for row in found),
        0,
        by,
        tuple(Count(row[_OF] or "", None, row["count"]) for row in found),
        some_rows(rows.select(*map(quoted, own)), read.wanted.rows),
        notes=tuple(read.notes),
    )


def _rows(
    read: _Read, name: str, flat: WindowQuery | JoinQuery
) -> tuple[DataFrame, Column, Literal["hour", "window"]]:
    """The rows of a window or join view with a column of what they are counted by."""
    if isinstance(flat, WindowQuery):
        return _window_rows(read, name, flat), F.col(_OF), "window"
    definition = read.declared.views[name].definition
    assert isinstance(definition, JoinDefinition)
    plan = definition.plan
    if read.wanted.over is not None:
        raise InputError(
            f"View {name} is a join view: its tuples are read from the files of its tables. Leave out the other place."
        )
    sides = [taking_part(read.good(each.relation), each) for each in plan.relations]
    joined = joined_rows(plan, sides)
    first = next(each.time for each in plan.inputs if each.time is not None)
    of = _hour(F.col(quoted(first)))
    every = [tried(read.spark, each.text).alias(each.name) for each in plan.outputs]
    return joined.select(*every, of.alias(_OF)), F.col(_OF), "hour"


def _window_rows(read: _Read, name: str, flat: WindowQuery) -> DataFrame:
    spark, view = read.spark, read.declared.views[name]
    if flat.over is None:
        tuples = read.good(view.stream)
    else:
        below = read.declared.view_name(flat.source)
        inner = flatten(read.declared.views[below].query, read.declared.queries)
        refuse_unjudged(below, inner)
        assert not isinstance(inner, SelectQuery | UnionQuery), "it is a window or join view"
        tuples = _rows(read, below, inner)[0].drop(_OF)
    if flat.where is not None:
        tuples = tuples.where(holds(spark, outline(flat.where)))
    table = f"__penstock_{uuid.uuid4().hex}"
    texts = QueryTexts(flat, table)
    tuples.createOrReplaceTempView(table)
    try:
        written = queried(spark, texts.written().text, [table]).columns
        groups = queried(spark, texts.over_groups().text, [table])
    finally:
        spark.catalog.dropTempView(table)
    groups = groups.toDF(*(f"_{number}" for number in range(len(groups.columns))))
    conditions = [f"_{number}" for number in range(1 + len(flat.outputs), len(groups.columns))]
    kept = reduce(DataFrame.where, map(F.col, conditions), groups)
    own = [F.col(f"_{number}").alias(each) for number, each in enumerate(written, 1)]
    of = F.col("_0.start") if flat.time else F.lit(None)
    return kept.select(*own, of.cast("string").alias(_OF))


def _condition(spark: SparkSession, where: str | None) -> tuple[Column, Column]:
    """Whether a tuple matches, and whether a condition raises for it."""
    if where is None:
        return F.lit(True), F.lit(False)
    part = outline(where)
    whole = tried(spark, f"({where}\n) IS NULL")
    return F.coalesce(holds(spark, part), F.lit(False)), whole.isNull()


def _projected(spark: SparkSession, flat: SelectQuery, relation: Relation) -> list[Column]:
    columns: list[Column] = []
    for each in flat.projection or ():
        if each.is_star:
            columns += map(F.col, map(quoted, relation.schema.fieldNames()))
        elif each.name is None:
            columns.append(computed(spark, each.expression))
        else:
            columns.append(tried(spark, each.expression).alias(each.name))
    return columns


def _hour(moment: Column) -> Column:
    return F.date_trunc("hour", moment).cast("string")


def _within(frame: DataFrame, relation: Relation, wanted: Wanted) -> DataFrame:
    """The tuples of a span of event time; records that do not fit have none and are left out with it."""
    bounds: Mapping[str, str | datetime | None] = {"since": wanted.since, "until": wanted.until}
    for name, bound in bounds.items():
        if bound is None:
            continue
        if relation.event_time is None:
            raise InputError(
                f"Stream {relation.name} has no event time, so `{name}` selects nothing. Set the table option event_time."
            )
        column = F.col(quoted(relation.event_time))
        limit = F.lit(_moment(name, bound)).cast(relation.schema[relation.event_time].dataType)
        frame = frame.where(column >= limit if name == "since" else column < limit)
    return frame


def _moment(name: str, given: str | datetime) -> str:
    try:
        moment = given if isinstance(given, date) else datetime.fromisoformat(given)
    except ValueError:
        raise InputError(
            f"{name} {given!r} is not a date or timestamp. Write one such as 2026-01-31 or '2026-01-31 12:00'."
        ) from None
    return moment.isoformat(" ")
