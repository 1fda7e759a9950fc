"""What the command line makes of what nobody foresaw: one line, and a file with the rest."""

from __future__ import annotations

import errno
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main as command_line
from penstock.errors import InputError, MistakesError
from penstock.spark.sessions.output import OUTPUT

WORDS = r"penstock: Unexpected error: (.*)\. The traceback is in (\S+); please report it\.\n"


def _ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, app: Callable[[], None]) -> object:
    monkeypatch.setattr(command_line, "app", app)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return ended.value.code


def test_what_is_unforeseen_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        raise StopIteration("nothing\nat all")

    assert _ended(monkeypatch, tmp_path, app) == 1
    told = re.fullmatch(WORDS, capsys.readouterr().err)
    assert told is not None
    assert told.group(1) == "StopIteration: nothing"
    text = Path(told.group(2)).read_text()
    assert text.startswith("Traceback (most recent call last)")
    assert text.endswith("StopIteration: nothing\nat all\n")


def test_a_thread_that_fails_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        thread = threading.Thread(target=lambda: [][1])
        thread.start()
        thread.join()
        raise InputError("a mistake")

    before = threading.excepthook
    assert _ended(monkeypatch, tmp_path, app) == 2
    thread, own = capsys.readouterr().err.splitlines(keepends=True)
    assert re.fullmatch(WORDS, thread)
    assert own == "penstock: a mistake\n"
    assert threading.excepthook is before


def test_without_room_for_a_file_the_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def app() -> None:
        raise RecursionError

    monkeypatch.setattr("tempfile.mkstemp", full)
    assert _ended(monkeypatch, tmp_path, app) == 1
    assert "RecursionError. Cannot write its traceback: No space left on device" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import penstock.cli.main as m, typer\n"
        "@m.app.command()\n"
        "def many() -> None:\n"
        "    for _ in range(100_000): print('a line')\n"
        "m.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "many"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_what_is_logged_with_a_traceback_is_one_line_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        end = OUTPUT.into(tmp_path / "spark.log")
        try:
            raise ValueError("of a controller")
        except ValueError:
            logging.getLogger("penstock.spark").exception("the controller failed on batch %d", 3)
        end()
        raise InputError("a mistake")

    assert _ended(monkeypatch, tmp_path, app) == 2
    assert (
        capsys.readouterr().err == "penstock: error: the controller failed on batch 3\npenstock: a mistake\n"
    )
    assert "ValueError: of a controller" in (tmp_path / "spark.log").read_text()


def test_a_command_ends_without_a_search_for_garbage() -> None:
    program = (
        "import atexit, gc, sys; from penstock.cli.main import main; sys.argv = ['penstock', '--version']; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 0)); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_the_package_is_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "--no-such-option"], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "Usage: python -m penstock run" in ended.stderr


def test_a_screen_gets_every_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        raise MistakesError([InputError(f"mistake {number}") for number in range(28)])

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert _ended(monkeypatch, tmp_path, app) == 2
    told = capsys.readouterr().err
    assert all(f"mistake {number}" in told for number in range(28))
    assert "more" not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["results", "out", "v", "--limit", "-1"], "--limit: allowed values are whole numbers from 0 on."),
        (["quarantine", "out", "t", "--limit", "few"], "--limit: allowed values are whole numbers."),
        (["results", "out", "v", "--format", "xml"], "--format: allowed values are table, csv, json."),
    ],
)
def test_a_value_that_is_not_allowed_is_told_as_other_mistakes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"penstock: {told}\n"
