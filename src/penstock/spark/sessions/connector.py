"""Spark's Kafka connector: the jars that a session needs for it."""

from __future__ import annotations

import re

from penstock.spark.sessions.libraries import Library, jar_version

#: the class that Spark looks for
PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ARTIFACT, _TOKENS = "spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10"
_CORE = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<spark>\d\S*)\.jar")


def kafka_connector() -> Library:
    """Return the connector for the installed Spark; jars for another major version of it, or another Scala, are none.

    Raises:
        InputError: SPARK_HOME names a folder without Spark's jars.
    """
    scala, spark = spark_versions()
    # the connector of the newest Spark may not be at every mirror; one of the same major version works the same
    major = spark.partition(".")[0]
    return Library(
        "Kafka connector",
        PROVIDER,
        _ARTIFACT,
        tuple(f"{name}_{scala}-{major}.*.jar" for name in (_ARTIFACT, _TOKENS)),
        ("kafka-clients-*.jar", "commons-pool2-*.jar"),
        (f"org.apache.spark:{_ARTIFACT}_{scala}:{spark}",),
        "kafka-connector",
        "kafka-jars",
    )


def spark_versions() -> tuple[str, str]:
    """The Scala and the Spark version of the installed Spark, such as ("2.13", "4.3.0").

    Raises:
        InputError: SPARK_HOME names a folder without Spark's jars.
    """
    found = jar_version("spark-core_*.jar", _CORE)
    return found["scala"], found["spark"]
