"""Threads that search with one regular expression find what one thread finds."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from penstock.plan import linear_regex
from penstock.plan.java_regex import parse
from penstock.plan.linear_regex import LinearRegex

PATTERN = "(?:[a-z]+[0-9]?)+(?:x.{12})+y"


class Halting(str):
    """A text whose search waits half way, until it may continue or half a second has passed."""

    halted: threading.Event
    released: threading.Event

    def __iter__(self) -> Iterator[str]:
        for place, character in enumerate(str(self)):
            if place == len(self) // 2:
                self.halted.set()
                self.released.wait(0.5)
            yield character


def test_a_search_in_another_thread_does_not_disturb_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_regex, "_MOST_SETS", 30)
    drawn = random.Random(5)
    texts = ["".join(drawn.choices("axxx1y", k=40)) for _ in range(20)]
    shared = LinearRegex(parse(PATTERN))
    text = Halting("a" * 12 + "y" * 12)
    text.halted, text.released = threading.Event(), threading.Event()
    found: list[bool] = []
    searching = threading.Thread(target=lambda: found.append(shared.search(text)))
    searching.start()
    assert text.halted.wait(10)
    others = [shared.search(other) for other in texts]
    text.released.set()
    searching.join()
    alone = LinearRegex(parse(PATTERN))
    assert (found, others) == ([False], [alone.search(other) for other in texts])
