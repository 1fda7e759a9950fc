"""Names of the options that sources know: Penstock's own, and those of the readers of Spark 4."""

from __future__ import annotations

from collections.abc import Iterable

#: of every table
COMMON = ("event_time", "event_time_format", "arrival", "retain")
#: of tables whose source another package registers: its event time is a TIMESTAMP
COMMON_REGISTERED = ("event_time", "arrival", "retain")
_REPLAY = ("path", "arrival_time", "speed", "rows_per_trigger", "format")
_FILES = (
    "static",
    *("path", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles", "basePath"),
)
_FILE_STREAMS = (
    *("max_files_per_trigger", "max_bytes_per_trigger", "latest_first", "max_file_age", "maxCachedFiles"),
    *("fileNameOnly", "cleanSource", "sourceArchiveDir", "discardCachedInputRatio"),
)
_TEXTUAL = (
    *(
        "mode",
        "columnNameOfCorruptRecord",
        "dateFormat",
        "timestampFormat",
        "timestampNTZFormat",
        "multiLine",
    ),
    *(
        "encoding",
        "charset",
        "lineSep",
        "samplingRatio",
        "locale",
        "timeZone",
        "enableDateTimeParsingFallback",
    ),
    *("inferSchema", "singleVariantColumn"),
)
_FORMATS = {
    "csv": (
        *_TEXTUAL,
        *(
            "sep",
            "delimiter",
            "quote",
            "escape",
            "comment",
            "header",
            "enforceSchema",
            "ignoreLeadingWhiteSpace",
        ),
        *("ignoreTrailingWhiteSpace", "nullValue", "nanValue", "positiveInf", "negativeInf", "emptyValue"),
        *(
            "maxColumns",
            "maxCharsPerColumn",
            "charToEscapeQuoteEscaping",
            "unescapedQuoteHandling",
            "preferDate",
        ),
        "columnPruning",
    ),
    "json": (
        *_TEXTUAL,
        *("format", "schema_include"),
        *(
            "primitivesAsString",
            "prefersDecimal",
            "allowComments",
            "allowUnquotedFieldNames",
            "allowSingleQuotes",
        ),
        *("allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars"),
        *("allowNonNumericNumbers", "dropFieldIfAllNull", "useUnsafeRow"),
    ),
    "parquet": ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
    "orc": ("mergeSchema",),
    "text": ("wholetext", "lineSep", "encoding"),
}
_OTHERS = {
    "kafka": (
        *("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "failOnDataLoss"),
        *("format", "schema_include"),
        *("schema.registry.url", "schema.registry.basic.auth.user.info", "schema.file", "schema.subject"),
        *("schema.message", "schema.framed"),
        *(
            "starting_offsets",
            "ending_offsets",
            "startingTimestamp",
            "endingTimestamp",
            "startingOffsetsByTimestamp",
        ),
        *("endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "kafkaConsumer.pollTimeoutMs"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "max_offsets_per_trigger"),
        *("min_offsets_per_trigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
        *("groupIdPrefix", "includeHeaders", "topic"),
    ),
    "delta": ("path", "starting_version", "skip_change_commits", "static"),
    "rate": ("rows_per_second", "rampUpTime", "numPartitions"),
}


#: options that another program's client reads, under these very names
_PASSED_ON = ("kafka.", "catalog.")


def plain_option(name: str) -> str:
    """An option as Spark reads it, which takes no notice of case: max_files_per_trigger is maxFilesPerTrigger."""
    return name if name.startswith(_PASSED_ON) else name.replace("_", "").lower()


def reader_options(source: str, stored: str | None = None) -> tuple[str, ...]:
    """Return the options of a built-in source as they are written, without those of every table.

    Args:
        source: the word after USING.
        stored: of a replay, the format of what it plays.
    """
    if source == "replay":
        return (*_REPLAY, *_FILES, *_FORMATS.get(stored or "parquet", ()))
    if source in _FORMATS:
        return (*_FILES, *_FILE_STREAMS, *_FORMATS[source])
    return _OTHERS.get(source, ())


def by_plain_name(names: Iterable[str]) -> dict[str, str]:
    """Return plain names of options to the names as they are written."""
    return {plain_option(name): name for name in names}


def known_options(source: str, stored: str | None = None) -> dict[str, str]:
    """Return all options of a table over a built-in source, by plain name; see `reader_options`."""
    return by_plain_name((*COMMON, *reader_options(source, stored)))
