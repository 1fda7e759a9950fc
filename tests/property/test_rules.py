"""Rules as trees answer what their tests say, one by one, whatever gates, types and classes are found."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.rules import matcher
from penstock.operators.rules.facts import compile_rules
from penstock.operators.rules.matcher import RuleMatcher, gates
from penstock.operators.selection.pruning import CodeBounds, code_bounds, could_match
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.plan.patterns import TextPattern, formed, holds
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.trees import ALWAYS, NEVER, EqualTexts, Every, Some, TextSet, Tree
from penstock.plan.trees import Test as Leaf
from penstock.plan.value_sets import Interval, ValueSet, contains
from text_cases import FORMS

WORDS = ["", "a", "A", "ab", "aB_c", "b%", "é", "Ωσ", "long text with words"]
PATTERNS = ["%a%", "a%", "%c", "_", "", "%", "%text%", "a%c", "%\\%", "%é%"]
ATTRIBUTES = (
    Attribute("s", pa.string(), "`s`"),
    Attribute("s", pa.string(), "`s`"),
    Attribute("t", pa.string(), "`t`"),
    Attribute("i", pa.int32(), "`i`"),
    Attribute("d", pa.float64(), "`d`"),
)
#: which of them are matched against patterns
TEXTS = (0, 2)


def test_nothing_and_everything() -> None:
    for tree, expected in ((ALWAYS, [0, 1, 2]), (NEVER, [0, 0, 0])):
        plan = compile_rules(SelectionSet(ATTRIBUTES, (Query("q", (), tree),)))
        assert plan is not None
        answer = RuleMatcher(plan).match([], 2)
        assert answer is not None
        assert answer[0].tolist() == expected


def test_gates_are_what_most_rules_need_something_of() -> None:
    channel, event = Attribute("channel", pa.string(), "`channel`"), Attribute("event", pa.int32(), "`event`")
    line = Attribute("line", pa.string(), "`line`")
    rules = tuple(
        Query(
            str(number),
            (),
            Every(
                (
                    Leaf(0, TextSet(TextPattern("like", "sys%", ("lower",)))),
                    Leaf(1, ValueSet((Interval(number % 3, number % 3),))),
                    Some(
                        (
                            Leaf(2, TextSet(TextPattern("like", f"%{number}%"))),
                            Leaf(2, ValueSet((), null=True)),
                        )
                    ),
                )
            ),
        )
        for number in range(10)
    )
    plan = compile_rules(SelectionSet((channel, event, line), rules))
    assert plan is not None
    assert {plan.attributes[each].name for each in gates(plan)} == {"channel", "event", "line"}
    columns = {"channel": ["SYS", "sys", "app"], "event": [1, 7, 1], "line": ["14", "14", "14"]}
    arrays = [pa.array(columns[each.name]) for each in plan.attributes]
    answer = RuleMatcher(plan).match(arrays, 3)
    assert answer is not None
    offsets, queries = answer
    assert offsets.tolist() == [0, 2, 2, 2]
    assert queries.tolist() == [1, 4]


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_trees_are_answered_as_their_tests_say(seed: int) -> None:
    _compare(seed)


@pytest.mark.parametrize("seed", range(6))
def test_forgetting_types_and_classes_changes_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "MOST_CLASSES", 3)
    monkeypatch.setattr(matcher, "MOST_SIGNATURES", 3)
    monkeypatch.setattr(matcher, "MOST_TYPES", 1 + seed % 3)
    _compare(seed, rows=200)


def _of_lines(rules: int) -> RuleMatcher:
    """A matcher of rules over one column of text."""
    trees = [
        Leaf(0, TextSet(TextPattern("like", f"%w{number:03d}%"), number % 2 == 0)) for number in range(rules)
    ]
    queries = tuple(Query(f"q{number}", (), tree) for number, tree in enumerate(trees))
    plan = compile_rules(SelectionSet((Attribute("s", pa.string(), "`s`"),), queries))
    assert plan is not None
    return RuleMatcher(plan)


def _lines(random: Random, count: int) -> pa.Array:
    return pa.array([" ".join(f"w{random.randrange(60):03d}" for _ in range(8)) for _ in range(count)])


def test_what_never_repeats_is_no_gate_and_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "MOST_TYPES", 50)
    monkeypatch.setattr(matcher, "MOST_SIGNATURES", 1_000)
    monkeypatch.setattr(matcher, "MOST_CLASSES", 1_000)
    random = Random(3)
    rules = _of_lines(60)
    assert rules._gates == [0]
    for _ in range(8):
        lines = _lines(random, 400)
        answer = rules.match([lines], len(lines))
        assert answer is not None
        offsets, queries = answer
        for row, line in enumerate(lines.to_pylist()):
            expected = [n for n in range(60) if (f"w{n:03d}" in line) is (n % 2 == 0)]
            assert queries[offsets[row] : offsets[row + 1]].tolist() == expected
    assert rules._gates == []
    assert sum(coder.signatures for coder in rules._coders) <= 1_000 + 400
    assert sum(kind.classes for kind in rules._types.values()) <= 1_000 + 400


def test_too_many_matches_are_not_written() -> None:
    rules, lines = _of_lines(20), _lines(Random(1), 100)
    assert rules.match([lines], 100, most=10) is None
    assert rules.match([lines], 100) is not None
    assert rules.match([lines[:1]], 1, most=0) is not None, "one tuple may have as many as it has"


def _compare(seed: int, rows: int = 40) -> None:
    random = Random(seed)
    needed = _tree(random, 1)
    queries = []
    for number in range(random.randint(1, 12)):
        tree = _tree(random, random.randint(0, 3))
        if random.random() < 0.7:
            tree = Every((needed, tree))
        queries.append(Query(f"q{number}", (), tree))
        if random.random() < 0.3:
            one = Term(((3, ValueSet((Interval(0, 2),))),))
            queries.append(Query(f"t{number}", (one,)))
    plan = compile_selections(SelectionSet(ATTRIBUTES, tuple(queries)))
    selector = Selector(plan)
    for batch in range(3):
        values = {
            "s": [random.choice([*WORDS, None]) for _ in range(rows)],
            "t": [random.choice([*WORDS, None, f"x{batch}"]) for _ in range(rows)],
            "i": [random.choice([None, -1, 0, 1, 2, 3, 9]) for _ in range(rows)],
            "d": [random.choice([None, 0.0, 0.5, 1.0, float("nan")]) for _ in range(rows)],
        }
        arrays = {each.name: pa.array(values[each.name], each.type) for each in ATTRIBUTES}
        if batch == 1:
            arrays["s"] = arrays["s"].dictionary_encode()
        matches = selector.match([arrays[name] for name in plan.columns], rows)
        expected = [
            [
                number
                for number, query in enumerate(queries)
                if _holds(query, {n: v[row] for n, v in values.items()})
            ]
            for row in range(rows)
        ]
        found = [part.tolist() for part in np.split(matches.queries, matches.offsets[1:-1])]
        assert found == expected
        few = {name: array.slice(0, 2) for name, array in arrays.items()}
        if any(expected[:2]):
            assert could_match(plan, _bounds(selector, few)), "statistics rule out no block with a match"


def _bounds(selector: Selector, columns: dict[str, pa.Array]) -> list[CodeBounds | None]:
    """What statistics say of some columns."""
    bounds: list[CodeBounds | None] = []
    for encoder in selector.bounding_encoders:
        column = None if encoder is None else columns[encoder.coding.name]
        if encoder is None or column is None or pa.types.is_dictionary(column.type):
            bounds.append(None)
            continue
        if pa.types.is_floating(column.type):
            column = pc.replace_with_mask(column, pc.fill_null(pc.is_nan(column), False), pa.scalar(0.0))
        ends = pc.min_max(column).as_py()
        known = ends["min"] is not None
        bounds.append(
            code_bounds(encoder, ends["min"], ends["max"], column.null_count > 0) if known else None
        )
    return bounds


def test_blocks_that_no_rule_can_hold_of() -> None:
    late, named = Leaf(3, ValueSet((Interval(5, 9),))), Leaf(0, TextSet(TextPattern("like", "%a%")))
    missing = Leaf(3, ValueSet((), null=True))
    for tree, ends, has_null, expected in (
        (Every((late, named)), (0, 4), True, False),
        (Every((late, named)), (0, 5), False, True),
        (Every((Some((late, missing)), named)), (0, 4), True, True),
        (Every((Some((late, missing)), named)), (0, 4), False, False),
        (Some((late, named)), (0, 4), False, True),
    ):
        plan = compile_selections(SelectionSet(ATTRIBUTES, (Query("q", (), tree),)))
        encoders = Selector(plan).bounding_encoders
        bounds = [
            code_bounds(each, *ends, has_null) if each is not None and each.coding.name == "i" else None
            for each in encoders
        ]
        assert could_match(plan, bounds) is expected
        assert could_match(plan, [None] * len(bounds))


def _tree(random: Random, depth: int) -> Tree:
    if depth == 0:
        attribute = random.randrange(len(ATTRIBUTES))
        if attribute in TEXTS and random.random() < 0.2:
            forms = random.choice(FORMS), random.choice(FORMS)
            equal = EqualTexts(2 - attribute, forms, (random.choice((None, "a")), random.choice((None, ""))))
            return Leaf(attribute, replace(equal, is_match=random.random() < 0.7, null=random.random() < 0.3))
        if attribute in TEXTS:
            pattern = TextPattern("like", random.choice(PATTERNS), random.choice(FORMS))
            return Leaf(attribute, TextSet(pattern, random.random() < 0.7, random.random() < 0.3))
        return Leaf(attribute, _values(random, ATTRIBUTES[attribute].type))
    parts = tuple(_tree(random, depth - 1) for _ in range(random.randint(0, 3)))
    return Every(parts) if random.random() < 0.5 else Some(parts)


def _values(random: Random, kind: pa.DataType) -> ValueSet:
    null = random.random() < 0.3
    if pa.types.is_string(kind):
        word = random.choice(WORDS).encode()
        bound = random.choice(
            [Interval(word, word), Interval(word, None), Interval(None, word, high_closed=False)]
        )
        return ValueSet((bound,), null)
    low = random.randint(-1, 3)
    number = low if pa.types.is_integer(kind) else float(low) / 2
    return ValueSet(
        (random.choice([Interval(number, number), Interval(number, None), Interval(None, number)]),), null
    )


def _holds(query: Query, tuple_: dict[str, object]) -> bool:
    if query.tree is not None:
        return _tree_holds(query.tree, tuple_)
    return any(all(_is_in(Leaf(*each), tuple_) for each in term.predicates) for term in query.terms)


def _tree_holds(tree: Tree, tuple_: dict[str, object]) -> bool:
    if isinstance(tree, Leaf):
        return _is_in(tree, tuple_)
    parts = (_tree_holds(part, tuple_) for part in tree.parts)
    return all(parts) if isinstance(tree, Every) else any(parts)


def _is_in(test: Leaf, tuple_: dict[str, object]) -> bool:
    value = tuple_[ATTRIBUTES[test.attribute].name]
    values = test.values
    if isinstance(values, EqualTexts):
        strings = [
            instead if text is None else formed(form, str(text))
            for text, form, instead in zip(
                (value, tuple_[ATTRIBUTES[values.other].name]), values.forms, values.if_null, strict=True
            )
        ]
        return values.null if None in strings else (strings[0] == strings[1]) is values.is_match
    if isinstance(values, TextSet):
        if value is None:
            return values.null
        return holds(values.pattern, str(value)) is values.is_match
    if isinstance(value, str):
        return contains(values, value.encode())
    return contains(values, value)  # type: ignore[arg-type]
