"""A run whose sinks are disturbed while files arrive: in the end all have what the folder has, and nobody was held up by another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from disturbed_runs import Orders, until
from killing import ended, killed
from sink_counterparts import Counterpart, Parquet
from sink_drivers import Driver

#: of each storm; `make storms ROWS=...`
ROWS = int(os.environ.get("PENSTOCK_STORM_ROWS", "2000000"))
#: how long a counterpart is away, or a disk full
AWAY_SECONDS = float(os.environ.get("PENSTOCK_STORM_SECONDS", "60"))
#: the random moments of kills; a failed storm names its own
SEED = int(os.environ.get("PENSTOCK_STORM_SEED", "0")) or time.time_ns() % 1_000_000
#: of the driver, and of each server
KILLS = int(os.environ.get("PENSTOCK_STORM_KILLS", "3"))
_FILES = 50
#: a backlog of alerts is sent a hundred rows at a time
_MOST_SECONDS = 2_400


class Storm:
    """A run in a process of its own, with the sinks that are tested and two others.

    Args:
        folder: for the orders, the tables of the two others and, unless another is named, the results.
        counterparts: what sinks deliver to, by name.
        output: the results folder.
        driver: what runs.
    """

    def __init__(
        self,
        folder: Path,
        counterparts: Mapping[str, Counterpart],
        output: Path | None = None,
        driver: Driver | None = None,
    ) -> None:
        self.driver = driver or Driver()
        self._whole = self.driver.views[0]
        self.output = output or folder / "out"
        self.counterparts = counterparts
        self.told: dict[str, Any] = {"rows": ROWS, "seed": SEED, "kills": 0}
        self._orders = Orders(folder / "in")
        self._beside, self._later = Parquet(str(folder / "beside")), folder / "later"
        self._script, self._log = folder / "script.sql", folder / "run.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._random = random.Random(SEED)
        self._before = 0
        self._began = time.monotonic()
        self._outages: dict[str, Any] = {}

    @property
    def fed(self) -> int:
        """How many rows have arrived; their ids are below this."""
        return self._orders.rows

    def feed(self, share: float) -> None:
        """Lets a share of all rows arrive, some files of the same size."""
        files = max(1, round(share * _FILES))
        self._orders.feed(min(files, _FILES - self._orders.files), ROWS // _FILES)

    def begin_in_mid_stream(self, share: float = 0.1) -> None:
        """Starts the run, stops it, and starts it again with the sinks; one more begins behind what there was."""
        beside = _sink("beside", self._beside.declared(self._whole), self._whole)
        base = [self.driver.declared(self._orders), beside]
        self._script.write_text("\n".join(base))
        self.feed(share)
        self.start()
        self._until(lambda: self._beside_rows() == self.fed)
        self.stop()
        self._before = self.fed
        sinks = [
            _sink(_name(name, view), each.declared(view), view)
            for name, each in self.counterparts.items()
            for view in self.driver.views
            if view == self._whole or each.windows
        ]
        latest = f"USING parquet OPTIONS (path '{self._later}', begin 'latest')"
        self._script.write_text("\n".join([*base, *sinks, _sink("later", latest, self._whole)]))
        self.start()

    def start(self, *options: str) -> None:
        """Starts the run in a process of its own, and waits until it goes on; with options it is not waited for."""
        command = self.driver.command(self._script, self._orders.folder, self.output, *options)
        variables = dict(os.environ)
        for each in self.counterparts.values():
            variables |= each.environment()
        with self._log.open("ab") as told:
            self._process = subprocess.Popen(
                command, env=variables, stdout=told, stderr=told, start_new_session=True
            )
        if not options:
            self._until(self._is_running)

    def stop(self) -> None:
        """Stops the run in good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert ended(self._process) == 0, self._said()

    def kill(self) -> None:
        """Kills the driver and its JVM."""
        assert self._process is not None
        assert killed(self._process) == -signal.SIGKILL, self._said()
        self.told["kills"] += 1

    def close(self) -> None:
        """Leaves no process behind."""
        if self._process is not None:
            killed(self._process)

    def kill_drivers(self, times: int, share: float) -> None:
        """Kills the driver at random moments while rows arrive, each time after the first of its own."""
        for _ in range(times):
            before = self._beside_rows()
            self.feed(share / times)
            self._until(lambda known=before: self._beside_rows() > known)
            self._pause(8)
            self.kill()
            self.start()

    def kill_server(self, name: str, times: int, share: float) -> None:
        """Kills the server of a sink at random moments while rows arrive."""
        for _ in range(times):
            self.feed(share / times)
            self._pause(6)
            self.kill_counterpart(name)
            self._pause(4)
            self.counterparts[name].start()

    def kill_both(self, name: str, share: float) -> None:
        """Kills the driver and the server of a sink at the same time."""
        self.feed(share)
        self._pause(6)
        self.kill_counterpart(name)
        self.kill()
        self.counterparts[name].start()
        self.start()

    def kill_counterpart(self, name: str) -> None:
        """Ends the server of a sink as a crash would."""
        self.counterparts[name].kill()
        self.told["kills"] += 1

    @contextmanager
    def outage(self, names: Sequence[str], share: float, reason: str = "") -> Iterator[None]:
        """What the block does is undone behind this: until then others are served, and the backlog is told.

        Args:
            names: of the sinks that are disturbed.
            share: of the rows, which arrive meanwhile.
            reason: what is part of what the status says of them.
        """
        self.await_sinks(*names)
        began = time.monotonic()
        yield
        self.feed(share)
        self.await_sinks(*(each for each in self.counterparts if each not in names))
        served = time.monotonic() - began
        for name in names:
            self._until(partial(self._is_in_trouble, name))
        lines = self.driver.said(self.output)
        backlogs = {name: self._sinks()[self._key(name)]["backlog"] for name in names}
        for name in names:
            assert f"RETRYING: sink {_name(name, self._whole)} of view {self._whole} failed" in lines, lines
        assert reason in lines, lines
        time.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - began)))
        self._outages = {"backlogs": backlogs, "others served after": round(served, 1)}
        self._outages["seconds"] = round(time.monotonic() - began, 1)

    def caught_up(self, what: str) -> None:
        """Waits until all sinks have all rows; how long it takes is told beside the outage before."""
        began = time.monotonic()
        self.await_sinks(*self.counterparts)
        self.told[what] = {**self._outages, "caught up after": round(time.monotonic() - began, 1)}
        print(what, self.told[what], flush=True)

    def await_sinks(self, *names: str) -> None:
        """Waits until the sink beside, and these, have all rows that have arrived, and nothing is said against them."""
        self._until(lambda: self._beside_rows() == self.fed)
        self._until(lambda: all(map(self._is_served, names)))

    def finish(self) -> None:
        """Lets the remaining rows arrive, ends the run, and compares."""
        self.feed(1.0)
        self.await_sinks()
        self.stop()
        self.start("--available-now")
        assert self._process is not None
        assert ended(self._process) == 0, self._said()
        self.told["seconds"] = round(time.monotonic() - self._began)
        columns, of_orders = self.driver.columns, self.driver.of_orders
        stored = self.driver.rows(self.output, self._whole)
        fed = pa.concat_tables(self._orders.tables)
        assert fed.num_rows == ROWS // _FILES * _FILES
        wrong = [
            *_differences("folder", stored, fed, columns, of_orders),
            *_differences("beside", self._beside.rows(self._whole), fed, columns, of_orders),
            *_differences(
                "later", ds.dataset(self._later).to_table(), fed.slice(self._before), columns, of_orders
            ),
        ]
        for name, each in self.counterparts.items():
            wrong += _differences(name, each.rows(self._whole), fed, columns, of_orders)
            repeated = f", {each.repeated:,} more repeated" if each.repeated else ""
            self.told[name] = f"{fed.num_rows:,} rows{repeated}"
            if each.windows and len(self.driver.views) > 1:
                wrong += self._wrong_windows(name, each)
        print(self.told, flush=True)
        assert wrong == []

    def _wrong_windows(self, name: str, counterpart: Counterpart) -> list[str]:
        changes = counterpart.windows == "changes"
        answered = self.driver.rows(self.output, "by_name", changes=changes)
        found = counterpart.rows("by_name")
        begin = "w.start" if "w" in found.column_names else "w_start"
        more = ", op, revision" if changes else ""
        wanted = f"name, w.start AS s, n{more}"
        self.told[name] += f", {answered.num_rows:,} windows"
        return _differences(f"windows of {name}", found, answered, f"name, {begin} AS s, n{more}", wanted)

    def _until(self, holds: Callable[[], bool]) -> None:
        def checked() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._said()
            return holds()

        until(checked, self._said, _MOST_SECONDS)

    def _pause(self, most: float) -> None:
        time.sleep(self._random.uniform(0, most))

    def _is_running(self) -> bool:
        assert self._process is not None
        status = self._status()
        return status.get("state") == "running" and status.get("pid") == self._process.pid

    def _is_served(self, name: str) -> bool:
        sink = self._sinks().get(self._key(name), {})
        return bool(sink.get("deliveries")) and not sink.get("backlog") and not sink.get("trouble")

    def _is_in_trouble(self, name: str) -> bool:
        sink = self._sinks().get(self._key(name), {})
        return bool(sink.get("backlog")) and bool(sink.get("trouble"))

    def _beside_rows(self) -> int:
        try:
            return ds.dataset(f"{self._beside.folder}/{self._whole}").count_rows()
        except (OSError, pa.ArrowInvalid):
            # not there yet, or a file that is replaced
            return -1

    def _key(self, name: str) -> str:
        return f"{_name(name, self._whole)}.{self._whole}"

    def _sinks(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._status().get("sinks", {})
        return found

    def _status(self) -> Mapping[str, Any]:
        return self.driver.status(self.output)

    def _said(self) -> str:
        return f"{self.told}\n{self._sinks()}\n{self._log.read_text()[-4_000:]}"


def _name(name: str, view: str) -> str:
    return f"{name}_{view}"


def _sink(name: str, using: str, view: str) -> str:
    return f"CREATE TABLE {name} {using};\nINSERT INTO {name} SELECT * FROM {view};"


def _differences(
    what: str, found: pa.Table, wanted: pa.Table, columns: str, of_wanted: str | None = None
) -> list[str]:
    """What tells rows that have arrived from those that should have, each as often; none where they are the same."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", found)
        connection.register("wanted", wanted)
        one, other = f"SELECT {columns} FROM found", f"SELECT {of_wanted or columns} FROM wanted"
        few = partial("SELECT * FROM ({} EXCEPT ALL {}) LIMIT 5".format)
        missing = connection.sql(few(other, one)).fetchall()
        too_many = connection.sql(few(one, other)).fetchall()
    if not missing and not too_many:
        return []
    numbers = f"{found.num_rows:,} rows of {wanted.num_rows:,}"
    return [f"{what}: {numbers}; missing {missing}; too many {too_many}"]
