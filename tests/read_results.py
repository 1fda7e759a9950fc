"""The rows that a run has published: read without Spark where files hold them as they are, in the long form by Spark too."""

from __future__ import annotations

from collections import Counter
from typing import Any

from forms import ALL
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout


def published(run: Run, view: str, *, final_only: bool = False) -> list[dict[str, Any]]:
    """The rows of a view, in any order."""
    plain = plain_rows(Layout.of(run.output, None), view, 0, final_only=final_only)
    if plain is not None and not ALL:
        return plain.rows.to_pylist()
    rows = run.results(view, final_only=final_only).toArrow().to_pylist()
    if plain is not None:
        assert bag(plain.rows.to_pylist()) == bag(rows), view
    return rows


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """How often each row is there, by its text."""
    return Counter(map(repr, rows))
