"""The alert rules and the dashboard of docs/monitoring, and which metrics their expressions read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "docs" / "monitoring"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "grafana-dashboard.json"


def alerts() -> list[dict[str, Any]]:
    """The rules of all groups."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """The expressions of both, with the variables of the dashboard filled in."""
    found = [rule["expr"] for rule in alerts()]
    found += [target["expr"] for panel in panels() for target in panel["targets"]]
    variables = {"__rate_interval": "5m", "job": "penstock", "instance": ".*", "stream": ".*", "view": ".*"}
    return [re.sub(r"\$(\w+)", lambda name: variables[name[1]], each) for each in found]


def metrics_read() -> set[str]:
    """The names of the series that the expressions and the variables of the dashboard read."""
    queries = [variable["definition"] for variable in dashboard()["templating"]["list"][1:]]
    return {name for each in (*expressions(), *queries) for name in re.findall(r"\bpenstock_\w+", each)}
