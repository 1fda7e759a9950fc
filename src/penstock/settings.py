"""Frozen settings, validated once in the driver and shipped inside the plan."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from penstock.errors import InputError
from penstock.plan.slack import SlackChoice, SlackPolicyName

#: what the names of options of stores begin with, which stand beside settings
STORE_OPTION = "store."
#: how a join's order is chosen
JoinPolicyName = Literal["output-rate", "paper", "cardinality", "fixed"]
#: kind of a mistake in what a setting requires of another one
_OF_TWO: Final = "of_two"
#: how messages name the ends of a range
_ENDS: Final = {
    "ge": "greater than or equal to",
    "gt": "greater than",
    "le": "less than or equal to",
    "lt": "less than",
}
#: which window with a deadline is worked on next
DeadlinePolicyName = Literal["planned", "paper", "edf", "dbp", "dwcs", "best-effort"]


class Settings(BaseModel):
    """What a user may tune; every field has a unit in its name or its description.

    Raises:
        pydantic.ValidationError: a value is out of range or a field is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: tuples handed to the matcher at once
    batch_rows: int = Field(default=65_536, ge=1_024, le=65_536)
    #: how the matcher answers: by the measured cost of both sides, or one of them always
    strategy: Literal["auto", "index", "asc"] = "auto"
    #: form of the evaluation sequence
    sequence: Literal["hybrid", "macro"] = "macro"
    #: recomputation period lambda, in tuples
    recomputation_period_tuples: int = Field(default=100_000, ge=1)
    #: monitoring period tau, in sampled tuples
    monitoring_period_tuples: int = Field(default=2_000, ge=1)
    #: rearrangement threshold mu, relative
    rearrangement_threshold: float = Field(default=0.02, ge=0)
    #: sampled tuples each task reports for monitoring
    sample_tuples: int = Field(default=5_000, ge=0)
    #: a batch that spans more than a window is taken in by so many steps at most, in the order in which its tuples came; 1: as one
    arrival_steps: int = Field(default=32, ge=1, le=127)
    #: map stage inside the scan where the source allows it
    map_in_scan: bool = True
    #: decode Kafka's JSON in the worker where the schema allows it
    decode_in_worker: bool = True
    #: published batches between two compactions; 0 turns compaction off
    compact_every_batches: int = Field(default=64, ge=0)
    #: files that were replaced by merged ones are there so long, for whoever has begun to read them
    replaced_seconds: float = Field(default=600.0, ge=60)
    #: published rows of streams and views without a retention of their own are deleted so long after their publication; None: never
    retain_seconds: float | None = Field(default=None, gt=0)
    #: a record larger than this goes to the quarantine
    max_record_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    #: a file that is no whole Parquet file yet is waited for until nobody has written to it for so long
    settle_seconds: float = Field(default=2.0, ge=0)
    #: time between two looks at whether files that were read have changed
    files_seconds: float = Field(default=10.0, gt=0)
    #: a tuple whose event time is further ahead of clock and stream does not move the stream on
    max_clock_ahead_seconds: float = Field(default=3_600.0, ge=0)
    #: late tuples of closed windows are corrected together when they span more event time (Gamma)
    correction_span_seconds: float = Field(default=5.0, ge=0)
    #: ... and by the clock, those of answered windows wait no longer than about this
    correction_seconds: float = Field(default=30.0, ge=0)
    #: a stream without tuples for longer is taken to move on with the clock: its windows are answered, none
    #: is final; 0: never
    idle_seconds: float = Field(default=30.0, ge=0)
    #: a tuple that is later changes neither slack nor horizon; it corrects its windows from the history
    max_delay_seconds: float = Field(default=86_400.0, gt=0)
    #: a window is final no sooner after its end
    least_horizon_seconds: float = Field(default=0.0, ge=0)
    #: how a view whose MAX_ERROR names no policy learns how long its windows wait for late tuples
    slack_policy: SlackPolicyName = "required"
    #: how long they wait with the policy `fixed`; only with it
    slack_seconds: float | None = Field(default=None, ge=0, le=86_400 * 365, validate_default=True)
    #: what late tuples are corrected from is kept so long, by the clock ...
    history_seconds: float = Field(default=604_800.0, ge=0)
    #: ... unless the log of a stream has more bytes: then its oldest part goes before
    history_bytes: int = Field(default=10_000_000_000, ge=0)
    #: shards of the windows' state, fixed with a new checkpoint; None: one a core
    shards: int | None = Field(default=None, ge=1, le=1_024)
    #: what can pass by itself is tried again so often before the stream stops, counted anew from each batch ...
    retry_attempts: int = Field(default=8, ge=0)
    #: ... first after so long, then after twice as long each time, 30 seconds at the most
    retry_seconds: float = Field(default=1.0, gt=0)
    #: time between two looks at each source, for outages and lag; 0: never
    watch_seconds: float = Field(default=5.0, ge=0)
    #: `events.jsonl` is full with so many bytes: it is renamed, and a new one is begun ...
    events_bytes: int = Field(default=64 * 1024 * 1024, ge=4_096)
    #: ... and so many files are kept, the newest one among them
    events_files: int = Field(default=8, ge=1)
    #: which window with a deadline is worked out next: ours, the paper's (k, m) rule with its rho, or a plain one
    deadline_policy: DeadlinePolicyName = "planned"
    #: by what the order of a join is chosen: ours, the paper's formulas as printed, cardinalities, or not at all
    join_policy: JoinPolicyName = "output-rate"
    #: share of the running plan's predicted time that another one has to save
    plan_threshold: float = Field(default=0.05, ge=0, lt=1)
    #: least time between two changes of a plan
    plan_dwell_seconds: float = Field(default=10.0, ge=0)
    #: measurements that plans go by lose half of their weight in this time
    plan_half_life_seconds: float = Field(default=3.0, gt=0)
    #: so many lost windows of a view with late answers are owed at the most; beyond, the oldest is given up
    late_windows: int = Field(default=100, ge=1, le=10_000)
    #: a refreshed view with more rows is not answered
    refreshed_rows: int = Field(default=1_000_000, ge=1)
    #: plan versions kept in the checkpoint behind the newest bound one
    retained_plans: int = Field(default=100, ge=1)

    @property
    def slack(self) -> SlackChoice:
        """The slack policy of views whose hint names none."""
        return SlackChoice(
            self.slack_policy, None if self.slack_seconds is None else round(self.slack_seconds * 1e6)
        )

    @field_validator("slack_seconds")
    @classmethod
    def _belongs_to_fixed(cls, seconds: float | None, info: ValidationInfo) -> float | None:
        policy = info.data.get("slack_policy")
        if policy == "fixed" and seconds is None:
            raise PydanticCustomError(
                _OF_TWO, "slack_policy fixed needs it; set slack_seconds=30, for example"
            )
        if policy not in ("fixed", None) and seconds is not None:
            raise PydanticCustomError(
                _OF_TWO, "only slack_policy fixed has a length; set slack_policy=fixed too"
            )
        return seconds


_DEFAULTS = Settings()


class Tuning(TypedDict, total=False):
    """The fields of `Settings`, as keyword arguments of `Engine`."""

    batch_rows: int
    strategy: Literal["auto", "index", "asc"]
    sequence: Literal["hybrid", "macro"]
    recomputation_period_tuples: int
    monitoring_period_tuples: int
    rearrangement_threshold: float
    sample_tuples: int
    arrival_steps: int
    map_in_scan: bool
    decode_in_worker: bool
    compact_every_batches: int
    replaced_seconds: float
    retain_seconds: float | None
    max_record_bytes: int
    settle_seconds: float
    files_seconds: float
    max_clock_ahead_seconds: float
    correction_span_seconds: float
    correction_seconds: float
    idle_seconds: float
    max_delay_seconds: float
    least_horizon_seconds: float
    slack_policy: SlackPolicyName
    slack_seconds: float | None
    history_seconds: float
    history_bytes: int
    shards: int | None
    retry_attempts: int
    retry_seconds: float
    watch_seconds: float
    events_bytes: int
    events_files: int
    deadline_policy: DeadlinePolicyName
    join_policy: JoinPolicyName
    plan_threshold: float
    plan_dwell_seconds: float
    plan_half_life_seconds: float
    late_windows: int
    refreshed_rows: int
    retained_plans: int


def tuned(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with some fields changed.

    Raises:
        InputError: a field is unknown or its value out of range.
    """
    check(changes, settings)
    return Settings.model_validate({**settings.model_dump(), **changes})


def check(values: Mapping[str, Any], settings: Settings = _DEFAULTS, *, alone: bool = False) -> None:
    """Make sure that values of settings are allowed; arguments as of `faults`.

    Raises:
        InputError: a setting is unknown or its value out of range.
    """
    for name in values:
        if name not in Settings.model_fields:
            raise InputError(f"settings: {name} does not exist{_meant(name)}")
    if found := faults(values, settings, alone=alone):
        told = "; ".join(f"{name}: {reason}" for name, reason in found.items())
        raise InputError(f"settings: {told}; existing settings: {', '.join(Settings.model_fields)}")


def faults(
    values: Mapping[str, Any], settings: Settings = _DEFAULTS, *, alone: bool = False
) -> dict[str, str]:
    """Return what is wrong with values of settings, by name.

    Args:
        values: by the name of a setting that exists.
        settings: the others.
        alone: whether others may follow: what a setting requires of another one is not judged.
    """
    try:
        Settings.model_validate({**settings.model_dump(), **values})
    except ValidationError as error:
        found = ((".".join(map(str, item["loc"])), item) for item in error.errors())
        return {name: _reason(name, item) for name, item in found if not (alone and item["type"] == _OF_TWO)}
    return {}


def _reason(name: str, found: ErrorDetails) -> str:
    """What is wrong with the value of a setting; of one out of its range, both ends of that."""
    if _ENDS.keys().isdisjoint(found.get("ctx", {})):
        return found["msg"]
    limits = Settings.model_fields[name].metadata
    ends = (
        f"{words} {getattr(each, end)}"
        for end, words in _ENDS.items()
        for each in limits
        if hasattr(each, end)
    )
    return f"Input should be {' and '.join(ends)}"


def _meant(name: str) -> str:
    """The setting that was meant, or all that exist."""
    plain = {known.replace("_", ""): known for known in Settings.model_fields}
    nearest = get_close_matches("".join(filter(str.isalnum, name.lower())), plain, 1, cutoff=0.7)
    if nearest:
        return f"; did you mean {plain[nearest[0]]}?"
    return f"; existing settings: {', '.join(Settings.model_fields)}"
