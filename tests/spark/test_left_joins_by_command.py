"""LEFT JOIN as who runs `penstock` sees it: three runs with more input before each, the last one to the end of the streams."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from joined_inputs import Inputs
from penstock.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

#: partners of the last flights of a run come with the next one
VIEWS = {
    "met": "SELECT l.k, l.name, l.ts, r.n AS rn, r.ts AS seen FROM flights l LEFT JOIN weather r ON l.k = r.k "
    "AND r.n > 1 AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 9 SECONDS",
    "unmet": "SELECT name, ts FROM met WHERE seen IS NULL AND k > 2",
}
MOMENTS = ("ts", "seen")


class Commands:
    """Commands of a user in a folder, in this process and on its session."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patched = capsys, monkeypatch

    def __call__(self, *arguments: str) -> str:
        """What a command prints."""
        self._patched.setattr(sys, "argv", ["penstock", *arguments])
        with suppress(SystemExit):
            main()
        said = self._capsys.readouterr()
        assert not said.err
        return said.out


def printed(penstock: Commands, view: str, *options: str) -> Counter[str]:
    """The rows of a view that `penstock results` prints."""
    lines = penstock("results", "out", view, "--limit", "0", "--format", "json", *options)
    rows = map(json.loads, lines.splitlines())
    return Counter(
        text_of({**row, **{name: datetime.fromisoformat(row[name]) for name in MOMENTS if row.get(name)}})
        for row in rows
    )


def text_of(row: dict[str, Any]) -> str:
    """A row with moments in UTC."""
    return repr({**row, **{name: row[name].astimezone(UTC).isoformat() for name in MOMENTS if row.get(name)}})


def marked(rows: Counter[str], op: str) -> Counter[str]:
    """Rows as `--changes` has them."""
    return Counter({f"{row[:-1]}, 'op': {op!r}}}": count for row, count in rows.items()})


def both(changes: Counter[str]) -> Counter[str]:
    """The rows among changes that were withdrawn, as they were told and as they were withdrawn."""
    end = ", 'op': 'delete'}"
    gone = {row.removesuffix(end): count for row, count in changes.items() if row.endswith(end)}
    rows = Counter({f"{row}}}": count for row, count in gone.items()})
    return marked(rows, "insert") + marked(rows, "delete")


def wanted(inputs: Inputs) -> dict[str, Counter[str]]:
    """The rows of each view over what was fed, as DuckDB says."""
    found = {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, tuples in inputs.tuples.items():
            connection.register(name, pa.concat_tables(tuples))
        for name, text in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {text}")
            rows = connection.sql(text).arrow().read_all().to_pylist()
            found[name] = Counter(map(text_of, rows))
    return found


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_rows_are_told_withdrawn_and_final(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    penstock = Commands(capsys, monkeypatch)
    inputs = Inputs(tmp_path / "in", np.random.default_rng(11))
    views = "".join(f"CREATE VIEW {name} AS {text};\n" for name, text in VIEWS.items())
    (tmp_path / "script.sql").write_text(f"{inputs.script()};\n{views}")
    before, told = ({view: Counter[str]() for view in VIEWS} for _ in range(2))
    for ended in ((), (), ("--ended",)):
        inputs.feed(2)
        penstock("run", "script.sql", "--output", "out", "--available-now", *ended)
        rows = wanted(inputs)
        shown = json.loads(penstock("status", "out", "--format", "json"))["views"]
        for view, own in rows.items():
            assert printed(penstock, view) == own, view
            assert shown[view]["rows"] == own.total()
            changes = printed(penstock, view, "--changes")
            new = changes - told[view]
            assert told[view] <= changes, "what was told stays"
            gone = marked(before[view] - own, "delete")
            assert gone <= new
            assert gone or not before[view], "partners come with a later run"
            assert changes == marked(own, "insert") + both(changes), "each is withdrawn once"
            told[view] = changes
        before = rows
