"""What events say of the lanes that answer join views and windows over windows; see `penstock.monitor.book`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.monitor.troubles import TROUBLE_HANDLERS, VIEW_TROUBLE_HANDLERS, forget_views

#: switches of a join's order that the document holds
_SWITCHES = 5


def _lane(document: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document.setdefault("lanes", {}).setdefault(event["lane"], {})
    return found


def _table(document: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _lane(document, event).setdefault("tables", {}).setdefault(event["table"], {})
    return found


def _lane_left(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    document.get("lanes", {}).pop(event["lane"], None)


def _join_switched(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    lane = _lane(document, event)
    lane["switched"] = lane.get("switched", 0) + 1
    switch = {name: event.get(name) for name in ("time", "cut", "order", "reason")}
    lane["switches"] = [*lane.get("switches", []), switch][-_SWITCHES:]


def _table_read(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    _table(document, event).update({name: event.get(name) for name in ("rows", "time", "malformed")})


def _table_lost(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    _table(document, event)["lost"] = {"since": event.get("time"), "reason": event.get("reason")}


def _table_back(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    _table(document, event).pop("lost", None)


def _trouble(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    if event["kind"] == "lane_retried":
        # of all lanes: one that is removed takes its own counts with it
        document["lanes_retried"] = document.get("lanes_retried", 0) + 1
    TROUBLE_HANDLERS[event["kind"]](_lane(document, event), event)


def _view_trouble(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    VIEW_TROUBLE_HANDLERS[event["kind"]](_lane(document, event), event)


def _views_changed(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    gone = [*(event.get("redefined") or ()), *(event.get("dropped") or ()), *(event.get("added") or ())]
    for lane in document.get("lanes", {}).values():
        forget_views(lane, gone)


#: by kind of event
LANE_HANDLERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = {
    "lane_left": _lane_left,
    "join_switched": _join_switched,
    "predicates_reordered": _join_switched,
    "static_table_read": _table_read,
    "static_table_lost": _table_lost,
    "static_table_back": _table_back,
    **dict.fromkeys(TROUBLE_HANDLERS, _trouble),
    **dict.fromkeys(VIEW_TROUBLE_HANDLERS, _view_trouble),
    "views_changed": _views_changed,
}
