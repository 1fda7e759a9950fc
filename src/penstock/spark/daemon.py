"""The Python worker daemon, with the kernels compiled before it forks.

Named by `spark.python.daemon.module`; without it everything works, the first batches slower.
"""

from __future__ import annotations

from pyspark import daemon

from penstock.operators.selection import warm_up

if __name__ == "__main__":
    warm_up()
    daemon.manager()
