"""What is told before anything that takes long is loaded or started."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from penstock.cli.tables import print_rows, table_console
from penstock.errors import CheckpointError, ConnectionFailedError, InputError
from penstock.spark.storage.layout import Layout

SLOW = ("pyspark", "py4j", "numba", "pyarrow", "pandas", "sqlglot")
CALLED = """
import sys
sys.argv = {arguments!r}
from penstock.cli.main import main
try:
    main()
finally:
    print("loaded", *sorted(set({slow!r}) & sys.modules.keys()), file=sys.stderr)
"""


def called(
    *arguments: str, slow: tuple[str, ...] = SLOW, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which says at its end what it has loaded."""
    program = CALLED.format(arguments=["penstock", *arguments], slow=slow)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_version_is_told_and_nothing_else_done() -> None:
    ended = called("--version")
    assert (ended.returncode, ended.stdout) == (0, f"penstock {version('penstock')}\n")
    assert ended.stderr.splitlines()[-1] == "loaded"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rnu"], "No such command"),
        (["run", "script.sql", "--outptu", "out"], "No such option"),
        (["run", "script.sql", "--set", "idle_second=1"], "idle_second"),
        (["results", "nowhere", "view"], "Results folder nowhere does not exist"),
    ],
)
def test_a_slip_in_the_options_loads_nothing_that_is_slow(arguments: list[str], told: str) -> None:
    ended = called(*arguments)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert ended.stderr.splitlines()[-1] == "loaded"


def test_folders_their_writer_and_scripts_are_judged_without_spark(tmp_path: Path) -> None:
    held = tmp_path / "held"
    owner = Layout.of(held, None).open()
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE t (id INT) USING csv OPTIONS (path 'in')")
    (tmp_path / "file").touch()
    for options, told in (
        (["--output", str(held)], f"is in use by process {os.getpid()}"),
        (["--output", str(tmp_path / "file" / "out")], "file: Not a directory"),
        (["--output", str(tmp_path)], "is not a results folder of Penstock"),
        (["--output", str(tmp_path / "new"), "--trigger", "often"], "trigger 'often'"),
        (["--output", str(tmp_path / "new")], "nothing to run"),
    ):
        ended = called("run", str(script), *options, slow=("pyspark", "numba"), PATH="/nowhere")
        assert ended.returncode == 2
        assert told in ended.stderr
        assert ended.stderr.splitlines()[-1] == "loaded"
    owner.close()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_missing_path_is_told_before_spark_starts(tmp_path: Path, command: str) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "CREATE TABLE t (id INT) USING csv OPTIONS (path 'dta'); CREATE VIEW v AS SELECT * FROM t WHERE id > 1;"
    )
    options = ["--output", str(tmp_path / "new")] if command == "run" else []
    ended = called(command, str(script), *options, slow=("pyspark", "numba"), PATH="/nowhere")
    assert ended.returncode == 2
    assert "table t: path dta does not exist" in ended.stderr
    assert "OPTIONS (path 'dta')" in ended.stderr
    assert ended.stderr.splitlines()[-1] == "loaded"
    assert not (tmp_path / "new").exists()


def test_all_mistakes_are_told_and_spark_starts_for_none_where_nothing_else_is_left(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "CREATE TABLE t (id INT) USING csv OPTIONS (path 'dta');\nCREATE TABLE u (id INT) USING csv OPTIONS (path 'dtb');\n"
        "CREATE VIEW v AS SELECT * FROM t WHERE id > 1;\nCREATE VIEW w AS SELECT * FROM x;\nCREATE VIEW y SELECT * FROM u;"
    )
    ended = called("check", str(script), slow=("pyspark", "numba"), PATH="/nowhere")
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "penstock: The script has 4 mistakes.\n\ntable t: path dta does not exist."
    )
    found = [line for line in ended.stderr.splitlines() if line.startswith("  line ")]
    assert [line.split()[1] for line in found] == ["1:", "2:", "4:", "5:"]
    assert ended.stderr.splitlines()[-1] == "loaded"


def test_the_path_of_an_insert_s_target_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    script = tmp_path / "script.sql"
    script.write_text(
        f"CREATE TABLE t (id INT) USING csv OPTIONS (path '{tmp_path / 'in'}'); CREATE VIEW v AS SELECT * FROM t WHERE id > 1;"
        "CREATE TABLE o USING parquet OPTIONS (path 'nothing'); INSERT INTO o SELECT * FROM v;"
    )
    ended = called("check", str(script), slow=("numba",), PATH="/nowhere")
    assert ended.returncode == 2
    assert "path nothing" not in ended.stderr


def test_folders_are_looked_at_before_they_are_made(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", tmp_path / "kept")
    layout.check()
    assert list(tmp_path.iterdir()) == []
    layout.open()
    layout.check()
    with pytest.raises(CheckpointError, match=r"has results, but its checkpoint .* does not exist"):
        Layout.of(tmp_path / "out", tmp_path / "other").check()
    (tmp_path / "other").mkdir()
    with pytest.raises(CheckpointError, match=r"its checkpoint .*other/identity.json does not exist"):
        Layout.of(tmp_path / "out", tmp_path / "other").check()
    (tmp_path / "other").rmdir()
    (tmp_path / "other").touch()
    with pytest.raises(ConnectionFailedError, match="other: Not a directory"):
        Layout.of(tmp_path / "new", tmp_path / "other").check()
    beside = Layout.of(tmp_path / "beside", tmp_path / "kept")
    beside.check()
    layout.spark("orders").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"kept belongs to another output folder than .*beside"):
        beside.check()
    (tmp_path / "kept" / "identity.json").write_text('{"id": "x", "layout": 0}')
    with pytest.raises(InputError, match="has layout 0, this version reads"):
        layout.check()


def test_public_names_load_when_they_are_used() -> None:
    program = (
        "import sys, penstock\n"
        "assert not {'pyspark', 'numba', 'pyarrow'} & sys.modules.keys()\n"
        "penstock.Matcher, penstock.Settings\n"
        "assert 'pyspark' not in sys.modules\n"
        "from penstock import Engine, Run, build_session\n"
        "assert set(penstock.__all__) <= set(dir(penstock))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


WIDE = pa.table({f"column{number}": [f"value-{number}-" + "x" * 20] for number in range(12)})


def test_a_piped_table_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(table_console(), WIDE, "wide: 1 rows")
    lines = capsys.readouterr().out.splitlines()
    assert any(all(f"column{number} " in line for number in range(12)) for line in lines)
    assert any(all(WIDE[number][0].as_py() in line for number in range(12)) for line in lines)


def test_a_table_fits_its_terminal() -> None:
    """Columns that do not fit beside each other are printed below each other, and nothing is lost."""
    for width in (60, 200):
        shown = io.StringIO()
        print_rows(Console(file=shown, width=width), WIDE, "wide")
        assert max(map(len, shown.getvalue().splitlines())) <= width
        assert all(WIDE[number][0].as_py() in shown.getvalue() for number in range(12))
