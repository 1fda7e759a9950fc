"""What processes that get killed are forked with: the modules that they need, and machine code that takes half a second to load."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from penstock.kernels.radix import radix_order

for module in (
    "lane_cases",
    "penstock.cli.main",
    "penstock.operators.routing.routers",
    "penstock.spark.engine",
    "penstock.spark.lanes.cut_lane",
    "penstock.spark.log.runs",
    "penstock.spark.log.segments",
    "penstock.spark.publication.publish",
):
    import_module(module)
radix_order(np.zeros(1, np.uint64), 8, np.arange(1, dtype=np.uint32))
