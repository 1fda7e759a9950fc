"""Public detection rules over recorded Windows events, in the running program on Spark: are the pairs right, and how fast do they come.

    python benchmarks/rules_spark.py [--rules 50,200,1000,2856] [--batches 4] [--only json]

The rules and events lie beside the project, in ../shared/data/sigma (`conditions.json.xz`, `events.parquet`, `pairs.parquet`).
Where that folder is absent nothing is measured and the exit code is 0.

Each number of rules is a run of its own over copies of the events' file, a batch each: seconds to declare the rules; seconds
from the start to the first batch; events a second, and processor seconds of all processes, of the batches behind the
first one. Beside them DuckDB evaluates the same rules over the first events, on one thread. What bounds the rate is written beside it: the
events that one core matches without Spark, decoded from Parquet already.

All rules run once more over the events as JSON lines, without their NULL fields.

Expected, and the exit code is 1 where it does not hold: no rule needs Spark's own functions; exactly the right (event, rule) pairs; with
all rules at least 100,000 events a second from Parquet and 40,000 from JSON, and DuckDB at least 20 times as long an event.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock import Engine, Matcher, Trigger, build_session
from penstock.errors import UnsupportedError
from processes import processor_seconds

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "sigma"
LEAST_RATE, LEAST_TIMES = {"parquet": 100_000, "json": 40_000}, 20
#: a word of a condition that is none of SQL's
WORD = re.compile(r"\b(?!(?:AND|OR|NOT|IS|NULL|TRUE|FALSE|IN|LIKE|ILIKE|RLIKE)\b)([A-Za-z_]\w*)")
#: events that DuckDB gets, and rules of one of its queries
SAMPLE, TOGETHER = 4_000, 100
NAME = re.compile(r"\b([A-Za-z_]\w*)\s+(?:(?:ILIKE|LIKE|RLIKE|IN|IS)\b|=|<>)")


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        declared, first: seconds to declare the rules, and from the start to the first batch.
        rate: events a second of the later batches.
        processor: processor microseconds an event of the later batches, of all processes.
        wrong: pairs that are missing or too many.
        pairs: the right pairs.
    """

    declared: float
    first: float
    rate: float
    processor: float
    wrong: int
    pairs: int


def rules(schema: pa.Schema) -> tuple[dict[str, str], int]:
    """The conditions by name that need nothing of Spark, and how many do."""
    found: dict[str, str] = {}
    with lzma.open(FOLDER / "conditions.json.xz", "rt") as lines:
        for line in lines:
            rule = json.loads(line)
            found[rule["name"]] = rule["where"]
    usable = {}
    for name, where in found.items():
        try:
            Matcher({name: where}, schema)
        except UnsupportedError:
            continue
        usable[name] = where
    return usable, len(found) - len(usable)


def all_columns() -> pa.Schema:
    """The events' columns, and those that rules name and no event has."""
    stored = pq.read_schema(FOLDER / "events.parquet")
    known = {name.lower() for name in stored.names}
    missing: dict[str, str] = {}
    with lzma.open(FOLDER / "conditions.json.xz", "rt") as lines:
        for line in lines:
            text = re.sub(r"'(?:[^'\\]|\\.)*'", "''", json.loads(line)["where"])
            for name in (*NAME.findall(text), *re.findall(r"lower\((\w+)\)", text)):
                if name.lower() not in known and name.upper() not in ("AND", "OR", "NOT"):
                    missing.setdefault(name.lower(), name)
    return pa.schema([*stored, *(pa.field(name, pa.string()) for name in missing.values())])


def as_json(folder: Path) -> Path:
    """Writes the events as JSON lines without their NULL fields."""
    path = folder / "events.json"
    with path.open("w", encoding="utf-8") as file:
        for batch in pq.ParquetFile(FOLDER / "events.parquet").iter_batches(10_000):
            for row in batch.to_pylist():
                fields = {name: value for name, value in row.items() if value is not None}
                file.write(json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n")
    return path


def measure(conditions: dict[str, str], schema: pa.Schema, batches: int, stored: Path) -> Measured:
    """Runs some rules over copies of the events' file."""
    kind = stored.suffix[1:]
    folder = Path(tempfile.mkdtemp(prefix="rules-"))
    try:
        (folder / "in").mkdir()
        kinds = {pa.int64(): "BIGINT", pa.int32(): "INT"}
        columns = ", ".join(f"`{each.name}` {kinds.get(each.type, 'STRING')}" for each in schema)
        engine = Engine(build_session("local[2]", {"spark.driver.memory": "2g"}))
        engine.execute(
            f"CREATE TABLE events ({columns}) USING {kind} OPTIONS (path '{folder / 'in'}', max_files_per_trigger '1')"
        )
        began = time.monotonic()
        engine.add_views(
            {name: f"SELECT event_no FROM events WHERE {text}" for name, text in conditions.items()}
        )
        declared = time.monotonic() - began
        for number in range(batches):
            shutil.copy(stored, folder / "in" / f"{number}.{kind}")
        ends: list[tuple[float, float]] = []
        began = time.monotonic()
        with engine.start(folder / "out", trigger=Trigger.available_now()) as run:
            while not run.await_termination(0.05):
                while len(ends) < len(run.events("batch")):
                    ends.append((time.monotonic(), processor_seconds(os.getpid())))
            events = pq.read_metadata(FOLDER / "events.parquet").num_rows
            found = run.matches("events").selectExpr("event_no", "explode(queries) AS name").toArrow()
        if len(ends) < batches:
            ends.append((time.monotonic(), processor_seconds(os.getpid())))
        later = events * (batches - 1)
        seconds, processor = (ends[-1][part] - ends[0][part] for part in (0, 1))
        wanted = pq.read_table(FOLDER / "pairs.parquet").to_pydict()
        right = sorted(pair for pair in zip(*wanted.values(), strict=True) if pair[1] in conditions)
        got = sorted(zip(*found.to_pydict().values(), strict=True))
        expected = sorted(pair for pair in right for _ in range(batches))
        wrong = len(set(got) ^ set(right)) + abs(len(got) - len(expected))
        return Measured(
            declared,
            ends[0][0] - began,
            later / seconds,
            processor / later * 1e6,
            wrong,
            len(right),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alone(conditions: dict[str, str], schema: pa.Schema) -> float:
    """Processor microseconds an event of the matcher alone, in its second pass over the events."""
    matcher = Matcher(conditions, schema)
    stored = pq.ParquetFile(FOLDER / "events.parquet").schema_arrow.names
    short = [name for name in stored if name != "Message"]
    table = pq.ParquetFile(FOLDER / "events.parquet", read_dictionary=short).read(use_threads=False)
    missing = [each for each in schema if each.name not in stored]
    for each in missing:
        table = table.append_column(each, pa.nulls(len(table), each.type))
    for _ in range(2):
        began = time.process_time()
        for batch in table.to_batches(max_chunksize=1 << 16):
            matcher.match(batch)
        seconds = time.process_time() - began
    return seconds / len(table) * 1e6


def _by_duckdb(conditions: dict[str, str], schema: pa.Schema) -> float:
    """Microseconds an event of DuckDB on one thread, over a sample."""
    table = pq.ParquetFile(FOLDER / "events.parquet").read_row_group(0).slice(0, SAMPLE)
    for each in schema:
        if each.name not in table.column_names:
            table = table.append_column(each, pa.nulls(len(table), each.type))
    with duckdb.connect(config={"threads": 1}) as base:
        base.register("events", table)
        began = time.process_time()
        texts = [_as_duckdb_reads(text) for text in conditions.values()]
        for first in range(0, len(texts), TOGETHER):
            counts = [f"count(*) FILTER (WHERE {text})" for text in texts[first : first + TOGETHER]]
            try:
                base.execute(f"SELECT {', '.join(counts)} FROM events").fetchall()
            except duckdb.InvalidInputException:
                # a few regular expressions are none of DuckDB's
                for count in counts:
                    with suppress(duckdb.InvalidInputException):
                        base.execute(f"SELECT {count} FROM events").fetchall()
        return (time.process_time() - began) / len(table) * 1e6


def _as_duckdb_reads(text: str) -> str:
    """A condition with names in quotes, string literals without Spark's escapes, and ESCAPE."""
    quoted = "".join(
        part if part.startswith("'") else WORD.sub(r'"\1"', part)
        for part in re.split(r"('(?:[^'\\]|\\.)*')", text)
    )
    quoted = re.sub(r'("\w+") RLIKE (\'(?:[^\'\\]|\\.)*\')', r"regexp_matches(\1, \2)", quoted)
    return _escaping(re.sub(r"'((?:[^'\\]|\\.)*)'", _plain, quoted))


def _plain(literal: re.Match[str]) -> str:
    """A string literal of Spark's as DuckDB writes it."""
    text = re.sub(r"\\(.)", lambda sign: sign[0] if sign[1] in "%_" else sign[1], literal[1])
    return "'" + text.replace("'", "''") + "'"


def _escaping(text: str) -> str:
    return re.sub(r"(I?LIKE '(?:[^']|'')*')", r"\1 ESCAPE '\\'", text)


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", default="50,200,1000,2856")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--only", choices=("parquet", "json"))
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"{FOLDER} is absent: nothing is measured")
        return 0
    schema = all_columns()
    usable, others = rules(schema)
    names = sorted(usable)
    random.Random(7).shuffle(names)
    table = Table(
        "from",
        "rules",
        "declared s",
        "first batch s",
        "events/s",
        "CPU us/event",
        "pairs",
        "matcher us/event",
        "DuckDB us/event",
    )
    expected = Expectations()
    expected.hold(
        f"{len(usable):,} rules without functions of Spark's",
        not others,
        f"{others} more need them",
        always=True,
    )

    def run(count: int, stored: Path) -> list[str]:
        kind = stored.suffix[1:]
        found = measure({name: usable[name] for name in names[:count]}, schema, arguments.batches, stored)
        expected.hold(
            f"{count:,} rules from {kind}: the right pairs",
            found.wrong == 0,
            f"{found.wrong} wrong",
            always=True,
        )
        if count == len(names):
            expected.at_least(f"all rules from {kind}: events a second", found.rate, LEAST_RATE[kind])
        figures = (found.declared, found.first, found.rate, found.processor)
        return [kind, f"{count:,}", *(f"{each:,.1f}" for each in figures), f"{found.pairs:,}"]

    if arguments.only != "json":
        for count in (min(int(each), len(names)) for each in arguments.rules.split(",")):
            conditions = {name: usable[name] for name in names[:count]}
            row = run(count, FOLDER / "events.parquet")
            alone, duckdb_alone = _alone(conditions, schema), _by_duckdb(conditions, schema)
            table.add_row(*row, f"{alone:.1f}", f"{duckdb_alone:,.0f}")
            if count == len(names):
                expected.at_least(
                    "all rules: DuckDB's time beside the matcher's", duckdb_alone / alone, LEAST_TIMES
                )
    if arguments.only != "parquet":
        with tempfile.TemporaryDirectory(prefix="rules-json-") as folder:
            table.add_row(*run(len(names), as_json(Path(folder))))
    Console().print(table)
    return expected.exit_code


if __name__ == "__main__":
    sys.exit(main())
