"""Metrics of a results folder for Prometheus, by the status that `penstock status` shows.

Counters are those of the folder since its first batch: neither a new run nor a new page begins them anew. Selections have no
series of their own. Streams, lanes and other views have, the first `MOST` of each in the order of their declaration, so that
a name never changes its place; the counters of the others are summed under the name `other`;
what is itself called `other` is in backquotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate, islice
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.monitor.book import Document
from penstock.monitor.durations import BOUNDS
from penstock.monitor.problems import problem_lines
from penstock.monitor.troubles import seconds_of
from penstock.page.answers import cut
from penstock.page.metric_families import MOST, OTHER, STREAMS, Family, lanes_of, views_of
from penstock.page.metric_views import DEADLINES, JOINS, VIEWS, WINDOWS

#: states of a run, of which one has the value 1
STATES = ("running", "starting", "ended", "stopped", "failed", "refused", "dead", "never started")
#: reasons of a stream that quarantined records are counted by, the first that occurred
MOST_REASONS = 20
#: problems that are counted
_MOST_PROBLEMS = 1000


class Known(Protocol):
    """What is known of a folder.

    Attributes:
        document: see `folder_status`.
        error: why the folder cannot be read now; None where it can.
    """

    @property
    def document(self) -> Document:
        """See `folder_status`."""

    @property
    def error(self) -> str | None:
        """Why the folder cannot be read now; None where it can."""


#: by window view, the share of final rows whose first answer was within its bound; None where it is not known
Kept = Callable[[Mapping[str, Document]], Mapping[str, float | None]]


class FolderCollector(Collector):
    """Collects the metrics of a results folder.

    Args:
        read: gives the newest status.
        kept: gives, for window views, what their promises came to.
    """

    def __init__(self, read: Callable[[], Known], kept: Kept) -> None:
        self._read = read
        self._kept = kept

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        known = self._read()
        yield GaugeMetricFamily(
            "penstock_folder_up",
            "1 while the results folder can be read; 0 while it cannot, and the other metrics are those of before.",
            value=known.error is None,
        )
        yield from families_of(known.document)
        views = {
            name: view
            for name, view in islice(views_of(known.document).items(), MOST)
            if view["kind"] == "windows" and not view.get("dropped")
        }
        yield _metric(
            "penstock_window_within_bound_ratio",
            "Share of the final rows of a view whose first answer was within the MAX_ERROR bound. Of the first "
            f"{MOST} views, those that have not too many rows.",
            ["view"],
            {(_label(name),): share for name, share in self._kept(views).items() if share is not None},
        )


class Exposition:
    """Writes the metrics of a results folder as Prometheus reads them.

    Args:
        read, kept: see `FolderCollector`.
    """

    def __init__(self, read: Callable[[], Known], kept: Kept) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(FolderCollector(read, kept))

    def answer(self, accepted: str) -> tuple[bytes, str]:
        """Return the metrics and their content type.

        Args:
            accepted: the Accept header: text of Prometheus or of OpenMetrics.
        """
        encoder, content_type = choose_encoder(accepted)
        return encoder(self._registry), content_type


def families_of(document: Document) -> Iterator[Metric]:
    """Yield the metrics of a status.

    Args:
        document: see `folder_status`.
    """
    is_live = document["state"] in ("running", "starting")
    streams: Mapping[str, Document] = document["streams"]
    yield from _run(document)
    yield from _families(streams, "stream", STREAMS, is_live=is_live)
    yield _quarantined(streams)
    yield _durations(streams)
    yield from _lanes(document, is_live=is_live)
    views = views_of(document)
    yield _kinds(streams, views)
    yield _switches(streams, views)
    for families, kind in ((VIEWS, None), (WINDOWS, "windows"), (JOINS, "join"), (DEADLINES, "deadline")):
        yield from _families(views, "view", families, is_live=is_live, kind=kind)


def _run(document: Document) -> Iterator[Metric]:
    told = {"version": version("penstock"), "output": _bounded(str(document["output"]))}
    yield InfoMetricFamily("penstock_run", "The results folder, and the version that reads it.", value=told)
    state = GaugeMetricFamily(
        "penstock_run_state", "1 for the state of the run, 0 for others.", labels=["state"]
    )
    for each in STATES:
        state.add_metric([each], document["state"] == each)
    yield state
    if started := seconds_of(document.get("started")):
        yield GaugeMetricFamily(
            "penstock_run_start_timestamp_seconds", "When the newest run started.", value=started
        )
    yield GaugeMetricFamily(
        "penstock_problems",
        f"Problems that `penstock status` shows, {_MOST_PROBLEMS:,} at the most.",
        value=sum(1 for _ in islice(problem_lines(document), _MOST_PROBLEMS)),
    )


def _families(
    items: Mapping[str, Document],
    label: str,
    families: tuple[Family, ...],
    *,
    is_live: bool,
    kind: str | None = None,
) -> Iterator[Metric]:
    """The metrics of streams or views.

    Args:
        items: what is known of each, in the order of declaration.
        label: stream or view.
        families: the metrics.
        is_live: whether the run goes on.
        kind: that of the views which have these metrics; None: all.
    """
    for family in families:
        found: dict[tuple[str, ...], float] = {}
        for place, (name, item) in enumerate(items.items()):
            if kind not in (None, item.get("kind")) or (family.is_of_now and not is_live):
                continue
            if not family.is_counter and (place >= MOST or item.get("dropped")):
                continue
            shown = _label(name) if place < MOST else OTHER
            for parts, value in family.values(item):
                if value is not None:
                    labels = (shown, *parts)
                    found[labels] = (found.get(labels, 0) + value) if family.is_counter else value
        yield _metric(family.name, family.told(label), [label, *family.labels], found, family.is_counter)


def _metric(
    name: str, told: str, labels: list[str], values: Mapping[tuple[str, ...], float], is_counter: bool = False
) -> Metric:
    metric = (CounterMetricFamily if is_counter else GaugeMetricFamily)(name, told, labels=labels)
    for each, value in values.items():
        metric.add_metric(each, value)
    return metric


def _quarantined(streams: Mapping[str, Document]) -> Metric:
    found: dict[tuple[str, ...], float] = {}
    for place, (name, stream) in enumerate(streams.items()):
        shown = _label(name) if place < MOST else OTHER
        # a series that begins at 0 shows the first records as an increase
        general: dict[str, int] = {OTHER: 0}
        for reason, count in (stream.get("quarantined") or {}).items():
            # what follows names a place or a value
            what = _label(reason.partition(":")[0])
            what = what if what in general or len(general) <= MOST_REASONS else OTHER
            general[what] = general.get(what, 0) + count
        for what, count in general.items():
            found[shown, what] = found.get((shown, what), 0) + count
    told = (
        f"Records of a stream that were set aside, by reason: the first {MOST_REASONS} reasons that occurred, "
        f'all further ones under reason="{OTHER}".'
    )
    return _metric("penstock_quarantined_records", told, ["stream", "reason"], found, is_counter=True)


def _durations(streams: Mapping[str, Document]) -> Metric:
    metric = HistogramMetricFamily(
        "penstock_batch_duration_seconds",
        "Time from the start of a batch to its publication.",
        labels=["stream"],
    )
    for name, stream in islice(streams.items(), MOST):
        if durations := stream.get("durations"):
            bounds = [*(str(each) for each in BOUNDS), "+Inf"]
            counts = accumulate(durations["counts"])
            metric.add_metric([_label(name)], list(zip(bounds, counts, strict=True)), durations["seconds"])
    return metric


def _lanes(document: Document, *, is_live: bool) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "penstock_lane_retries",
        "Retries of all lanes after a failure.",
        value=document.get("lanes_retried", 0),
    )
    lanes = dict(islice(lanes_of(document).items(), MOST)) if is_live else {}
    yield _metric(
        "penstock_lane_up",
        f"1 while a lane works, 0 while it fails; of the first {MOST} lanes.",
        ["lane"],
        {(_label(name),): lane.works for name, lane in lanes.items()},
    )
    yield _metric(
        "penstock_lane_behind_seconds",
        f"Time from the newest batch of its streams to the visible result of a lane; of the first {MOST} lanes.",
        ["lane"],
        {(_label(name),): lane.behind for name, lane in lanes.items() if lane.behind is not None},
    )


def _kinds(streams: Mapping[str, Document], views: Mapping[str, Document]) -> Metric:
    counts = {"selection": sum(len(stream.get("selections") or ()) for stream in streams.values())}
    for kind in ("windows", "join", "deadline", "refreshed", "union"):
        counts[kind] = sum(view["kind"] == kind and not view.get("dropped") for view in views.values())
    return _metric(
        "penstock_views", "Views by kind.", ["kind"], {(kind,): count for kind, count in counts.items()}
    )


def _switches(streams: Mapping[str, Document], views: Mapping[str, Document]) -> Metric:
    """A stream changes the order of its comparisons, a join view that of its inputs or predicates."""
    joins = {name: view for name, view in views.items() if view["kind"] == "join"}
    found: dict[tuple[str, ...], float] = {}
    for kind, items in (("sequence", streams), ("join", joins)):
        for place, (name, item) in enumerate(items.items()):
            labels = (_label(name) if place < MOST else OTHER, kind)
            found[labels] = found.get(labels, 0) + (item.get("switched") or 0)
    told = (
        "Changes of a plan: of the order in which a stream's rules are compared (sequence), or of a join view (join); "
        f'subjects beyond the first {MOST} of a kind are summed under "{OTHER}".'
    )
    return _metric("penstock_plan_switches", told, ["subject", "kind"], found, is_counter=True)


def _label(text: str) -> str:
    """A name as a label: a bounded text other than OTHER."""
    shown = _bounded(text)
    # one more pair of backquotes each, so that no two names become one
    return f"`{shown}`" if shown.strip("`") == OTHER else shown


def _bounded(text: str) -> str:
    """A text of bounded length, without what is no Unicode."""
    return cut(text).encode("utf-8", "replace").decode()
