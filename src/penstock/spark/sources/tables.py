"""CREATE TABLE to a source: checks everything before anything starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampNTZType, TimestampType

from penstock.errors import ConnectionFailedError, InputError, SqlError, UnknownNameError, UnsupportedError
from penstock.settings import Settings
from penstock.spark.recovery.messages import first_line, quoted
from penstock.spark.results.read import BATCH, ORDINAL
from penstock.spark.sources.kafka_source import open_kafka
from penstock.spark.sources.network import open_network
from penstock.spark.sources.offenders import CHECKED, read_exactly
from penstock.spark.sources.parquet_source import ParquetSource, is_plain_folder
from penstock.spark.sources.reader_options import known_options, plain_option
from penstock.spark.sources.replay import Pace, ReplaySource
from penstock.spark.sources.source import DataFrameSource, Source, stamped
from penstock.spark.storage.names import check_length
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.parquet_files import local_path
from penstock.sql.script.script import CreateTable

T = TypeVar("T")

#: column names that the results folder uses itself
RESERVED = frozenset(
    {"queries", "revision", "coverage", "slack", "is_final", "op", CORRUPT, REASON, ORIGIN, BATCH, ORDINAL}
)
#: options of a replay beyond the stored table's own
_REPLAY_OPTIONS = ("path", "arrivaltime", "speed", "rowspertrigger", "format")
#: sources that know when their tuples come, and how they say it
_PLAYED = {"replay": "arrival_time", "network": "its column arrived"}
#: options that only a streaming read knows
_STREAMING_OPTIONS = ("maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "cleansource")
#: options that count something
_NUMBERS = (
    "maxfilespertrigger",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "rowspertrigger",
    "rowspersecond",
)
#: Spark passes over files that are older than the newest by more than its maxFileAge, and says nothing
_ANY_AGE = "36500d"
#: what files are called in reasons
_KINDS = {"parquet": "Parquet", "orc": "ORC"}
#: formats whose reader may meet records that do not fit, and its options for going on
TOLERANT_SOURCES = ("csv", "json")
TOLERANT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
FILE_SOURCES = ("parquet", "csv", "json", "orc", "text")
SOURCES = (*FILE_SOURCES, "kafka", "rate", "replay", "network")


def open_table(spark: SparkSession, table: CreateTable, settings: Settings) -> Source:
    """Opens the stream a CREATE TABLE declares.

    Args:
        spark: the session.
        table: the statement.
        settings: frozen settings.

    Raises:
        UnsupportedError: a source Penstock does not read.
        ConnectionFailedError: the path, broker or topic cannot be reached.
        UnknownNameError: an option names a column that is not there.
        InputError: an option is missing or out of range.
    """
    _check_options(table)
    options = {plain_option(name): value for name, value in table.options.items()}
    event_time, arrival = options.pop("eventtime", None), options.pop("arrival", None)
    kind = table.source.lower()
    if arrival is not None:
        _check_arrival(table, kind, event_time)
    if kind == "kafka":
        source: Source = open_kafka(spark, table, _declared(table), options, event_time, settings, arrival)
    elif kind == "rate":
        frame = _guarded(table, lambda: spark.readStream.format("rate").options(**options).load())
        source = stream_source(frame, event_time)
    elif kind == "replay":
        source = _open_replay(spark, table, options, event_time, settings)
    elif kind == "network":
        source = open_network(table, options, event_time, in_scan=settings.map_in_scan)
    elif kind in FILE_SOURCES:
        source = _open_files(spark, table, kind, options, event_time, settings, in_scan=arrival is None)
    else:
        raise UnsupportedError(
            f"table {table.name}: source {table.source} is not supported; allowed: {', '.join(SOURCES)}",
            *table.at("using"),
        )
    if arrival is not None and isinstance(source, DataFrameSource):
        source = stamped(source, arrival)
    try:
        check_columns(table.name, source.schema, source.event_time)
    except InputError as error:
        about = next((column.name for column in table.columns if f"column {column.name} " in str(error)), "")
        if arrival is not None and f"column {arrival} " in str(error):
            about = "arrival"
        part = "event_time" if "event_time" in str(error) else about
        raise SqlError(str(error), *table.at(part)) from error
    return source


def open_files_at_rest(spark: SparkSession, table: CreateTable) -> tuple[str, StructType, Mapping[str, str]]:
    """What is needed to read a static table: its path, its columns and the reader's options.

    Raises:
        InputError, ConnectionFailedError: as `open_table`.
    """
    _check_options(table)
    options = {plain_option(name): value for name, value in table.options.items()}
    options.pop("static", None)
    streaming = [name for name in table.options if plain_option(name) in _STREAMING_OPTIONS]
    if streaming:
        raise SqlError(
            f"table {table.name}: {streaming[0]} is an option of streams, and the table is static",
            *table.at(streaming[0]),
        )
    path = _path(table, options, is_stream=False)
    reader = spark.read.format(table.source.lower()).options(**options)
    schema = _declared(table) or _guarded(table, lambda: reader.load(path).schema)
    if not schema.fields:
        raise InputError(f"table {table.name}: {path} has no columns; declare them in CREATE TABLE")
    return path, schema, options


def stream_source(frame: DataFrame, event_time: str | None) -> DataFrameSource:
    """A source over any streaming DataFrame."""
    return DataFrameSource(
        schema=frame.schema,
        event_time=event_time,
        open=lambda _: frame,
        why="the source is a streaming DataFrame",
    )


def check_columns(stream: str, schema: StructType, event_time: str | None) -> None:
    """Refuses reserved and repeated column names and an event time that is no timestamp.

    Raises:
        InputError: a column name is reserved or stands twice.
        UnknownNameError: the event time column is not there.
    """
    if not re.fullmatch(r"\w[\w-]*", stream):
        raise InputError(
            f"stream {stream}: a stream's name is also a folder's; allowed: letters, digits, _ and -"
        )
    check_length("stream", stream)
    seen: set[str] = set()
    for field in schema:
        name = field.name.lower()
        if name in RESERVED or name.startswith(("__", "_derived_")):
            raise InputError(
                f"stream {stream}: column name {field.name} is reserved; rename it (reserved: "
                f"{', '.join(sorted(RESERVED))} and names that begin with two underscores or _derived_)"
            )
        if name in seen:
            raise InputError(
                f"stream {stream}: column {field.name} stands twice; names differ by more than case"
            )
        seen.add(name)
    if event_time is None:
        return
    if event_time not in schema.fieldNames():
        raise UnknownNameError(
            f"stream {stream}: event_time names column {event_time}, which does not exist; "
            f"existing columns: {', '.join(schema.fieldNames())}"
        )
    kind = schema[event_time].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise InputError(
            f"stream {stream}: event_time column {event_time} is {kind.simpleString()}; it must be a timestamp"
        )


def _declared(table: CreateTable) -> StructType | None:
    if not table.columns:
        return None
    text = ", ".join(f"{quoted(column.name)} {column.type_sql}" for column in table.columns)
    try:
        return _columns(text)
    except PySparkException as error:
        for column in table.columns:
            try:
                _columns(f"{quoted(column.name)} {column.type_sql}")
            except PySparkException as own:
                raise SqlError(f"table {table.name}: {first_line(own)}", *table.at(column.name)) from own
        raise SqlError(f"table {table.name}: {first_line(error)}") from error


def _columns(text: str) -> StructType:
    kind = StructType.fromDDL(text)
    return kind if isinstance(kind, StructType) else StructType().add("value", kind)


def _open_files(
    spark: SparkSession,
    table: CreateTable,
    kind: str,
    options: Mapping[str, str],
    event_time: str | None,
    settings: Settings,
    *,
    in_scan: bool,
) -> Source:
    options = dict(options)
    path = _path(table, options)
    declared = _declared(table)
    at_rest = {name: value for name, value in options.items() if name not in _STREAMING_OPTIONS}
    reading = spark.read.format(kind).options(**at_rest)
    schema = declared or _guarded(table, lambda: reading.load(path).schema)
    options.setdefault("maxfileage", _ANY_AGE)
    if not schema.fields:
        raise InputError(f"table {table.name}: {path} has no columns; declare them in CREATE TABLE")
    if kind == "parquet" and in_scan and is_plain_folder(path):
        return ParquetSource(schema, event_time, path, options, settings.map_in_scan)
    if kind in TOLERANT_SOURCES:
        return _tolerant_files(kind, path, schema, options, at_rest, event_time)
    why = (
        f"{kind} files"
        if kind != "parquet"
        else "the path is no plain local folder, and only Spark turns partition folders into columns"
    )
    return DataFrameSource(
        schema=schema,
        event_time=event_time,
        open=lambda session: (
            session.readStream.schema(schema).format(kind).options(**{**CHECKED, **options}).load(path)
        ),
        why=why,
        read=lambda session, paths: read_exactly(
            paths, lambda some: _at_rest(session, kind, path, at_rest).schema(schema).load(some)
        ),
        kind=_KINDS.get(kind, kind),
    )


def _at_rest(spark: SparkSession, kind: str, path: str, options: Mapping[str, str]) -> DataFrameReader:
    """A reader of single files of a stream's folder that sees the columns a stream sees."""
    reader = spark.read.format(kind).options(**{**CHECKED, **options, "__globPaths__": "false"})
    return reader.option("basePath", path) if Path(local_path(path) or path).is_dir() else reader


def _tolerant_files(
    kind: str,
    path: str,
    schema: StructType,
    options: Mapping[str, str],
    at_rest: Mapping[str, str],
    event_time: str | None,
) -> DataFrameSource:
    """CSV and JSON: a record that does not fit the schema is handed on with its text and a reason."""
    wide = with_corrupt(schema)

    def load(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(wide).format(kind).options(**options)
        return set_apart(reader.options(**TOLERANT).load(path), kind, schema)

    def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        reader = _at_rest(spark, kind, path, at_rest).schema(wide).options(**TOLERANT)
        return set_apart(read_exactly(paths, reader.load), kind, schema)

    return DataFrameSource(schema, event_time, load, f"{kind} is decoded by Spark", read, kind)


def with_corrupt(schema: StructType) -> StructType:
    """The columns to read with TOLERANT: those of a table and CORRUPT."""
    return StructType([*schema.fields]).add(CORRUPT, StringType())


def set_apart(frame: DataFrame, kind: str, schema: StructType) -> DataFrame:
    """Says which records do not fit.

    Args:
        frame: of `with_corrupt(schema)`, read with TOLERANT.
        kind: the format.
        schema: the table's columns.

    Returns:
        The table's columns, CORRUPT and REASON, which are NULL where a record fits, and ORIGIN.
    """
    undecodable = F.lit(False)
    for field in schema:
        if isinstance(field.dataType, StringType):
            undecodable = undecodable | F.coalesce(
                F.contains(F.col(quoted(field.name)), F.lit("\ufffd")), F.lit(False)
            )
    columns = [F.col(quoted(field.name)) for field in schema]
    reason = F.when(F.col(CORRUPT).isNotNull(), f"malformed {kind} record").when(undecodable, "not UTF-8")
    record = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*columns))).cast("binary")
    return frame.select(
        *columns,
        F.when(reason.isNotNull(), record).alias(CORRUPT),
        reason.alias(REASON),
        F.col("_metadata.file_path").alias(ORIGIN),
    )


def _open_replay(
    spark: SparkSession,
    table: CreateTable,
    options: Mapping[str, str],
    event_time: str | None,
    settings: Settings,
) -> Source:
    source = {name: value for name, value in options.items() if name not in _REPLAY_OPTIONS}
    path = _path(table, dict(options))
    arrival = options.get("arrivaltime", event_time)
    if arrival is None:
        raise InputError(f"table {table.name}: a replay needs the option arrival_time (or event_time)")
    declared = _declared(table)
    reader = spark.read.format(options.get("format", "parquet")).options(**source)
    stored = _guarded(table, lambda: (reader.schema(declared) if declared else reader).load(path))
    if arrival not in stored.columns:
        raise UnknownNameError(
            f"table {table.name}: arrival_time names column {arrival}, which does not exist; "
            f"existing columns: {', '.join(stored.columns)}",
            *table.at("arrival_time"),
        )
    kind = stored.schema[arrival].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise SqlError(
            f"table {table.name}: arrival_time column {arrival} is {kind.simpleString()}, not a timestamp",
            *table.at("arrival_time"),
        )
    check_columns(table.name, stored.schema, event_time)
    pace = Pace.of(table, options)
    return ReplaySource(stored.schema, stored.toArrow, event_time, arrival, pace, settings.map_in_scan)


def _check_arrival(table: CreateTable, kind: str, event_time: str | None) -> None:
    """Makes sure that the tuples of a table may be stamped with the time of their batch."""
    if kind in _PLAYED:
        message = (
            f"a {kind} says when its tuples came by {_PLAYED[kind]}; event_time may name the same column"
        )
        raise SqlError(f"table {table.name}: {message}", *table.at("arrival"))
    if event_time is not None:
        message = "arrival names the column of the time at which tuples came, which is the table's event time; leave one of both out"
        raise SqlError(f"table {table.name}: {message}", *table.at("event_time"))


def _path(table: CreateTable, options: dict[str, str], *, is_stream: bool = True) -> str:
    path = options.pop("path", None)
    if path is None:
        raise InputError(f"table {table.name}: the option path is missing")
    if "://" not in path and not any(sign in path for sign in "*?[{") and not Path(path).exists():
        raise ConnectionFailedError(f"table {table.name}: path {path} does not exist", *table.at("path"))
    if is_stream and Path(path).is_file() and table.source != "replay":
        raise SqlError(
            f"table {table.name}: path {path} is a file; a stream reads a folder, to which files are added",
            *table.at("path"),
        )
    return str(Path(path).resolve()) if "://" not in path else path


def _check_options(table: CreateTable) -> None:
    """What is nearly an option of Penstock or of Spark's reader is a slip; further ones are handed to Spark."""
    known = known_options(table.source, table.options.get("format"))
    for name, value in table.options.items():
        plain = plain_option(name)
        if plain not in known and not plain.startswith("kafka."):
            nearest = get_close_matches(plain, known, 1, cutoff=0.8)
            if nearest:
                raise UnknownNameError(
                    f"table {table.name}: there is no option {name}; did you mean {known[nearest[0]]}?",
                    *table.at(name),
                )
        if plain in _NUMBERS and not (value.isdecimal() and int(value) > 0):
            raise SqlError(
                f"table {table.name}: {name} is '{value}'; allowed: a whole number from 1", *table.at(name)
            )


def _guarded(table: CreateTable, load: Callable[[], T]) -> T:
    try:
        return load()
    except PySparkException as error:
        raise ConnectionFailedError(f"table {table.name}: {first_line(error)}") from error
