"""A run without Spark that may be killed: `python publisher.py SCRIPT FILES OUTPUT [--available-now]`.

Each file of orders becomes a published batch, whose rows the tables of the script get by the followers of a run. What `status` would say
is in the file `told.json` of the results folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock.sql.script.script import parse_script
from publishing import stored
from sink_cases import SELECTION, STREAM, TUPLES, Folder

_COMPACT_EVERY = 5


def publish(folder: Folder, files: Path) -> bool:
    """Publishes the next file as a batch; False where there is none."""
    batch = folder._next
    file = files / f"{batch:05d}.parquet"
    if not file.exists():
        return False
    orders = pq.read_table(file)
    table = pa.table([orders["id"], orders["name"], orders["price"]], schema=TUPLES)
    table = table.append_column("queries", pa.array([[SELECTION]] * len(table), pa.list_(pa.string())))
    table = table.append_column("__penstock_definitions", pa.nulls(len(table), pa.list_(pa.int32())))
    folder._matches.begin(batch)
    written = [stored(folder.layout, STREAM, batch, "matches", table)]
    folder._matches.publish(batch, written, {"batch": batch, "plan": 0})
    folder._matches.compact_if_due(batch, _COMPACT_EVERY, folder.events)
    folder._next += 1
    folder.published.tell()
    return True


def tell(folder: Folder, told: dict[str, dict[str, Any]]) -> None:
    """Writes how far the sinks are."""
    troubles: dict[str, str | None] = {}
    for event in folder.events.recent:
        if event["kind"] in ("sink_retried", "sink_back"):
            troubles[event["sink"]] = event.get("told")
    sinks = {name: {**figures, "trouble": troubles.get(name)} for name, figures in told.items()}
    document = {"state": "running", "pid": os.getpid(), "sinks": sinks}
    place = folder.layout.output / "told.json"
    place.with_suffix(".new").write_text(json.dumps(document))
    place.with_suffix(".new").rename(place)


def main(script: str, files: str, output: str, *options: str) -> None:
    folder = Folder(Path(output), _COMPACT_EVERY)
    tables = parse_script(Path(script).read_text()).tables
    sinks = [folder.sink_of(each) for each in tables if each.name != STREAM]
    if options:
        while publish(folder, Path(files)):
            pass
        followers, _ = folder.followers(lambda: True, retry_seconds=1.0)
        followers.set(sinks)
        followers.start()
        followers.join(None)
        folder.close()
        sys.exit(len(followers.failed))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    followers, told = folder.followers(lambda: False, is_bounded=False, retry_seconds=1.0)
    followers.set(sinks)
    followers.start()
    while not ended.wait(0.1):
        publish(folder, Path(files))
        tell(folder, told)
    followers.stop()
    folder.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
