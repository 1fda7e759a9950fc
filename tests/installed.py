"""Packages that are installed for one test: their metadata lies in a folder on the path, also that of processes it starts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

GROUP = "penstock.sources"
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    package: str,
    sources: Mapping[str, str],
    version: str = "1",
) -> None:
    """Installs a package that registers sources; of an installed package of this name its metadata is hidden.

    Args:
        monkeypatch: takes the folder off the path again.
        folder: where the metadata is written.
        package: the name of the package.
        sources: names after USING to objects of modules.
        version: of the package.
    """
    metadata = folder / f"{package}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    points = "\n".join(f"{name} = {value}" for name, value in sources.items())
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    )


def install_penstock(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Installs what pyproject.toml registers, whatever an earlier installation of this repository has registered."""
    install(monkeypatch, folder, PROJECT["name"], PROJECT["entry-points"][GROUP], version=PROJECT["version"])
