"""Queries that lanes refuse, also where the refusal waits until it is known what their names are."""

from __future__ import annotations

from collections.abc import Collection

from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.queries import parse_query


def refuse(text: str, aggregates: Collection[str] = ()) -> None:
    """Parses a query over streams.

    Raises:
        InputError: lanes do not answer it.
    """
    query = parse_query(text, aggregates)
    if isinstance(query, RefreshedQuery):
        query.refuse_without_views(lambda _: False)
