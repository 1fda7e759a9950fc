"""The table of sinks: the names, the documentation, entry points, and that no secret is shown."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from penstock.errors import InputError, UnsupportedError
from penstock.redaction import is_secret
from penstock.spark.sinks import providers
from penstock.spark.sinks.delivery import Delivery
from penstock.spark.sinks.providers import COMMON, PlainTarget, provider_of, sink_names
from penstock.spark.sinks.published import Limits
from penstock.sql.script.statements import SINKS, CreateTable
from sink_cases import Folder

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sinks.md").read_text()


def table(source: str) -> CreateTable:
    """A table of a sink."""
    return CreateTable("t", (), source, {}, 0, 1, "CREATE TABLE t")


class _Pager(PlainTarget):
    def deliver(self, delivery: Delivery) -> None:
        PagerProvider.taken += delivery.rows.column("id").to_pylist()


class PagerProvider:
    """A sink of another package."""

    modes = ("append",)
    promise = "at least once"
    limits = Limits()
    taken: list[int] = []  # noqa: RUF012 - the test looks into it

    def options(self) -> tuple[str, ...]:
        return ("number",)

    def open(self, spark: object, table: object) -> object:  # noqa: ARG002
        return lambda _: _Pager()


@pytest.mark.parametrize("name", SINKS)
def test_the_documentation_says_what_a_sink_promises(name: str) -> None:
    provider = provider_of(table(name))
    (row,) = re.findall(rf"^\| \[`{name}`\]\(#{name}\) \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)
    assert row == (provider.promise, ", ".join(provider.modes))


@pytest.mark.parametrize("name", SINKS)
def test_every_option_of_a_sink_is_documented(name: str) -> None:
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    for option in provider_of(table(name)).options():
        assert f"`{option}`" in section[1], option
    common = PAGE.partition("## Options of every sink")[2].partition("\n## ")[0]
    for option in COMMON:
        assert f"| `{option}` |" in common


def test_a_package_registers_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("pager", f"{__name__}:PagerProvider", providers.GROUP)
    known = EntryPoints([point])
    monkeypatch.setattr(providers, "entry_points", lambda **wanted: known.select(**wanted))
    assert sink_names() == (*SINKS, "pager")
    folder = Folder(tmp_path / "out")
    folder.match([1, 2])
    PagerProvider.taken.clear()
    folder.deliver(folder.sink("pager", number="1"))
    assert PagerProvider.taken == [1, 2]
    with pytest.raises(InputError, match="sink pager has no option numbr; did you mean number"):
        folder.sink("pager", numbr="1")
    folder.close()


def test_an_unknown_sink_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnsupportedError, match="cannot write to a table USING delt; did you mean delta"):
        provider_of(table("delt"))


@pytest.mark.parametrize("option", ["password", "headers", "routing_key", "kafka.sasl.jaas.config"])
def test_options_with_secrets_are_known(option: str) -> None:
    assert is_secret(option)


@pytest.mark.parametrize("option", ["key", "mode", "dbtable", "group_by", "template"])
def test_other_options_are_shown(option: str) -> None:
    assert not is_secret(option)
