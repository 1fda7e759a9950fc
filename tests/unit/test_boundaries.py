"""The borders between packages: who may import what, and what loads without Spark."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"


def importers(module: str) -> set[str]:
    """Names of the packages of penstock (or modules directly in it) that import a module anywhere."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            if any(name.split(".")[0] == module for name in names):
                found.add(file.relative_to(PACKAGE).parts[0])
    return found


@pytest.mark.parametrize(("module", "package"), [("pyspark", "spark"), ("py4j", "spark"), ("sqlglot", "sql")])
def test_a_library_is_imported_in_one_package_only(module: str, package: str) -> None:
    assert importers(module) <= {package}


@pytest.mark.parametrize("package", ["plan", "optimizer", "kernels", "operators", "control", "simulate"])
def test_the_core_loads_without_spark(package: str) -> None:
    modules = sorted(
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in (PACKAGE / package).rglob("*.py")
    )
    program = f"import sys\nsys.modules['pyspark'] = None\nimport {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_files_stay_readable() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py")}
    assert [str(file) for file, length in lengths.items() if length > 800] == []


@pytest.mark.parametrize("name", ["build.txt", "dev.txt"])
def test_requirements_are_pinned_with_hashes_and_name_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[a-z0-9._-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
