"""The views of a CREATE VIEWS statement: brought to what its files have, one by one where they have mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.errors import InputError
from penstock.spark.declared import Declared, RuleSet
from penstock.sql.script.rules import RefusedRule, Rule
from penstock.sql.script.script import CreateView

#: adds or redefines views, all of them or none
Declare = Callable[[Declared, Mapping[str, CreateView]], None]


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """What a look at the files of a CREATE VIEWS statement changed.

    Attributes:
        path: of the statement.
        added, redefined, dropped: names of views.
        refused: rules with mistakes that were not known; the views of old ones remain as they were.
        standing: all rules with mistakes, known or not.
    """

    path: str
    added: list[str] = field(default_factory=list)
    redefined: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    refused: list[RefusedRule] = field(default_factory=list)
    standing: tuple[RefusedRule, ...] = ()


def follow_rules(staged: Declared, path: str, declare: Declare) -> RuleChanges:
    """Bring the views of a CREATE VIEWS statement to what its files were when they were last read.

    A rule with a mistake is refused and the others are declared. The view that it was before remains, and so do all views of a
    file that does not say which it declares.

    Args:
        staged: what is declared; it is changed.
        path: of the statement.
        declare: adds or redefines views.
    """
    before = staged.rules[path]
    found, refused = before.files.rules()
    # a file whose name changed in case only has the view that it had
    known = {name.upper(): name for name in before.views}
    rules = {known.get(name.upper(), name): rule for name, rule in found.items()}
    others = {name.upper(): name for name in staged.names if name not in before.views}
    free = {name: rule for name, rule in rules.items() if name.upper() not in others}
    refused += [
        rule.refused(InputError(f"{others[name.upper()]} exists already. Choose another name."))
        for name, rule in rules.items()
        if name not in free
    ]
    changed = {
        name: rule
        for name, rule in free.items()
        if name not in before.views or before.views[name].view.text != rule.view.text
    }
    mistakes = dict(_declared(staged, changed, declare))
    refused += [changed[name].refused(error) for name, error in mistakes.items()]
    views = dict(before.views)
    views.update((name, rule) for name, rule in free.items() if name not in mistakes)
    dropped = []
    for name in _gone(before, rules, refused):
        if (error := _drop(staged, name)) is not None:
            refused.append(before.views[name].refused(error))
            continue
        del views[name]
        dropped.append(name)
    staged.rules[path] = RuleSet(before.files, views, tuple(refused))
    good = [name for name in changed if name not in mistakes]
    return RuleChanges(
        path,
        [name for name in good if name not in before.views],
        [name for name in good if name in before.views],
        dropped,
        [each for each in refused if each not in before.refused],
        tuple(refused),
    )


def _declared(
    staged: Declared, rules: Mapping[str, Rule], declare: Declare
) -> Iterator[tuple[str, InputError]]:
    """Declares the rules that can be, and yields the others with their mistakes: by halves, as a mistake fails all of a step."""
    if not rules:
        return
    trial = staged.copy()
    try:
        declare(trial, {name: rule.view for name, rule in rules.items()})
    except InputError as error:
        if len(rules) == 1:
            yield next(iter(rules)), error
            return
        pairs = list(rules.items())
        half = len(pairs) // 2
        yield from _declared(staged, dict(pairs[:half]), declare)
        yield from _declared(staged, dict(pairs[half:]), declare)
    else:
        staged.adopt(trial)


def _gone(before: RuleSet, rules: Collection[str], refused: list[RefusedRule]) -> list[str]:
    """The views that no file declares any more."""
    named = {each.name.upper() for each in refused if each.name is not None}
    unclear = {each.file for each in refused if each.name is None}
    return [
        name
        for name, rule in before.views.items()
        if name not in rules and name.upper() not in named and rule.file not in unclear
    ]


def _drop(staged: Declared, name: str) -> InputError | None:
    """Drops a view, or returns why it cannot be."""
    trial = staged.copy()
    trial.drop(name)
    try:
        trial.refuse_loose_ends()
    except InputError as error:
        return error
    staged.adopt(trial)
    return None
