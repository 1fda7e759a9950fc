"""A session's access to object stores: the classes that it needs, and what it has to know of a bucket."""

from __future__ import annotations

import re
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.sessions.file_systems import file_system, hadoop_settings
from penstock.stores.address import StoreAddress

_REDACTION, _SPARKS_OWN = "spark.redaction.regex", "(?i)secret|password|token|access[.]?key"
#: names of settings whose values Spark must show nobody: Spark's own pattern, and keys of Azure's accounts
_REDACTED = f"{_SPARKS_OWN}|account[.]key"
#: for a session that is built
REDACTION = {_REDACTION: _REDACTED}
#: classes that the file systems need besides their own
_FURTHER = {"s3": ("software.amazon.awssdk.transfer.s3.S3TransferManager",), "gs": (), "az": ()}


def configure(spark: SparkSession, address: StoreAddress) -> None:
    """Let a session read and write an object store, as the address and the environment say.

    What the user's own Spark settings say of the same bucket remains.

    Args:
        spark: the session.
        address: of the store.

    Raises:
        ConnectionFailedError: the session lacks the file system's jars.
        InputError: Spark would show a secret.
    """
    if address.is_local:
        return
    require_classes(spark, address.scheme)
    context: Any = spark.sparkContext._jsc
    own = dict(spark.sparkContext.getConf().getAll())
    pattern = own.get(_REDACTION, _SPARKS_OWN)
    for name, value in hadoop_settings(address).items():
        if f"spark.hadoop.{name}" in own:
            continue
        if re.search(_REDACTED, name) and not re.search(pattern, name):
            raise InputError(
                f"{address}: this Spark session would show {name} in its pages and logs. Start the session with "
                f"{_REDACTION}={_REDACTED}"
            )
        context.hadoopConfiguration().set(name, value)


def require_classes(spark: SparkSession, scheme: str) -> None:
    """Make sure that a session has a file system.

    Raises:
        ConnectionFailedError: it has not.
    """
    library = file_system(scheme)
    for name in (library.provider, *_FURTHER[scheme]):
        if not isinstance(java_class(spark, name), JavaClass):
            raise ConnectionFailedError(
                f"This Spark session has no {library.name}: class {name} is missing. Start the session with "
                f"`build_session(..., stores=['{scheme}://...'])`, or with the Spark settings {library.settings}"
            )
