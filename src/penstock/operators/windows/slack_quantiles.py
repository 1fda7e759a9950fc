"""The quantiles that `RequiredSlack` chooses by: of required slacks, and of times that are known in part."""

from __future__ import annotations

import numpy as np

from penstock.operators.windows.slack_memory import Ints

#: the loss of the next window is at most so many times the largest of those known
_BEYOND_KNOWN = 2
_ROUNDING = 1e-9


def least_slack(required: Ints, sizes: Ints, level: float, overlap: float = 1.0) -> int:
    """The least slack at which the expected loss of the next window is at most `level`.

    Args:
        required: int64, required slacks of the groups of windows, those of a window together.
        sizes: int64[windows], how many each has, at least one.
        level: of the loss, the share of a window's groups that need more; for the next window a bound in expectation where B bounds its loss.
        overlap: windows that tell the same thing.

    Returns:
        The least K with (n mean loss(K) + B(K)) / (n + 1) <= level, n = windows / overlap; where there is none the largest
        required slack. B bounds the loss of the next window: twice the largest of those known, at most 1, as it is with one
        group. Source: conformal risk control, Angelopoulos et al. 2024, (4).
    """
    n = len(sizes) / overlap
    # more than that is not allowed, whatever B
    most = min(len(required), int((n + 1) * level / n * len(sizes) * sizes.max()) + 2)
    largest = np.argpartition(required, len(required) - most)[-most:]
    order = largest[np.argsort(required[largest])[::-1]]
    window = np.repeat(np.arange(len(sizes)), sizes)[order]
    each = 1 / sizes[window]
    # element i: of a slack just below the i-th largest
    mean = np.cumsum(each) / len(sizes)
    bound = np.minimum(1.0, _BEYOND_KNOWN * np.maximum.accumulate(_ranks(window) * each))
    place = int(np.searchsorted(n * mean + bound, (n + 1) * level + _ROUNDING, "right"))
    return int(required[order[min(place, most - 1)]])


def _ranks(labels: Ints) -> Ints:
    """Of each element how many of the same label there are up to it."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], labels[order], "left")
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(1, len(labels) + 1) - first
    return ranks


def truncated_quantile(times: Ints, limits: Ints, level: float) -> int:
    """A quantile of times of which each is known only as it lies below a limit of its own.

    Args:
        times: int64, those known, at least one.
        limits: int64, for each the time until which it could be known, not below it.
        level: share of the times that lie at or below the quantile.

    Returns:
        The quantile by the product-limit estimate for right truncation: F(t) = prod over the times s > t of
        1 - (times equal to s) / (times <= s with limits >= s). Source: Lynden-Bell 1971; Woodroofe 1985.
    """
    found, counts = np.unique(times, return_counts=True)
    at_risk = np.searchsorted(np.sort(times), found, "right") - np.searchsorted(
        np.sort(limits), found, "left"
    )
    below = np.cumprod((1 - counts / np.maximum(at_risk, counts))[::-1])[::-1]
    # the share at or below each time is what lies below the next one
    share = np.append(below[1:], 1.0)
    return int(found[np.argmax(share >= level)])
