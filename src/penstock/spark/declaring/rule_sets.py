"""The views of a CREATE VIEWS statement: brought to what its files have, one by one where they have mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import DuplicateNameError, InputError, UnknownNameError
from penstock.spark.declaring.declared import Declared, Mistake, RuleSet
from penstock.spark.reporting.definitions import is_selection
from penstock.sql.script.rules import RefusedRule, Rule, rule_of_text
from penstock.sql.script.statements import CreateView, InsertInto, Query, sources_of

#: adds or redefines views, all of them or none
Declare = Callable[[Declared, Mapping[str, CreateView]], None]


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """What a look at the files of a CREATE VIEWS statement changed.

    Attributes:
        path: of the statement.
        added, redefined, dropped: names of views.
        refused: rules with mistakes that were not known; the views of old ones remain as they were.
        mended: rules whose mistakes were known and are no more.
        standing: all rules with mistakes, known or not.
    """

    path: str
    added: list[str] = field(default_factory=list)
    redefined: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    refused: list[RefusedRule] = field(default_factory=list)
    mended: list[RefusedRule] = field(default_factory=list)
    standing: tuple[RefusedRule, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether views and rules with mistakes are as they were."""
        return not (self.added or self.redefined or self.dropped or self.refused or self.mended)


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
    names = staged.names
    others = {
        name: taken
        for name in rules
        if (taken := names.get(name.upper())) is not None and taken not in before.views
    }
    free = {name: rule for name, rule in rules.items() if name not in others}
    refused += [
        rules[name].refused(InputError(f"{taken} exists already. Choose another name."))
        for name, taken in others.items()
    ]
    changed = {
        name: rule
        for name, rule in free.items()
        if name not in before.views or before.views[name].view.text != rule.view.text
    }
    gone = [name for name in _gone(before, rules, refused) if name in staged.views]
    needed = staged.drop_unneeded(gone)
    mistakes = _mistakes(staged, changed, before.mistakes, declare)
    needed = staged.drop_unneeded(needed)
    refused += [each.refused for each in mistakes.values()]
    refused += [before.views[name].refused(error) for name, error in needed.items()]
    views = {name: rule for name, rule in before.views.items() if name in staged.views}
    dropped = [name for name in gone if name not in needed]
    views.update((name, rule) for name, rule in free.items() if name not in mistakes)
    good = [name for name in changed if name not in mistakes]
    outdated = {name: rule for name, rule in views.items() if name not in free or name in mistakes}
    refused = [replace(each, kept=_kept(each, outdated)) for each in refused]
    staged.rules[path] = RuleSet(before.files, views, tuple(refused), mistakes)
    return RuleChanges(
        path,
        [name for name in good if name not in before.views],
        [name for name in good if name in before.views],
        dropped,
        [each for each in refused if each not in before.refused],
        [each for each in before.refused if each not in refused],
        tuple(refused),
    )


def before_rules(
    declared: Declared, views: Iterable[CreateView]
) -> tuple[dict[str, CreateView], dict[str, CreateView]]:
    """The views of a script by name: those that select from what exists, and those that need views of rules."""
    known, new = declared.names, set[str]()
    first: dict[str, CreateView] = {}
    over: dict[str, CreateView] = {}
    for view in views:
        if all(source.upper() in known or source.upper() in new for source, _ in sources_of(view.query)):
            new.add(view.name.upper())
            first[view.name] = view
        else:
            over[view.name] = view
    return first, over


def after_refused(
    declared: Declared, statements: Iterable[CreateView | InsertInto]
) -> tuple[list[CreateView | InsertInto], list[CreateView | InsertInto]]:
    """Statements of a script: those that can be declared or never can, and those that need views of rules with mistakes."""
    known, new = declared.names, set[str]()
    refused = [each for rules in declared.rules.values() for each in rules.refused]
    # a file that does not say what it declares may declare any of them
    is_unclear = any(each.name is None for each in refused)
    late = {each.name.upper() for each in refused if each.name is not None}
    late |= {each.name.upper() for each in declared.waiting if isinstance(each, CreateView)}
    now: list[CreateView | InsertInto] = []
    after: list[CreateView | InsertInto] = []
    for statement in statements:
        sources = {source.upper() for source, _ in sources_of(statement.query)} - new
        missing = {source for source in sources if source not in known}
        is_late = bool(missing) and (is_unclear or not late.isdisjoint(missing))
        (after if is_late else now).append(statement)
        if isinstance(statement, CreateView):
            (late if is_late else new).add(statement.name.upper())
    return now, after


def refuse_unknown(
    declared: Declared, views: Mapping[str, CreateView], queries: Iterable[Query] = ()
) -> None:
    """Make sure that views over those of rules, and queries, select from what exists, and have names of their own.

    Raises:
        UnknownNameError: a view that is selected from does not exist, or its rule has a mistake.
        DuplicateNameError: a rule declares a view of the name.
    """
    new: set[str] = set()
    ruled = {name.upper() for rules in declared.rules.values() for name in rules.views}
    for view in views.values():
        _refuse_unknown(declared, new, view.query)
        if view.name.upper() in ruled:
            _, clause = sources_of(view.query)[0]
            message = f"{view.name} exists already: a file of CREATE VIEWS declares it. Choose another name."
            raise DuplicateNameError(message, clause.script, view.start, view.end)
        new.add(view.name.upper())
    for query in queries:
        _refuse_unknown(declared, new, query)


def _refuse_unknown(declared: Declared, new: Collection[str], query: Query) -> None:
    known = declared.names
    refused = {
        each.name.upper(): each
        for rules in declared.rules.values()
        for each in rules.refused
        if each.name is not None
    }
    for source, clause in sources_of(query):
        if source.upper() in known or source.upper() in new:
            continue
        if (rule := refused.get(source.upper())) is not None:
            reason = str(rule).removesuffix(".")
            message = (
                f"View {source} is not declared, because its rule has a mistake: {reason}. Correct the rule."
            )
        else:
            names = list(known.values())
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            message = (
                f"Table or view {source} does not exist, in the script or in a file of CREATE VIEWS. Existing ones: "
                f"{', '.join(names[:20])}{more}"
            )
        raise clause.at(UnknownNameError(message, name=source, known=[*known.values()]))


def keep_last_definitions(
    staged: Declared, catalog: Mapping[str, Any], declare: Declare, aggregates: Collection[str]
) -> None:
    """Declare the views of rules with mistakes as an earlier run had them.

    A selection whose last definition has a mistake too remains without one.

    Args:
        staged: what is declared; it is changed.
        catalog: of the results folder.
        declare: adds or redefines views.
        aggregates: names of the user's aggregates.

    Raises:
        InputError: so has that of a view with windows or joined rows, whose state a start would drop.
    """
    for path, rules in list(staged.rules.items()):
        last: dict[str, Rule] = {}
        failed: dict[str, RefusedRule] = {}
        lost = dict(_lost(staged, rules, catalog))
        for name, refused in lost.items():
            rule = rule_of_text(
                catalog["views"][name]["sql"], refused.file, refused.place, name, None, aggregates
            )
            if isinstance(rule, Rule):
                last[name] = rule
            else:
                failed[name] = rule
        failed |= {name: each.refused for name, each in _mistakes(staged, last, {}, declare).items()}
        for name, mistake in failed.items():
            if not is_selection(catalog["views"][name]):
                raise InputError(
                    f"{str(lost[name]).removesuffix('.')}. The last good definition of view {name} has a mistake too: "
                    f"{mistake.reason.removesuffix('.')}. A start would drop the view and the state of its windows or join. Correct the "
                    "file, or remove the rule to drop the view."
                )
        kept = {name: rule for name, rule in last.items() if name not in failed}
        if kept:
            staged.rules[path] = replace(rules, views={**rules.views, **kept})
            # other rules may select from these
            follow_rules(staged, path, declare)


def _lost(staged: Declared, rules: RuleSet, catalog: Mapping[str, Any]) -> Iterator[tuple[str, RefusedRule]]:
    """The views of an earlier run that are not declared because of mistakes, each with the rule that has it."""
    views = {
        name: entry
        for name, entry in catalog["views"].items()
        if "dropped" not in entry and name.upper() not in staged.spelled
    }
    named = {each.name.upper(): each for each in rules.refused if each.name is not None}
    unclear = {each.file: each for each in rules.refused if each.name is None}
    files = {name: file for file, names in catalog.get("rules", {}).items() for name in names}
    read = {file for each in staged.rules.values() for file in each.files.read}
    for name in views:
        file = files.get(name)
        refused = named.get(name.upper()) or unclear.get(file or "")
        has_moved = file is not None and file not in read
        if refused is None and (has_moved or "rules" not in catalog):
            # a file that does not say what it declares may declare any of them
            refused = next(iter(unclear.values()), None)
        if refused is not None:
            yield name, refused


def _kept(refused: RefusedRule, outdated: Mapping[str, Rule]) -> tuple[str, ...]:
    """The views that a refused rule, or the rules of a file that does not say which, had and still have.

    Args:
        refused: the rule.
        outdated: the rules in force that their files do not have any more.
    """
    if refused.name is None:
        return tuple(name for name, rule in outdated.items() if rule.file == refused.file)
    return tuple(name for name in outdated if name.upper() == refused.name.upper())


def _mistakes(
    staged: Declared, rules: Mapping[str, Rule], known: Mapping[str, Mistake], declare: Declare
) -> dict[str, Mistake]:
    """Declares the rules that can be, in any order, and returns the mistakes of the others.

    A known mistake stands while its rule and what it was judged beside are the same.
    """
    mistakes = {name: known[name] for name in rules if name in known}
    left = dict(rules)
    while due := {
        name: rule for name, rule in left.items() if not _stands(mistakes.get(name), staged, name, rule)
    }:
        found = {
            name: Mistake(due[name], due[name].refused(error), staged.beside(name, due[name].view.query))
            for name, error in declare_apart(staged, {name: rule.view for name, rule in due.items()}, declare)
        }
        mistakes |= found
        left = {name: rule for name, rule in left.items() if name not in due or name in found}
    return {name: mistakes[name] for name in left}


def _stands(mistake: Mistake | None, staged: Declared, name: str, rule: Rule) -> bool:
    return (
        mistake is not None
        and (mistake.rule.view.text, mistake.rule.place) == (rule.view.text, rule.place)
        and mistake.beside == staged.beside(name, rule.view.query)
    )


def declare_apart(
    staged: Declared, views: Mapping[str, CreateView], declare: Declare
) -> Iterator[tuple[str, InputError]]:
    """Declare the views that can be, and yield the others with their mistakes: by halves, as a mistake fails all of a step.

    Args:
        staged: what is declared; it is changed as the mistakes are taken.
        views: the views by name.
        declare: adds or redefines views.
    """
    trial = staged.copy()
    try:
        declare(trial, views)
    except InputError as error:
        if len(views) == 1:
            yield from ((name, error) for name in views)
            return
        pairs = list(views.items())
        half = len(pairs) // 2
        yield from declare_apart(staged, dict(pairs[:half]), declare)
        yield from declare_apart(staged, dict(pairs[half:]), declare)
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
