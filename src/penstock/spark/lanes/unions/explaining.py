"""What is said of a UNION ALL view before it runs and while it does."""

from __future__ import annotations

from penstock.monitor.figures import counted
from penstock.spark.storage.unions import UnionDefinition, column_name


def explain_union(definition: UnionDefinition) -> list[str]:
    """What is kept of each stream for a view, in lines."""
    own = [column_name(number) for number in range(len(definition.outputs))]
    lines = [
        f"view {definition.name}: UNION ALL of {counted(len(definition.branches), 'selection')}, copied from the tuples that batches keep"
    ]
    for branch in definition.branches:
        texts = {name: text for text, name in branch.demand.columns}
        condition = branch.demand.condition
        where = "" if condition is None else f" where {' '.join(condition.split())}"
        kept = ", ".join(
            f"{texts[name]} AS {output.name}" for name, output in zip(own, definition.outputs, strict=True)
        )
        lines.append(f"    of stream {branch.stream}: {kept}{where}")
    times = ", ".join(each.name for each in definition.outputs if each.is_time)
    lines.append(f"    windows over it: {f'over {times}' if times else 'none, no column is an event time'}")
    return lines
