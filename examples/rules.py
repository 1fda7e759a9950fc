"""A thousand text rules over process starts, logons and connections, on Spark and by DuckDB: `make demo-rules`.

    python examples/rules.py [--rules 1200] [--events 400000] [--output out/demo-rules]

Rules and events are invented, drawn with a fixed seed from the words below. Each rule is a file with one condition; the script has one
statement for all of them, CREATE VIEWS FROM. DuckDB answers the same conditions over a sample of the events. The exit code is 1 where
an answer differs.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from penstock import Engine, Trigger, build_session

SEED = 35
#: files of events, and of a batch: one for each core
FILES, TOGETHER = 16, 2
#: events that differ in more than number, host and user
DISTINCT = 10_000
#: events that DuckDB answers too
SAMPLE = 20_000
#: SQL's words of a condition behind a regular expression
RLIKE = re.compile(r"(\w+) RLIKE ('[^']*')")

HOSTS = [f"{place}-{number:02}" for place in ("bakery", "depot", "harbour", "mill") for number in range(12)]
USERS = ["ada", "bo", "cem", "dita", "eli", "fay", "gus", "hana", "svc_orders", "svc_backup", "root"]
FOLDERS = [
    "/usr/bin/",
    "/opt/orders/bin/",
    "/opt/backup/",
    "/tmp/",
    "/home/ada/",
    "/var/cache/",
    "/srv/mill/tools/",
]
TOOLS = [
    "ship",
    "bake",
    "pack",
    "fetch",
    "tally",
    "courier",
    "ledger",
    "kettle",
    "crane",
    "sieve",
    "weigh",
    "stamp",
]
SUFFIXES = ["", "d", "ctl", "-old", "2", ".sh"]
FLAGS = [
    "--all",
    "--force",
    "--quiet",
    "--to=%s",
    "--copy %s",
    "-x",
    "-rf",
    "--key %s",
    "--as root",
    "--no-log",
    "--loop",
]
COLOURS = [
    "amber",
    "ashen",
    "blue",
    "brass",
    "coral",
    "dun",
    "ecru",
    "fawn",
    "gold",
    "green",
    "grey",
    "indigo",
    "jade",
    "lilac",
]
GOODS = [
    "anchor",
    "barrel",
    "berth",
    "cargo",
    "dough",
    "flour",
    "hinge",
    "invoice",
    "lantern",
    "manifest",
    "oven",
    "rope",
    "scale",
]
ENDINGS = ["", ".csv", ".db", ".key", ".list", ".tar"]
#: what programs are about, some often and most seldom
THINGS = [f"{colour}-{good}{ending}" for ending in ENDINGS for colour in COLOURS for good in GOODS]
DOMAINS = [
    "mill.example",
    "harbour.example",
    "cdn.example",
    "pigeon.example",
    "cheap-hosting.example",
    "paste.example",
]
METHODS = ["password", "key", "badge", "token"]

SCHEMA = pa.schema(
    {
        "event_no": pa.int64(),
        "kind": pa.string(),
        "host": pa.string(),
        "user": pa.string(),
        "image": pa.string(),
        "parent": pa.string(),
        "command": pa.string(),
        "method": pa.string(),
        "failures": pa.int32(),
        "target": pa.string(),
        "port": pa.int32(),
        "bytes": pa.int64(),
    }
)
COLUMNS = ", ".join(
    f"{field.name} {({pa.int64(): 'BIGINT', pa.int32(): 'INT'}).get(field.type, 'STRING')}"
    for field in SCHEMA
)


def tool(random_: random.Random) -> str:
    """The path of a program."""
    return random_.choice(FOLDERS) + random_.choice(TOOLS) + random_.choice(SUFFIXES)


def words(random_: random.Random) -> str:
    """The arguments of a program."""
    found = random_.sample(FLAGS, random_.randint(0, 3))
    return " ".join(each % random_.choice(THINGS) if "%s" in each else each for each in found)


def event(random_: random.Random) -> dict[str, object]:
    """What happens: most often a process starts."""
    kind = random_.choices(["process", "logon", "network"], [6, 1, 3])[0]
    image = tool(random_)
    if kind == "process":
        parent = tool(random_) if random_.random() < 0.9 else None
        return {
            "kind": kind,
            "image": image,
            "parent": parent,
            "command": f"{image} {words(random_)}".strip(),
        }
    if kind == "logon":
        return {"kind": kind, "method": random_.choice(METHODS), "failures": int(random_.expovariate(1.0))}
    port = random_.choice([22, 80, 443, 443, 443, 5432, 8080, random_.randint(1024, 65535)])
    target = f"{random_.choice(COLOURS)}-{random_.choice(GOODS)}.{random_.choice(DOMAINS)}"
    size = int(random_.expovariate(1e-5))
    return {"kind": kind, "image": image, "target": target, "port": port, "bytes": size}


def one_of(column: str, pattern: str, values: list[str]) -> str:
    """A list of patterns, one of which must match."""
    return f"({' OR '.join(f'{column} ILIKE {pattern.format(value)!r}' for value in values)})"


def condition(random_: random.Random) -> str:
    """The condition of a rule: what it looks for in one kind of events, often but for some that are allowed."""
    kind = random_.choices(["process", "logon", "network"], [7, 1, 2])[0]
    parts = [f"kind = '{kind}'"]
    if kind == "process":
        column = random_.choices(["image", "parent", ""], [4, 3, 3])[0]
        if column:
            names = [
                f"/{random_.choice(TOOLS)}{random_.choice(SUFFIXES)}" for _ in range(random_.randint(1, 3))
            ]
            parts.append(one_of(column, "%{}", names))
        parts.append(one_of("command", "%{}%", random_.sample(THINGS, random_.randint(1, 12))))
        if random_.random() < 0.7:
            parts.append(f"command ILIKE '% {random_.choice(FLAGS).partition('%')[0]}%'")
        if random_.random() < 0.1:
            parts.append(rf"command RLIKE '--(to|key)[= ]{random_.choice(COLOURS)[:3]}'")
        if random_.random() < 0.1:
            folder = random_.choice(FOLDERS)
            parts.append("parent IS NULL" if random_.random() < 0.3 else f"parent ILIKE '{folder}%'")
    elif kind == "logon":
        parts.append(f"method IN ({', '.join(map(repr, random_.sample(METHODS, 2)))})")
        parts.append(f"failures >= {random_.randint(6, 14)}")
    else:
        names = [f"{random_.choice(COLOURS)}-{random_.choice(GOODS)}" for _ in range(random_.randint(1, 3))]
        parts.append(one_of("target", "{}." + random_.choice(DOMAINS), names))
        ports = random_.sample(range(1024, 65535), 20) + random_.sample([22, 80, 5432, 8080], 2)
        parts.append(f"port IN ({', '.join(map(str, ports))})")
        if random_.random() < 0.5:
            parts.append(f"bytes > {random_.randint(10_000, 200_000)}")
    if random_.random() < 0.5:
        column, pattern, values = random_.choice(
            [("user", "{}", USERS)]
            if kind == "logon"
            else [("image", "{}%", FOLDERS), ("parent", "{}%", FOLDERS), ("command", "%{}%", THINGS)]
        )
        parts.append(f"{one_of(column, pattern, random_.sample(values, 2))} IS NOT TRUE")
    return " AND ".join(parts)


def write(output: Path, rules: int, events: int) -> dict[str, str]:
    """Writes the rules and the events, and returns the rules."""
    random_ = random.Random(SEED)
    (output / "rules").mkdir(parents=True)
    (output / "events").mkdir()
    found = {f"rule_{number:04}": condition(random_) for number in range(rules)}
    for name, text in found.items():
        (output / "rules" / f"{name}.sql").write_text(f"-- {name}, invented\n{text}\n")
    kinds = pa.Table.from_pylist([event(random_) for _ in range(DISTINCT)], SCHEMA)
    for number in range(FILES):
        numbers = range(number * events // FILES, (number + 1) * events // FILES)
        table = kinds.take(pa.array(random_.choices(range(DISTINCT), k=len(numbers))))
        for name, values in (
            ("event_no", numbers),
            ("host", random_.choices(HOSTS, k=len(numbers))),
            ("user", random_.choices(USERS, k=len(numbers))),
        ):
            table = table.set_column(
                SCHEMA.get_field_index(name), SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type)
            )
        pq.write_table(table, output / "events" / f"{number}.parquet", compression="zstd")
    return found


def script(output: Path) -> str:
    """The script: a table and all rules over it."""
    return (
        f"CREATE TABLE events ({COLUMNS}) USING parquet OPTIONS (path '{output / 'events'}', max_files_per_trigger {TOGETHER});\n"
        f"CREATE VIEWS FROM '{output / 'rules'}/*.sql' ON events;\n"
    )


def by_duckdb(output: Path, rules: dict[str, str], step: int) -> tuple[set[tuple[int, str]], float]:
    """The pairs of event and rule of every `step`-th event, and the microseconds an event took."""
    with duckdb.connect(config={"threads": 1}) as base:
        base.execute(
            f"CREATE TABLE events AS SELECT * FROM read_parquet('{output / 'events'}/*.parquet') WHERE event_no % {step} = 0"
        )
        (count,) = base.execute("SELECT count(*) FROM events").fetchone() or (0,)
        began = time.process_time()
        found = set()
        for name, text in rules.items():
            plain = RLIKE.sub(r"regexp_matches(\1, \2)", text)
            rows = base.execute(f"SELECT event_no FROM events WHERE {plain}").fetchall()
            found.update((number, name) for (number,) in rows)
        return found, (time.process_time() - began) / count * 1e6


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1_200)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--output", type=Path, default=Path("out/demo-rules"))
    arguments = parser.parse_args()
    output, console = arguments.output, Console(highlight=False)
    shutil.rmtree(output, ignore_errors=True)
    console.print(f"Writing {arguments.rules:,} rules and {arguments.events:,} events to {output} ...")
    rules = write(output, arguments.rules, arguments.events)
    console.print("Starting Spark ...")
    engine = Engine(build_session("local[2]", {}))
    began = time.monotonic()
    engine.execute(script(output))
    declared = time.monotonic() - began
    for refused in engine.refused_rules:
        console.print(f"rule left out: {refused}")
    console.print(f"{len(engine.views):,} rules declared in {declared:.1f} s. Answering ...")
    ends: list[float] = []
    began = time.monotonic()
    with engine.start(output / "results", trigger=Trigger.available_now()) as run:
        while not run.await_termination(0.05):
            ends += [time.monotonic()] * (len(run.events("batch")) - len(ends))
        ends += [time.monotonic()] * (len(run.events("batch")) - len(ends))
        status = run.status()
        matches = sum(view.rows for view in status.views.values())
        silent = sum(view.rows == 0 for view in status.views.values())
        step = max(1, arguments.events // SAMPLE)
        sample = run.matches("events").where(f"event_no % {step} = 0")
        ours = {tuple(row) for row in sample.selectExpr("event_no", "explode(queries)").collect()}
    console.print(f"Asking DuckDB the same about every {step}th event ...")
    theirs, microseconds = by_duckdb(output, rules, step)
    later = arguments.events * (FILES - TOGETHER) / FILES / (ends[-1] - ends[0])
    table = Table(show_header=False)
    for what, value in (
        ("rules", f"{len(rules):,}, of which {silent:,} matched nothing"),
        (
            "events",
            f"{arguments.events:,}, drawn from {DISTINCT:,} that differ in more than number, host and user",
        ),
        ("declared in", f"{declared:.1f} s"),
        ("first batch after", f"{ends[0] - began:.1f} s, compilation included"),
        ("events/s after that", f"{later:,.0f} ({1e6 / later:.1f} us an event)"),
        ("DuckDB, one thread", f"{microseconds:,.0f} us an event"),
        ("matches", f"{matches:,} in {arguments.events:,} events"),
        ("compared with DuckDB", f"{len(theirs):,} matches, {len(ours ^ theirs)} differ"),
    ):
        table.add_row(what, value)
    console.print(table)
    console.print(
        f"Edit, add or remove files in {output / 'rules'} while `penstock run` answers them: its views follow."
    )
    return int(ours != theirs or bool(engine.refused_rules))


if __name__ == "__main__":
    sys.exit(main())
