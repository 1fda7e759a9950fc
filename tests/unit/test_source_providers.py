"""Sources that other packages register: how they are found, and every message about one that cannot be used."""

from __future__ import annotations

from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import pytest

from gauges import SCHEMA
from installed import install, install_penstock
from penstock.errors import InputError, UnknownNameError, UnsupportedError
from penstock.settings import Settings
from penstock.spark.sources import providers
from penstock.spark.sources.source import Source
from penstock.spark.sources.tables import open_table
from penstock.sql.script.script import parse_script
from penstock_lab.sources.network import NetworkSource

NO_SESSION: Any = None


def _opened(kind: str, options: str = "", columns: str = "") -> Source:
    table = parse_script(f"CREATE TABLE river {columns} USING {kind} OPTIONS ({options})").tables[0]
    return open_table(NO_SESSION, table, Settings())


@pytest.fixture
def gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package registers the source `gauges`."""
    install(monkeypatch, tmp_path / "river", "river", {"gauges": "gauges:GaugeProvider"})


@pytest.mark.usefixtures("gauges")
def test_a_package_registers_a_source_by_an_entry_point() -> None:
    source = _opened("GAUGES", "NumberOfGauges '3', event_time 'measured'")
    assert (source.schema, source.event_time, source.is_finite) == (SCHEMA, "measured", True)


def test_this_repository_registers_the_network_of_its_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_penstock(monkeypatch, tmp_path)
    assert isinstance(_opened("network", "nodes '20'"), NetworkSource)


@pytest.mark.usefixtures("gauges")
@pytest.mark.parametrize(
    ("kind", "options", "told", "shown"),
    [
        ("gages", "", "source gages is not supported; did you mean gauges? Use parquet, csv, ", "gages"),
        ("kafak", "", "source kafak is not supported; did you mean kafka? Use parquet, csv, ", "kafak"),
        ("pigeon", "", "source pigeon is not supported. Use parquet, csv, json, orc, text, kafka, delta, rate, replay, ", "pigeon"),
        ("console", "", "console is a sink, and nothing writes to it. Add INSERT INTO ", "console"),
        ("gauges", "number_of_gauge '3'", "option number_of_gauge does not exist; did you mean number_of_gauges?", "number_of_gauge"),
        ("gauges", "path 'data'", "source gauges has no option path. Options: number_of_gauges, event_time, arrival", "path"),
        ("gauges", "event_time_format 'millis'", "source gauges has no option event_time_format. Options: ", "event_time_format"),
        ("gauges", "arrival 'at'", "source gauges cannot stamp its tuples. Remove the option arrival; event_time may", "arrival"),
        ("gauges", "arrival 'at', event_time 'measured'", "set either `arrival` or `event_time`, not both", "event_time"),
        ("gauges", "event_time 'level'", "event_time column level is int; it must be a timestamp", "event_time"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_at_its_place(kind: str, options: str, told: str, shown: str) -> None:
    with pytest.raises(InputError) as error:
        _opened(kind, options)
    assert told in str(error.value)
    text, underlined = str(error.value).splitlines()[-2:]
    assert text[underlined.index("^") : underlined.rindex("^") + 1].startswith(shown)


@pytest.mark.usefixtures("gauges")
def test_a_registered_source_is_among_those_that_are_allowed() -> None:
    with pytest.raises(UnsupportedError, match=r"Use parquet, .*replay, (\w+, )*gauges"):
        _opened("pigeon")


def test_a_built_in_source_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, "river", {"replay": "gauges:GaugeProvider"})
    with pytest.raises(InputError, match="table river: set the option path"):
        _opened("replay", "speed 'max'")


def test_a_source_that_two_packages_register_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("river", "brook"):
        install(monkeypatch, tmp_path / package, package, {"gauges": "gauges:GaugeProvider"})
    with pytest.raises(UnsupportedError) as error:
        _opened("gauges")
    assert "the packages brook and river each register a source gauges. Uninstall all but one." in str(
        error.value
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [("no_such_module:Provider", "No module named 'no_such_module'"), ("gauges:Nothing", "no attribute")],
)
def test_a_package_that_does_not_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    install(monkeypatch, tmp_path, "river", {"gauges": value})
    with pytest.raises(UnsupportedError) as error:
        _opened("gauges")
    assert "table river: source gauges of package river cannot be loaded: " in str(error.value)
    assert why in str(error.value)


def test_without_the_lab_its_source_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "entry_points", lambda **_: EntryPoints(()))
    with pytest.raises(UnsupportedError) as error:
        _opened("network")
    assert "source network needs the package penstock_lab, which is not installed. Install it." in str(
        error.value
    )
    with pytest.raises(UnknownNameError):
        _opened("rate", "rows_per_secnd '3'")
