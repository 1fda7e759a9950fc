"""The history of window views: the envelope log itself, read again for windows that were final too early.

The envelopes hold partials of every tuple that ever came, by pane, so a window is recomputed from them exactly and
without the tuples. A correction takes in what precedes an entry of the log and that entry, nothing else,
so that a repeated batch gives the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.operators.shard import Shard, pane_batch
from penstock.operators.window import Answer, PaneBatch
from penstock.spark.envelope_log import EnvelopeLog, LogEntry, read_envelopes

#: revisions of final windows begin here, plus the number of the batch that brought late tuples
FIRST_REVISION = 1_000_000

Beyond = tuple[int, str, int]


def from_history(
    log: EnvelopeLog, shard: Shard, number: int, entry: LogEntry, beyond: Sequence[Beyond]
) -> list[tuple[int, Answer]]:
    """Corrects final windows that an entry brought tuples for.

    Args:
        log: the stream's log.
        shard: the shard that took the entry in.
        number: which shard it is.
        entry: the entry.
        beyond: (operator, view, start) of the windows.

    Returns:
        (operator, answer) of the windows that differ.
    """
    oldest = min(start for _, _, start in beyond)
    batches: dict[int, list[tuple[bool, PaneBatch]]] = {operator: [] for operator, _, _ in beyond}
    latest = max(start + shard.window_size(operator, view) for operator, view, start in beyond)
    newest_before: int | None = None
    whole: set[int] = set()
    for each in _since(log, entry, oldest):
        before, newest_before = newest_before, each.newest
        late = max(each.delays, default=0)
        is_late = before is not None and before - late > latest
        if not each.files or (is_late and not each.whole):
            continue
        envelopes = list(read_envelopes((log.envelopes / name for name in each.files), number))
        # an operator takes in what makes it whole once
        twice = whole.intersection(each.whole)
        whole.update(each.whole)
        for operator in batches.keys() - twice:
            found = batches[operator]
            own = [envelope for envelope in envelopes if envelope.operator == operator]
            if own:
                found.append((each.name == entry.name, pane_batch(own, None, np.zeros(0, np.int64))))
    answers = []
    for operator, view, start in beyond:
        answer = shard.answer_from_history(
            operator, view, start, batches[operator], FIRST_REVISION + entry.batch
        )
        if answer is not None:
            answers.append((operator, answer))
    return answers


def _since(log: EnvelopeLog, entry: LogEntry, moment: int) -> list[LogEntry]:
    """The entries up to one, in order, without those that hold nothing from a moment on."""
    found = [entry]
    for each in log.backwards(entry):
        if each.furthest is not None and each.furthest < moment:
            break
        found.append(each)
    return found[::-1]
