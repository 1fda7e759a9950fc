"""Event times that no tuple has, and those that windows are of, in microseconds."""

from __future__ import annotations

#: before and after all others; sums of a few of either fit 64 bits
BEFORE_ALL = -(2**62)
AFTER_ALL = 2**62
#: the first and the last event time that a window holds, some 73,000 years from 1970: far from where sums of either kind end
EARLIEST, LATEST = -(2**61), 2**61
