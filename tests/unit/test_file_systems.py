"""What a session gets for an object store: jars or packages, and the settings of a bucket."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli.given import Given
from penstock.errors import InputError
from penstock.spark.sessions import libraries, store_access
from penstock.spark.sessions.file_systems import (
    SCHEMES,
    file_system,
    file_systems,
    hadoop_path,
    hadoop_settings,
    object_address,
)
from penstock.spark.sessions.libraries import find_libraries
from penstock.stores.address import StoreAddress

S3_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0,software.amazon.awssdk:s3:2.35.4,"
    "software.amazon.awssdk:s3-transfer-manager:2.35.4,software.amazon.awssdk:sts:2.35.4"
)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (libraries.VARIABLE, "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "ENDPOINT_URL"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    _jars(tmp_path / "spark" / "jars", "hadoop-client-api-3.5.0.jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(libraries, "FETCHED", tmp_path / "clone")


def _jars(folder: Path, *names: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return ",".join(sorted(str(folder / name) for name in names))


def test_a_session_gets_what_its_paths_need(tmp_path: Path) -> None:
    assert file_systems(["out", "/data", "file:///data", "hdfs://name/a"]) == []
    assert [
        each.artifact for each in file_systems(["gs://b", "s3a://b/x", "s3://c", "abfss://c@a.host/x"])
    ] == [
        "hadoop-aws",
        "hadoop-gcp",
        "hadoop-azure",
    ]
    jars = _jars(tmp_path / "clone" / "hadoop-aws", "hadoop-aws-3.5.0.jar", "s3-2.35.4.jar")
    (found,) = find_libraries(file_systems(["s3://b"]), {})
    assert found.conf == {"spark.jars": jars}
    assert str(found) == f"file system of s3://: {tmp_path}/clone/hadoop-aws (2 jars)"


def test_without_jars_spark_fetches_the_modules_that_are_needed(tmp_path: Path) -> None:
    _jars(tmp_path / "clone" / "hadoop-aws", "hadoop-aws-3.4.1.jar")
    s3, gs = find_libraries(file_systems(["s3://b", "gs://b"]), {"spark.jars.packages": "a:b:1"})
    assert s3.conf["spark.jars.packages"] == f"a:b:1,{S3_PACKAGES}"
    assert "software.amazon.awssdk:bundle" in s3.conf["spark.jars.excludes"].split(",")
    assert gs.conf == {"spark.jars.packages": f"a:b:1,{S3_PACKAGES},org.apache.hadoop:hadoop-gcp:3.5.0"}


def test_a_named_folder_without_the_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path))
    with pytest.raises(InputError, match=r"This folder has no hadoop-aws-3\.5\.0\.jar\. Name a folder with"):
        find_libraries(file_systems(["s3://b"]), {})


@pytest.mark.parametrize(
    ("path", "bucket", "inside"),
    [
        ("s3://bucket/a b/#1?%20*", "bucket", "a b/#1?%20*"),
        ("S3A://bucket", "bucket", ""),
        ("gs://bucket/a/", "bucket", "a/"),
        ("abfss://container@account.dfs.core.windows.net/a", "container", "a"),
    ],
)
def test_a_path_of_objects_is_taken_as_it_is_written(path: str, bucket: str, inside: str) -> None:
    address = object_address(path)
    assert address is not None
    assert (address.bucket, address.path) == (bucket, inside)


@pytest.mark.parametrize("path", ["/a", "a", "file:///a", "hdfs://name/a", "s3:/a", "s3://"])
def test_other_paths_are_of_no_object_store(path: str) -> None:
    assert object_address(path) is None
    assert hadoop_path(path) == path


def test_spark_has_other_names_for_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert hadoop_path("s3://bucket/a b") == "s3a://bucket/a b"
    assert hadoop_path("s3a://bucket/a") == "s3a://bucket/a"
    assert hadoop_path("gs://bucket/a") == "gs://bucket/a"
    assert hadoop_path("az://container/a") == "abfss://container@account.dfs.core.windows.net/a"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(InputError, match="az://container/a: set AZURE_STORAGE_ACCOUNT_NAME"):
        hadoop_path("az://container/a")


def _s3(**options: str) -> dict[str, str]:
    settings = hadoop_settings(StoreAddress.of("s3://b", options))
    assert all(name.startswith("fs.s3a.bucket.b.") for name in settings)
    return {name.removeprefix("fs.s3a.bucket.b."): value for name, value in settings.items()}


def test_the_settings_of_a_bucket_follow_options_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _s3() == {}
    assert _s3(aws_region="eu-west-1") == {"endpoint.region": "eu-west-1"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:8333")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "owner")
    assert _s3(aws_secret_access_key="hidden") == {
        "endpoint": "http://127.0.0.1:8333",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "endpoint.region": "us-east-1",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": "owner",
        "secret.key": "hidden",
    }
    own = _s3(
        aws_endpoint_url_s3="https://s3.test",
        aws_virtual_hosted_style_request="true",
        aws_secret_access_key="hidden",
        aws_session_token="token",
    )
    assert own["endpoint"] == "https://s3.test"
    assert own["path.style.access"] == "false"
    assert own["connection.ssl.enabled"] == "true"
    assert own["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")
    assert own["session.token"] == "token"
    anonymous = _s3(aws_skip_signature="true")
    assert anonymous["aws.credentials.provider"].endswith(".AnonymousAWSCredentialsProvider")


def test_settings_of_azure_and_google(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    host = "account.dfs.core.windows.net"
    azure = StoreAddress.of("az://c", {"azure_storage_account_key": "hidden"})
    assert hadoop_settings(azure) == {f"fs.azure.account.key.{host}": "hidden"}
    azure = StoreAddress.of("az://c", {"azure_storage_sas_token": "hidden"})
    assert hadoop_settings(azure)[f"fs.azure.sas.fixed.token.c.{host}"] == "hidden"
    google = StoreAddress.of("gs://b", {"google_service_account": "/key.json"})
    assert hadoop_settings(google)["fs.gs.auth.service.account.json.keyfile"] == "/key.json"


def test_spark_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all settings with a secret fit the pattern that a session gets."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    options = [
        (
            "s3://b",
            {"aws_access_key_id": "hidden", "aws_secret_access_key": "hidden", "aws_session_token": "hidden"},
        ),
        ("az://b", {"azure_storage_account_key": "hidden"}),
        ("az://b", {"azure_storage_sas_token": "hidden"}),
    ]
    pattern = store_access.REDACTION["spark.redaction.regex"]
    for path, own in options:
        settings = hadoop_settings(StoreAddress.of(path, own))
        secrets = [name for name, value in settings.items() if value == "hidden"]
        assert len(secrets) == len(own)
        assert all(re.search(pattern, name) for name in secrets)


def test_what_helps_where_spark_cannot_fetch_is_told() -> None:
    told = {scheme: file_system(scheme).remedy for scheme in SCHEMES}
    assert told["s3"] == (
        "Run `make s3-jars` in the project's folder, or set PENSTOCK_JARS to a folder with the jars of the file system of s3://."
    )
    assert told["gs"] == "Set PENSTOCK_JARS to a folder with the jars of the file system of gs://."
    assert file_system("s3").settings.startswith(
        f"spark.jars.packages={S3_PACKAGES} and spark.jars.excludes="
    )


def test_options_of_stores_are_set_as_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    given = Given.of(["shards=3", "store.aws_region=eu-west-1"], None)
    assert given.settings.shards == 3
    assert _s3() == {"endpoint.region": "eu-west-1"}
    with pytest.raises(
        InputError, match=r"store.region is not an option of a store: their names begin with aws_"
    ):
        Given.of(["store.region=a"], None)
