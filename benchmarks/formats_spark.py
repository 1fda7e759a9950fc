"""Avro and Protobuf values decoded by workers, beside Spark's `from_avro` and `from_protobuf`, in one run on two cores.

Values: orders of 12 fields (numbers, text, a moment, a decimal, an enum, a list, a record within the record), one binary column of Parquet
files, written once to `out/bench/data`. Each side decodes the same columns and counts the rows and the values of each column, which must be equal:

ours           framed values are decoded in mapInArrow, as the map stage does
Spark, arrow   values without frames are decoded by Spark, and the columns handed to mapInArrow, where rules are checked
Spark, jvm     likewise, counted in the JVM: nothing crosses to Python, and no rule is checked
values, ...    values are counted and not decoded, in mapInArrow and in the JVM: what reading and handing over cost

The exit code is 1 where ours has less than twice the values a second of `Spark, arrow` or of `Spark, jvm`, or where decoding alone (`ours` without `values, arrow`) takes more
than half the time of Spark's (`Spark, jvm` without `values, jvm`). A reader of Spark's that is not in `.cache/spark-formats` (`make
format-jars`) is not compared, and a line says so.

Run: python benchmarks/formats_spark.py [--small]
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations import Expectations
from penstock.operators.wire.readers import AVRO, PROTOBUF, WantedColumn
from penstock.spark.sessions.build import build_session
from penstock.spark.tasks.value_formats import ValueFormat

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "out" / "bench" / "data"
JARS = ROOT / ".cache" / "spark-formats"
FILES, ROUNDS = 4, 5
#: times the values of a file are repeated, so that writing takes less than reading
REPEATS = 25
LEAST_RATIO = 2.0
OURS, BY_SPARK, IN_JVM, RAW, RAW_IN_JVM = "ours", "Spark, arrow", "Spark, jvm", "values, arrow", "values, jvm"
MOST_BYTES = 1 << 20
FRAME = b"\0\0\0\0\1"
AVRO_SCHEMA = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [
            {"name": "name", "type": "string"}, {"name": "age", "type": "int"}]}},
        {"name": "n", "type": "int"},
        {"name": "ok", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "rate", "type": "float"},
    ],
}  # fmt: skip
UTC = pa.timestamp("us", "UTC")
WANTED = {
    AVRO: [
        WantedColumn("id", pa.int64(), ("id",)),
        WantedColumn("city", pa.string(), ("city",)),
        WantedColumn("amount", pa.float64(), ("amount",)),
        WantedColumn("at", UTC, ("at",)),
        WantedColumn("price", pa.decimal128(12, 2), ("price",)),
        WantedColumn("state", pa.string(), ("state",)),
        WantedColumn("buyer", pa.string(), ("buyer", "name")),
        WantedColumn("ok", pa.bool_(), ("ok",)),
    ],
    PROTOBUF: [
        WantedColumn("id", pa.int64(), ("id",)),
        WantedColumn("city", pa.string(), ("city",)),
        WantedColumn("amount", pa.float64(), ("amount",)),
        WantedColumn("at", pa.int64(), ("at",)),
        WantedColumn("state", pa.string(), ("state",)),
        WantedColumn("buyer", pa.string(), ("buyer", "name")),
        WantedColumn("n", pa.int32(), ("n",)),
    ],
}


def order(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """One order; no field has the default of its type, which Spark's `from_protobuf` reads as NULL."""
    return {
        "id": number + 1,
        "city": ["Bern", "Thun", "Zürich", None][int(rng.integers(4))],
        "amount": float(rng.integers(1, 1 << 20)) / 8,
        "at": 1_714_557_600_000 + number,
        "price": Decimal(int(rng.integers(1, 10_000_000))) / 100,
        "state": ["NEW", "PAID", "SENT"][number % 3],
        "tags": ["a tag"] * (number % 4),
        "buyer": {"name": f"buyer {number % 1_000}", "age": 18 + number % 60},
        "n": number % 1_000 + 1,
        "ok": True,
        "note": None if number % 5 else "a note of some length, as people write them",
        "rate": 0.5,
    }


def avro_values(number: int, seed: int) -> Iterator[bytes]:
    """Values in Avro."""
    schema, rng = fastavro.parse_schema(AVRO_SCHEMA), np.random.default_rng(seed)
    for each in range(number):
        value, out = order(each, rng), io.BytesIO()
        moment = datetime.datetime.fromtimestamp(value["at"] / 1_000, datetime.UTC)
        fastavro.schemaless_writer(out, schema, {**value, "at": moment})
        yield out.getvalue()


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """The same as a Protobuf file."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    buyer = file.message_type.add(name="Buyer")
    buyer.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=1)
    buyer.field.add(name="age", number=2, type=kinds.TYPE_INT32, label=1)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NONE", "NEW", "PAID", "SENT")):
        state.value.add(name=name, number=number)
    plain = {
        "id": "INT64",
        "city": "STRING",
        "amount": "DOUBLE",
        "at": "INT64",
        "n": "INT32",
        "ok": "BOOL",
        "note": "STRING",
        "rate": "FLOAT",
    }
    for number, (name, kind) in enumerate(plain.items(), 1):
        message.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=1)
    message.field.add(name="state", number=10, type=kinds.TYPE_ENUM, type_name=".shop.State", label=1)
    message.field.add(name="buyer", number=11, type=kinds.TYPE_MESSAGE, type_name=".shop.Buyer", label=1)
    message.field.add(name="tags", number=12, type=kinds.TYPE_STRING, label=3)
    return file  # fmt: skip


def protobuf_values(number: int, seed: int) -> Iterator[bytes]:
    """Values in Protobuf."""
    pool, rng = descriptor_pool.DescriptorPool(), np.random.default_rng(seed)
    pool.Add(proto_file())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    for each in range(number):
        value = order(each, rng)
        del value["price"]
        value["city"] = value["city"] or "Basel"
        yield kind(**{name: one for name, one in value.items() if one is not None}).SerializeToString()


@dataclass(frozen=True, slots=True)
class Values:
    """A folder of values, each framed and plain.

    Attributes:
        form: AVRO or PROTOBUF.
        values: how many.
    """

    form: str
    values: int

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return DATA / f"values-{self.form}-{self.values}"

    def write(self) -> Values:
        """Writes them once."""
        if len(list(self.folder.glob("*.parquet"))) == FILES:
            return self
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        make = avro_values if self.form == AVRO else protobuf_values
        frame = FRAME if self.form == AVRO else FRAME + b"\0"
        for number in range(FILES):
            plain = list(make(self.values // FILES // REPEATS, number))
            table = pa.table(
                {
                    "value": pa.array([frame + each for each in plain], pa.binary()),
                    "plain": pa.array(plain, pa.binary()),
                }
            )
            whole = pa.concat_tables([table] * REPEATS)
            pq.write_table(whole, self.folder / f"{number}.parquet", compression="none", use_dictionary=False)
        return self


def counts_of(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows, and the values of each column."""
    counts = np.zeros(len(names) + 1, np.int64)
    for batch in batches:
        counts += [batch.num_rows, *(batch.num_rows - column.null_count for column in batch.columns)]
    yield pa.record_batch([pa.array([int(each)]) for each in counts], names=["rows", *names])


def ours(frame: DataFrame, form: ValueFormat, wanted: list[WantedColumn]) -> list[int]:
    """Decoded by workers."""
    names = [each.name for each in wanted]

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = form.decoder(wanted, MOST_BYTES)
        found = (decoder.decode(batch.column(0)) for batch in batches)
        yield from counts_of((each.tuples for each in found), names)

    return summed(frame.select("value").mapInArrow(stage, schema_of(names)))


def by_spark(frame: DataFrame, tuples: Column, wanted: list[WantedColumn], *, in_python: bool) -> list[int]:
    """Decoded by Spark, and counted in the JVM or in Python."""
    names = [each.name for each in wanted]
    decoded = frame.select(tuples.alias("t")).select(
        *(F.col(f"t.{'.'.join(each.path)}").alias(each.name) for each in wanted)
    )
    if not in_python:
        row = decoded.agg(F.count("*"), *(F.count(name) for name in names)).collect()[0]
        return list(row)
    return summed(decoded.mapInArrow(lambda batches: counts_of(batches, names), schema_of(names)))


def schema_of(names: list[str]) -> str:
    """Of counts."""
    return ", ".join(f"{name} BIGINT" for name in ["rows", *names])


def summed(counts: DataFrame) -> list[int]:
    """The counts of all tasks together."""
    return [sum(column) for column in zip(*counts.collect(), strict=True)]


def measured(
    expected: Expectations, title: str, values: int, sides: dict[str, Callable[[], list[int]]]
) -> None:
    """Runs the sides in turn, and judges them by their median."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, list[int]] = {}
    for turn in range(ROUNDS + 1):
        for name, run in sides.items():
            began = time.perf_counter()
            answers[name] = run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    took = {name: median(each) for name, each in seconds.items()}
    for name, each in took.items():
        print(f"{title}: {name}: {values / each:,.0f} values/s, {each:.2f} s")
    if BY_SPARK not in sides:
        print(f"{title} is not compared: Spark's reader is not in .cache/spark-formats (make format-jars)")
        return
    same = answers[OURS] == answers[BY_SPARK] == answers[IN_JVM]
    expected.hold(f"{title}: equal counts of rows and values", same, f"{answers[OURS]}", always=True)
    expected.at_least(
        f"{title}: values where rules are checked, ours over Spark's",
        took[BY_SPARK] / took[OURS],
        LEAST_RATIO,
    )
    expected.at_least(
        f"{title}: values, ours over Spark's where no rule is checked", took[IN_JVM] / took[OURS], LEAST_RATIO
    )
    own, others = took[OURS] - took[RAW], took[IN_JVM] - took[RAW_IN_JVM]
    ratio = others / max(own, 1e-6)
    print(f"{title}: decoding alone: ours {own:.2f} s, Spark's {others:.2f} s")
    expected.at_least(f"{title}: decoding alone, Spark's time over ours", ratio, LEAST_RATIO)


def raw(frame: DataFrame) -> list[int]:
    """Values that workers count."""
    return summed(
        frame.select("value").mapInArrow(lambda batches: counts_of(batches, ["value"]), schema_of(["value"]))
    )


def sides_of(
    frame: DataFrame, form: ValueFormat, wanted: list[WantedColumn], tuples: Column | None
) -> dict[str, Callable[[], list[int]]]:
    """What runs; `tuples` decodes by Spark's reader, None without one."""
    sides: dict[str, Callable[[], list[int]]] = {
        OURS: lambda: ours(frame, form, wanted),
        RAW: lambda: raw(frame),
        RAW_IN_JVM: lambda: list(frame.agg(F.count("*"), F.sum(F.length("plain"))).collect()[0])[:1],
    }
    if tuples is not None:
        sides[BY_SPARK] = lambda: by_spark(frame, tuples, wanted, in_python=True)
        sides[IN_JVM] = lambda: by_spark(frame, tuples, wanted, in_python=False)
    return sides


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--small", action="store_true", help="few values: figures do not count")
    small = parser.parse_args().small
    number = 100_000 if small else 2_000_000
    expected = Expectations(judged=not small)
    jars = sorted(JARS.glob("*.jar"))
    spark = build_session("local[2]", {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false"})
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1g")
    avro, protobuf = (
        spark.read.parquet(str(Values(form, number).write().folder)) for form in (AVRO, PROTOBUF)
    )
    names = [jar.name.rpartition("_")[0] for jar in jars]
    tuples = None
    if "spark-avro" in names:
        from pyspark.sql.avro.functions import from_avro

        tuples = from_avro(F.col("plain"), json.dumps(AVRO_SCHEMA))
    form = ValueFormat(AVRO, schema=json.dumps(AVRO_SCHEMA).encode())
    measured(expected, "Avro", number, sides_of(avro, form, WANTED[AVRO], tuples))
    tuples, files = None, descriptor_pb2.FileDescriptorSet(file=[proto_file()]).SerializeToString()
    if "spark-protobuf" in names:
        from pyspark.sql.protobuf.functions import from_protobuf

        tuples = from_protobuf(F.col("plain"), "shop.Order", binaryDescriptorSet=files)
    form = ValueFormat(PROTOBUF, schema=files)
    measured(expected, "Protobuf", number, sides_of(protobuf, form, WANTED[PROTOBUF], tuples))
    spark.stop()
    return expected.exit_code


if __name__ == "__main__":
    sys.exit(main())
