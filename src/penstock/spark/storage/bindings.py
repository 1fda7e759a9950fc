"""Which plan answers which batch, durably: plan versions and bindings in the ledger.

Before anything else, a batch is bound to a plan version by put-if-absent; a replay of the batch
finds the binding and is answered by the same views, whatever has been registered since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from penstock.errors import CheckpointError, DamagedError
from penstock.plan.slack import SlackChoice
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.storage.bases import Bases
from penstock.spark.storage.demands import DEMANDS, NO_DEMANDS, DemandRegister
from penstock.spark.storage.documents import Encoded, encoded, encoded_list
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import BASE_NUMBER, BINDING, EITHER_PLAN, PLAN
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.shared_maps import SharedMap, made_of


@dataclass(frozen=True, slots=True)
class Believed:
    """What a batch's event times are judged by, in microseconds.

    Attributes:
        limit: the largest event time that is believed, in UTC.
        kept_ahead: how far beyond it tuples are in their windows all the same.
        too_late_before: tuples with an earlier one are in no window any more.
    """

    limit: int = AFTER_ALL
    kept_ahead: int = 0
    too_late_before: int = BEFORE_ALL


_ALL_BELIEVED = Believed()


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A selection view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        condition: its WHERE text over the stream's columns; `TRUE` where it has none.
        projection: (SQL text, output name or None where Spark names it) pairs, or None for `*`.
        number: which definition of its name it is, see `reporting/definitions`; matches carry it.
        columns: those of the stream that the projection reads, which its matches are stored with; None: all.
    """

    name: str
    id: str
    sql: str
    condition: str
    projection: tuple[tuple[str, str | None], ...] | None
    number: int = 1
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """A window view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    beneath: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RunningDefinition(WindowDefinition):
    """A running view as registered: an aggregation without a window, or a ranking.

    Attributes:
        columns: (name, type) of what `*` stands for in a ranking. Its state has them in this order: with others it is another view.
    """

    columns: tuple[tuple[str, str], ...] = ()


def members(definition: ViewDefinition | WindowDefinition) -> dict[str, Any]:
    """The attributes of a definition by name."""
    return {each.name: getattr(definition, each.name) for each in fields(definition)}


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where in its stream a window view begins.

    Attributes:
        batch: its first batch.
        newest: largest event time of the batches before, microseconds; None: they brought no tuples.
        floor: windows that end by then were over before, and are not answered; None: every window is.
        offset: how far the source had been read before, as Spark's checkpoint has it; None if that is not known.
    """

    batch: int
    newest: int | None
    floor: int | None
    offset: str | None


FROM_THE_START = Beginning(0, None, None, None)


@dataclass(frozen=True, slots=True)
class RegisteredWindow:
    """A window view of a plan version.

    Attributes:
        definition: the view.
        operator: id of the operator that computes it.
        is_answered: False where it was dropped and others of its operator were not: the operator's
            partials stay as they are.
        beginning: where it begins; None before a batch is bound to it.
    """

    definition: WindowDefinition
    operator: int
    is_answered: bool = True
    beginning: Beginning | None = None


@dataclass(frozen=True, slots=True)
class WindowRegister:
    """The window views of a plan version.

    Attributes:
        windows: in order of registration, running views among them.
        next_operator: the id of the next new operator; ids are never used again.
        slack: the slack policy of views whose hint names none.
        running_operators: how many operators were those of running views.
    """

    windows: tuple[RegisteredWindow, ...] = ()
    next_operator: int = 0
    slack: SlackChoice = field(default_factory=SlackChoice)
    running_operators: int = 0

    @property
    def answered(self) -> dict[str, WindowDefinition]:
        """The views that have results, by name."""
        return {each.definition.name: each.definition for each in self.windows if each.is_answered}

    @property
    def answered_windows(self) -> dict[str, WindowDefinition]:
        """Those with windows."""
        return {name: view for name, view in self.answered.items() if not isinstance(view, RunningDefinition)}

    @property
    def answered_running(self) -> dict[str, RunningDefinition]:
        """Those without."""
        return {name: view for name, view in self.answered.items() if isinstance(view, RunningDefinition)}

    def changed(self, groups: Sequence[Sequence[WindowDefinition]], drop: Collection[str]) -> WindowRegister:
        """With some views dropped and others added.

        Args:
            groups: new views; those of a group share an operator.
            drop: names of views, redefined ones among them.
        """
        kept = [
            replace(each, is_answered=each.is_answered and each.definition.name not in drop)
            for each in self.windows
        ]
        alive = {each.operator for each in kept if each.is_answered}
        windows = [each for each in kept if each.operator in alive]
        for number, group in enumerate(groups, self.next_operator):
            windows += [RegisteredWindow(definition, number) for definition in group]
        running = sum(isinstance(group[0], RunningDefinition) for group in groups)
        return replace(
            self,
            windows=tuple(windows),
            next_operator=self.next_operator + len(groups),
            running_operators=self.running_operators + running,
        )

    def begun(self, where: Callable[[WindowDefinition], Beginning]) -> WindowRegister:
        """With the views that have not begun yet beginning now."""
        windows = (
            each if each.beginning else replace(each, beginning=where(each.definition))
            for each in self.windows
        )
        return replace(self, windows=tuple(windows))


_NO_WINDOWS = WindowRegister()
#: of a registered view in a document: it has no windows
_RUNNING = "is_running"


class PlanLog:
    """The plan versions of one stream and the batches bound to them."""

    def __init__(self, layout: Layout, stream: str) -> None:
        #: what the order of users' functions goes on from
        self.call_statistics = layout.call_statistics(stream)
        self._plans = layout.plans(stream)
        self._bindings = layout.bindings(stream)
        self._stream = stream
        self._bases: Bases[Encoded, ViewDefinition] = Bases(
            layout.plan_bases(stream), self._members, _definitions
        )
        #: the selection views of the version stored last, and the JSON of each
        self._stored: SharedMap[ViewDefinition] = SharedMap()
        self._texts: SharedMap[Encoded] = SharedMap()

    def newest(self) -> int | None:
        """Number of the newest stored plan version, or None.

        Raises:
            DamagedError: the version that the newest batch is bound to is missing.
        """
        versions, batches = self._plans.numbers(), self._bindings.numbers()
        bound = self.bound(batches[-1]) if batches else None
        if bound is not None and bound not in versions:
            raise DamagedError(
                str(self._plans[bound]),
                f"({PLAN.kind}) is missing: batch {batches[-1]} is bound to it",
            )
        return versions[-1] if versions else None

    def store(
        self,
        version: int,
        views: Mapping[str, ViewDefinition],
        register: WindowRegister = _NO_WINDOWS,
        demands: DemandRegister = NO_DEMANDS,
    ) -> None:
        """Stores a plan version; it must be a new one.

        Raises:
            CheckpointError: another run has stored that version.
        """
        document = {
            "version": version,
            **self._bases.members(version, self._encoded(views)),
            "windows": list(map(_window_document, register.windows)),
            "next_operator": register.next_operator,
            **({"running_operators": register.running_operators} if register.running_operators else {}),
            "slack": asdict(register.slack),
            "demands": DEMANDS.document(demands),
        }
        if not EITHER_PLAN.of(document).put(self._plans[version], document):
            raise CheckpointError(
                f"plan version {version} of stream {self._stream} was written by another run; "
                "only one run may use a checkpoint at a time"
            )

    def _encoded(self, views: Mapping[str, ViewDefinition]) -> SharedMap[Encoded]:
        """The JSON of selection views; only what differs from the version stored last is encoded."""
        now = SharedMap.of(views)
        self._texts = made_of(now, _text, (self._stored, self._texts))
        self._stored = now
        return self._texts

    def _members(self, texts: Mapping[str, Encoded]) -> dict[str, Any]:
        """The members of a document that has some of the views stored last."""
        # first definitions have the number 1: code and documents of before know of no other
        numbers = {name: number for name in texts if (number := self._stored[name].number) != 1}
        return {"views": encoded_list(texts.values()), "numbers": numbers}

    def load(self, version: int) -> dict[str, ViewDefinition]:
        """The selection views of a stored plan version.

        Raises:
            CheckpointError: it is not there.
        """
        return self._bases.views(self._read(version), self._plans[version])

    def check(self, version: int) -> None:
        """Makes sure that a stored plan version can be read, and that its base is there.

        Raises:
            CheckpointError: it cannot, or the base is not.
        """
        document = self._read(version)
        if BASE_NUMBER in document:
            self._bases.base(document, self._plans[version])

    def load_windows(self, version: int) -> WindowRegister:
        """The window views of a stored plan version.

        Raises:
            CheckpointError: it is not there.
        """
        document = self._read(version)
        windows = tuple(_registered(window) for window in document.get("windows", ()))
        slack = SlackChoice(**document.get("slack", {}))
        running = document.get("running_operators", 0)
        return WindowRegister(windows, document.get("next_operator", 0), slack, running)

    def load_demands(self, version: int) -> DemandRegister:
        """The demands of tuples of a stored plan version.

        Raises:
            CheckpointError: it is not there.
        """
        document = self._read(version).get("demands")
        return NO_DEMANDS if document is None else DEMANDS.value(document)

    def bound(self, batch: int) -> int | None:
        """The plan version a batch is bound to, or None."""
        document = BINDING.read(self._bindings[batch])
        return None if document is None else int(document["version"])

    def believed(self, batch: int) -> Believed:
        """What a bound batch's event times are judged by."""
        document = BINDING.read(self._bindings[batch]) or {}
        return Believed(
            int(document.get("time_limit", AFTER_ALL)),
            int(document.get("kept_ahead", 0)),
            int(document.get("too_late_before", BEFORE_ALL)),
        )

    def sequence(self) -> tuple[str, ...]:
        """The columns in the order that the newest bound batch evaluates them in; () where none was measured."""
        batches = self._bindings.numbers()
        document = (BINDING.read(self._bindings[batches[-1]]) or {}) if batches else {}
        return tuple(document.get("sequence", ()))

    def bind(
        self,
        batch: int,
        version: int,
        believed: Believed = _ALL_BELIEVED,
        offsets: str | None = None,
        sequence: Sequence[str] = (),
    ) -> int:
        """Binds a batch to a version and a limit unless it is bound already; returns the version it is bound to.

        Args:
            batch: its number.
            version: the plan version.
            believed: what its event times are judged by.
            offsets: what the batch reads, see `offsets_digest`.
            sequence: the columns in the order that it evaluates them in.
        """
        binding = {"version": version, **_judged_by(believed), "offsets": offsets, "sequence": list(sequence)}
        BINDING.put(self._bindings[batch], binding)
        failpoint("bound", batch)
        bound = self.bound(batch)
        assert bound is not None, "a binding is never removed before its batch is published"
        return bound

    def rebind(self, batch: int, offsets: str | None) -> bool:
        """Notes that a bound batch reads other records than when it was bound; False where it reads the same.

        Only for a batch that is not published: what else it is bound to stays.
        """
        path = self._bindings[batch]
        binding = BINDING.read(path) or {}
        known = binding.get("offsets")
        if known is None or offsets is None or known == offsets:
            return False
        BINDING.replace(path, {**binding, "offsets": offsets})
        return True

    def judge_again(self, batch: int, believed: Believed) -> None:
        """Lets a bound batch's event times be judged by something else; only for a batch that is not published."""
        path = self._bindings[batch]
        binding = BINDING.read(path) or {}
        BINDING.replace(path, {**binding, **_judged_by(believed)})

    def forget(self, before_batch: int, keep_plans: int) -> None:
        """Removes the bindings of batches before one, and plan versions that no batch can need."""
        self._bindings.remove(batch for batch in self._bindings.numbers() if batch < before_batch)
        versions = self._plans.numbers()
        needed = {*versions[-keep_plans:], *(self.bound(batch) for batch in self._bindings.numbers())}
        gone = [version for version in versions if version not in needed]
        self._plans.remove(gone)
        if gone:
            self._bases.forget([version for version in versions if version in needed])

    def _read(self, version: int) -> dict[str, Any]:
        document = EITHER_PLAN.read(self._plans[version])
        if document is None:
            raise DamagedError(str(self._plans[version]), f"({PLAN.kind}) is missing")
        return document


def _judged_by(believed: Believed) -> dict[str, int]:
    return {
        "time_limit": believed.limit,
        "kept_ahead": believed.kept_ahead,
        "too_late_before": believed.too_late_before,
    }


def _text(view: ViewDefinition) -> Encoded:
    left_out = {"number"} if view.columns is not None else {"number", "columns"}
    return encoded({name: value for name, value in members(view).items() if name not in left_out})


def _window_document(window: RegisteredWindow) -> dict[str, Any]:
    running = {_RUNNING: True} if isinstance(window.definition, RunningDefinition) else {}
    document = asdict(window)
    if not document["definition"].get("columns"):
        document["definition"].pop("columns", None)
    return {**document, **running}


def _registered(document: dict[str, Any]) -> RegisteredWindow:
    kind = RunningDefinition if document.get(_RUNNING) else WindowDefinition
    definition = document["definition"]
    pairs = {
        name: tuple((first, second) for first, second in definition[name])
        for name in ("beneath", "columns")
        if name in definition
    }
    return RegisteredWindow(
        kind(**{**definition, **pairs}),
        document["operator"],
        document["is_answered"],
        Beginning(**document["beginning"]),
    )


def _definitions(document: Mapping[str, Any]) -> dict[str, ViewDefinition]:
    numbers = document.get("numbers", {})
    return {
        view["name"]: _definition({**view, "number": numbers.get(view["name"], 1)})
        for view in document["views"]
    }


def _definition(document: dict[str, object]) -> ViewDefinition:
    projection = document["projection"]
    pairs = None if projection is None else tuple((sql, name) for sql, name in projection)  # type: ignore[attr-defined]
    columns = document.get("columns")
    read = None if columns is None else tuple(columns)  # type: ignore[arg-type, var-annotated]
    return ViewDefinition(**{**document, "projection": pairs, "columns": read})  # type: ignore[arg-type]
