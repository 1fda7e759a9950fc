"""Stores whose process is killed between any two steps: system calls of a folder, requests of an object store."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import killing
from forms import ALL
from penstock.stores.address import StoreAddress
from penstock.stores.local_files import LocalFiles
from penstock.stores.sqlite_ledger import SqliteLedger
from penstock_lab.servers.fault_proxy import DROPPED, PASS, REPLY_LOST, FaultProxy
from penstock_lab.servers.s3 import S3Server
from store_work import check_files, check_numbers, commit_numbers, prepare_files, put_files
from traced import can_trace, killed_before

#: the short form kills at each so-manieth place, another one each time
_STEP = 1 if ALL else 6


def _kill_ledger(folder: Path) -> None:
    """Kills a process before each system call of opening a ledger, committing and closing it."""
    for first in range(_STEP):
        for call in count(first, _STEP):
            place = folder / str(call)
            path, told = place / "ledger.db", place / "told"
            place.mkdir()
            if call % 2:
                # half of the time the ledger exists
                ledger = SqliteLedger(path)
                commit_numbers(ledger, 0, 3, told)
                ledger.close()

            def work(path: Path = path, told: Path = told, first: int = 3 * (call % 2)) -> None:
                ledger = SqliteLedger(path)
                commit_numbers(ledger, first, first + 3, told)
                ledger.close()

            was_killed = killed_before(call, work)
            ledger = SqliteLedger(path)
            following = check_numbers(ledger, told)
            commit_numbers(ledger, following, following + 1, told)
            check_numbers(ledger, told)
            ledger.close()
            shutil.rmtree(place)
            if not was_killed:
                assert call > 20
                break
        if not ALL:
            return


def _kill_files(folder: Path) -> None:
    """Kills a process before each system call of putting and deleting files."""
    for call in count(0, 1 if ALL else 2):
        files, told = LocalFiles(folder / str(call)), folder / f"told-{call}"
        prepare_files(files)
        was_killed = killed_before(call, lambda files=files, told=told: put_files(files, told))
        check_files(files, told)
        files.sweep()
        left = sorted(path.name for path in files.folder.rglob("*") if path.is_file())
        assert left == sorted(file.name.rpartition("/")[2] for file in files.list())
        if not was_killed:
            assert call > 10
            return


@pytest.mark.parametrize("work", [_kill_ledger, _kill_files])
def test_a_kill_before_any_system_call_leaves_what_was_acknowledged(work, tmp_path: Path) -> None:
    if not can_trace():
        pytest.skip("processes cannot be traced here")
    assert killing.forked(work, tmp_path) == 0


def _commit_to(address: str, environment: dict[str, str], told: Path) -> None:
    os.environ.update(environment)
    ledger = StoreAddress.of(address).ledger()
    following = check_numbers(ledger, told)
    commit_numbers(ledger, following, following + 3, told)
    ledger.close()


def proxy_environment(s3: S3Server, proxy: FaultProxy) -> dict[str, str]:
    """The variables by which clients find the server behind a proxy."""
    return {**s3.environment(), "AWS_ENDPOINT_URL": proxy.endpoint}


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the S3 server, to which the environment points."""
    with FaultProxy(s3.endpoint) as proxy:
        for name, value in proxy_environment(s3, proxy).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.mark.parametrize("fault", [pytest.param(DROPPED, marks=pytest.mark.long), REPLY_LOST])
def test_a_kill_at_any_request_leaves_what_was_acknowledged(
    fault: str, s3: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    """The process is killed before a request reaches the store, or before its reply reaches the process."""
    address = f"s3://bucket/killed-{fault.replace(' ', '-')}-{time.time_ns()}"
    told = tmp_path / "told"
    context = killing.loaded_context()
    # the first requests create the ledger
    for place in count(0 if fault == DROPPED else 1, 1 if ALL else 3):
        process = context.Process(target=_commit_to, args=(address, proxy_environment(s3, proxy), told))
        seen = count()

        def kill(method: str, _: str, process=process, seen=seen, place=place) -> str:
            if method != "PUT" or next(seen) != place:
                return PASS
            os.kill(process.pid, signal.SIGKILL)
            return fault

        proxy.fault = kill
        process.start()
        process.join(20)
        proxy.fault = lambda *_: PASS
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    ledger = StoreAddress.of(address).ledger()
    check_numbers(ledger, told)
    ledger.close()
    assert place > 3
