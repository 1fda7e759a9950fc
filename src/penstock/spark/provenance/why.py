"""Why a tuple is in the rows of a view, or is not: its conditions, windows and partners."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InputError, UnknownNameError, UnsupportedError
from penstock.monitor.figures import shortened
from penstock.monitor.folder import folder_layout, quarantined_records
from penstock.plan.joins import JoinPlan, OptionalJoin
from penstock.provenance import Conjunct, Partners, Why
from penstock.spark.declaring.beneath import columns_beneath
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.provenance.joining import ASKED, joined_rows, partners, taking_part
from penstock.spark.provenance.relations import Relation, find_relation
from penstock.spark.provenance.rows import some_rows
from penstock.spark.provenance.tuples import GivenTuple, of_json, of_record, of_values
from penstock.spark.provenance.verdicts import Answer, answers, judged, texts_of
from penstock.spark.provenance.windows import windows_of, with_fate, without_fate
from penstock.spark.recovery.messages import first_line, quoted
from penstock.spark.sources.stored_tuples import StoredTuples
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.tasks.dataframe_stage import REASON
from penstock.sql.conditions.outline import Outline, outline
from penstock.sql.joins.query import JoinQuery
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.statements import Query
from penstock.sql.script.views import FlatQuery, flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery
from penstock.sql.windows.query import WindowQuery

#: partners that are shown of each input
_MOST_PARTNERS = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """A tuple that is asked about; one of `row` and `quarantined` is given.

    Attributes:
        row: a JSON object as text, or column -> Python value.
        quarantined: which quarantined record of the tuple's stream, 1 the newest.
        input: of a join view the input that the tuple is of: its alias or table; None: the one whose columns fit best.
        output: a results folder; None: nothing is known of windows that were published.
    """

    row: str | Mapping[str, Any] | None = None
    quarantined: int | None = None
    input: str | None = None
    output: str | Path | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """What the tuple is judged by.

    Attributes:
        kind: of the view.
        relation: what the tuple is of.
        conditions: those on the tuple, each with the view that states it.
        number: of a join the input's number.
        input: of a join what the query calls it.
        notes: for the reader of the answer.
    """

    kind: str
    relation: Relation
    conditions: Sequence[tuple[str, str]]
    number: int = -1
    input: str = ""
    notes: list[str] = field(default_factory=list)


def why(spark: SparkSession, declared: Declared, view: str, asked: Asked, max_record_bytes: int) -> Why:
    """Say why a tuple is in the rows of a view, or is not; see `Engine.why`.

    Args:
        spark: the session.
        declared: what is declared; it is not changed.
        view: the view's name.
        asked: the tuple.
        max_record_bytes: larger records are malformed.
    """
    name = declared.view_name(view)
    found = declared.views[name]
    flat = flatten(found.query, declared.queries)
    refuse_unjudged(name, flat)
    target = _target(spark, declared, name, flat, asked)
    given, reason, origin = _given(spark, target, asked, max_record_bytes)
    columns = target.relation.schema.fieldNames()
    outlines = [(owner, part) for owner, text in target.conditions for part in outline(text).conjuncts]
    texts = [*given.texts, *(text for _, part in outlines for text in texts_of(part, columns))]
    values = answers(given.frame, texts)
    misfit = given.misfit(values)
    if misfit and not given.is_own:
        what = misfit.partition(": ")[2] or misfit
        raise InputError(f"The row does not fit the columns of {target.relation.name}: {what}.")
    told = Why(
        name,
        target.kind,
        target.relation.name,
        target.input,
        {} if misfit else {column: values[quoted(column)].value for column in columns},
        given.missing,
        given.unknown,
        reason or misfit,
        notes=(*origin, *target.notes),
    )
    if misfit:
        return told
    return _whole(spark, declared, told, (flat, found), target, (given, outlines, values), asked.output)


def _whole(
    spark: SparkSession,
    declared: Declared,
    told: Why,
    view: tuple[Query, View],
    target: _Target,
    judging: tuple[GivenTuple, Sequence[tuple[str, Outline]], Mapping[str, Answer]],
    output: str | Path | None,
) -> Why:
    """Adds verdicts, windows and partners to an answer."""
    flat, found = view
    given, outlines, values = judging
    columns = target.relation.schema.fieldNames()
    conjuncts = tuple(Conjunct(owner, judged(part, columns, values)) for owner, part in outlines)
    told = replace(told, conjuncts=conjuncts)
    if isinstance(flat, WindowQuery) and flat.is_running:
        note = (
            "The view has no window: it counts every tuple that its conditions keep, whatever the event time."
            if flat.gap is None and flat.ranking is None
            else "The view ranks every tuple that its conditions keep: the tuple has a row if its place is within the bound."
            if flat.gap is None
            else f"The tuple opens or extends a session of its keys, for {flat.gap / 1e6:g} s from its event time. Without a "
            "usable event time it is in no session."
        )
        return replace(told, notes=(*told.notes, note))
    if isinstance(flat, WindowQuery):
        windows = windows_of(given.frame, flat)
        laid = (
            without_fate(windows, flat)
            if output is None
            else with_fate(windows, flat, folder_layout(output), told.view)
        )
        notes = (
            told.notes
            if laid
            else (*told.notes, f"{flat.time} is NULL or raises: the tuple is in no window.")
        )
        return replace(told, windows=tuple(laid), notes=notes)
    if isinstance(found.definition, JoinDefinition):
        return _with_partners(spark, declared, told, found.definition, target, given.frame)
    return told


def refuse_unjudged(name: str, flat: FlatQuery) -> None:
    """Make sure that a view is no UNION ALL: a tuple is judged by the conditions of one selection; and has no cumulating windows.

    Raises:
        UnsupportedError: it is one, or has some.
    """
    if isinstance(flat, UnionQuery):
        message = f"View {name} is a UNION ALL. Declare one of its branches as a view, and ask about that."
        raise flat.clause.error(UnsupportedError, message)
    if isinstance(flat, WindowQuery) and flat.windows.is_cumulating:
        message = f"View {name} has cumulating windows, which are not judged yet. Ask about a view without the hint CUMULATE."
        raise flat.window_clause.error(UnsupportedError, message)


def _target(spark: SparkSession, declared: Declared, name: str, flat: FlatQuery, asked: Asked) -> _Target:
    view = declared.views[name]
    assert not isinstance(flat, UnionQuery), "it was refused"
    if isinstance(flat, JoinQuery):
        assert isinstance(view.definition, JoinDefinition)
        return _join_target(spark, declared, name, view.definition, asked)
    if isinstance(flat, WindowQuery) and flat.over is not None:
        below = declared.view_name(flat.source)
        schema = columns_beneath(declared, below)[1]
        relation = Relation(below, schema, StoredTuples("rows", None, schema, {}))
        notes = [f"The row is one of view {below}."]
    else:
        relation, notes = find_relation(spark, declared, view.stream), []
    kind = "selection"
    if isinstance(flat, WindowQuery):
        kind = "deadline" if isinstance(view.definition, DeadlineDefinition) else "window"
        kind = "running" if flat.is_running else kind
        notes += [f"HAVING is a condition on groups: {each.clause.text}" for each in flat.having]
    return _Target(kind, relation, list(_owned(declared, name, flat)), notes=notes)


def _owned(declared: Declared, name: str, flat: SelectQuery | WindowQuery) -> Iterator[tuple[str, str]]:
    """The conditions on tuples of a flattened view, each with the view that states it, the innermost view's first."""
    chain: list[tuple[str, Query]] = []
    source: str | None = name
    while source is not None and (not chain or source.upper() != flat.source.upper()):
        query = declared.views[source].query
        if isinstance(query, WindowQuery):
            # selections over it are conditions on groups
            chain.clear()
        chain.append((source, query))
        assert not isinstance(query, JoinQuery | RefreshedQuery | UnionQuery), "it is over none of these"
        source = declared.spelled.get(query.source.upper())
    owners = [
        owner
        for owner, query in reversed(chain)
        if not isinstance(query, JoinQuery | RefreshedQuery | UnionQuery)
        for _ in query.conditions
    ]
    for owner, clause in zip(owners, flat.conditions, strict=True):
        yield owner, clause.text


def _join_target(
    spark: SparkSession, declared: Declared, name: str, definition: JoinDefinition, asked: Asked
) -> _Target:
    inputs = definition.plan.relations
    names = [each.alias for each in inputs]
    if asked.input is not None:
        wanted = asked.input.upper()
        chosen = [n for n, each in enumerate(inputs) if each.alias.upper() == wanted]
        chosen = chosen or [n for n, each in enumerate(inputs) if each.relation.upper() == wanted]
        if not chosen:
            raise UnknownNameError(f"View {name} has no input {asked.input}. Its inputs: {', '.join(names)}")
    else:
        given = _names(asked.row)
        fits = [len(given & set(_columns(declared, each.relation))) for each in inputs]
        chosen = [n for n, fit in enumerate(fits) if fit == max(fits)]
    if len(chosen) > 1:
        raise InputError(
            f"View {name} joins several inputs that the row may be of: {', '.join(names[n] for n in chosen)}. Name one "
            "with --input."
        )
    own = inputs[chosen[0]]
    relation = find_relation(spark, declared, own.relation)
    conditions = [] if own.condition is None else [(name, own.condition)]
    return _Target("join", relation, conditions, chosen[0], own.alias)


def _columns(declared: Declared, relation: str) -> list[str]:
    known = declared.statics.get(relation)
    names: list[str] = (known.schema if known else declared.streams[relation].source.schema).fieldNames()
    return names


def _names(row: str | Mapping[str, Any] | None) -> set[str]:
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except ValueError:
            return set()
    return set(row) if isinstance(row, Mapping) else set()


def _given(
    spark: SparkSession, target: _Target, asked: Asked, max_record_bytes: int
) -> tuple[GivenTuple, str, Sequence[str]]:
    """The tuple; if it is from the quarantine, why it is there, and which record it is."""
    schema, stored = target.relation.schema, target.relation.stored
    if asked.quarantined is not None:
        record = _quarantined(asked.output, target.relation.name, asked.quarantined)
        if record["record"] is None:
            raise InputError(
                f"Quarantined record {asked.quarantined} of {target.relation.name} has no text: {record['reason']} ({record['origin']})."
            )
        taken = _record_words(record, asked.quarantined, target.relation.name)
        return of_record(spark, stored, schema, record["record"], max_record_bytes), record["reason"], [taken]
    if isinstance(asked.row, str):
        return of_json(spark, stored, schema, asked.row, max_record_bytes), "", ()
    if asked.row is None:
        raise InputError("Give a row, or the number of a quarantined record.")
    return of_values(spark, stored, schema, asked.row), "", ()


def _record_words(record: Mapping[str, Any], number: int, relation: str) -> str:
    """Which quarantined record was taken."""
    at = "" if record["time"] is None else f", set aside {record['time']}"
    return f"quarantined record {number} of {relation} (batch {record['batch']}{at}, {record['origin']}): {shortened(record['record'])}"


def _quarantined(output: str | Path | None, relation: str, number: int) -> dict[str, Any]:
    if output is None:
        raise InputError("A quarantined record needs the results folder.")
    if number < 1:
        raise InputError(f"Quarantined record {number} does not exist. The newest has number 1.")
    records = list(quarantined_records(folder_layout(output), relation, number))
    if len(records) < number:
        raise InputError(
            f"Quarantined record {number} of {relation} does not exist. The quarantine has {len(records)}."
        )
    return records[-1]


def _with_partners(
    spark: SparkSession,
    declared: Declared,
    told: Why,
    definition: JoinDefinition,
    target: _Target,
    tuple_: DataFrame,
) -> Why:
    plan = definition.plan
    own = taking_part(tuple_, plan.relations[target.number])
    sides: dict[int, DataFrame] = {target.number: own}
    found: list[Partners] = []
    for number, each in enumerate(plan.relations):
        if number == target.number:
            continue
        try:
            frame = find_relation(spark, declared, each.relation).over(None).read(spark)
            good = frame.where(F.col(REASON).isNull())
            sides[number] = taking_part(good, each)
            met = partners(plan, sides, target.number, number)
            rows = some_rows(
                met.toDF(*(name.removeprefix(f"_{number}_") for name in met.columns)), _MOST_PARTNERS
            )
            found.append(Partners(each.alias, each.relation, good.count(), met.count(), rows))
        except InputError as error:
            found.append(Partners(each.alias, each.relation, None, None, (), str(error)))
        except PySparkException as error:
            found.append(Partners(each.alias, each.relation, None, None, (), first_line(error)))
    joined = None
    if len(sides) == len(plan.relations):
        is_version = plan.is_as_of and target.number in plan.optional
        is_looked_up = target.number >= len(plan.inputs)
        if is_looked_up:
            # rows that have it: others are there without it
            sides[target.number] = own.withColumn(ASKED, F.lit(True))
        if is_version:
            # it is in the rows whose newest version it is
            asked = plan.inputs[target.number]
            every = find_relation(spark, declared, asked.relation).over(None).read(spark)
            others = taking_part(every.where(F.col(REASON).isNull()), asked)
            versions = own.withColumn(ASKED, F.lit(True)).unionByName(others.withColumn(ASKED, F.lit(False)))
            sides[target.number] = versions
        whole = joined_rows(plan, [sides[number] for number in range(len(plan.relations))])
        joined = (whole.where(ASKED) if is_version or is_looked_up else whole).count()
    return replace(
        told, partners=tuple(found), joined=joined, notes=(*told.notes, *_alone(plan, found, joined))
    )


def _alone(plan: JoinPlan, found: Sequence[Partners], joined: int | None) -> Iterator[str]:
    """Yield why a tuple without a partner is in the rows of an outer join."""
    if not joined:
        return
    missing = ", ".join(each.input for each in found if each.count == 0)
    if missing and plan.kind is OptionalJoin.ANTI:
        yield f"no tuple of {missing} meets the condition, so the row is in the result of the {plan.kind}"
    elif missing:
        yield f"no tuple of {missing} meets the condition, so the columns of {missing} are NULL in the joined row"
