"""The public interface as `mypy --strict` sees it at a user's: right uses pass, wrong ones are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_script_over_the_whole_public_interface_is_type_checked() -> None:
    places = {"MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "typing")}
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            "tests/typing/mypy.ini",
            "tests/typing/user_script.py",
        ],
        cwd=ROOT,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
