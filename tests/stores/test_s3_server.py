"""The S3 server of the tests keeps S3's promises on conditional writes, many clients at a time; or its ledgers prove nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from penstock.errors import ConnectionFailedError, InputError
from penstock_lab.servers.processes import free_port
from penstock_lab.servers.s3 import READER, S3Server, check_bucket

CLIENTS = 6


def _store(s3: S3Server, identity: str = "owner") -> S3Store:
    configuration = {name.lower(): value for name, value in s3.environment(identity).items()}
    del configuration["aws_allow_http"]
    return S3Store("bucket", prefix="conditional", config=configuration, client_options={"allow_http": True})  # type: ignore[arg-type]


def _at_once(client) -> None:
    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()


def test_one_of_many_clients_creates_an_object(s3: S3Server) -> None:
    won: list[tuple[str, int]] = []
    run = time.time_ns()

    def create(client: int) -> None:
        store = _store(s3)
        for number in range(30):
            name = f"{run}/{number}"
            try:
                store.put(name, b"%d" % client, mode="create")
            except AlreadyExistsError:
                continue
            won.append((name, client))

    _at_once(create)
    assert max(Counter(name for name, _ in won).values()) == 1
    assert len(won) == 30
    assert all(bytes(_store(s3).get(name).bytes()) == b"%d" % client for name, client in won)


def test_one_of_many_clients_replaces_a_version_of_an_object(s3: S3Server) -> None:
    name = f"{time.time_ns()}/counter"
    _store(s3).put(name, b"0")

    def count(_: int) -> None:
        store, left = _store(s3), 8
        while left:
            found = store.get(name)
            next_number = b"%d" % (int(bytes(found.bytes())) + 1)
            try:
                store.put(name, next_number, mode={"e_tag": found.meta["e_tag"]})
            except PreconditionError:
                continue
            left -= 1

    _at_once(count)
    assert bytes(_store(s3).get(name).bytes()) == b"%d" % (8 * CLIENTS)


def test_who_may_read_may_not_write(s3: S3Server) -> None:
    _store(s3).put("read", b"content")
    reader = _store(s3, READER)
    assert bytes(reader.get("read").bytes()) == b"content"
    for write in (lambda: reader.put("read", b"other"), lambda: reader.put("new", b"", mode="create")):
        with pytest.raises(PermissionDeniedError):
            write()


@pytest.mark.parametrize("name", ["", "ab", "Upper", "a b", "-a-", "a" * 64])
def test_a_name_that_no_bucket_has_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is not the name of a bucket\. Allowed: 3 to 63"):
        check_bucket(name)


@pytest.mark.long
def test_the_command_starts_a_server_that_outlives_it_and_stops_it(tmp_path: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "penstock_lab.servers.s3", *arguments, "--data", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    port = free_port()
    for buckets in ("one", "one,two"):
        started = command("start", "--port", str(port), "--buckets", buckets)
        assert started.returncode == 0, started.stderr
        assert f"S3 answers on http://127.0.0.1:{port}" in started.stdout
        assert "export AWS_ENDPOINT_URL=" in started.stdout
    with pytest.raises(ConnectionFailedError, match="is taken by another program"):
        S3Server(tmp_path / "other", port).start()
    assert command("start", "--port", str(port), "--buckets", "No").returncode == 2
    assert command("stop").stdout == "S3 stopped\n"
    assert command("stop").stdout == "S3 was not running\n"
