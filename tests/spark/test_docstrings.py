"""The examples in the docstrings of the public interface run as they are written."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock

pytestmark = pytest.mark.spark

#: those that have examples
WITH_EXAMPLES = {"Engine", "Matcher", "Matches", "Run", "Trigger"}


def test_examples_of_the_public_interface_run(spark: SparkSession, tmp_path: Path) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    shown = set()
    for name in sorted(penstock.__all__):
        exported = getattr(penstock, name)
        module = importlib.import_module(exported.__module__)
        for example in doctest.DocTestFinder().find(exported, name, module):
            folder = tmp_path / example.name
            folder.mkdir()
            example.globs = {
                **{each: getattr(penstock, each) for each in penstock.__all__},
                **{"spark": spark, "folder": folder, "engine": penstock.Engine(spark)},
                **{"__name__": "__main__", "np": np, "pa": pa, "pc": pc},
            }
            if example.examples:
                shown.add(name)
                assert "SKIP" not in example.docstring, example.name
            assert runner.run(example).failed == 0, example.name
    assert shown == WITH_EXAMPLES


def test_the_example_of_the_reference_page_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(penstock, "build_session", lambda *_: spark, raising=False)
    (tmp_path / "orders").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "amount": [5.0, 950.0]}), tmp_path / "orders" / "1.parquet")
    exec(compile(example, "python.md", "exec"), {})
    assert f"<Run ended: streams orders; 1 view, 1 row in {tmp_path / 'out'}> 1" in capsys.readouterr().out
