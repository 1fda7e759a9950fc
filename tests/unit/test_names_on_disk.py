"""Names of views as names of folders and files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.names import MOST_BYTES, check_length, check_name, on_disk

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


@given(NAMES)
def test_a_name_on_disk_is_one_path_component_without_a_pattern_and_gives_the_name_back(name: str) -> None:
    found = on_disk(name)
    assert unquote(found) == name
    assert not set(found) & set("/\\*?[]{}\0")
    assert not found.startswith(".")


@pytest.mark.parametrize(
    "name", ["orders", "per_hour", "two words", "a-b.c", "ζήτα", "_own", "t.per_hour.results"]
)
def test_a_plain_name_is_itself(name: str) -> None:
    assert on_disk(name) == name


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/../../b", "a\\b"])
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    layout = Layout(Path("/out"), Path("/out/_penstock/checkpoint"))
    assert layout.results(name).parent == Path("/out/results")
    assert layout.misses(name).parent == Path("/out/misses")
    assert layout.static_tables(name).parent.parent == Path("/out/_penstock/checkpoint/_lanes")
    assert layout.log(f"s.{name}").files.parents[2] == Path("/out/_penstock/checkpoint")


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "", " ", "\ud800"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="must not be empty or contain control characters"):
        check_name("view", name)


def test_a_name_of_300_characters_is_refused() -> None:
    check_length("view", "a" * MOST_BYTES)
    for name in ("a" * 300, "ζ" * MOST_BYTES, "[" * MOST_BYTES):
        with pytest.raises(InputError, match="at most 200 are allowed"):
            check_length("view", name)
    longest = on_disk("v" * MOST_BYTES)
    assert len(f"0000000000-to-0000000000-000000.{longest}.results.parquet") <= 255
