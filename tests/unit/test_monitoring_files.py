"""The alert rules and the dashboard are what Prometheus and Grafana read, and name metrics that exist."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parsed

from monitoring_files import ALERTS, alerts, dashboard, expressions, metrics_read, panels
from penstock.page.metrics import Exposition
from status_cases import large_document

_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def _checked(*arguments: object) -> None:
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_metric_that_is_read_is_one_that_is_written() -> None:
    known = SimpleNamespace(document=large_document(), error=None)
    text = Exposition(lambda: known, lambda views: dict.fromkeys(views, 1.0)).answer("")[0].decode()
    written = set()
    for family in parsed(text):
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        written |= {family.name + ending for ending in endings}
    assert metrics_read() - written == set()


def test_each_alert_says_what_happens_and_how_grave_it_is() -> None:
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")


@_promtool
def test_promtool_accepts_the_alerts_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    _checked("check", "rules", ALERTS)
    rules = [{"record": f"expression_{number}", "expr": each} for number, each in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    _checked("check", "rules", tmp_path / "rules.yml")


@_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    where = 'job="penstock",instance="a:9404"'
    firing = {
        "PenstockRunGone": 'state="dead"',
        "PenstockLossPromiseBroken": 'view="gates"',
        "PenstockQuarantine": 'stream="orders"',
        "PenstockErrorBoundExceeded": 'view="sums"',
    }
    values = {
        f'penstock_run_state{{{where},state="dead"}}': "1x60",
        f'penstock_run_state{{{where},state="running"}}': "0x60",
        f'penstock_broken_loss_promises_total{{{where},view="gates"}}': "0x50 1x10",
        f'penstock_broken_loss_promises_total{{{where},view="calm"}}': "3x60",
        f'penstock_tuples_total{{{where},stream="orders"}}': "0+10x60",
        f'penstock_quarantined_records_total{{{where},stream="orders",reason="other"}}': "0x60",
        # a reason that occurs for the first time
        f'penstock_quarantined_records_total{{{where},stream="orders",reason="malformed"}}': "_x50 9x10",
        f'penstock_window_within_bound_ratio{{{where},view="sums"}}': "0.9x60",
        f'penstock_window_within_bound_ratio{{{where},view="learning"}}': "0.9x60",
        f'penstock_window_max_error_probability{{{where},view="sums"}}': "0.05x60",
        f'penstock_window_max_error_probability{{{where},view="learning"}}': "0.05x60",
        f'penstock_window_promise_active{{{where},view="sums"}}': "1x60",
        f'penstock_window_promise_active{{{where},view="learning"}}': "0x60",
    }
    series = [{"series": name, "values": each} for name, each in values.items()]
    samples = [
        {
            "expr": f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing",{labels}}})',
            "eval_time": "55m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
        }
        for name, labels in firing.items()
    ]
    count = {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "55m"}
    samples.append({**count, "exp_samples": [{"labels": "{}", "value": len(firing)}]})
    test = {"interval": "1m", "input_series": series, "promql_expr_test": samples}
    tests = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    _checked("test", "rules", tmp_path / "tests.yml")


def test_the_dashboard_has_what_grafana_needs() -> None:
    found = dashboard()
    assert found["schemaVersion"] >= 36
    assert {"uid", "title", "panels", "templating", "time", "timezone", "refresh", "annotations"} <= set(
        found
    )
    source, *others = found["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    reference = {"type": "prometheus", "uid": "${datasource}"}
    assert all(variable["type"] == "query" and variable["datasource"] == reference for variable in others)
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    assert [panel["title"] for panel in found["panels"] if panel["type"] == "row"] == [
        *("Overview", "Plans", "Windows", "Deadlines")
    ]
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == reference
        assert {"defaults", "overrides"} <= set(panel["fieldConfig"])
        assert [target["refId"] for target in panel["targets"]] == ["A", "B"][: len(panel["targets"])]
        assert all(target["datasource"] == reference and target["expr"] for target in panel["targets"])


#: what Grafana itself writes and its SDK does not know
_WRITTEN_BY_GRAFANA = {"builtIn", "definition", "allValue"}


def _lost(given: Any, back: Any, path: str = "") -> Iterator[str]:
    """The places of a document that are others, or not there, in another one."""
    if isinstance(given, dict) and isinstance(back, dict):
        for name, value in given.items():
            if name in back:
                yield from _lost(value, back[name], f"{path}.{name}")
            elif name not in _WRITTEN_BY_GRAFANA:
                yield f"{path}.{name}"
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for number, (one, other) in enumerate(zip(given, back, strict=True)):
            yield from _lost(one, other, f"{path}[{number}]")
    elif given != back:
        yield path


def test_grafana_s_own_types_read_the_whole_dashboard() -> None:
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins.register_default_plugins()

    def back(document: dict[str, Any]) -> Any:
        return json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(document)))

    found = dashboard()
    assert list(_lost(found, back(found))) == []
    panel = next(each for each in found["panels"] if each["type"] != "row")
    panel["fieldConfig"]["defaults"]["unitt"] = panel["fieldConfig"]["defaults"].pop("unit")
    panel["targets"][0]["expresion"] = panel["targets"][0].pop("expr")
    assert {place.rpartition(".")[2] for place in _lost(found, back(found))} == {"expresion", "unitt"}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken
        taken |= cells
