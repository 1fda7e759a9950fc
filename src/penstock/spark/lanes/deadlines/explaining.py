"""What is told of a view with a deadline before and while it runs."""

from __future__ import annotations

from penstock.plan.deadlines import DeadlineQuery


def explain_deadline(name: str, stream: str, query: DeadlineQuery) -> str:
    """By when a view's windows are answered, what it may lose, and how they are worked out.

    Args:
        name: the view's.
        stream: the stream it is on.
        query: its deadline and the losses it allows.
    """
    loss = query.constraint
    how = "carried from the last one that was" if query.incremental else "each worked out afresh"
    return (
        f"view {name} on {stream} with a deadline: windows are answered within {query.deadline:g} s after the stream's time "
        f"passes their end, at most {loss.k} of {loss.m} lost; {how}"
    )
