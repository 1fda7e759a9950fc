"""Whether the answer of a query is one answer for each window: rows of a window depend on rows of that window alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.sql.text.lexing import outer, parse_whole_query, quote, tokenize

#: the column that is added to the SELECT list: the end of a row's window
WINDOW_END = "__penstock_window"
#: what a column says of the window that its row is of
WINDOW, START, END = "window", "start", "end"
#: clauses of a SELECT that are looked at, or that do not matter
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order"}
_SUPPORTED_GROUP = {"expressions"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a name in FROM stands for.

    Attributes:
        columns: those that say what the window of a row is, in upper case: `WINDOW`, `START` or `END`.
        time: of the tuples of a stream, the column of their event time, in upper case.
        is_static: whether it is a static table.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    is_static: bool = False


def by_windows(text: str, leaves: Mapping[str, Leaf]) -> tuple[str, int] | None:
    """A query with the end of each row's window in a further column, and the number of its aggregations; None: it has other answers.

    Args:
        text: the query; it begins with SELECT.
        leaves: what the names in its FROM clauses stand for, by name in upper case.
    """
    tree = parse_whole_query(text)
    tokens = tokenize(text)
    begins = next((token for at, token in outer(tokens) if token.token_type is TokenType.FROM), None)
    if not isinstance(tree, exp.Select) or tokens[0].token_type is not TokenType.SELECT or begins is None:
        return None
    scope = _Scope.of(tree, leaves)
    if scope is None or (end := scope.end) is None:
        return None
    groups = sum(1 for _ in tree.find_all(exp.Group))
    return f"{text[: begins.start]}, {end} AS {WINDOW_END} {text[begins.start :]}", groups


@dataclass(eq=False, slots=True)
class _Source:
    """An input of a SELECT.

    Attributes:
        alias: what it is called, in upper case; "" where it has no name.
        leaf: what it stands for.
        is_shown: whether each row of the SELECT has a row of it.
    """

    alias: str
    leaf: Leaf
    is_shown: bool = True


@dataclass(eq=False, slots=True)
class _Scope:
    """A SELECT whose answer is one for each window.

    Attributes:
        select: the SELECT.
        sources: its inputs.
    """

    select: exp.Select
    sources: list[_Source]

    @classmethod
    def of(cls, select: exp.Select, leaves: Mapping[str, Leaf]) -> _Scope | None:
        """The scope of a SELECT; None: its answer is none for each window."""
        if any(value and name not in _CLAUSES for name, value in select.args.items()):
            return None
        first = select.args.get("from_")
        if first is None:
            return None
        scope = cls(select, [])
        joins: list[exp.Join] = select.args.get("joins") or []
        for each in (first.this, *(join.this for join in joins)):
            source = _source(each, leaves)
            if source is None:
                return None
            scope.sources.append(source)
        if any(each.find(exp.Query) for each in _clauses(select)):
            return None
        return scope if scope._is_joined(joins) and scope._is_grouped() else None

    @property
    def outputs(self) -> dict[str, str]:
        """What its columns say of the window, by name in upper case."""
        found: dict[str, str] = {}
        for item in self.select.expressions:
            whole = item.this if isinstance(item, exp.Alias) else item
            if isinstance(whole, exp.Star) and not whole.args.get("except_"):
                for source in self.sources:
                    found |= source.leaf.columns if source.is_shown else {}
            elif isinstance(whole, exp.Column) and isinstance(whole.this, exp.Star):
                named = [each for each in self.sources if each.alias == whole.table.upper()]
                found |= named[0].leaf.columns if named and named[0].is_shown else {}
            elif (said := self._said(whole)) is not None and self.sources[said[0]].is_shown:
                found[item.alias_or_name.upper()] = said[1]
        return found

    @property
    def time(self) -> str | None:
        """Its column that is the event time of a stream, of which it is a selection, in upper case."""
        if len(self.sources) != 1 or (time := self.sources[0].leaf.time) is None:
            return None
        for item in self.select.expressions:
            whole = item.this if isinstance(item, exp.Alias) else item
            if isinstance(whole, exp.Star):
                return time
            if isinstance(whole, exp.Column) and _names(whole)[-1] == time:
                return str(item.alias_or_name).upper()
        return None

    @property
    def end(self) -> str | None:
        """The end of the window of a row, as a SELECT list may have it."""
        if (group := self.select.args.get("group")) is not None:
            keys = [(each, self._said(each)) for each in map(self._written, group.expressions)]
            ends = [(each, said[1]) for each, said in keys if said is not None and said[1] != START]
            for each, kind in ends:
                own = ".".join(quote(name) for name in _names(each))
                return own if kind == END else f"{own}.end"
            return None
        for source in self.sources:
            for name, kind in source.leaf.columns.items() if source.is_shown else ():
                if kind in (WINDOW, END):
                    own = f"{quote(source.alias)}.{quote(name)}" if source.alias else quote(name)
                    return own if kind == END else f"{own}.end"
        return None

    def _said(self, column: exp.Expression) -> tuple[int, str] | None:
        """The source of a column that says something of the window, and what."""
        if not isinstance(column, exp.Column | exp.Dot):
            return None
        names = _names(column)
        named = next((at for at, each in enumerate(self.sources) if each.alias == names[0]), None)
        if named is not None and len(names) > 1:
            places, names = [named], names[1:]
        else:
            places = list(range(len(self.sources)))
        for place in places:
            kind = self.sources[place].leaf.columns.get(names[0])
            if kind is not None and len(names) == 1:
                return place, kind
            if kind == WINDOW and len(names) == 2 and names[1].lower() in (START, END):
                return place, names[1].lower()
        return None

    def _time_of(self, column: exp.Expression) -> int | None:
        """The source whose event time a column is."""
        if not isinstance(column, exp.Column):
            return None
        names = _names(column)
        for place, each in enumerate(self.sources):
            if each.leaf.time == names[-1] and (len(names) == 1 or names[0] == each.alias):
                return place
        return None

    def _is_joined(self, joins: Sequence[exp.Join]) -> bool:
        """Whether conditions say that all inputs but static ones are of one window."""
        where = self.select.args.get("where")
        conditions = list(_conjuncts(where.this if where else None))
        later: list[tuple[int, list[exp.Expression]]] = []
        using: list[tuple[int, list[str]]] = []
        for place, join in enumerate(joins, 1):
            side, kind = join.side.upper(), join.kind.upper()
            if (
                join.method
                or side in ("RIGHT", "FULL")
                or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI")
            ):
                return False
            own = list(_conjuncts(join.args.get("on")))
            using.append((place, [each.name.upper() for each in join.args.get("using") or ()]))
            if side == "LEFT" or kind in ("SEMI", "ANTI"):
                self.sources[place].is_shown = False
                later.append((place, own))
            else:
                conditions += own
        windowed = [place for place, each in enumerate(self.sources) if not each.leaf.is_static]
        if not windowed or not self.sources[windowed[0]].is_shown:
            return False
        group = _Group()
        for left, right in (*self._equal(conditions), *self._of_using(using)):
            group.join(left, right)
        for place, own in later:
            pairs = [each for each in self._equal(own) if place in each]
            named = [each for each in self._of_using(using) if place in each]
            if not self.sources[place].leaf.is_static and not pairs and not named:
                return False
            for left, right in pairs:
                group.join(left, right)
        return len({group.of(place) for place in windowed}) == 1 and any(
            self.sources[place].leaf.columns and self.sources[place].is_shown for place in windowed
        )

    def _of_using(self, using: Sequence[tuple[int, list[str]]]) -> Iterator[tuple[int, int]]:
        for place, names in using:
            for name in names:
                if name in self.sources[place].leaf.columns:
                    for before in range(place):
                        if name in self.sources[before].leaf.columns:
                            yield before, place

    def _equal(self, conditions: Sequence[exp.Expression]) -> Iterator[tuple[int, int]]:
        """Sources of which conditions say that their rows are of one window."""
        begins: set[tuple[int, int]] = set()
        ends: set[tuple[int, int]] = set()
        for each in conditions:
            if not isinstance(each, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
                continue
            left, right = each.this, each.expression
            if isinstance(each, exp.EQ):
                one, other = self._said(left), self._said(right)
                if one is not None and other is not None and one[1] == other[1]:
                    yield one[0], other[0]
                continue
            if isinstance(each, exp.GT | exp.LTE):
                left, right = right, left
            # time < end, or end > time; time >= start, or start <= time
            if isinstance(each, exp.LT | exp.GT):
                time, said, wanted, found = self._time_of(left), self._said(right), END, ends
            else:
                time, said, wanted, found = self._time_of(left), self._said(right), START, begins
            if time is not None and said is not None and said[1] == wanted:
                found.add((time, said[0]))
        yield from begins & ends

    def _is_grouped(self) -> bool:
        """Whether GROUP BY, DISTINCT and PARTITION BY, where there are any, have the window."""
        select = self.select
        group = select.args.get("group")
        if group is not None:
            if any(value and name not in _SUPPORTED_GROUP for name, value in group.args.items()):
                return False
            if not any(self._is_window(self._written(each)) for each in group.expressions):
                return False
        elif any(self._aggregates(each) for each in (*select.expressions, select.args.get("having"))):
            return False
        if select.args.get("distinct") and (select.args["distinct"].args.get("on") or not self.outputs):
            return False
        over = (
            each
            for part in (*select.expressions, select.args.get("qualify"))
            if part
            for each in part.find_all(exp.Window)
        )
        return all(any(map(self._is_window, each.args.get("partition_by") or ())) for each in over)

    def _is_window(self, column: exp.Expression) -> bool:
        said = self._said(column)
        return said is not None and self.sources[said[0]].is_shown

    def _written(self, key: exp.Expression) -> exp.Expression:
        """What a key of GROUP BY stands for: an item of the SELECT list, by its place or its name."""
        items = self.select.expressions
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(items):
            item: exp.Expression = items[int(key.name) - 1]
            return item.this if isinstance(item, exp.Alias) else item
        if isinstance(key, exp.Column) and len(key.parts) == 1 and self._said(key) is None:
            named = [
                each.this
                for each in items
                if isinstance(each, exp.Alias) and each.alias.upper() == key.name.upper()
            ]
            return named[0] if named else key
        return key

    def _aggregates(self, item: exp.Expression | None) -> bool:
        """Whether an item aggregates all rows."""
        if item is None:
            return False
        return any(not isinstance(each.parent, exp.Window) for each in item.find_all(exp.AggFunc))


class _Group:
    """Which places are of one window."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def of(self, place: int) -> int:
        """A place that stands for those of the same window."""
        while (before := self._first.get(place, place)) != place:
            place = before
        return place

    def join(self, left: int, right: int) -> None:
        """Two places are of one window."""
        one, other = sorted((self.of(left), self.of(right)))
        if one != other:
            self._first[other] = one


def _source(each: exp.Expression, leaves: Mapping[str, Leaf]) -> _Source | None:
    """An input; None: it may not be read by windows."""
    alias = each.args.get("alias")
    if {name for name, value in each.args.items() if value} - {"this", "alias"} or (
        alias and alias.args.get("columns")
    ):
        return None
    leaf: Leaf | None = None
    if isinstance(each, exp.Table) and isinstance(each.this, exp.Identifier):
        leaf = leaves.get(each.name.upper())
    elif isinstance(each, exp.Subquery) and isinstance(each.this, exp.Select):
        leaf = _leaf_of(each.this, leaves)
    return None if leaf is None else _Source(each.alias_or_name.upper(), leaf)


def _leaf_of(select: exp.Select, leaves: Mapping[str, Leaf]) -> Leaf | None:
    """What a query in FROM is for the one around it."""
    tables = [leaves.get(each.name.upper()) for each in select.find_all(exp.Table)]
    if all(each is not None and each.is_static for each in tables):
        return Leaf(is_static=True)
    if any(value and name not in _CLAUSES for name, value in select.args.items()):
        return None
    scope = _Scope.of(select, leaves)
    if scope is not None:
        return Leaf(scope.outputs)
    first = select.args.get("from_")
    source = None if first is None or select.args.get("joins") else _source(first.this, leaves)
    is_plain = not any(select.args.get(name) for name in ("group", "having", "qualify", "distinct"))
    if source is None or source.leaf.time is None or not is_plain:
        return None
    if any(each.find(exp.Query, exp.AggFunc, exp.Window) for each in _clauses(select)):
        return None
    time = _Scope(select, [source]).time
    return None if time is None else Leaf(time=time)


def _clauses(select: exp.Select) -> Iterator[exp.Expression]:
    """The parts of a SELECT that have expressions."""
    yield from select.expressions
    for name in ("where", "group", "having", "qualify"):
        if (clause := select.args.get(name)) is not None:
            yield clause
    for join in select.args.get("joins") or ():
        if (condition := join.args.get("on")) is not None:
            yield condition


def _conjuncts(condition: exp.Expression | None) -> Iterator[exp.Expression]:
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    elif condition is not None:
        yield condition


def _names(column: exp.Expression) -> list[str]:
    """The names that a column is written with, in upper case."""
    assert isinstance(column, exp.Column | exp.Dot), "it is a name"
    return [str(each.name).upper() for each in column.parts]
