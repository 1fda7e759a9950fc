"""The Python worker daemon, with the workers' modules loaded and the kernels compiled before it forks.

Named by `spark.python.daemon.module`; without it everything works, the first batches slower.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import daemon

from penstock.operators.ingest import json_decode
from penstock.operators.rules import matcher as rules
from penstock.operators.selection import selector as selection
from penstock.operators.windows import required_slack, spreading
from penstock.operators.wire import value_decoder

if __name__ == "__main__":
    for module in ("windows.shard_task", "deadlines.orders"):
        import_module(f"penstock.spark.lanes.{module}")
    for module in ("json_files", "json_stage", "scan_stage", "dataframe_stage", "value_stage"):
        import_module(f"penstock.spark.tasks.{module}")
    selection.warm_up()
    rules.warm_up()
    json_decode.warm_up()
    value_decoder.warm_up()
    required_slack.warm_up()
    spreading.warm_up()
    # a worker collects garbage after every task: let it pass over all that is loaded here
    gc.freeze()
    daemon.manager()
