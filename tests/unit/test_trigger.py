"""When batches start, and when a run ends, as users say it."""

from __future__ import annotations

import warnings
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from penstock import InputError, Trigger
from penstock.cli.run import run as run_command
from penstock.spark.declaring.triggers import trigger_of


def test_a_trigger_says_when_batches_start_and_when_the_run_ends() -> None:
    assert Trigger.every("1 minute 30 seconds").seconds == 90
    assert not Trigger.every("2 seconds").is_bounded
    assert Trigger.available_now() == Trigger(is_bounded=True)
    assert Trigger.available_now(ended=True).is_complete
    assert not Trigger.available_now().is_complete


def test_a_trigger_shows_how_it_is_made() -> None:
    for trigger in (
        Trigger(),
        Trigger.every("2 seconds"),
        Trigger.available_now(),
        Trigger.available_now(ended=True),
        Trigger("2 seconds", is_bounded=True),
    ):
        assert eval(repr(trigger), {"Trigger": Trigger}) == trigger


@pytest.mark.parametrize("interval", ["soon", "-1 second", ""])
def test_an_interval_that_is_no_length_of_time_is_refused(interval: str) -> None:
    with pytest.raises(InputError, match=r"^trigger '.*': write a length of time such as '1 second'\.$"):
        Trigger.every(interval)


def test_only_a_bounded_run_can_be_complete_and_a_trigger_is_frozen() -> None:
    with pytest.raises(InputError, match=r"use Trigger.available_now\(ended=True\)"):
        Trigger(is_complete=True)
    with pytest.raises(FrozenInstanceError):
        Trigger().interval = "1 second"  # type: ignore[misc]


def test_the_old_keywords_keep_the_interval() -> None:
    with pytest.warns(DeprecationWarning, match="Engine.start"):
        trigger = trigger_of("5 seconds", available_now=True, ended=True)
    assert trigger == Trigger("5 seconds", is_bounded=True, is_complete=True)


@pytest.mark.parametrize("trigger", ["now", "", None, 5])
def test_an_unknown_trigger_is_one_error_with_what_is_allowed(trigger: object) -> None:
    with warnings.catch_warnings(record=True) as advice:
        warnings.simplefilter("always")
        with pytest.raises(InputError) as refused:
            trigger_of(trigger, None, None)  # type: ignore[arg-type]
    assert advice == []
    assert str(refused.value) == (
        f"trigger {trigger!r} is unknown; allowed: Trigger(), Trigger.every('2 seconds'), Trigger.available_now(), "
        "Trigger.available_now(ended=True)"
    )


def test_the_command_refuses_an_interval_beside_available_now(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^trigger 'soon'"):
        run_command(tmp_path / "none.sql", output=tmp_path / "out", available_now=True, trigger="soon")
