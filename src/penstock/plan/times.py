"""Event times that no tuple has, in microseconds."""

from __future__ import annotations

#: before and after all others; sums of a few of either fit 64 bits
BEFORE_ALL = -(2**62)
AFTER_ALL = 2**62
