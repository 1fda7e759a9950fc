"""The borders between packages: who may import what, and what loads without Spark."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
LAB = ROOT / "src" / "penstock_lab"
#: the rooms of a package, or modules that are rooms of their own, the lowest first: each imports from those before it
ROOMS = {
    "sql": ("text", "conditions", "unions", "windows", "joins", "refreshed", "script"),
    "operators": (
        "hashing",
        "python_values",
        "routing",
        "runs",
        "coding",
        "text",
        "rules",
        "selection",
        "scalars",
        "functions",
        "windows",
        "running",
        "joins",
        "deadlines",
        "ingest",
        "wire",
    ),
    "spark": (
        "storage",
        "recovery",
        "analysis",
        "sessions",
        "publication",
        "log",
        "tasks",
        "reporting",
        "results",
        "sources",
        "sinks",
        "pruning",
        "ingest",
        "lanes",
        "declaring",
        "provenance",
        "run_lanes",
        "execution",
        "run_status",
        "run",
        "rule_following",
        "handing_over",
        "engine",
    ),
}


def importers(module: str) -> set[str]:
    """Names of the packages of penstock (or modules directly in it) that import a module anywhere."""
    return {path.partition("/")[0] for path in importing(module)}


def importing(module: str) -> set[str]:
    """Files that import a module anywhere, relative to the package."""
    return {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == module for name in _imported(file))
    }


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("pyspark", "spark"),
        ("py4j", "spark"),
        ("sqlglot", "sql"),
        ("starlette", "page"),
        ("uvicorn", "page"),
        ("obstore", "stores"),
        ("slatedb", "stores"),
    ],
)
def test_a_library_is_imported_in_one_package_only(module: str, package: str) -> None:
    assert importers(module) <= {package}


@cache
def _imported(file: Path) -> set[str]:
    """The modules a file imports, also those that hold a name it imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_downwards_only(package: str) -> None:
    rooms = ROOMS[package]
    against = []
    for file in sorted((PACKAGE / package).rglob("*.py")):
        own = file.relative_to(PACKAGE / package).with_suffix("").parts[0]
        if own == "__init__":
            continue
        assert own in rooms, f"{package}/{own} has no place in the order"
        for module in _imported(file):
            name = module.removeprefix(f"penstock.{package}.")
            other = name.split(".")[0]
            if name != module and rooms.index(other) > rooms.index(own):
                against.append(f"{file.relative_to(PACKAGE)} imports {module}")
    assert against == []


def test_the_stores_know_nothing_of_what_is_stored() -> None:
    found = {module for file in (PACKAGE / "stores").rglob("*.py") for module in _imported(file)}
    ours = {module.split(".")[1] for module in found if module.startswith("penstock.")}
    assert ours == {"errors", "stores"}


def test_penstock_never_imports_the_lab() -> None:
    assert importing("penstock_lab") == set()


def test_the_lab_imports_penstock() -> None:
    """Each of its rooms but the servers: these know no more of Penstock than its errors."""
    ours = {
        room.name: {
            name for file in room.rglob("*.py") for name in _imported(file) if name.startswith("penstock.")
        }
        for room in LAB.iterdir()
        if room.is_dir() and room.name != "__pycache__"
    }
    assert set(ours) == {"generators", "servers", "simulate", "sources"}
    assert {name.split(".")[1] for name in ours["servers"]} == {"errors"}
    assert any(name.startswith("penstock.operators.") for name in ours["simulate"])
    assert not any(name.startswith("penstock.spark.") for name in ours["simulate"])


def test_the_core_loads_without_spark() -> None:
    packages = [PACKAGE / name for name in ("plan", "optimizer", "kernels", "operators", "control", "stores")]
    modules = sorted(
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for folder in (*packages, LAB / "simulate")
        for file in folder.rglob("*.py")
    )
    assert len(modules) > 100
    program = f"import sys\nsys.modules['pyspark'] = None\nimport {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", program], check=True)


#: modules that pickle what lives no longer than its session: programs and arrangements that are sent to workers, reports
#: of tasks, states that go from one task to the next; and compiled kernels, which are made anew where they do not load
PICKLING = {
    "kernels/compiled.py",
    "spark/lanes/history/backfill.py",
    "spark/ingest/plans.py",
    "spark/lanes/deadlines/orders.py",
    "spark/results/window_rows.py",
    "spark/tasks/dataframe_stage.py",
    "spark/tasks/json_stage.py",
    "spark/tasks/value_stage.py",
    "spark/tasks/worker.py",
}


def test_what_is_written_to_disk_is_never_pickled() -> None:
    assert importing("pickle") == PICKLING


def test_files_stay_readable() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in PACKAGE.parent.rglob("*.py")}
    assert [str(file) for file, length in lengths.items() if length > 800] == []


@pytest.mark.parametrize("name", ["build.txt", "dev.txt"])
def test_requirements_are_pinned_with_hashes_and_name_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[a-z0-9._-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_everything_that_is_no_module_is_packaged() -> None:
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "penstock"
    ]
    packaged = {file for pattern in globs for file in PACKAGE.glob(pattern) if file.is_file()}
    others = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in {".py", ".pyc"}}
    assert others == packaged | {PACKAGE / "py.typed"}
