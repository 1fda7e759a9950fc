"""The table and the picture of the Nexmark benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from nexmark_sides import ROOT, Run
from penstock_lab.generators.nexmark_views import WITHOUT_ANCHOR

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = ROOT / "docs" / "explanation"
BEGIN, END = "<!-- measured by benchmarks/nexmark_spark.py -->", "<!-- end of the figures -->"
SIDES = {"penstock": "Penstock", "spark": "Spark", "flink": "PyFlink"}


class Figures(Protocol):
    """A query on one side, as `nexmark_spark.Measured`."""

    @property
    def long(self) -> Run:
        """The longer run."""

    @property
    def events(self) -> int:
        """By which it is longer."""

    @property
    def rate(self) -> float | None:
        """Events a second."""

    @property
    def processor(self) -> float | None:
        """Processor seconds for a million events."""


#: by query and side
Measured = Mapping[str, Mapping[str, Figures]]


def tell(measured: Measured, together: Figures, events: int) -> None:
    """Prints the table."""
    head, *lines = rows(measured)
    table = Table(title=f"Nexmark, {os.cpu_count()} cores; all together over {events:,} events")
    for column in head:
        table.add_column(column, justify="left" if column.endswith("by") or column == "query" else "right")
    for line in lines:
        table.add_row(*line)
    Console(width=160).print(table)
    print(in_all(measured, together))
    print("* " + "; ".join(f"{name}: {why}" for name, why in WITHOUT_ANCHOR.items()))


def rows(measured: Measured) -> Iterator[list[str]]:
    """The lines of the table, the head first."""
    sides = [side for side in SIDES if any(side in each for each in measured.values())]
    yield (
        ["query", "further events"]
        + [f"{SIDES[side]}{what}" for side in sides for what in (" by", ", events/s", ", core s a million")]
        + [f"times {SIDES[side]}" for side in sides[1:]]
    )
    for name, each in measured.items():
        line = [f"{name}*" if name in WITHOUT_ANCHOR else name, f"{each['penstock'].events:,}"]
        for side in sides:
            figures = each[side]
            line += ["not answered" if figures.long.seconds is None else figures.long.way]
            line += [shown(figures.rate, ",.0f"), shown(figures.processor, ".2f")]
        ours = each["penstock"].rate
        line += [
            shown(ours / other if ours and (other := each[side].rate) else None, ".1f") for side in sides[1:]
        ]
        yield line


def in_all(measured: Measured, together: Figures) -> str:
    """What all queries cost together, and the sum of what each costs alone."""
    each = [sides["penstock"] for name, sides in measured.items() if " " not in name]
    alone = sum(figures.processor or 0.0 for figures in each)
    seconds = sum(figures.long.seconds or 0.0 for figures in each)
    return (
        f"All {len(each)} queries in one run: {shown(together.rate, ',.0f')} events/s, {shown(together.processor, '.1f')} core s a "
        f"million events; the sum of the runs with one query: {alone:.1f} core s. Start and end included: "
        f"{shown(together.long.seconds, '.0f')} s together, {seconds:.0f} s one after the other."
    )


def shown(figure: float | None, form: str) -> str:
    """A figure, or a dash."""
    return "-" if figure is None else format(figure, form)


def write_docs(measured: Measured, together: Figures, events: int) -> None:
    """Writes the picture, and the table into its page."""
    draw(measured, DOCS / "nexmark.png")
    page = DOCS / "nexmark.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    head, *lines = rows(measured)
    table = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)]
    picture = "![Events a second of each query on Penstock, Spark and PyFlink](nexmark.png)"
    told = f"{os.cpu_count()} cores; all queries together over {events:,} events."
    page.write_text(
        "\n".join(
            [
                before + BEGIN,
                "",
                picture,
                "",
                told,
                "",
                *table,
                "",
                in_all(measured, together),
                "",
                END + after,
            ]
        )
    )


def draw(measured: Measured, path: Path) -> None:
    """Draws the events a second of each query and side."""
    names = [name for name in measured if " " not in name]
    sides = [side for side in SIDES if any(side in measured[name] for name in names)]
    figure, axes = plt.subplots(figsize=(12, 4.5), layout="constrained")
    width = 0.8 / len(sides)
    for place, (side, colour) in enumerate(zip(sides, ("tab:blue", "tab:orange", "tab:green"), strict=False)):
        heights = [measured[name][side].rate or 0 for name in names]
        axes.bar(
            [x + place * width for x in range(len(names))], heights, width, label=SIDES[side], color=colour
        )
    axes.set_yscale("log")
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(names))], names)
    axes.set_ylabel("events a second")
    axes.set_title(f"Nexmark on {os.cpu_count()} cores; no bar: the side does not answer the query")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
