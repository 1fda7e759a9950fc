"""Hadoop's file systems of object stores: the jars by which Spark reads and writes them, and the configuration of each bucket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.errors import InputError
from penstock.spark.sessions.libraries import Library, jar_version
from penstock.stores.address import StoreAddress

#: of object stores, see `StoreAddress`
SCHEMES = ("s3", "gs", "az")
#: the version of Amazon's SDK that Hadoop 3.5 is built with
_AWS_SDK = "2.35.4"
#: Hadoop asks for Amazon's whole SDK (680 MB); S3 needs these modules of it (8 MB). What Spark has itself is not fetched
_AWS_MODULES = ("s3", "s3-transfer-manager", "sts")
_OPENSSL = "org.wildfly.openssl:wildfly-openssl"
_AWS_EXCLUDES = ("software.amazon.awssdk:bundle", _OPENSSL, "io.netty:*", "org.apache.httpcomponents:*")
_CLIENT = re.compile(r"hadoop-client-api-(?P<version>\d\S*)\.jar")
#: schemes of paths, by users and by Hadoop
_SCHEME_OF = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}
_HADOOPS = ("s3a", "abfs", "abfss")
_OBJECT = re.compile(rf"(?i)(?P<scheme>{'|'.join(_SCHEME_OF)})://(?P<bucket>[^/]+)(?P<path>.*)", re.DOTALL)
_S3A = "org.apache.hadoop.fs.s3a"


def file_system(scheme: str) -> Library:
    """Return Hadoop's file system for a kind of object store.

    Args:
        scheme: `s3`, `gs` or `az`, see `StoreAddress`.

    Raises:
        InputError: SPARK_HOME names a folder without Hadoop's jars.
    """
    version = jar_version("hadoop-client-api-*.jar", _CLIENT)["version"]

    def library(
        name: str, provider: str, artifact: str, more: Iterable[str], excludes: tuple[str, ...]
    ) -> Library:
        packages = (f"org.apache.hadoop:{artifact}:{version}", *more)
        own = (f"{artifact}-{version}.jar",)
        target = "s3-jars" if artifact == "hadoop-aws" else ""
        return Library(
            f"file system of {name}", provider, artifact, own, (), packages, artifact, target, excludes
        )

    if scheme == "s3":
        modules = (f"software.amazon.awssdk:{name}:{_AWS_SDK}" for name in _AWS_MODULES)
        return library("s3://", f"{_S3A}.S3AFileSystem", "hadoop-aws", modules, _AWS_EXCLUDES)
    if scheme == "gs":
        return library("gs://", "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", "hadoop-gcp", (), ())
    provider = "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem"
    return library("az://", provider, "hadoop-azure", (), (_OPENSSL,))


def file_systems(paths: Iterable[str]) -> list[Library]:
    """Return the file systems that some paths need, see `object_address`; local ones need none.

    Raises:
        InputError: SPARK_HOME names a folder without Hadoop's jars.
    """
    schemes = {address.scheme for path in paths if (address := object_address(path)) is not None}
    return [file_system(scheme) for scheme in SCHEMES if scheme in schemes]


def object_address(path: str, options: Mapping[str, str] | None = None) -> StoreAddress | None:
    """Return where an object, or a prefix or pattern of objects, is.

    Args:
        path: as users write it, such as `s3://bucket/prefix`, or as Spark does, such as `s3a://bucket/prefix`.
        options: of the store, see `StoreAddress.of`.

    Returns:
        The address; its path is as it was written. None: the path is of another file system.
    """
    found = _OBJECT.fullmatch(path)
    if found is None:
        return None
    scheme, container, own = _SCHEME_OF[found["scheme"].lower()], found["bucket"], dict(options or {})
    bucket, at, host = container.partition("@")
    if at:
        own.setdefault("azure_storage_account_name", host.partition(".")[0])
    return StoreAddress(scheme, bucket, found["path"].lstrip("/"), own)


def is_left_to_spark(path: str) -> bool:
    """Return whether a path has a scheme of Hadoop's alone, such as `s3a://`: the user's Spark settings have its credentials."""
    return path.partition("://")[0].lower() in _HADOOPS


def hadoop_path(path: str) -> str:
    """Return a path as Spark takes it: of an object store with the name of Hadoop's file system, such as `s3a://bucket/prefix`.

    Raises:
        InputError: it is Azure's, and its account is not known.
    """
    address = object_address(path)
    if address is None or address.scheme == "gs":
        return path
    if address.scheme == "s3":
        return f"s3a://{address.bucket}/{address.path}"
    return f"abfss://{address.bucket}@{_account(address)}/{address.path}"


def hadoop_settings(address: StoreAddress) -> dict[str, str]:
    """Return the settings of Hadoop by which Spark finds a bucket: endpoint, region and credentials.

    Those of S3 are of this bucket alone, those of Azure of its account; Google's are of the session.

    Raises:
        InputError: it is Azure's, and its account is not known.
    """
    if address.scheme == "s3":
        prefix = f"fs.s3a.bucket.{address.bucket}."
        return {f"{prefix}{name}": value for name, value in _s3(address.configuration()).items()}
    if address.scheme == "az":
        return _azure(address)
    if address.scheme == "gs":
        return _google(address.configuration())
    return {}


def _s3(options: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    endpoint = (
        options.get("aws_endpoint_url_s3") or options.get("aws_endpoint_url") or options.get("aws_endpoint")
    )
    region = options.get("aws_region") or options.get("aws_default_region")
    if endpoint:
        is_virtual = options.get("aws_virtual_hosted_style_request", "").lower() == "true"
        settings["endpoint"] = endpoint
        settings["path.style.access"] = "false" if is_virtual else "true"
        settings["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
        region = region or "us-east-1"
    if region:
        settings["endpoint.region"] = region
    key, secret = options.get("aws_access_key_id"), options.get("aws_secret_access_key")
    if options.get("aws_skip_signature", "").lower() == "true":
        settings["aws.credentials.provider"] = f"{_S3A}.AnonymousAWSCredentialsProvider"
    elif key and secret:
        token = options.get("aws_session_token")
        kind = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        settings["aws.credentials.provider"] = f"{_S3A}.{kind}"
        settings |= {"access.key": key, "secret.key": secret}
        settings |= {"session.token": token} if token else {}
    return settings


def _azure(address: StoreAddress) -> dict[str, str]:
    options, account = address.configuration(), _account(address)
    if token := options.get("azure_storage_sas_token"):
        return {
            f"fs.azure.account.auth.type.{account}": "SAS",
            f"fs.azure.sas.fixed.token.{address.bucket}.{account}": token,
        }
    if key := options.get("azure_storage_account_key"):
        return {f"fs.azure.account.key.{account}": key}
    return {}


def _account(address: StoreAddress) -> str:
    name = address.configuration().get("azure_storage_account_name")
    if not name:
        raise InputError(f"{address}: set AZURE_STORAGE_ACCOUNT_NAME to the account of the container")
    return f"{name}.dfs.core.windows.net"


def _google(options: Mapping[str, str]) -> dict[str, str]:
    file = options.get("google_service_account") or options.get("google_application_credentials")
    if not file:
        return {}
    return {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": file,
    }
