"""What Spark's JVM and its workers print goes to one bounded file, and not to a screen that is to be kept clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.sessions import output
from penstock.spark.sessions.output import Output


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("--- ")]


def test_lines_go_to_the_file_of_the_run_and_otherwise_to_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, path = Output(), tmp_path / "spark.log"
    out.take("before\n")
    end = out.into(path)
    assert not path.exists(), "it is made with the first line"
    out.take("within\n")
    newer = out.into(tmp_path / "newer.log")
    out.take("of a run that began later\n")
    newer()
    out.take("within again\n")
    end()
    end()
    out.take("after\n")
    assert capsys.readouterr().err == "before\nafter\n"
    assert _lines(path) == ["within", "within again"]
    assert _lines(tmp_path / "newer.log") == ["of a run that began later"]


def test_a_screen_that_is_kept_clean_gets_nothing_and_the_file_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Output()
    out.keep_off_the_screen()
    out.take("Traceback (most recent call last):\n")
    out.take("java.lang.OutOfMemoryError\n")
    assert out.reason() == "java.lang.OutOfMemoryError"
    end = out.into(tmp_path / "spark.log")
    out.take("\tat org.apache.spark\n")
    end()
    out.take("the JVM ends\n")
    assert capsys.readouterr().err == ""
    assert _lines(tmp_path / "spark.log") == [
        "Traceback (most recent call last):",
        "java.lang.OutOfMemoryError",
        "\tat org.apache.spark",
    ]
    assert out.last[-1] == "the JVM ends\n"


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_BYTES", 1_000)
    out, path = Output(), tmp_path / "spark.log"
    end = out.into(path)
    for number in range(1_000):
        out.take(f"line {number}\n")
    end()
    older = tmp_path / "spark.log.1"
    assert {each.name for each in tmp_path.iterdir()} == {path.name, older.name}
    assert max(path.stat().st_size, older.stat().st_size) < 1_100
    kept = [*_lines(older), *_lines(path)]
    assert kept == [f"line {number}" for number in range(1_000 - len(kept), 1_000)]


def test_a_folder_that_takes_nothing_ends_nothing(tmp_path: Path) -> None:
    out = Output()
    end = out.into(tmp_path / "gone" / "spark.log")
    out.take("a line\n")
    end()


def test_a_file_that_cannot_be_renamed_takes_the_next_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MOST_BYTES", 100)
    (tmp_path / "spark.log.1").mkdir()
    out, path = Output(), tmp_path / "spark.log"
    end = out.into(path)
    for number in range(30):
        out.take(f"line {number}\n")
    assert path.stat().st_size < 200
    (tmp_path / "spark.log.1").rmdir()
    out.take("the last one\n")
    out.take("and one more\n")
    end()
    assert _lines(path) == ["the last one", "and one more"]
