"""Events of a run as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.monitor.book import MEASURED
from penstock.monitor.deadlines import REPEATED
from penstock.monitor.figures import clock, counted, shortened, source_words, view_words, views_words
from penstock.monitor.troubles import AGAIN_SECONDS, seconds_of

#: views that a line names at the most
_NAMED = 3
#: reasons that the line of a static table names at the most
_REASONS = 3
#: fields of an event that its line leaves out: the line says them in words, or they describe the inside of the engine
_SILENT = frozenset(
    [
        "time",
        "kind",
        "stream",
        "sink",
        "view",
        "views",
        "table",
        "told",
        "reason",
        "figures",
        "arrangement",
        "version",
        "plan",
        "cause",
        "part",
        "orders",
        "lane",
        "cut",
        "entry",
        "reader",
        "is_known",
        "segment",
        "action",
        "refused",
    ]
)
#: kinds that the screen of a run counts or reports itself, or that are no news
_COUNTED = frozenset(
    [
        "run_started",
        "stream_started",
        "run_ended",
        "run_stopped",
        "run_failed",
        "run_refused",
        "decision",
        "views_changed",
        "order_divided",
        "script_refused",
        "script_followed",
        "records_quarantined",
        "expression_raised",
        "event_times_unusable",
        "event_times_ahead",
    ]
)
#: kinds of which each attempt brings another
_RETRIES = frozenset(["stream_retried", "backfill_retried", "sink_retried"])
#: what a change of rules did to views
_CHANGES = ("added", "redefined", "dropped")
#: kinds in words, where the name of the kind does not say it
_WORDS = {
    "source_unreachable": "source unreachable",
    "source_reachable": "source reachable again",
    "stream_retried": "restarted after a failure",
    "lane_retried": "failed, retrying",
    "lane_failed": "failed; not answered until the next start",
    "lane_back": "answered again",
    "view_retried": "failed, retrying",
    "view_failed": "failed; not answered until the next start",
    "view_back": "answered again",
    "view_left": "dropped or redefined while it failed; what was kept for it is deleted",
    "sink_began": "begun",
    "sink_retried": "failed, retrying",
    "sink_failed": "failed; its rows wait for the next start",
    "sink_back": "delivered again",
    "sink_rejected": "rows refused permanently by the sink's server",
    "sink_missed": "rows left before the sink had them",
    "rows_removed": "old rows deleted by retention",
    "rows_held": "old rows remain, because a sink or view still needs them",
    "lane_left": "reader removed: no view needs it",
    "backfill_started": "backfill started",
    "backfill_done": "backfill done",
    "backfill_retried": "backfill failed, retrying",
    "backfill_failed": "backfill failed; its windows are incomplete until the next start",
    "backfill_impossible": "backfill impossible; windows that began before the view never become final",
    "batch_replanned": "Spark planned a batch again",
    "run_failed": "stopped by a failure",
    "run_refused": "start refused",
    "history_held": "a slow reader keeps old parts of its log",
    "history_released": "old parts of its log can be deleted again",
    "history_removed": "old parts of its log were deleted",
    "records_quarantined": "records set aside",
    "rows_set_aside": "unreadable rows skipped",
    "static_table_read": "read",
    "static_table_lost": "lost; its last version remains in use",
    "static_table_back": "readable again",
    "expression_raised": "an expression failed for some tuples",
    "rules_changed": "rules changed",
    "rule_refused": "rule refused",
    "script_refused": "changed script not applied; the run continues unchanged",
    "script_followed": "the run follows the script again",
    "settings_changed": "settings of the changed script apply from the next start",
    "rules_unread": "rules cannot be followed; their views remain",
    "views_failed": "Spark refuses an expression of some views; these match nothing",
    "event_times_unusable": "tuples without a usable event time, left out of windows and joins",
    "event_times_ahead": "event times too far ahead of the clock; they do not advance the stream's time",
    "clock_behind": "this machine's clock is behind the stream; Penstock uses the stream's time",
    "joins_changed": "join views changed",
    "refreshed_changed": "refreshed views changed",
    "unions_changed": "UNION ALL views changed",
    "join_exploded": "a join produced very many rows",
    "join_switched": "join order changed",
    "predicates_reordered": "order of user predicates changed",
    "functions_reordered": "order of your functions changed",
    "losses_exceeded": "LOSS promise broken",
    "overloaded": "overloaded: most windows miss their deadline",
    "released_late": "windows released after their deadline",
    "late_abandoned": "late answers given up",
    "window_failed": "a window failed",
    "windows_failing": "three windows in a row failed",
    "states_not_carried": "aggregate state is not carried over; each window is computed from scratch",
    "compaction_failed": "files could not be merged",
    "segment_unmerged": "small log files could not be merged",
    "events_delayed": "earlier events were written late",
    "files_changed": "files changed after the first read",
    "files_passed_over": "names that are not files were skipped",
    "topic_recreated": "topic created again",
}


def event_line(event: Mapping[str, Any]) -> str:
    """Format an event of `events.jsonl` as a line to read."""
    kind = str(event.get("kind"))
    if kind == "static_table_read":
        return " ".join((clock(event.get("time")), f"{_subject(event)}: {_read_words(event)}"))
    what = _WORDS.get(kind, kind.replace("_", " "))
    subject = _subject(event)
    told = event.get("told") or event.get("reason")
    fields = [
        f"{name.replace('_', ' ')} {shortened(_plain(value))}"
        for name, value in event.items()
        if name not in _SILENT
        and value not in (None, {}, [])
        and not (told and isinstance(value, list | Mapping))
    ]
    line = " ".join((clock(event.get("time")), f"{subject}: {what}" if subject else what))
    if told:
        line += f": {told}"
    return f"{line} ({', '.join(fields)})" if fields else line


def _read_words(event: Mapping[str, Any]) -> str:
    """What reading a static table came to: '0 rows; 6 records set aside: malformed csv record: 3 fields, 2 columns'."""
    rows, reasons = event.get("rows"), event.get("malformed") or {}
    ordered = sorted(reasons.items(), key=lambda each: -each[1])
    parts = [
        _WORDS["static_table_read"] if rows is None else counted(rows, "row"),
        *(
            f"{counted(count, 'record')} set aside: {shortened(reason)}"
            for reason, count in ordered[:_REASONS]
        ),
    ]
    if rest := ordered[_REASONS:]:
        parts.append(f"{counted(sum(count for _, count in rest), 'record')} set aside for other reasons")
    return "; ".join(parts)


def _subject(event: Mapping[str, Any]) -> str:
    """The view, static table or stream that an event is about."""
    views = event.get("views")
    if event.get("sink"):
        return f"sink {event['sink']}"
    if event.get("view"):
        return view_words(str(event["view"]))
    if isinstance(views, list) and views:
        return views_words(views, _NAMED)
    if event.get("table"):
        return f"static table {event['table']}"
    return source_words(event["stream"]) if event.get("stream") else ""


class News:
    """Events that a run's screen prints: all but measurements and what the screen counts.

    Args:
        events: gives the newest events of the run, oldest first.
    """

    def __init__(self, events: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._events = events
        self._seen: Mapping[str, Any] | None = None
        self._repeated: set[tuple[str, str]] = set()
        self._retried: dict[tuple[str, str], float] = {}

    def lines(self) -> list[str]:
        """Return the events since the last call, a line each."""
        fresh: list[Mapping[str, Any]] = []
        for event in reversed(self._events()):
            if event is self._seen:
                break
            fresh.append(event)
        if fresh:
            self._seen = fresh[0]
        return [event_line(event) for event in reversed(fresh) if self._is_shown(event)]

    def _is_shown(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is printed: a repeating one once for each view, a retry, which has its number, once a minute."""
        again = (event["kind"], event.get("view", ""))
        if event["kind"] in ("lane_retried", "view_retried") and event["attempt"] > 1:
            # the view's own line says so as long as it lasts
            return False
        if event["kind"] in _RETRIES:
            part = event["kind"], event.get("sink") or event["stream"]
            at = seconds_of(event["time"])
            if at - self._retried.get(part, -AGAIN_SECONDS) < AGAIN_SECONDS:
                return False
            self._retried[part] = at
        if event["kind"] == "rules_changed" and not any(event.get(what) for what in _CHANGES):
            return False
        if event["kind"] in MEASURED | _COUNTED or again in self._repeated:
            return False
        if REPEATED.get(event["kind"]) == "view":
            self._repeated.add(again)
        return True


def _plain(value: object) -> str:
    """A value of an event without the punctuation of programs."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
