"""The OutrateModel: how many tuples a second a join puts out.

Source: Song, Zhang, Lu, Yu, section 4.3, corrected (docs/decisions/0024). Rates are in tuples a second, costs in seconds of a
processor for one second of the streams.
"""

from __future__ import annotations


def output_rate(pairs: float, seconds: float) -> float:
    """Return the output rate of a join.

    Args:
        pairs: C_out, what one second of the streams gives rise to.
        seconds: C_time, the time it takes; below 1 the join keeps up, and what it puts out is limited by arrival.
    """
    return pairs / max(1.0, seconds)
