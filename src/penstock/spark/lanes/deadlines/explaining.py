"""What is told of a view with a deadline before and while it runs."""

from __future__ import annotations

from penstock.plan.deadlines import DeadlineView


def explain_deadline(name: str, stream: str, view: DeadlineView) -> str:
    """By when a view's windows are answered, what it may lose, and how they are worked out.

    Args:
        name: the view's.
        stream: the stream it is on.
        view: its deadline, the error and the losses it allows, and whether lost windows are answered late.
    """
    query, bound = view.query, view.plan.bound
    passed = "passes their end"
    if view.waits:
        epsilon = f"{bound.epsilon:g}"
        if view.calls:
            error = f"the share of missing tuples is below {epsilon}"
        else:
            error = f"the error is below {epsilon}{'' if bound.absolute else ' of each value'}"
        learned = f"which Penstock learns so that {error} for {100 * (1 - bound.delta):.4g} % of the groups"
        if view.plan.slack is not None and view.plan.slack.policy != "required":
            learned = f"which policy {view.plan.slack} chooses"
        passed += f" + slack, {learned}"
    loss = query.constraint
    which = "approximated and lost" if query.approximate else "lost"
    late = f"; {which} windows are answered late, as revision 1, when cores are idle" if view.late else ""
    if query.approximate:
        late = f"; a window that would be lost is answered from a sample, with error bounds, where that is in time{late}"
    if not view.calls:
        how = "each window is merged from partial results that are kept of its panes"
    elif query.incremental:
        how = "each window continues from the state of the previous one"
    else:
        how = "each window is computed from scratch"
    return (
        f"view {name} on {stream} with a deadline: windows are answered within {query.deadline:g} s after the stream's time "
        f"{passed}; at most {loss.k} of {loss.m} consecutive windows may be lost{late}; {how}"
    )
