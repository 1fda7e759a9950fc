"""Documents of many views are stored by difference: small, read back exactly, damage named, a base that is needed kept."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

from penstock.errors import CheckpointError, DamagedError
from penstock.monitor.verification import verify
from penstock.spark.reporting import catalog
from penstock.spark.reporting.catalog import find_view, read_catalog
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.storage import bases
from penstock.spark.storage.bindings import PlanLog, ViewDefinition
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument

pytestmark = pytest.mark.usefixtures("own_commits")

SCHEMA = StructType().add("id", LongType())
STREAM = "t"


def view(name: str, condition: str = "id > 1", number: int = 1) -> ViewDefinition:
    return ViewDefinition(name, f"{name}:{condition}", "SELECT", condition, (("id", name),), number)


def many(count: int = 300) -> dict[str, ViewDefinition]:
    return {f"v{number}": view(f"v{number}") for number in range(count)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout.of(tmp_path / "out", None)
    found.open().close()
    return found


def plan_path(layout: Layout, version: int) -> StoredDocument:
    return layout.plans(STREAM)[version]


def size_of(document: StoredDocument) -> int:
    return len(document.get() or b"")


#: what may become of a document
DAMAGES: dict[str, Callable[[StoredDocument], None]] = {
    "gone": lambda document: document.remove(),
    "empty": lambda document: document.replace(b""),
    "cut off": lambda document: document.replace((document.get() or b"")[:-5]),
    "of another kind": lambda document: document.replace(b'{"format":99}'),
}


def plan_bases(layout: Layout) -> list[int]:
    return layout.plan_bases(STREAM).numbers()


def load_newest(layout: Layout) -> dict[str, ViewDefinition]:
    log = PlanLog(layout, STREAM)
    version = log.newest()
    assert version is not None
    return log.load(version)


def write(writer: CatalogWriter, views: dict[str, ViewDefinition]) -> dict[str, Any]:
    numbered_ = writer.number(STREAM, SCHEMA, views)
    writer.write({STREAM: SCHEMA}, {STREAM: numbered_})
    return numbered_


def states() -> Iterator[dict[str, ViewDefinition]]:
    """Views as they change: a few, many, none, and back; some added again at the end."""
    chance = random.Random(7)
    views = many()
    yield dict(views)
    for step in range(40):
        for _ in range(chance.choice((1, 1, 1, 2, 60))):
            name = f"v{chance.randrange(350)}"
            match chance.randrange(4):
                case 0:
                    views.pop(name, None)
                case 1:
                    views.pop(name, None)
                    views[name] = view(name, f"id > {step}")
                case _:
                    views[name] = view(name, f"id > {chance.randrange(9)}", chance.randrange(1, 4))
        yield dict(views)
    yield dict(list(views.items())[:5])
    yield {}
    yield views


def test_plan_versions_are_read_as_they_were_stored(layout: Layout) -> None:
    log = PlanLog(layout, STREAM)
    stored = list(states())
    for version, views in enumerate(stored):
        log.store(version, views)
    for version, views in enumerate(stored):
        assert list(PlanLog(layout, STREAM).load(version).items()) == list(views.items())
    assert 3 < len(plan_bases(layout)) < len(stored) / 2


def test_the_catalog_is_read_as_it_would_be_whole(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Layout.of(tmp_path / "beside", None)
    beside.open().close()
    one, other = CatalogWriter(layout), CatalogWriter(beside)
    by_difference = 0
    for views in states():
        write(one, views)
        with monkeypatch.context() as whole:
            whole.setattr(bases, "_LEAST_VIEWS", 10**9)
            write(other, views)
        found, expected = read_catalog(layout), read_catalog(beside)
        for catalog_ in (found, expected):
            for each in catalog_["views"].values():
                for entry in (each, *each.get("others", ())):
                    entry.pop("dropped", None)
        assert found == expected
        by_difference += size_of(layout.catalog) < size_of(beside.catalog) / 4
    assert by_difference > 20
    assert not beside.catalog_bases.numbers()
    assert len(layout.catalog_bases.numbers()) == 1, "bases that the catalog does not need are removed"


def test_a_change_of_one_view_writes_little(layout: Layout) -> None:
    log, writer, views = PlanLog(layout, STREAM), CatalogWriter(layout), many(5_000)
    log.store(0, views)
    write(writer, views)
    (base,) = (each.signature() for each in layout.catalog_bases)
    views["more"] = view("more")
    log.store(1, views)
    write(writer, views)
    assert size_of(plan_path(layout, 1)) < 1_000
    assert size_of(layout.catalog) < 1_000
    assert [each.signature() for each in layout.catalog_bases] == [base], "the base is as it was"
    assert find_view(layout, "MORE")[0] == "more"
    assert plan_bases(layout) == [0]


def test_few_views_are_stored_whole(layout: Layout) -> None:
    PlanLog(layout, STREAM).store(0, many(20))
    write(CatalogWriter(layout), many(20))
    assert not layout.catalog_bases.exists()
    assert not layout.plan_bases(STREAM).exists()


def test_a_base_in_use_is_never_removed(layout: Layout) -> None:
    log, views = PlanLog(layout, STREAM), many()
    bound = {2: 1, 3: 4, 30: 30}
    for version in range(40):
        views = {**views, f"n{version}": view(f"n{version}")}
        if version in (4, 12, 25):
            log = PlanLog(layout, STREAM)  # a restart
        log.store(version, views)
        for batch in (batch for batch, wanted in bound.items() if wanted == version):
            log.bind(batch, version)
        log.forget(3 if version > 20 else 0, keep_plans=3)
        for each in layout.plans(STREAM).numbers():
            assert f"n{each}" in PlanLog(layout, STREAM).load(each)
    assert layout.plans(STREAM).numbers() == [4, 30, 37, 38, 39]
    assert plan_bases(layout) == [4, 25]


def test_a_base_of_a_version_that_is_being_stored_remains(layout: Layout) -> None:
    log = PlanLog(layout, STREAM)
    for version in range(3):
        log.store(version, many())
    layout.plan_bases(STREAM)[3].replace(layout.plan_bases(STREAM)[0].get() or b"")
    log.forget(0, keep_plans=1)
    assert plan_bases(layout) == [0, 3]


def test_a_base_without_a_document_misleads_nobody(layout: Layout) -> None:
    views = many()
    PlanLog(layout, STREAM).store(3, views)
    plan_path(layout, 3).remove()
    log = PlanLog(layout, STREAM)
    for version in range(1, 6):
        log.store(version, views | {f"n{version}": view(f"n{version}")})
    log.forget(0, keep_plans=1)
    assert "n5" in PlanLog(layout, STREAM).load(5)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("what", ["difference", "base"])
def test_damage_of_a_plan_version_is_told_and_restored(layout: Layout, how: str, what: str) -> None:
    log, views = PlanLog(layout, STREAM), many()
    log.store(0, views)
    log.store(1, views | {"more": view("more")})
    log.bind(0, 1)
    path = plan_path(layout, 1) if what == "difference" else layout.plan_bases(STREAM)[0]
    content = path.get() or b""
    DAMAGES[how](path)
    assert str(path) in {each.path for each in verify(layout.output).faults}
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        load_newest(layout)
    path.replace(content)
    assert list(PlanLog(layout, STREAM).load(1)) == [*views, "more"]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("what", ["difference", "base"])
def test_damage_of_the_catalog_is_told_and_restored(layout: Layout, how: str, what: str) -> None:
    writer, views = CatalogWriter(layout), many()
    write(writer, views)
    write(writer, views | {"more": view("more")})
    layout.manifests(STREAM)[0].replace(b"{}")
    path = layout.catalog if what == "difference" else next(iter(layout.catalog_bases))
    content = path.get() or b""
    DAMAGES[how](path)
    assert str(path) in {each.path for each in verify(layout.output).faults}
    for read in (lambda: find_view(layout, "v1"), lambda: write(CatalogWriter(layout), views)):
        with pytest.raises(CheckpointError, match=re.escape(str(path))):
            read()
    path.replace(content)
    assert list(read_catalog(layout)["views"]) == [*views, "more"]
    again = CatalogWriter(layout)
    write(again, views)
    assert "dropped" in find_view(layout, "more")[1]


def test_a_reader_follows_a_catalog_whose_base_is_replaced_meanwhile(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CatalogWriter(layout)
    write(writer, many())
    made = catalog.catalog_bases

    def replaced_first(layout: Layout) -> Any:
        monkeypatch.setattr(catalog, "catalog_bases", made)
        write(CatalogWriter(layout), {name: view(name, "id > 2") for name in many()})
        return made(layout)

    monkeypatch.setattr(catalog, "catalog_bases", replaced_first)
    assert {each["condition"] for each in read_catalog(layout)["views"].values()} == {"id > 2"}


def test_a_base_that_leaves_while_it_is_read_is_a_missing_one(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(CatalogWriter(layout), many())
    made = bases.BASE

    def read_late(path: StoredDocument) -> dict[str, Any] | None:
        monkeypatch.setattr(bases, "BASE", made)
        write(CatalogWriter(layout), {name: view(name, "id > 2") for name in many()})
        assert not path.exists()
        return made.read(path)

    monkeypatch.setattr(bases, "BASE", SimpleNamespace(read=read_late, kind=made.kind))
    assert {each["condition"] for each in read_catalog(layout)["views"].values()} == {"id > 2"}


def test_a_missing_base_names_the_document_that_needs_it(layout: Layout) -> None:
    log = PlanLog(layout, STREAM)
    log.store(0, many())
    base = layout.plan_bases(STREAM)[0]
    base.remove()
    with pytest.raises(
        DamagedError,
        match=rf"^{re.escape(str(base))} \(a base of views\) is missing: {re.escape(str(plan_path(layout, 0)))} is stored",
    ):
        log.load(0)
