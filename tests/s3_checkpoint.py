"""A plain Structured Streaming query with its checkpoint in S3, for `test_s3_checkpoint.py`, which kills it.

Arguments: folder of files to read, one a batch; checkpoint; file that gets a line for each call of foreachBatch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from penstock import build_session
from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.sessions.store_access import configure
from penstock.stores.address import StoreAddress


def main(source: str, checkpoint: str, answered: Path) -> None:
    """Answers all files that are there."""
    spark = build_session("local[1]", {}, stores=[checkpoint])
    configure(spark, StoreAddress.of(checkpoint))

    def answer(frame: DataFrame, batch: int) -> None:
        lines = sorted(row.value for row in frame.collect())
        with answered.open("a") as file:
            file.write(json.dumps([batch, lines]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
    writer = stream.writeStream.foreachBatch(answer).option("checkpointLocation", hadoop_path(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
