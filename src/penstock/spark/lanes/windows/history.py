"""The history of window views: the log itself, read again for windows that were final too early.

The envelopes hold partials of every tuple that ever came, by pane, so a window is recomputed from them exactly and
without the tuples. A correction takes in what precedes an entry of the log and that entry, nothing else,
so that a repeated batch gives the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.operators.windows.answers import Answer
from penstock.operators.windows.operator import PaneBatch
from penstock.operators.windows.shard import Shard, pane_batch
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.stream_log import LogReader
from penstock.spark.results.window_schemas import FIRST_REVISION

Beyond = tuple[int, str, int]


def from_history(
    log: LogReader, shard: Shard, number: int, entry: Entry, beyond: Sequence[Beyond]
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
    reader = EnvelopeReader(log, number)
    for each in _since(log, entry, oldest):
        before, newest_before = newest_before, each.newest
        late = max(each.delays, default=0)
        is_late = before is not None and before - late > latest
        if not each.files or (is_late and not each.whole):
            continue
        envelopes = reader.of(each)
        # an operator takes in what makes it whole once
        twice = whole.intersection(each.whole)
        whole.update(each.whole)
        for operator in batches.keys() - twice:
            found = batches[operator]
            own = [envelope for envelope in envelopes if envelope.operator == operator]
            if own:
                found.append((each.number == entry.number, pane_batch(own, None, np.zeros(0, np.int64))))
    answers = []
    for operator, view, start in beyond:
        answer = shard.answer_from_history(
            operator, view, start, batches[operator], FIRST_REVISION + entry.batch
        )
        if answer is not None:
            answers.append((operator, answer))
    return answers


def _since(log: LogReader, entry: Entry, moment: int) -> list[Entry]:
    """The entries up to one, in order, without those that hold nothing from a moment on."""
    found = [entry]
    for each in log.backwards(entry.number):
        if each.furthest is not None and each.furthest < moment:
            break
        found.append(each)
    return found[::-1]
