"""A run whose clock jumps: `python clock_victim.py SCRIPT OUTPUT` runs a script once, hours and days ahead and back all the while."""

from __future__ import annotations

import itertools
import sys
import threading
import time

_real = time.time
_ahead = [0.0]
#: seconds that the clock is wrong by, one after the other
_JUMPS = (86_400.0, -7_200.0, 0.0, -30 * 86_400.0, 3_600.0)
_EVERY_SECONDS = 0.7


def _jump() -> None:
    for ahead in itertools.cycle(_JUMPS):
        _ahead[0] = ahead
        time.sleep(_EVERY_SECONDS)


if __name__ == "__main__":
    # before anything of Penstock takes the clock as a default
    time.time = lambda: _real() + _ahead[0]
    threading.Thread(target=_jump, daemon=True).start()
    from victim import main

    main(*sys.argv[1:])
