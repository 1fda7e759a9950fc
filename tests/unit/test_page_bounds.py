"""What odd events, many clients and odd names do to the page: nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
from starlette.requests import Request

from penstock.page.folder import FolderReader
from penstock.page.histories import Histories, Ring
from penstock.page.judgements import Judgements
from penstock.page.metric_families import MOST
from penstock.page.metrics import OTHER, families_of
from penstock.page.routes import Routes
from status_cases import large_document


@pytest.mark.parametrize("wrong", ["x", [1], {}, 10**400], ids=["text", "list", "object", "large"])
def test_a_point_with_a_field_of_another_type_is_left_out_whole(wrong: Any) -> None:
    ring = Ring(rows=max, seconds=max)
    ring.add(at=1.0, rows=2, seconds=3.0)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        ring.add(at=2.0, rows=2, seconds=wrong)
    assert ring.columns() == {"at": [1.0], "rows": [2.0], "seconds": [3.0]}
    histories = Histories()
    histories.take({"kind": "lag", "stream": "s", "time": "2026-01-01T00:00:00+00:00", "backlog": wrong})
    histories.take({"kind": "batch", "stream": "s", "time": "2026-01-01T00:00:00+00:00", "tuples": 1})
    assert {len(column) for column in histories.stream("s").values()} == {0}


def test_clients_that_follow_changes_wait_for_a_worker() -> None:
    lock, counts = threading.Lock(), {"now": 0, "most": 0}

    class Reader:
        layout = folder = None
        judgements = Judgements()

        def current(self) -> None:
            with lock:
                counts["now"] += 1
                counts["most"] = max(counts.values())
            time.sleep(0.02)
            with lock:
                counts["now"] -= 1

    async def follow() -> None:
        routes = Routes(cast("FolderReader", Reader()))
        request = Request({"type": "http", "method": "GET", "path": "/api/changes", "headers": []})
        await asyncio.gather(*(routes._changes(request) for _ in range(20)))

    asyncio.run(follow())
    assert counts["most"] <= 4


def test_what_is_called_as_the_sum_of_the_others_has_a_series_of_its_own() -> None:
    document = large_document()
    (stream, *_) = document["streams"].values()
    names = [OTHER, f"`{OTHER}`", *(f"s{number}" for number in range(MOST))]
    streams = {name: {**stream, "tuples": 10**number} for number, name in enumerate(names[:2])}
    streams |= {name: {**stream, "tuples": 1_000} for name in names[2:]}
    (tuples,) = [
        each for each in families_of({**document, "streams": streams}) if each.name == "penstock_tuples"
    ]
    found = {sample.labels["stream"]: sample.value for sample in tuples.samples}
    assert found["`other`"] == 1
    assert found["``other``"] == 10
    assert found[OTHER] == 2_000
