"""What is said of a refreshed view before it runs and while it does."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.spark.storage.refreshed import RefreshedDefinition


def explain_refreshed(definition: RefreshedDefinition) -> list[str]:
    """What Spark answers, how often and over what, in lines."""
    if definition.views:
        how = (
            "of the windows whose rows have changed"
            if definition.by_window
            else "as a whole, from all current rows"
        )
        lines = [
            f"view {definition.name}: over the rows of inner views, answered again whenever these change",
            f"    Spark answers it {how}; the view tells how each answer differs from the one before",
            *(f"    {each.view}: rows of {_listed(each.streams)}" for each in definition.views),
        ]
    else:
        lines = [
            f"view {definition.name}: refreshed every {_interval(definition.seconds)}, as its hint REFRESH says",
            "    Spark answers the whole query over all tuples so far; the view tells how each answer differs from the one before",
        ]
    lines += [
        f"    kept of all tuples of stream {each.name}, as long as the view exists: {_listed(each.columns) or 'no column'}"
        for each in definition.inputs
    ]
    if definition.tables:
        lines.append(f"    static: {_listed(definition.tables)}, read again for each answer")
    if definition.beneath and not definition.views:
        lines.append(f"    views by their texts: {_listed([name for name, _ in definition.beneath])}")
    return lines


def _interval(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
