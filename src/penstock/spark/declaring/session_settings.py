"""Settings of scripts beside those that an engine and its session have."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from penstock.errors import SqlError
from penstock.settings import Settings, tuned
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.settings import own_settings, spark_settings, wrong_settings
from penstock.sql.script.statements import SetValue


def refuse_others(
    settings: Sequence[SetValue], own: Settings, spark: SparkSession, mistakes: Mistakes
) -> None:
    """Refuse settings that do not exist, and values that the engine or the session does not have.

    Args:
        settings: what a script sets.
        own: the settings of the engine.
        spark: its session.
        mistakes: takes the refusals in.
    """
    given = own_settings(settings)
    if wrong := [*wrong_settings(settings, own.model_dump(exclude=set(given)))]:
        mistakes.found += wrong
        return
    wanted = tuned(own, {name: each.value for name, each in given.items()})
    for name, each in given.items():
        has, value = getattr(own, name), getattr(wanted, name)
        if value != has:
            message = (
                f"This engine has {name}={has!r}, and the settings of an engine are fixed. Write Engine(spark, {name}={value!r}), or "
                "remove the statement."
            )
            mistakes.add(SqlError(message, *each.at("value")))
    for key, each in spark_settings(settings).items():
        # with Spark's own defaults
        has = spark._jsparkSession.conf().getOption(key)
        if not has.isDefined() or has.get() != each.value:
            message = (
                f"This session has another value of {key}, or none, and its settings are fixed when you build it. Write "
                f"build_session(master, {{'{key}': ...}}), or remove the statement."
            )
            mistakes.add(SqlError(message, *each.at("value")))
