"""What a lane of deadlines publishes reaches its sinks, also where the process ends in between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.settings import Settings
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.publishing import Judged, OutcomePublication
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import commit


def test_what_a_crash_kept_from_the_sinks_is_handed_over_again(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    taken: list[tuple[object, int]] = []
    sink = SimpleNamespace(view="due", take=lambda rows, number: taken.append((rows, number)))
    context: Any = SimpleNamespace(layout=layout, settings=Settings(), sinks=lambda: [sink], events=None)
    orders: Any = SimpleNamespace(rows=lambda view, number, _: (view, number))
    logs = {"s": LogReader(layout.log("s"))}

    def publication() -> OutcomePublication:
        return OutcomePublication("deadlines.0.results", context, (), logs, orders)

    first = publication()
    first.resume()
    assert taken == []
    mark = first.mark("s", -1, -1, {}, handed_over=-1)
    first.publish(Judged(), 0.0, {"s": Reach(-1)}, {}, mark)
    again = publication()
    again.resume()
    assert taken == [(("due", 0), 0)]
    commit(again.mark("s", -1, -1, {}, handed_over=0))
    publication().resume()
    assert len(taken) == 1
    again.publish(Judged(), 0.0, {"s": Reach(-1)}, {}, again.mark("s", -1, -1, {}, handed_over=0))
    publication().resume()
    assert taken[1:] == [(("due", 1), 1)]
    # nothing is to be handed over, or sinks have it
    again.publish(Judged(), 0.0, {"s": Reach(-1)}, {}, again.mark("s", -1, -1, {}, handed_over=2))
    publication().resume()
    assert len(taken) == 2
