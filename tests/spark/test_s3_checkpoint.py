"""Spark's own checkpoint in S3: a query that is killed at any request goes on where it was, and repeats nothing that was committed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.sessions.libraries import VARIABLE
from penstock.stores.address import StoreAddress
from penstock_lab.servers.fault_proxy import DROPPED, PASS, FaultProxy
from penstock_lab.servers.s3 import S3Server

PROGRAM = Path(__file__).parents[1] / "s3_checkpoint.py"
FILES = 24
#: the requests at whose second time in a run the query is killed: method, pattern of the path, and whether it is carried out
PLACES = [
    ("PUT", r"/offsets/\.", True),
    ("PUT", r"/offsets/\d+$", False),
    ("PUT", r"/offsets/\d+$", True),
    ("PUT", r"/commits/\.", True),
    ("PUT", r"/commits/\d+$", False),
    ("PUT", r"/commits/\d+$", True),
    ("PUT", r"/sources/0/\d+$", False),
    ("PUT", r"/sources/0/\d+$", True),
    ("DELETE", r"", True),
]


class Killer:
    """Kills a process at one request."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.is_done = False

    def aim(self, process: subprocess.Popen[bytes], method: str, pattern: str, carried_out: bool) -> None:
        """The second request that fits is the process's last one."""
        self.is_done, is_marked, times = False, False, 0

        def fault(asked: str, path: str) -> str:
            nonlocal is_marked, times
            with self._lock:
                times += asked == method and re.search(pattern, path.partition("?")[0]) is not None
                fits = times == 2
                if self.is_done or (not fits and not is_marked):
                    return DROPPED if self.is_done else PASS
                if carried_out and not is_marked:
                    # the process is killed at its next request
                    is_marked = True
                    return PASS
                self.is_done = True
                os.killpg(process.pid, signal.SIGKILL)
                return DROPPED

        self._proxy.fault = fault


@pytest.fixture
def proxy(s3_environment: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the server."""
    with FaultProxy(s3_environment.endpoint) as proxy:
        yield proxy


def _numbers(address: StoreAddress, log: str) -> list[int]:
    names = [each["path"] for portion in address.store().list(log) for each in portion]
    return sorted(int(name.rpartition("/")[2]) for name in names if name.rpartition("/")[2].isdigit())


@pytest.mark.long
def test_a_killed_query_repeats_nothing_that_it_committed(
    s3_environment: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    source, answered, log = (tmp_path / name for name in ("in", "answered", "log"))
    source.mkdir()
    for number in range(FILES):
        (source / f"{number}.txt").write_text(f"{number}\n{number + 1000}\n")
        os.utime(source / f"{number}.txt", (1_700_000_000 + number,) * 2)
    address = StoreAddress.of(f"s3://bucket/checkpoint-{time.time_ns()}")
    environment = {**os.environ, **s3_environment.environment(), "AWS_ENDPOINT_URL": proxy.endpoint}
    if (folder := os.environ.get(VARIABLE)) is not None:
        environment[VARIABLE] = folder
    killer = Killer(proxy)
    committed: set[int] = set()
    calls = 0

    def run(place: tuple[str, str, bool] | None) -> int:
        nonlocal calls
        with log.open("ab") as printed:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(source), str(address), str(answered)],
                env=environment,
                start_new_session=True,
                stdout=printed,
                stderr=printed,
            )
        if place is None:
            proxy.fault = lambda *_: PASS
        else:
            killer.aim(process, *place)
        code = process.wait(300)
        lines = answered.read_text().splitlines() if answered.exists() else []
        new = [json.loads(line)[0] for line in lines[calls:]]
        calls = len(lines)
        assert not committed.intersection(new), "a committed batch was answered again"
        committed.update(_numbers(address, "commits"))
        offsets = _numbers(address, "offsets")
        assert offsets == list(range(len(offsets)))
        assert committed <= set(offsets)
        return code

    for place in PLACES:
        assert run(place) == -signal.SIGKILL, log.read_text()
    assert run(None) == 0, log.read_text()

    offsets = _numbers(address, "offsets")
    assert offsets == _numbers(address, "commits") == list(range(len(offsets)))
    found: dict[int, set[tuple[str, ...]]] = {}
    for line in answered.read_text().splitlines():
        batch, values = json.loads(line)
        found.setdefault(batch, set()).add(tuple(values))
    assert all(len(each) == 1 for each in found.values()), "a repeated batch had other tuples"
    # a file that Spark logged before it was killed is in the next batch
    values = sorted(int(value) for (each,) in found.values() for value in each)
    assert values == sorted([*range(FILES), *range(1000, 1000 + FILES)])
