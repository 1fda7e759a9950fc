"""What the failure of an order's job is about: its window, or what all of them rest on."""

from __future__ import annotations

from penstock.spark.recovery.causes import SESSION_ENDED, Cause, cause_of

#: neither the tuples of a window nor the user's code bring these about, which is reported without an exception
_OF_ALL = frozenset(
    {
        SESSION_ENDED,
        "checkpoint_refused",
        "disk_full",
        "file_missing",
        "file_unreadable",
        "storage_failed",
    }
)


def window_cause(error: BaseException) -> Cause:
    """Why the job of an order failed, where that may be the matter of its window alone.

    A worker that is gone or without memory may be one that the user's code has ended.

    Args:
        error: what the job raised, from the driver or by way of Spark from a worker.

    Raises:
        BaseException: the error itself, where the next window would meet it as well: the log is damaged, files can be neither read
            nor written, or the session has ended.
    """
    cause = cause_of(error)
    if isinstance(error, OSError) or cause.kind in _OF_ALL:
        raise error
    return cause
