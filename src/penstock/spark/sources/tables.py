"""CREATE TABLE to a source: checks everything before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from penstock.errors import (
    ConnectionFailedError,
    InputError,
    SqlError,
    UnknownNameError,
    UnsupportedError,
    meant,
)
from penstock.settings import Settings
from penstock.spark.recovery.messages import first_line
from penstock.spark.sessions.file_systems import is_left_to_spark, object_address
from penstock.spark.sessions.store_access import configure, require_classes
from penstock.spark.sources.columns import check_columns
from penstock.spark.sources.declared_columns import declared_columns
from penstock.spark.sources.delta_tables import open_delta
from penstock.spark.sources.event_times import StoredTimes, stored_times
from penstock.spark.sources.file_frames import (
    TOLERANT_SOURCES,
    folder_option,
    reader_at_rest,
    tolerant_files,
)
from penstock.spark.sources.json_source import JsonSource
from penstock.spark.sources.kafka_tables import open_kafka
from penstock.spark.sources.long_lines import line_ends
from penstock.spark.sources.offenders import CHECKED, ORC, PARQUET
from penstock.spark.sources.option_paths import FILE_SOURCES, check_path
from penstock.spark.sources.parquet_checks import nanosecond_columns, nanoseconds_refused
from penstock.spark.sources.parquet_source import ParquetSource, is_plain_folder, is_plain_prefix
from penstock.spark.sources.patterns import (
    absolute,
    base_path,
    by_name,
    files_among_others,
    table_path,
)
from penstock.spark.sources.providers import (
    SourceProvider,
    StreamTable,
    refuse_unknown,
    registered_names,
    registered_provider,
)
from penstock.spark.sources.reader_options import (
    COMMON,
    COMMON_REGISTERED,
    by_plain_name,
    known_options,
    plain_option,
    reader_options,
)
from penstock.spark.sources.replay import Pace, ReplaySource
from penstock.spark.sources.sampled_files import sample
from penstock.spark.sources.source import DataFrameSource, Source, TimedSource, stamped
from penstock.spark.sources.stored_fields import StoredFields, records_kind, stored_fields, without_format
from penstock.spark.sources.topics import TopicsSource
from penstock.sql.script.statements import SINKS, CreateTable

T = TypeVar("T")

#: options of a replay beyond the stored table's own
REPLAY_OPTIONS = ("path", "arrivaltime", "speed", "rowspertrigger", "format")
#: options that only a streaming read knows
STREAMING_OPTIONS = (
    "maxfilespertrigger",
    "maxbytespertrigger",
    "latestfirst",
    "maxfileage",
    "cleansource",
    "retain",
)
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
_KINDS = {"parquet": PARQUET, "orc": ORC}


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
    built_in = BUILT_IN.get(table.source)
    provider = built_in or _registered(table)
    common = COMMON_REGISTERED if built_in is None else COMMON
    known = by_plain_name((*provider.options(table.options), *common))
    _check_options(table, known)
    if built_in is None:
        refuse_unknown(table, known)
    options = {plain_option(name): value for name, value in table.options.items()}
    event_time, arrival = options.pop("eventtime", None), options.pop("arrival", None)
    written = options.pop("eventtimeformat", None)
    options.pop("retain", None)
    if written is not None and event_time is None:
        message = "event_time_format needs the option event_time 'column'."
        raise SqlError(f"table {table.name}: {message}", *table.at("event_time_format"))
    if arrival is not None:
        _check_arrival(table, event_time)
    declared = declared_columns(table)
    fields = stored_fields(table, declared, options, records_kind(table, options))
    opened = StreamTable(table, declared, options, event_time, written, arrival, settings, fields)
    source = provider.open(spark, opened)
    if arrival is not None and isinstance(source, DataFrameSource):
        source = stamped(source, arrival)
    elif arrival is not None and built_in is None:
        message = f"source {table.source} cannot stamp its tuples. Remove the option arrival; event_time may name one of its columns."
        raise SqlError(f"table {table.name}: {message}", *table.at("arrival"))
    if isinstance(source, DataFrameSource | ParquetSource | JsonSource | TopicsSource):
        source = _timed(spark, table, source, written)
    try:
        check_columns(table.name, source.schema, source.event_time)
    except InputError as error:
        about = next((column.name for column in table.columns if f"column {column.name} " in str(error)), "")
        if arrival is not None and f"column {arrival} " in str(error):
            about = "arrival"
        part = "event_time" if "event_time" in str(error) else about
        raise SqlError(str(error), *table.at(part)) from error
    return source


def _registered(table: CreateTable) -> SourceProvider:
    """The provider of another package.

    Raises:
        UnsupportedError: no package registers the source, or it does not load.
    """
    provider = registered_provider(table)
    if provider is None and table.source in SINKS:
        raise UnsupportedError(
            f"table {table.name}: {table.source} is a sink, and nothing writes to it. Add INSERT INTO {table.name} SELECT ..., or "
            "remove the table.",
            *table.at("using"),
        )
    if provider is None:
        known = (*BUILT_IN, *registered_names())
        raise UnsupportedError(
            f"table {table.name}: source {table.source} is not supported{meant(table.source, known)} Use {', '.join(known)}",
            *table.at("using"),
        )
    return provider


def _timed(spark: SparkSession, table: CreateTable, source: TimedSource, written: str | None) -> TimedSource:
    """A source with its event time as a TIMESTAMP, where an option says how it is stored."""
    if written is None or source.event_time is None:
        return source
    return source.timed(event_times_of(spark, table, source.schema, source.event_time, written))


def event_times_of(
    spark: SparkSession, table: CreateTable, stored: StructType, event_time: str, written: str
) -> StoredTimes:
    """How the event time of a table is stored.

    Raises:
        UnknownNameError, SqlError: as `stored_times`, with the place in the statement.
    """
    try:
        return stored_times(spark, table.name, stored, event_time, written)
    except UnknownNameError as error:
        raise error.at(*table.at("event_time")) from error
    except InputError as error:
        raise SqlError(str(error), *table.at("event_time_format")) from error


def open_files_at_rest(
    spark: SparkSession, table: CreateTable
) -> tuple[str, StructType, Mapping[str, str], StoredFields | None]:
    """What is needed to read a static table: its path, its records, the reader's options, and how columns are taken from records.

    Raises:
        InputError, ConnectionFailedError: as `open_table`.
    """
    _check_options(table, known_options(table.source))
    options = {plain_option(name): value for name, value in table.options.items()}
    options.pop("static", None)
    declared = declared_columns(table)
    fields = stored_fields(table, declared, options, records_kind(table, options))
    options = without_format(table, options)
    streaming = [name for name in table.options if plain_option(name) in STREAMING_OPTIONS]
    if streaming:
        raise SqlError(
            f"table {table.name}: {streaming[0]} is an option of streams, but the table is static. Remove it.",
            *table.at(streaming[0]),
        )
    path = _path(spark, table, options, is_stream=False)
    reader = spark.read.format(table.source.lower()).options(**options)
    schema = declared if fields is None else fields.stored
    return path, schema or inferred_columns(table, path, reader), options, fields


def stream_source(frame: DataFrame, event_time: str | None) -> DataFrameSource:
    """A source over any streaming DataFrame."""
    return DataFrameSource(
        schema=frame.schema,
        event_time=event_time,
        open=lambda _: frame,
        why="the source is a streaming DataFrame",
    )


def _open_files(spark: SparkSession, opened: StreamTable) -> Source:
    table, event_time, settings = opened.statement, opened.event_time, opened.settings
    kind, options, in_scan = table.source, without_format(table, opened.options), opened.arrival is None
    written = options.get("path", "")
    path = _path(spark, table, options)
    at_rest = {name: value for name, value in options.items() if name not in STREAMING_OPTIONS}
    reading = spark.read.format(kind).options(**at_rest)
    schema, fields = opened.stored or inferred_columns(table, path, reading), opened.fields
    options.setdefault("maxfileage", _ANY_AGE)
    if kind == "parquet" and in_scan and (is_plain_folder(path) or is_plain_prefix(written)):
        return ParquetSource(schema, event_time, path, options, settings.map_in_scan)
    if kind in TOLERANT_SOURCES:
        files = tolerant_files(kind, path, schema, options, at_rest, event_time)
        behind = files.behind
        if kind == "json" and in_scan and not at_rest and is_plain_folder(path):
            scanned = JsonSource(behind, files.records, files.apart, path, settings)
            return scanned if fields is None else scanned.of_fields(fields)
        if kind == "json" and in_scan:
            needs = (
                f"the option {next(iter(at_rest))}" if at_rest else "a path that is not a plain local folder"
            )
            behind = replace(behind, why=f"{behind.why}: {needs} needs its reader")
        return behind if fields is None else behind.of_fields(fields)
    why = f"{kind} files"
    if kind == "parquet" and is_left_to_spark(written):
        why = "paths of this scheme are left to Spark; write s3:// or az:// for workers to read them"
    elif kind == "parquet":
        why = "the path is not a plain folder, and only Spark turns partition folders into columns"
    return DataFrameSource(
        schema=schema,
        event_time=event_time,
        open=lambda session: (
            session.readStream.schema(schema)
            .format(kind)
            .options(**{**CHECKED, **folder_option(path), **options})
            .load(table_path(path))
        ),
        why=why,
        read=lambda session, paths, more: (
            reader_at_rest(session, kind, path, {**at_rest, **more}).schema(schema).load(by_name(paths))
        ),
        kind=_KINDS.get(kind, kind),
        line_ends=line_ends(kind, at_rest),
    )


def inferred_columns(table: CreateTable, path: str, reader: DataFrameReader) -> StructType:
    """The columns of files, of a table that declares none.

    Raises:
        ConnectionFailedError: there are no files yet, or Spark does not read them.
        InputError: they have no columns.
    """
    try:
        schema = _loaded(reader, path).schema
    except PySparkException as error:
        message = first_line(error)
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA" or (
            error.getCondition() == "PATH_NOT_FOUND" and object_address(path) is not None
        ):
            message = f"{path} is empty: declare the columns in CREATE TABLE, or add a file."
        elif error.getCondition() == "PARQUET_TYPE_ILLEGAL" and (columns := nanosecond_columns(sample(path))):
            message = nanoseconds_refused(columns)
        raise ConnectionFailedError(f"table {table.name}: {message}", *table.at("path")) from error
    if not schema.fields:
        raise InputError(
            f"table {table.name}: {path} has no columns. Declare them in CREATE TABLE, or add a file."
        )
    return schema


def _loaded(reader: DataFrameReader, path: str) -> DataFrame:
    """A path's files, of which Spark opens some to know the columns: only files are among them."""
    files = files_among_others(path)
    if files is None:
        return reader.load(table_path(path))
    return reader.options(**base_path(path)).load(by_name(files))


def _open_rate(spark: SparkSession, opened: StreamTable) -> Source:
    frame = _guarded(
        opened.statement, lambda: spark.readStream.format("rate").options(**opened.options).load()
    )
    return stream_source(frame, opened.event_time)


def _open_replay(spark: SparkSession, opened: StreamTable) -> Source:
    table, options = opened.statement, opened.options
    event_time, written = opened.event_time, opened.event_time_format
    source = {name: value for name, value in options.items() if name not in REPLAY_OPTIONS}
    path = _path(spark, table, dict(options))
    arrival = options.get("arrivaltime", event_time)
    if arrival is None:
        raise InputError(
            f"table {table.name}: a replay needs the option arrival_time or event_time. Set it to the column with the arrival time."
        )
    reader = spark.read.format(options.get("format", "parquet")).options(**source)
    schema = opened.stored or inferred_columns(table, path, reader)
    stored = _guarded(table, lambda: reader.schema(schema).load(table_path(path)))
    if opened.fields is not None:
        stored = opened.fields.of(stored)
    if arrival not in stored.columns:
        raise UnknownNameError(
            f"table {table.name}: arrival_time names column {arrival}, which does not exist; "
            f"existing columns: {', '.join(stored.columns)}",
            *table.at("arrival_time"),
        )
    if written is not None and event_time is not None:
        stored = event_times_of(spark, table, stored.schema, event_time, written).of(stored)
    kind = stored.schema[arrival].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise SqlError(
            f"table {table.name}: arrival_time column {arrival} is {kind.simpleString()}, not a timestamp; "
            "declare it TIMESTAMP, or use it as event_time too, with event_time_format",
            *table.at("arrival_time"),
        )
    check_columns(table.name, stored.schema, event_time)
    pace = Pace.of(table, options)
    in_scan = opened.settings.map_in_scan
    return ReplaySource(stored.schema, stored.toArrow, event_time, arrival, pace, in_scan)


def _check_arrival(table: CreateTable, event_time: str | None) -> None:
    """Makes sure that the tuples of a table may be stamped with the time of their batch."""
    if table.source == "replay":
        message = "a replay has the arrival time arrival_time. Remove the option `arrival`; event_time may name that column."
        raise SqlError(f"table {table.name}: {message}", *table.at("arrival"))
    if event_time is not None:
        message = "set either `arrival` or `event_time`, not both"
        raise SqlError(f"table {table.name}: {message}", *table.at("event_time"))


def _path(spark: SparkSession, table: CreateTable, options: dict[str, str], *, is_stream: bool = True) -> str:
    path = options.pop("path", None)
    if path is None:
        raise InputError(
            f"table {table.name}: set the option path. Write OPTIONS (path '/data/{table.name}')."
        )
    check_path(table, path)
    if (address := object_address(path)) is not None:
        try:
            require_classes(spark, address.scheme)
            if not is_left_to_spark(path):
                configure(spark, address)
        except ConnectionFailedError as error:
            raise ConnectionFailedError(f"table {table.name}: {error}", *table.at("path")) from error
    if is_stream and Path(path).is_file() and table.source != "replay":
        raise SqlError(
            f"table {table.name}: path {path} is a file. A stream reads a folder: name its folder.",
            *table.at("path"),
        )
    return absolute(path)


def _check_options(table: CreateTable, known: Mapping[str, str]) -> None:
    """What is nearly an option of Penstock or of Spark's reader is a slip; further ones are handed to Spark."""
    for name, value in table.options.items():
        plain = plain_option(name)
        if plain not in known and not plain.startswith("kafka."):
            nearest = get_close_matches(plain, known, 1, cutoff=0.8)
            if nearest:
                raise UnknownNameError(
                    f"table {table.name}: option {name} does not exist; did you mean {known[nearest[0]]}?",
                    *table.at(name),
                )
        if plain in _NUMBERS and not (value.isdecimal() and int(value) > 0):
            raise SqlError(
                f"table {table.name}: {name} is '{value}'. Write a whole number from 1.", *table.at(name)
            )


def _guarded(table: CreateTable, load: Callable[[], T]) -> T:
    try:
        return load()
    except PySparkException as error:
        raise ConnectionFailedError(f"table {table.name}: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A source of Penstock's own: its name after USING, and what opens it."""

    name: str
    opens: Callable[[SparkSession, StreamTable], Source]

    def options(self, given: Mapping[str, str]) -> Iterable[str]:
        return reader_options(self.name, given.get("format"))

    def open(self, spark: SparkSession, table: StreamTable) -> Source:
        return self.opens(spark, table)


BUILT_IN: Mapping[str, SourceProvider] = {
    each.name: each
    for each in (
        *(_BuiltIn(kind, _open_files) for kind in FILE_SOURCES),
        _BuiltIn("kafka", open_kafka),
        _BuiltIn("delta", open_delta),
        _BuiltIn("rate", _open_rate),
        _BuiltIn("replay", _open_replay),
    )
}
