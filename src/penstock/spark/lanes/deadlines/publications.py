"""A thread that publishes what the deadline lane has settled, so that nothing that is due waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.spark.lanes.deadlines.publishing import OutcomePublication, Settled


class Publications:
    """Publishes in order; what is settled during a publication is published together.

    Args:
        publication: says which number comes next, and how long publications take; `publish` alone changes it.
        publish: publishes.
        woken: called when the thread has nothing more to do, or has failed.
    """

    def __init__(
        self,
        publication: OutcomePublication,
        publish: Callable[[Settled], None],
        woken: Callable[[], None],
    ) -> None:
        self._publication = publication
        self._publish = publish
        self._woken = woken
        self._changed = threading.Condition()
        self._waiting: Settled | None = None
        #: when the present publication began, by the performance counter; None: there is none
        self._began: float | None = None
        self._is_closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-outcomes")
        self._thread.start()

    @property
    def number(self) -> int:
        """Of the next publication."""
        return self._publication.number

    def seconds(self, windows: int) -> float:
        """From when orders are judged until their rows are visible, as publications about so many windows took it; at least as long as the
        present one takes."""
        with self._changed:
            began = self._began
        present = 0.0 if began is None else time.perf_counter() - began
        return max(self._publication.times.expected(windows), present)

    @property
    def is_idle(self) -> bool:
        """Whether all that was settled is published."""
        with self._changed:
            return self._waiting is None and self._began is None

    def put(self, settled: Settled) -> None:
        """Publishes it as soon as what is being published is."""
        with self._changed:
            self._waiting = settled if self._waiting is None else self._waiting.followed_by(settled)
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what a publication has raised; nothing is published after it."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Publishes what waits, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (settled := self._next()) is not None:
                self._publish(settled)
        except BaseException as error:
            self._failure = error
        self._woken()

    def _next(self) -> Settled | None:
        with self._changed:
            self._began = None
            if self._waiting is None:
                self._woken()
            self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
            settled, self._waiting = self._waiting, None
            self._began = None if settled is None else time.perf_counter()
            return settled
