"""Simulated networks: what has become of their packets, as the status knows and shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.monitor.figures import counted

_TOLD = ("seconds", "of_seconds", "created", "arrived", "under_way", "lost")


def network_reached(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    """Takes in how far a stream has come in its network."""
    stream = document["streams"].setdefault(event["stream"], {})
    stream["network"] = {name: event.get(name) for name in _TOLD}


def network_line(network: Mapping[str, Any]) -> str:
    """What has become of the packets so far.

    Args:
        network: as `network_reached` keeps it.
    """
    lost: Mapping[str, int] = network["lost"]
    causes = ", ".join(
        f"{cause} {count:,}" for cause, count in sorted(lost.items(), key=lambda each: -each[1])
    )
    parts = [
        f"network: {network['seconds']:,g} s of {network['of_seconds']:,g} s",
        f"{counted(network['created'], 'packet')} created",
        f"{network['arrived']:,} arrived",
        f"{network['under_way']:,} under way",
        f"{sum(lost.values()):,} lost" + (f" ({causes})" if causes else ""),
    ]
    return " | ".join(parts)
