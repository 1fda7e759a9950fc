"""What is done around the start of Spark's JVM, on files and text."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cache_folder import cache_folder
from penstock.spark.sessions import jvm

MAGIC = bytes.fromhex("a8ab0bf0")


def test_the_banner_is_kept_from_the_screen_and_all_else_is_not() -> None:
    said = [
        b"WARNING: Using incubator modules: jdk.incubator.vector\n",
        b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n",
        b'Setting default log level to "WARN".\n',
        b"To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).\n",
        b'Setting Spark log level to "ERROR".\n',
        b"26/11/22 08:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library\n",
        b'Exception in thread "main" java.lang.OutOfMemoryError\n',
        b"\n",
        b"\tat Setting default log level to\n",
        b"\xff\n",
    ]
    passed_on: list[str] = []
    jvm.pass_on(said, passed_on.append)
    assert "".join(passed_on) == (
        'Exception in thread "main" java.lang.OutOfMemoryError\n\n\tat Setting default log level to\n\ufffd\n'
    )


def test_the_jvm_starts_before_numba_and_pandas_are_loaded() -> None:
    program = "import sys, penstock.spark.sessions.build; print({'numba', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("below", ["cache", 'my "own" cache\'s'])
def test_a_class_archive_is_used_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / below))

    def written_by(purpose: jvm.Purpose) -> Path:
        options = shlex.split(jvm.java_options("17.0.1", purpose))
        (option,) = (each for each in options if each.startswith("-XX:ArchiveClassesAtExit="))
        return Path(option.partition("=")[2])

    assert jvm.java_options("17.0.1", "run") == ""
    unfinished = written_by("brief")
    unfinished.write_bytes(bytes(8))
    assert "SharedArchiveFile" not in jvm.java_options("17.0.1", "run")
    unfinished.write_bytes(MAGIC + bytes(4))
    for purpose in ("run", "brief"):
        options = shlex.split(jvm.java_options("17.0.1", purpose))
        assert any(option.startswith(f"-XX:SharedArchiveFile={unfinished.parent}") for option in options)
    assert "Archive" not in jvm.java_options("21.0.1", "run")
    written_by("whole").write_bytes(MAGIC)
    assert "-whole.jsa" in jvm.java_options("17.0.1", "run")
    assert "-whole.jsa" in jvm.java_options("17.0.1", "whole")

    folder = cache_folder("classes")
    assert folder is not None
    for name in ("a.jsa.otherboot.1", "b.jsa.otherboot.2"):
        (folder / name).write_bytes(MAGIC)
    os.utime(folder / "b.jsa.otherboot.2", (time.time() - 7200,) * 2)
    jvm.java_options("17.0.1", "run")
    assert {path.name for path in folder.glob("*.jsa.*")} == {"a.jsa.otherboot.1"}
    assert not (folder / "a.jsa").exists()


def test_nothing_is_kept_where_nothing_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert jvm.java_options("17.0.1", "run") == ""
    assert "Archive" not in jvm.java_options("17.0.1", "brief")
