"""When batches start and when a run ends, as `Engine.start` is told it: by a `Trigger`, or by its old keywords."""

from __future__ import annotations

from penstock.deprecation import warn_deprecated
from penstock.errors import InputError
from penstock.trigger import Trigger


def trigger_of(trigger: Trigger | str, available_now: bool | None, ended: bool | None) -> Trigger:
    """The trigger that `Engine.start` is given, by its old keywords too. Warnings name the caller of that.

    Raises:
        InputError: it is no trigger, or the keywords do not go together.
    """
    if isinstance(trigger, str):
        try:
            every = Trigger.every(trigger)
        except InputError:
            raise _no_trigger(trigger) from None
        warn_deprecated(f"Engine.start(trigger={trigger!r})", f"trigger=Trigger.every({trigger!r})", 4)
        trigger = every
    if not isinstance(trigger, Trigger):
        raise _no_trigger(trigger)
    if available_now is None and ended is None:
        return trigger
    warn_deprecated("Engine.start(available_now=..., ended=...)", "trigger=Trigger.available_now(...)", 4)
    if ended and not available_now:
        raise InputError("ended=True requires available_now=True.")
    return Trigger(trigger.interval, is_bounded=True, is_complete=bool(ended)) if available_now else trigger


def _no_trigger(given: object) -> InputError:
    return InputError(
        f"trigger {given!r} is unknown; allowed: Trigger(), Trigger.every('2 seconds'), Trigger.available_now(), "
        "Trigger.available_now(ended=True)"
    )
