"""Addresses of stores, and what is said of those that cannot be used: the thing, the place and what to do; nothing is started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import ConnectionFailedError, InputError, StoreFailedError
from penstock.stores import address as addresses
from penstock.stores.address import StoreAddress, is_shared
from penstock.stores.local_files import LocalFiles
from penstock.stores.object_files import ObjectFiles
from penstock.stores.slate_ledger import SlateLedger
from penstock.stores.sqlite_ledger import SqliteLedger
from penstock_lab.servers.fault_proxy import DENIED, PASS, REDIRECTED, REFUSED, FaultProxy
from penstock_lab.servers.processes import free_port
from penstock_lab.servers.s3 import OWNER, READER, S3Server


@pytest.fixture
def server(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, to which the environment points."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    # nobody looks for credentials at the address of a cloud's machines
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    return s3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("out", f"{Path.cwd()}/out"),
        ("/a/b/", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("S3A://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("azure://container/a", "az://container/a"),
    ],
)
def test_an_address_is_understood(text: str, told: str) -> None:
    assert str(StoreAddress.of(text)) == told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hdfs://name/a", r"hdfs:// is not supported here. Use a path, file://, s3://, gs:// or az://"),
        ("file://host/a", r"write file:///path with three slashes"),
        ("s3:///a", r"write s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/a", r"without a query or credentials"),
        ("s3://bucket/a?b=c", r"without a query or credentials"),
    ],
)
def test_an_address_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        StoreAddress.of(text)
    assert "secret" not in str(raised.value)


def test_an_option_of_another_store_is_refused() -> None:
    with pytest.raises(InputError, match=r"store.azure_key is not an option of s3:// stores"):
        StoreAddress.of("s3://bucket", {"AZURE_KEY": "x"})
    with pytest.raises(InputError, match="aws_nonsense"):
        StoreAddress.of("s3://bucket", {"aws_nonsense": "x"}).check()


def test_a_local_address_has_files_in_its_folder_and_a_ledger_of_sqlite(tmp_path: Path) -> None:
    address = StoreAddress.of(str(tmp_path / "new"))
    address.check()
    assert address.files() == LocalFiles(tmp_path / "new")
    ledger = address.ledger()
    assert isinstance(ledger, SqliteLedger)
    ledger.commit({("a",): b"1"})
    assert address.ledger_reader().get(("a",)) == b"1"
    ledger.close()


def test_a_shared_folder_has_a_ledger_of_slatedb_which_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "is_shared", lambda _: True)
    address = StoreAddress.of(str(tmp_path / "shared"))
    ledger = address.ledger()
    assert isinstance(ledger, SlateLedger)
    ledger.commit({("a",): b"1"})
    ledger.close()
    monkeypatch.undo()
    assert address.ledger_reader().get(("a",)) == b"1"


@pytest.mark.parametrize(
    ("kind", "shared"),
    [("ext4", False), ("overlay", False), ("nfs4", True), ("fuse.sshfs", True), ("cifs", True)],
)
def test_a_shared_file_system_is_recognized(
    kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/b {tmp_path}/with\\040space {kind} rw 0 0\n")
    monkeypatch.setattr(addresses, "_MOUNTS", mounts)
    assert is_shared(tmp_path / "with space" / "new" / "folder") == shared
    assert not is_shared(tmp_path / "other")


@pytest.mark.usefixtures("server")
def test_a_bucket_has_files_and_a_ledger() -> None:
    address = StoreAddress.of(f"s3://bucket/{time.time_ns()}", {"aws_region": "eu-west-1"})
    address.check()
    files = address.files()
    assert isinstance(files, ObjectFiles)
    files.put("a", b"1")
    assert files.address("a") == f"{address}/a"
    ledger = address.ledger()
    ledger.commit({("a",): b"1"})
    assert address.ledger_reader().get(("a",)) == b"1"
    ledger.close()
    names = {file.name.partition("/")[0] for file in files.list()}
    assert names == {"a", "ledger"}, "the probe is gone"


def _refused(address: StoreAddress, message: str) -> None:
    """Everything that a start does with a store says the same, in one message without a traceback of a library."""
    for what in (address.check, address.ledger_reader, address.ledger):
        with pytest.raises(ConnectionFailedError, match=message) as raised:
            what()
        assert str(raised.value).startswith(str(address))
        assert len(str(raised.value)) < 300
        assert raised.value.exit_code == 2


@pytest.mark.usefixtures("server")
def test_a_bucket_that_does_not_exist_is_named() -> None:
    _refused(
        StoreAddress.of("s3://no-such-bucket/a"), "the bucket does not exist; create it, or name another one"
    )


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("option", ["aws_secret_access_key", "aws_access_key_id"])
def test_wrong_credentials_are_named(option: str) -> None:
    _refused(
        StoreAddress.of("s3://bucket/a", {option: "wrong"}),
        "the credentials are wrong or expired; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


@pytest.mark.usefixtures("server")
def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(
        ConnectionFailedError,
        match="no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ):
        StoreAddress.of("s3://bucket/a").check()


def test_who_may_not_write_is_told_so_and_may_read(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = StoreAddress.of(f"s3://bucket/{time.time_ns()}")
    ledger = address.ledger()
    ledger.commit({("a",): b"1"})
    ledger.close()
    for name, value in server.environment(READER).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        ConnectionFailedError, match="permission denied; allow reading, writing, listing and deleting"
    ):
        address.check()
    with pytest.raises(
        ConnectionFailedError, match="/a: permission denied; allow writing objects below this address"
    ):
        address.files().put("a", b"")
    reader = address.ledger_reader()
    assert reader.get(("a",)) == b"1"
    reader.close()


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the server, to which the environment points."""
    with FaultProxy(server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def test_who_may_not_delete_is_told_so(proxy: FaultProxy) -> None:
    proxy.fault = lambda method, path: DENIED if method == "DELETE" or path.endswith("?delete") else PASS
    with pytest.raises(ConnectionFailedError, match="permission denied"):
        StoreAddress.of("s3://bucket/a").check()


def test_a_store_without_conditional_writes_is_refused(proxy: FaultProxy) -> None:
    proxy.is_unconditional = True
    with pytest.raises(ConnectionFailedError, match="the store lacks conditional writes"):
        StoreAddress.of("s3://bucket/a").check()


def test_a_bucket_of_another_region_is_told(proxy: FaultProxy) -> None:
    proxy.fault = lambda *_: REDIRECTED
    with pytest.raises(ConnectionFailedError, match="the bucket is in another region; set AWS_REGION"):
        StoreAddress.of("s3://bucket/a").check()


@pytest.mark.usefixtures("server")
def test_a_server_that_is_down_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(StoreFailedError, match="s3://bucket/a"):
        StoreAddress.of("s3://bucket/a").check()
    with pytest.raises(StoreFailedError, match="s3://bucket/a"):
        StoreAddress.of("s3://bucket/a").ledger()
    assert time.monotonic() - began < 20


def test_a_prefix_that_is_named_as_a_cause_is_none(proxy: FaultProxy) -> None:
    proxy.fault = lambda *_: REFUSED
    with pytest.raises(StoreFailedError, match="503"):
        StoreAddress.of("s3://bucket/403/NoSuchBucket/401/latest/501").check()


@pytest.mark.usefixtures("server")
def test_secrets_are_in_no_message() -> None:
    address = StoreAddress.of("s3://bucket/a", {"aws_secret_access_key": "hidden-away"})
    with pytest.raises(ConnectionFailedError) as raised:
        address.check()
    assert "hidden-away" not in str(raised.value)
    assert "hidden-away" not in str(address)
    assert "hidden-away" not in repr(address)
    assert OWNER not in str(raised.value)


def test_one_slash_too_few_is_no_folder() -> None:
    with pytest.raises(InputError, match=r"^s3:/bucket/out: did you mean s3://bucket/out\?"):
        StoreAddress.of("s3:/bucket/out")
    assert StoreAddress.of("./s3:/bucket/out").is_local


def test_an_endpoint_without_its_scheme_is_refused() -> None:
    address = StoreAddress.of("s3://bucket/out", {"AWS_ENDPOINT_URL": "127.0.0.1:8333"})
    with pytest.raises(
        InputError, match=r"^AWS_ENDPOINT_URL is 127.0.0.1:8333: write http:// or https:// before it"
    ):
        address.store()


def test_a_server_that_is_not_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        addresses, "_FIRST_RETRIES", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
    )
    server = f"http://127.0.0.1:{free_port()}"
    options = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    told = f"the store does not answer; check that its server runs at {server}, its endpoint"
    with pytest.raises(StoreFailedError, match=told):
        StoreAddress.of("s3://bucket/out", options).check()
