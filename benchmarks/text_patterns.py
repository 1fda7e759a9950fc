"""All text predicates of 2,856 detection rules over 200,040 recorded events, a column at a time: ns a byte, us an event, memory.

The rules and events lie beside the project, in ../shared/data/sigma (`conditions.json.xz`, `events.parquet`). Where that folder is absent
nothing is measured and the exit code is 0.

Of each column: its patterns; seconds to build them; distinct values and their bytes; processor time of a first pass (cold) an
event and a distinct byte, and of a second one (warm) an event; signatures; megabytes. Long columns are read as they are, others as
dictionaries, as a scan would. Then, of one column and in the same run, the same predicates by DuckDB on one thread, and the
substrings among them by `pyarrow.compute.match_substring`, one after the other; DuckDB's counts must be the encoder's.

Expected, and the exit code is 1 where it does not hold: every regular expression but those with `\\b` is a kernel pattern; a column is
built in 1 s; all columns take 6 us an event cold, 4 us warm, and 250 MB; DuckDB and pyarrow take at least 20 times as long.

Run: python benchmarks/text_patterns.py [--columns A,B]
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from penstock.operators.text.signatures import SignatureEncoder
from penstock.plan.patterns import TextPattern, is_kernel_pattern, spark_lower

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "sigma"
LONG = ("Message", "ContextInfo", "ScriptBlockText", "Payload")
#: the column and the rows of the comparison
COMPARED, COMPARED_ROWS = "TargetObject", 20_000
MOST_BUILD_SECONDS, MOST_COLD_US, MOST_WARM_US, MOST_MB, LEAST_TIMES = 1.0, 6.0, 4.0, 250.0, 20.0

PREDICATE = re.compile(r"(?:`([^`]+)`|\b(\w+))\s+(ILIKE|LIKE|RLIKE|=)\s+'((?:[^'\\]|\\.)*)'", re.DOTALL)
CONTROL = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a"}


def unescaped(literal: str) -> str:
    """What a string literal of Spark SQL means."""
    return re.sub(
        r"\\(.)",
        lambda found: found[0] if found[1] in "%_" else CONTROL.get(found[1], found[1]),
        literal,
        flags=re.DOTALL,
    )


def patterns_of(conditions: Iterable[str]) -> tuple[dict[str, list[TextPattern]], list[TextPattern]]:
    """Distinct kernel patterns of each column, and the others."""
    found: dict[str, dict[TextPattern, None]] = defaultdict(dict)
    left: dict[TextPattern, None] = {}
    for condition in conditions:
        for quoted, name, operator, literal in PREDICATE.findall(condition):
            text = unescaped(literal)
            if operator == "RLIKE":
                pattern = TextPattern("regex", text)
            elif operator == "ILIKE":
                pattern = TextPattern("like", spark_lower(text), ("lower",))
            elif operator == "LIKE":
                pattern = TextPattern("like", text)
            else:
                pattern = TextPattern("like", re.sub(r"([\\%_])", r"\\\1", text))
            (found[quoted or name] if is_kernel_pattern(pattern) else left)[pattern] = None
    return {name: list(each) for name, each in found.items()}, list(left)


def timed(encoder: SignatureEncoder, column: pa.ChunkedArray) -> tuple[float, np.ndarray]:
    """Seconds of processor time, and the signatures."""
    began = time.process_time()
    signatures = encoder.encode(column)
    return time.process_time() - began, signatures


def counts(encoder: SignatureEncoder, signatures: np.ndarray, patterns: int) -> np.ndarray:
    """How many rows satisfy each pattern."""
    found = np.zeros(patterns, np.int64)
    for signature, rows in zip(*np.unique(signatures, return_counts=True), strict=True):
        found[encoder.satisfied(int(signature))] += rows
    return found


def by_duckdb(patterns: list[TextPattern], column: pa.ChunkedArray) -> tuple[float, np.ndarray]:
    """Seconds of processor time, and how many rows satisfy each pattern."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("events", pa.table({"value": column.cast(pa.string())}))
    connection.execute("CREATE TABLE held AS SELECT value FROM events")
    tests = []
    for pattern in patterns:
        literal = "'" + pattern.text.replace("'", "''") + "'"
        if pattern.kind == "regex":
            tests.append(f"regexp_matches(value, {literal})")
        else:
            tests.append(f"value {'ILIKE' if pattern.form else 'LIKE'} {literal} ESCAPE '\\'")
    began = time.process_time()
    row = connection.execute(
        "SELECT " + ", ".join(f"count(*) FILTER ({test})" for test in tests) + " FROM held"
    ).fetchone()
    return time.process_time() - began, np.array(row, np.int64)


def by_pyarrow(patterns: list[TextPattern], column: pa.ChunkedArray) -> float:
    """Seconds of processor time of the LIKE patterns, their longest text as a substring; regular expressions are left out."""
    values = column.cast(pa.string())
    began = time.process_time()
    for pattern in patterns:
        if pattern.kind == "like":
            text = max(re.split(r"(?<!\\)%", pattern.text), key=len).replace("\\\\", "\\")
            pc.sum(pc.match_substring(values, text, ignore_case=bool(pattern.form)))
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", help="only these, separated by commas")
    chosen = parser.parse_args().columns
    console = Console(width=150)
    if not FOLDER.is_dir():
        console.print(f"{FOLDER} is absent: nothing is measured.")
        return 0
    pa.set_cpu_count(1)
    with lzma.open(FOLDER / "conditions.json.xz", "rt") as lines:
        patterns, left = patterns_of(json.loads(line)["where"] for line in lines)
    file = pq.ParquetFile(FOLDER / "events.parquet")
    events = file.metadata.num_rows
    names = sorted(set(file.schema_arrow.names) & set(patterns), key=lambda name: -len(patterns[name]))
    if chosen:
        names = [name for name in names if name in chosen.split(",")]
    SignatureEncoder([TextPattern("like", "a%b", ("lower",))]).encode(pa.array(["ab", None]))

    table = Table("column", "patterns", "build s", "distinct", "MB of them", "cold us/event", "cold ns/byte", "warm us/event", "signatures", "MB held")  # fmt: skip
    total = np.zeros(4)
    slowest_build = 0.0
    for name in names:
        dictionaries = [] if name in LONG else [name]
        column = pq.read_table(FOLDER / "events.parquet", columns=[name], read_dictionary=dictionaries, use_threads=False).column(0)  # fmt: skip
        plain = column.cast(pa.string())
        distinct = plain.unique().drop_null()
        size = pc.sum(pc.binary_length(distinct)).as_py() or 0
        began = time.process_time()
        encoder = SignatureEncoder(patterns[name])
        build = time.process_time() - began
        cold, signatures = timed(encoder, column)
        warm, again = timed(encoder, column)
        assert np.array_equal(signatures, again)
        total += cold, warm, encoder.nbytes, build
        slowest_build = max(slowest_build, build)
        if size > 50_000 or len(patterns[name]) > 1000:
            table.add_row(name, f"{len(patterns[name]):,}", f"{build:.2f}", f"{len(distinct):,}", f"{size / 1e6:.2f}", f"{cold / events * 1e6:.3f}", f"{cold / max(size, 1) * 1e9:.1f}", f"{warm / events * 1e6:.3f}", f"{encoder.signatures:,}", f"{encoder.nbytes / 1e6:.1f}")  # fmt: skip
    console.print(table)
    cold_us, warm_us, held_mb = total[0] / events * 1e6, total[1] / events * 1e6, total[2] / 1e6
    console.print(
        f"{len(names)} columns, {sum(len(patterns[name]) for name in names):,} patterns: built in {total[3]:.1f} s; "
        f"cold {cold_us:.2f} us an event, warm {warm_us:.2f}; {held_mb:.0f} MB"
    )

    column = pq.read_table(FOLDER / "events.parquet", columns=[COMPARED], use_threads=False).column(0)
    column = column.drop_null().slice(0, COMPARED_ROWS)
    compared = patterns[COMPARED]
    encoder = SignatureEncoder(compared)
    own, signatures = timed(encoder, column)
    duck, of_duck = by_duckdb(compared, column)
    arrow = by_pyarrow(compared, column)
    wrong = int(np.count_nonzero(counts(encoder, signatures, len(compared)) != of_duck))
    console.print(
        f"{COMPARED}, {len(compared):,} patterns, {len(column):,} values, us a value: signatures (cold) {own / len(column) * 1e6:.2f}, "
        f"DuckDB {duck / len(column) * 1e6:.1f}, pyarrow {arrow / len(column) * 1e6:.1f}; counts that differ from DuckDB's: {wrong}"
    )
    unproven = [pattern.text for pattern in left if r"\b" not in pattern.text]
    expectations = {
        "each regular expression but those with \\b is a kernel pattern": not unproven,
        f"a column is built in {MOST_BUILD_SECONDS} s ({slowest_build:.2f})": slowest_build
        <= MOST_BUILD_SECONDS,
        f"cold at most {MOST_COLD_US} us an event": cold_us <= MOST_COLD_US,
        f"warm at most {MOST_WARM_US} us an event": warm_us <= MOST_WARM_US,
        f"at most {MOST_MB} MB": held_mb <= MOST_MB,
        f"DuckDB takes {LEAST_TIMES} times as long": duck >= LEAST_TIMES * own,
        f"pyarrow takes {LEAST_TIMES} times as long": arrow >= LEAST_TIMES * own,
        "DuckDB counts the same": wrong == 0,
    }
    for what, is_met in expectations.items():
        console.print(f"{'met' if is_met else 'NOT MET'}: {what}", markup=False)
    return 0 if all(expectations.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
