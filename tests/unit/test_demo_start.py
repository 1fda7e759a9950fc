"""The demo says every few seconds what it waits for, and prints commands that work as they are copied."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.demo_start import heartbeat, penstock_command
from penstock.cli.main import app


def test_a_line_every_few_seconds_until_the_block_ends() -> None:
    out = io.StringIO()
    with heartbeat(Console(file=out), "Spark starts", every_seconds=0.01):
        while out.getvalue().count("\n") < 2:
            time.sleep(0.01)
    lines = out.getvalue().splitlines()
    assert all(re.fullmatch(r"  Spark starts: \d+ s so far", line) for line in lines)
    time.sleep(0.05)
    assert out.getvalue().splitlines() == lines


def test_commands_have_the_path_of_penstock_where_the_shell_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / ".venv" / "bin"
    own.mkdir(parents=True)
    for name in ("penstock", "python"):
        (own / name).write_text("")
        (own / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert penstock_command() == ".venv/bin/penstock"
    monkeypatch.chdir("/")
    assert penstock_command() in (str(own / "penstock"), str(own / "penstock").removeprefix("/"))
    monkeypatch.setenv("PATH", str(own))
    assert penstock_command() == "penstock"


@pytest.mark.parametrize(
    ("part", "folder"), [("queries", "demo"), ("joins", "demo-joins"), ("deadlines", "demo-deadlines")]
)
def test_each_part_of_the_demo_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / folder).mkdir(parents=True)
    told = CliRunner().invoke(app, ["demo", part, "--no-page"])
    assert told.exit_code != 0
    assert f"--output out/{folder} exists" in str(told.exception)
