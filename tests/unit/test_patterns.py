"""Which paths are patterns to Spark, and how a name is told from one."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.spark.sources.patterns import (
    base_path,
    by_name,
    files_among_others,
    has_signs,
    is_pattern,
    table_path,
)


def test_names_and_patterns(tmp_path: Path) -> None:
    odd, other = tmp_path / "in[1]", tmp_path / "in*"
    odd.mkdir()
    assert by_name(["/a/b{c}*?\\.csv", "/plain #%,.csv"]) == ["/a/b\\{c\\}\\*\\?\\\\.csv", "/plain #%,.csv"]
    assert has_signs("a]b")
    assert not has_signs("a-b #%~,.csv")
    assert not is_pattern(str(odd))
    assert is_pattern(str(other))
    assert is_pattern("s3a://bucket/in[1]")
    assert not is_pattern("s3a://bucket/in")
    assert table_path(str(odd)) == f"{tmp_path}/in\\[1\\]"
    assert table_path(str(other)) == str(other)
    assert base_path(str(odd)) == {"basePath": str(odd)}
    assert base_path("s3a://bucket/in") == {"basePath": "s3a://bucket/in"}
    assert base_path(str(other)) == {}
    (odd / "1.csv").touch()
    assert base_path(str(odd / "1.csv")) == {}


def test_files_are_listed_where_something_else_is_among_them(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    for name in ("k=1/b.orc", "a.orc", "_c.orc", ".d.orc"):
        (tmp_path / name).touch()
    assert files_among_others(str(tmp_path)) is None
    os.mkfifo(tmp_path / "_hidden.orc")
    assert files_among_others(str(tmp_path)) is None
    os.mkfifo(tmp_path / "k=1" / "e.orc")
    assert files_among_others(str(tmp_path)) == [f"{tmp_path}/a.orc", f"{tmp_path}/k=1/b.orc"]
    assert files_among_others("s3a://bucket/in") is None
    assert files_among_others(str(tmp_path / "*")) is None
