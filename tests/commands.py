"""The `penstock` command: in this process on the session that is there, or in one without a session, which is forked."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from killing import forked
from penstock.cli.main import main


def called(*arguments: object) -> int:
    """The exit code of the command, run in this process."""
    before = sys.argv
    sys.argv = ["penstock", *map(str, arguments)]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
    return 0


def alone(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own with the modules loaded, in this folder: for commands that start no Spark."""
    words = [str(each) for each in arguments]
    with tempfile.TemporaryDirectory() as folder:
        streams = Path(folder, "out"), Path(folder, "err")
        code = forked(_alone, Path.cwd(), streams, words, environment)
        return subprocess.CompletedProcess(words, code, *(each.read_text() for each in streams))


def _alone(folder: Path, streams: tuple[Path, Path], words: list[str], environment: dict[str, str]) -> None:
    for descriptor, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(folder)
    os.environ |= environment
    sys.exit(called(*words))
