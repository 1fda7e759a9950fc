"""Nexmark: each query on Penstock, Spark Structured Streaming and PyFlink, over the same files and the same cores; all queries together.

    python benchmarks/nexmark_spark.py [--events 2400000] [--queries q0,q5] [--sides penstock,flink] [--refreshed] [--lanes] [--docs] [--json FILE]

A query runs over stored events to their end: over two files twice, of which the first run is not counted, and over twelve. The difference says what
further events cost: events a second, and processor seconds for a million of them. What starting costs is in neither. If a side needs less than
a second for them, all sides run the query over two files and over 48, three times in turns where a run takes less than ten seconds, and the fastest runs count.
The sides take turns by query.
Penstock answers by lanes where they can and take no longer than one refresh at the end, else by that; with --lanes they may take longer, and with
--refreshed the refresh is measured too where lanes answer. Spark gets the same text over streams with a watermark. PyFlink gets the query in its own
SQL (`nexmark/flink`), in streaming mode.

Then all queries are views of one run of Penstock, beside the sum of the runs with one view.

The exit code is 1 where a query fails on Penstock, where PyFlink has other rows than Penstock, or where Penstock is not as far ahead as it should
be: of both on every query, three times on those of `THREE_TIMES`. With --docs the table and the picture are written to `docs/explanation`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock import build_session
from penstock_lab.generators.nexmark import STREAMS, Nexmark, write_nexmark
from penstock_lab.generators.nexmark_views import FASTER_REFRESHED, nexmark_queries

sys.path.insert(0, str(Path(__file__).resolve().parent))

from expectations import Expectations
from nexmark_sides import Penstock, Run, Spark, flink_if_installed
from nexmark_tell import tell, write_docs

FOLDER = Path(__file__).parent / "nexmark"
FILES, SHORT_FILES, MANY_FILES, RATE = 12, 2, 48, 2_000
#: events of `FILES` in a run whose figures count
EVENTS = 2_400_000
#: a difference of two runs that is shorter says little
LEAST_SECONDS = 1.0
#: of brief queries, of which the fastest runs count; a side takes further ones only if a run of it is short
TURNS, SHORT_SECONDS = 3, 10.0
#: of the driver, which holds the state of Spark's own streaming queries
MEMORY = "4g"
THREE_TIMES = ("q1", "q2", "q5", "q7", "q8", "q11", "q21", "q22")
SIDES = ("penstock", "spark", "flink")
SIDE_NAMES = {"penstock": "Penstock", "spark": "Spark", "flink": "PyFlink"}


@dataclass(frozen=True)
class Measured:
    """A query on one side over a part of the events, and over all of them.

    Attributes:
        short: the run over a part; None where the query was refused.
        long: over more of them.
        events: by which the two differ.
    """

    short: Run | None
    long: Run
    events: int

    @property
    def rate(self) -> float | None:
        """Events a second; None where the query was not answered, or the longer run was no slower."""
        return self._further(lambda run: run.seconds, lambda seconds: self.events / seconds)

    @property
    def processor(self) -> float | None:
        """Processor seconds for a million events."""
        return self._further(lambda run: run.processor, lambda seconds: seconds / self.events * 1e6)

    @property
    def is_brief(self) -> bool:
        """Whether the two differ by less than `LEAST_SECONDS`."""
        rate = self.rate
        return self.long.seconds is not None and (rate is None or self.events < rate * LEAST_SECONDS)

    def _further(self, of: Callable[[Run], float | None], made: Callable[[float], float]) -> float | None:
        short, long = of(self.short) if self.short else None, of(self.long)
        return None if short is None or long is None or long <= short else made(long - short)


def main() -> int:
    """Measures and tells; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--queries", default="")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--refreshed", action="store_true")
    parser.add_argument("--lanes", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    queries = nexmark_queries(FOLDER)
    wanted = {name: queries[name] for name in given.queries.split(",")} if given.queries else queries
    root = Path(tempfile.mkdtemp(prefix="penstock-nexmark-"))
    flink = flink_if_installed(root) if "flink" in given.sides else None
    if "flink" in given.sides and flink is None:
        print("PyFlink is not measured: it could not be installed to .cache/flink (make flink).", flush=True)
    spark = build_session(None, {"spark.driver.memory": MEMORY}, "nexmark")
    try:
        feed = write_feed(root, given.events)
        others = flink.processor if flink else lambda: 0.0
        faster = () if given.lanes else FASTER_REFRESHED
        penstock, plain = Penstock(spark, root, others, faster), Spark(spark, root, others)
        flink_queries = nexmark_queries(FOLDER / "flink")
        sides: dict[str, Callable[[str, Path], Run]] = {}
        sides["penstock"] = lambda name, source: penstock.run(name, {name: queries[name]}, source)
        if "spark" in given.sides:
            sides["spark"] = lambda name, source: plain.run(name, queries[name], source)
        if flink is not None:
            sides["flink"] = lambda name, source: flink.run(name, flink_queries[name], source)
        for side in sides.values():
            side("q12", feed.short)

        def refreshed(name: str, source: Path) -> Run:
            return penstock.run(name, {name: queries[name]}, source, refresh=True)

        measured: dict[str, dict[str, Measured]] = {}
        for name in wanted:
            measured[name] = measure_all(name, sides, feed)
            say(name, measured[name])
            if given.refreshed and measured[name]["penstock"].long.way == "lane":
                again = measure_all(name, {"penstock": refreshed}, feed)
                measured[f"{name} refreshed"] = {**measured[name], **again}
                say(f"{name} refreshed", measured[f"{name} refreshed"])
        together = measure("all", lambda _, source: penstock.run("all", wanted, source), feed)
        say("together", {"penstock": together})
        tell(measured, together, given.events)
        if given.docs:
            write_docs(measured, together, given.events)
        if given.json:
            found = {
                name: {side: asdict(m) for side, m in each.items()}
                for name, each in [*measured.items(), ("together", {"penstock": together})]
            }
            given.json.write_text(json.dumps(found, indent=1))
        return judge(measured, together, judged=given.events >= EVENTS)
    finally:
        spark.stop()
        if flink is not None:
            flink.stop()
        shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True)
class Feed:
    """Stored events, and two parts of them.

    Attributes:
        short, long, many: the folders of `SHORT_FILES`, `FILES` and `MANY_FILES`.
        file_events: events of a file of each stream.
    """

    short: Path
    long: Path
    many: Path
    file_events: int


def write_feed(root: Path, events: int) -> Feed:
    """Stores events, and links the first files of each stream into other folders."""
    file_events = events // FILES
    many = root / "many"
    write_nexmark(many, Nexmark(file_events * MANY_FILES, rate=RATE), MANY_FILES)
    for folder, files in (("short", SHORT_FILES), ("long", FILES)):
        for stream in (*STREAMS, "side_input"):
            (root / folder / stream).mkdir(parents=True)
            for path in sorted((many / stream).iterdir())[:files]:
                os.link(path, root / folder / stream / path.name)
    return Feed(root / "short", root / "long", many, file_events)


def measure_all(
    name: str, sides: Mapping[str, Callable[[str, Path], Run]], feed: Feed
) -> dict[str, Measured]:
    """Measures a query on all sides; over many files, and in turns, where it is too brief on one of them."""
    found = {side: measure(name, run, feed) for side, run in sides.items()}
    if not any(each.is_brief for each in found.values()):
        return found
    runs: dict[str, list[tuple[Run, Run]]] = {
        side: [] for side, each in found.items() if each.long.seconds is not None
    }
    for _ in range(TURNS):
        for side, pairs in runs.items():
            if not pairs or _seconds(pairs[-1][1]) < SHORT_SECONDS:
                pairs.append((sides[side](name, feed.short), sides[side](name, feed.many)))
    for side, pairs in runs.items():
        short, many = (min(each, key=_seconds) for each in zip(*pairs, strict=True))
        if many.seconds is not None:
            found[side] = Measured(short, many, feed.file_events * (MANY_FILES - SHORT_FILES))
    return found


def _seconds(run: Run) -> float:
    return float("inf") if run.seconds is None else run.seconds


def measure(name: str, run: Callable[[str, Path], Run], feed: Feed) -> Measured:
    """Runs a query over a part of the events, twice, and over more of them."""
    warm = run(name, feed.short)
    if warm.seconds is None:
        return Measured(None, warm, 0)
    short = run(name, feed.short)
    return Measured(short, run(name, feed.long), feed.file_events * (FILES - SHORT_FILES))


def say(name: str, measured: dict[str, Measured]) -> None:
    """Prints the runs of a query as soon as they are there."""
    for side, each in measured.items():
        runs = [run for run in (each.short, each.long) if run]
        times = ", ".join(f"{run.seconds:.2f} s ({run.processor:.2f})" for run in runs if run.seconds)
        print(f"{name} {SIDE_NAMES[side]} {each.long.way}: {times}, {each.long.rows} rows", flush=True)


def judge(measured: dict[str, dict[str, Measured]], together: Measured, *, judged: bool) -> int:
    """Compares what was measured with what is expected; the exit code."""
    expected = Expectations(judged)
    for name, sides in measured.items():
        ours = sides["penstock"]
        expected.hold(f"{name} is answered", ours.long.seconds is not None, ours.long.way, always=True)
        if " " in name:
            continue
        for side, theirs in sides.items():
            if side == "penstock" or theirs.long.seconds is None:
                continue
            least = 3 if name in THREE_TIMES else 1
            what = f"{name}: events/s of Penstock over {SIDE_NAMES[side]}'s"
            if ours.rate is None or theirs.rate is None:
                expected.hold(
                    what, False, "no figure: the longer run was no slower, or Penstock has no answer"
                )
            else:
                expected.at_least(what, ours.rate / theirs.rate, least)
        if "flink" in sides and sides["flink"].long.rows is not None and sides["flink"].events == ours.events:
            rows = ours.long.rows, sides["flink"].long.rows
            expected.hold(
                f"{name}: rows of PyFlink are Penstock's", rows[0] == rows[1], f"{rows}", always=True
            )
    alone = [sides["penstock"].processor for name, sides in measured.items() if " " not in name]
    if together.processor is not None and None not in alone:
        figure = together.processor / sum(each for each in alone if each is not None)
        expected.at_most(f"processor seconds of {len(alone)} views together, of their sum alone", figure, 1)
    return expected.exit_code


if __name__ == "__main__":
    sys.exit(main())
