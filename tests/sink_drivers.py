"""The two runs that storms of sinks disturb: `penstock run`, and one that publishes without Spark and starts in a second."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from disturbed_runs import Orders
from penstock.errors import InputError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from sink_cases import SELECTION

_TESTS = Path(__file__).parent
_CACHE = _TESTS.parent / ".cache"
_JARS = sorted([*(_CACHE / "kafka-connector").glob("*.jar"), *(_CACHE / "jdbc").glob("*.jar")])
_WHOLE = "SELECT * FROM orders WHERE id >= 0"
_WINDOWS = "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n FROM orders GROUP BY name, w"


class Driver:
    """Spark's: a view of all rows and one of windows.

    Attributes:
        views: the view of all rows, and the one of windows if there is one.
        columns: what is compared of all rows.
        of_orders: the same columns of the orders.
    """

    views: Sequence[str] = ("whole", "by_name")
    columns = of_orders = "id, amount, price, name, seen"

    def declared(self, orders: Orders) -> str:
        """What stands before the sinks in the script."""
        return orders.script({"whole": _WHOLE, "by_name": _WINDOWS})

    def command(self, script: Path, orders: Path, output: Path, *options: str) -> list[str]:  # noqa: ARG002
        """What runs the script."""
        program = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run"]
        jars = f"spark.jars={','.join(map(str, _JARS))}"
        return [*program, str(script), "--output", str(output), "--conf", jars, *options]

    def status(self, output: Path) -> Mapping[str, Any]:
        """`state`, `pid` and `sinks` of the run."""
        with suppress(InputError):
            return folder_status(output)
        return {}

    def said(self, output: Path) -> str:
        """What a person is shown of the status."""
        return "\n".join(status_lines(folder_status(output), verbose=True))

    def rows(self, output: Path, view: str, *, changes: bool = False) -> pa.Table:
        """The rows of a view that are published."""
        found = plain_rows(Layout.of(output, None), view, 0, changes)
        assert found is not None
        return found.rows


class PlainDriver(Driver):
    """One without Spark."""

    views = (SELECTION,)
    columns = "id, city, amount"
    of_orders = "id, name AS city, price AS amount"

    def declared(self, orders: Orders) -> str:
        return orders.script({SELECTION: _WHOLE})

    def command(self, script: Path, orders: Path, output: Path, *options: str) -> list[str]:
        program = str(_TESTS / "chaos" / "publisher.py")
        return [sys.executable, program, str(script), str(orders), str(output), *options]

    def status(self, output: Path) -> Mapping[str, Any]:
        told = output / "told.json"
        found: Mapping[str, Any] = json.loads(told.read_text()) if told.exists() else {}
        return found

    def said(self, output: Path) -> str:
        sinks = self.status(output)["sinks"]
        return "\n".join(f"RETRYING: {each['trouble']}" for each in sinks.values() if each["trouble"])
