"""Options and steps that subcommands share.

What takes long to load is imported by the functions that need it: a slip in an option is told before Spark, Arrow or numba
are there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from penstock.cli.given import Given
from penstock.errors import ConnectionFailedError, InputError

if TYPE_CHECKING:
    from penstock.page.asking import Script as Asked
    from penstock.settings import Settings
    from penstock.spark.engine import Engine
    from penstock.spark.sessions.jvm import Purpose
    from penstock.sql.script.mistakes import Mistakes
    from penstock.sql.script.statements import Script as Statements


class TextFormat(StrEnum):
    """How a command prints its answer."""

    TEXT = "text"
    JSON = "json"


Script = Annotated[
    Path, typer.Argument(help="SQL script with CREATE TABLE, CREATE VIEW and INSERT INTO.", metavar="SCRIPT")
]
Master = Annotated[str | None, typer.Option(help="Spark master URL; default: local[*].", metavar="URL")]
Conf = Annotated[
    list[str] | None, typer.Option(help="Spark setting; repeat the option for several.", metavar="KEY=VALUE")
]
Tune = Annotated[
    list[str] | None,
    typer.Option("--set", help="Penstock setting; repeat the option for several.", metavar="NAME=VALUE"),
]
Functions = Annotated[
    Path | None,
    typer.Option(
        help="Python file that defines FUNCTIONS, AGGREGATES or both for the script.", metavar="FILE"
    ),
]
PageToken = Annotated[
    str | None,
    typer.Option(
        help="Token that requests must send; default: Penstock makes and prints one if other machines can connect.",
        envvar="PENSTOCK_PAGE_TOKEN",
        metavar="TOKEN",
        show_default=False,
    ),
]

#: names in a warning of several views
_NAMED = 8
_FUNCTIONS = "{'name': (function, 'SQL TYPE'), ...}"
_AGGREGATES = "{'name': (function or class, 'SQL TYPE'), ...}"
#: name -> (what is called, SQL type of its result)
Entries = dict[str, tuple[Callable[..., Any], str]]


def read_script(path: Path) -> str:
    """The text of a script.

    Raises:
        ConnectionFailedError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise ConnectionFailedError(f"Cannot read script {path}: {reason}.") from error


def open_script(
    path: Path,
    master: str | None,
    conf: list[str] | None,
    tune: list[str] | None,
    functions: Path | None,
    purpose: Purpose = "brief",
    folders: Sequence[str] = (),
    show: Callable[[str], object] = lambda _: None,
) -> tuple[Engine, str]:
    """A script, and an engine on which all it says is declared, with the settings of the options and the script.

    Spark starts where a view or an insert may have mistakes that only Spark finds, so that all of them are reported together,
    and where a refused query may be one that Spark can refresh.

    Args:
        path: the script.
        master: a Spark master URL.
        conf: Spark's settings, each KEY=VALUE.
        tune: Penstock's settings, each NAME=VALUE.
        functions: a Python module with FUNCTIONS, AGGREGATES or both.
        purpose: what a JVM is started for; where it is to run the script, there must be something to run.
        folders: paths or addresses that the session reads or writes beside those of the tables.
        show: called with the answers to what the script asks.

    Raises:
        InputError: a mistake in the script, its sources or the options, or several (`MistakesError`).
    """
    options = Given.of(tune, conf)
    text = read_script(path)
    from penstock.spark.sessions.slots import with_ingest_slot
    from penstock.spark.sessions.submitted import submitted_conf
    from penstock.spark.sources.option_paths import check_paths, stores_of
    from penstock.sql.refreshed.parsing import may_be_refreshed
    from penstock.sql.script.mistakes import Mistakes
    from penstock.sql.script.script import parse_script

    registered, aggregates = ({}, {}) if functions is None else load_functions(functions)
    mistakes = Mistakes()
    parsed = parse_script(text, aggregates=aggregates, mistakes=mistakes)
    given = options.with_script(parsed, mistakes)
    settings, pairs = given.settings, dict(given.spark)
    if purpose == "run" and parsed.is_empty and not mistakes.found:
        raise InputError("The script has nothing to run: declare at least one stream and one view on it.")
    check_paths([table for table in parsed.tables if table.name.upper() not in parsed.targets], mistakes)
    if not _is_left(parsed, mistakes) and not any(map(may_be_refreshed, mistakes.found)):
        mistakes.raise_any()
    reads_kafka = any(table.source.lower() == "kafka" for table in parsed.tables)
    pairs |= session_libraries(pairs, kafka=reads_kafka, stores=[*stores_of(parsed.tables), *folders])
    chosen = master or pairs.get("spark.master") or submitted_conf().get("spark.master")
    if parsed.has_deadlines and (slots := with_ingest_slot(chosen)):
        # the user's settings win
        master, pairs = None, {**slots, **pairs, "spark.master": slots["spark.master"]}
    engine = build_engine(master, pairs, settings, purpose)
    register(engine, registered, aggregates)
    engine.execute(parsed.without_settings, show)
    return engine, text


def _is_left(script: Statements, mistakes: Mistakes) -> bool:
    """Whether a view or an insert of a script is left that does not follow from a mistake."""
    from penstock.sql.script.mistakes import read_by

    known = {table.name.upper() for table in script.tables}
    views = mistakes.independent({view.name: view for view in script.views}, known)
    known.update(map(str.upper, views))
    needed = ((insert.table, *read_by(insert.query)) for insert in script.inserts)
    is_left = bool(views) or bool(script.apart)
    return is_left or any(not mistakes.follow(each, known) for each in needed)


def tell_warnings(engine: Engine, console: Console) -> None:
    """Print the warnings of an engine, equal ones of several views in one line."""
    for warning in merged_warnings(engine.warnings):
        console.print(f"warning: {warning}", style="yellow")


def merged_warnings(warnings: Iterable[str]) -> Iterator[str]:
    """Yield warnings, one for all views and tables that have the same.

    Args:
        warnings: each a name, a colon and a text.

    Example:
        >>> list(merged_warnings(["a: no files", "b: no header", "c: no files"]))
        ['a, c: no files', 'b: no header']
    """
    names: dict[str, list[str]] = {}
    for warning in warnings:
        name, _, text = warning.partition(": ")
        names.setdefault(text, []).append(name)
    for text, found in names.items():
        shown = [*found[:_NAMED], f"{len(found) - _NAMED} more"] if len(found) > _NAMED + 1 else found
        yield f"{', '.join(shown)}: {text}"


def build_engine(master: str | None, conf: dict[str, str], settings: Settings, purpose: Purpose) -> Engine:
    """An engine on a session of its own; its modules load while the JVM starts.

    Raises:
        ConnectionFailedError: no usable Java, or the master does not answer.
    """
    from penstock.spark.sessions.build import build_session

    with ThreadPoolExecutor(1, "penstock-spark") as starter:
        session = starter.submit(build_session, master, conf, purpose=purpose)
        from penstock.spark.engine import Engine

        return Engine(session.result(), settings)


@contextmanager
def told_page(
    console: Console,
    folder: str,
    address: str | None,
    token: str | None,
    metrics: str | None = None,
    script: Asked | None = None,
) -> Iterator[None]:
    """Shows a run in a browser and serves its metrics as long as the block lasts, and prints where.

    Args:
        console: where to.
        folder: the results folder of the run.
        address: `[HOST:]PORT`; None: it is not shown.
        token: what requests have to bring, if one is given.
        metrics: `[HOST:]PORT` of the metrics without the page; None: the page alone has them.
        script: by which the page answers what needs Spark; None: it does not.

    Raises:
        InputError: the address cannot be used.
    """
    from penstock.page.child import page_address, page_beside
    from penstock.page.listening import Place

    given = (("Page", "--page", address), ("Metrics", "--metrics", metrics))
    with ExitStack() as held:
        places = []
        for what, option, where in given:
            if where is not None:
                place = Place.taken(*page_address(where, option), token, metrics_alone=option == "--metrics")
                held.callback(place.listening.close)
                console.print(f"{what}: {place.address}", soft_wrap=True, highlight=False, markup=False)
                places.append(place)
        if places:
            held.enter_context(page_beside(folder, *places, script=script))
        yield


def session_libraries(conf: dict[str, str], *, kafka: bool, stores: Iterable[str]) -> Mapping[str, str]:
    """The Spark settings that add what a script needs beyond Spark's own jars; prints where it is from.

    Raises:
        InputError: a variable of the environment names a folder without it.
    """
    from penstock.spark.sessions.connector import kafka_connector
    from penstock.spark.sessions.file_systems import file_systems
    from penstock.spark.sessions.libraries import find_libraries

    needed = file_systems(map(str, stores))
    if kafka:
        needed.append(kafka_connector())
    settings: dict[str, str] = {}
    for found in find_libraries(needed, conf):
        Console(stderr=True, soft_wrap=True).print(str(found), highlight=False, markup=False)
        settings |= found.conf
    return settings


def register(engine: Engine, functions: Entries, aggregates: Entries) -> None:
    """Register what `load_functions` gives."""
    for name, (function, returns) in functions.items():
        engine.function(name, function, returns)
    for name, (given, returns) in aggregates.items():
        engine.aggregate(name, given, returns)


def load_functions(path: Path) -> tuple[Entries, Entries]:
    """What a module's FUNCTIONS and AGGREGATES say: name -> (what is called, SQL type of its result).

    Raises:
        InputError: the file does not exist, fails, or defines neither.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"--functions {path}: this Python file does not exist.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"--functions {path}: {type(error).__name__}: {error}") from error
    if not (hasattr(module, "FUNCTIONS") or hasattr(module, "AGGREGATES")):
        raise InputError(
            f"--functions {path}: the file must define FUNCTIONS = {_FUNCTIONS}, AGGREGATES = {_AGGREGATES} or both"
        )
    functions, aggregates = getattr(module, "FUNCTIONS", {}), getattr(module, "AGGREGATES", {})
    if not isinstance(functions, dict) or not all(map(_is_entry, functions.items())):
        raise InputError(f"--functions {path}: the file must define FUNCTIONS = {_FUNCTIONS}")
    if not isinstance(aggregates, dict):
        raise InputError(
            f"--functions {path}: AGGREGATES is a {type(aggregates).__name__}; write AGGREGATES = {_AGGREGATES}"
        )
    for entry in aggregates.items():
        if not _is_entry(entry):
            raise InputError(
                f"--functions {path}: AGGREGATES has {entry[0]!r}: {entry[1]!r}; write AGGREGATES = {_AGGREGATES}"
            )
    return functions, aggregates


def _is_entry(entry: tuple[object, object]) -> bool:
    name, given = entry
    return (
        isinstance(name, str)
        and isinstance(given, tuple)
        and len(given) == 2
        and callable(given[0])
        and isinstance(given[1], str)
    )
