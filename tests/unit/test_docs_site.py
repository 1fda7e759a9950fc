"""The documentation as a site: every page is in the navigation, every link leads to a page and a heading."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _expanded() -> Callable[[Any, Path], Any]:
    spec = importlib.util.spec_from_file_location("docs_nav", ROOT / "scripts" / "docs_nav.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expanded: Callable[[Any, Path], Any] = module.expanded
    return expanded


def test_every_page_is_in_the_navigation_once() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    found = _expanded()(re.findall(r"[\w*/.-]+\.md", nav), DOCS)
    assert sorted(found) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_a_pattern_stands_for_its_files(tmp_path: Path) -> None:
    (tmp_path / "decisions").mkdir()
    for name in ("0002-b.md", "0001-a.md"):
        (tmp_path / "decisions" / name).touch()
    nav = ["index.md", {"Decisions": ["decisions/*.md"]}]
    assert _expanded()(nav, tmp_path) == [
        "index.md",
        {"Decisions": ["decisions/0001-a.md", "decisions/0002-b.md"]},
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    """Pages of the site link to no file outside of it, which the site would not have."""
    for target in re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        assert DOCS in linked.parents or page.parent == ROOT, target
        assert not anchor or anchor in _anchors(linked), target


def _anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_the_site_loads_nothing_from_another_host() -> None:
    configured = (ROOT / "mkdocs.yml").read_text()
    assert "\n  font: false\n" in configured
    assert "://" not in configured
    assert "mermaid" not in configured


def test_what_builds_the_site_is_pinned() -> None:
    pins = (ROOT / "requirements" / "docs.txt").read_text()
    assert "mkdocs-material==" in pins
    assert "://" not in pins
    for pin in re.split(r"\n(?=\S)", pins.strip()):
        assert re.match(r"[\w.-]+==\S+.* \\\n( +--hash=sha256:[0-9a-f]{64}( \\\n)?)+$", pin), pin
