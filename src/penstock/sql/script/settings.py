"""What a script sets: which settings, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from penstock.errors import DuplicateNameError, InputError, SqlError, UnknownNameError, nearest
from penstock.settings import STORE_OPTION, Settings, faults
from penstock.sql.script.statements import OWN_SETTING, SPARK_SETTING, SetValue

_NONE: Mapping[str, Any] = MappingProxyType({})
_ALLOWED = "A script sets Penstock's settings, penstock.NAME, and Spark's, spark.NAME."
#: what other systems call the time zone
_ZONES = ("table.local-time-zone", "timezone", "time_zone")


def own_settings(settings: Iterable[SetValue]) -> dict[str, SetValue]:
    """Return Penstock's settings of a script by their names, `penstock.` left out; the first of each name."""
    return _named(settings, OWN_SETTING)


def spark_settings(settings: Iterable[SetValue]) -> dict[str, SetValue]:
    """Return Spark's settings of a script by their keys; the first of each key."""
    return {SPARK_SETTING + name: each for name, each in _named(settings, SPARK_SETTING).items()}


def _named(settings: Iterable[SetValue], begin: str) -> dict[str, SetValue]:
    found: dict[str, SetValue] = {}
    for each in settings:
        if each.name.startswith(begin):
            found.setdefault(each.name.removeprefix(begin), each)
    return found


def wrong_settings(settings: Iterable[SetValue], given: Mapping[str, Any] = _NONE) -> Iterator[InputError]:
    """Yield the mistakes in what a script sets.

    Args:
        settings: what it sets.
        given: values of Penstock's settings that are allowed by themselves and win, by name.

    Yields:
        A setting that does not exist or is set twice, and a value that is not allowed, at their places. An `InputError` without place:
        one of `given` that does not go with the others.
    """
    known: list[SetValue] = []
    for each in settings:
        if any(each.name == other.name for other in known):
            message = f"{each.name} is set twice. A setting applies to the whole script."
            yield DuplicateNameError(message, *each.at())
        elif (error := _unknown(each)) is not None:
            yield error
        else:
            known.append(each)
    own = own_settings(known)
    values = {name: each.value for name, each in own.items()}
    if wrong := faults(values, alone=True):
        # they are mistakes, whether or not others win
        for name, reason in wrong.items():
            yield SqlError(_told(name, reason), *own[name].at("value"))
        return
    for name, reason in faults({**values, **given}).items():
        # that a setting needs another one is a fault of that one
        named = own.get(name) if name not in given else None
        placed = named or next((each for other, each in own.items() if other in reason), None)
        told = _told(name, reason)
        yield InputError(told) if placed is None else SqlError(told, *placed.at("value"))


def _told(name: str, reason: str) -> str:
    return f"Setting {name}: {reason}."


def _unknown(setting: SetValue) -> SqlError | None:
    """The mistake that there is no such setting."""
    name = setting.name
    if name.startswith(SPARK_SETTING):
        return None
    bare = name.removeprefix(OWN_SETTING)
    if bare.lower().startswith(STORE_OPTION):
        option = bare[len(STORE_OPTION) :]
        message = (
            f"A script sets no options of stores, which other commands need too. Write --set {STORE_OPTION}{option}=VALUE, or set the "
            f"variable {option.upper()}."
        )
        return SqlError(message, *setting.at())
    if name.startswith(OWN_SETTING):
        if bare in Settings.model_fields:
            return None
        listed = "" if nearest(bare, Settings.model_fields) else "Existing settings"
        return UnknownNameError.among("Setting", bare, Settings.model_fields, listed).at(*setting.at())
    if name.lower() in _ZONES:
        return SqlError(f"{_ALLOWED} Write SET spark.sql.session.timeZone = 'ZONE'.", *setting.at())
    near = nearest(bare, Settings.model_fields)
    meant = "." if near is None else f"; did you mean {OWN_SETTING}{near}?"
    message = f"Setting {name} does not exist{meant} {_ALLOWED}"
    return UnknownNameError(message, *setting.at(), name=name, near=near)
