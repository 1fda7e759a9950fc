"""Names of the options that sources know: Penstock's own, and those of the readers of Spark 4."""

from __future__ import annotations

from penstock.simulate.networks.settings import option_names

#: of every table
_ALWAYS = ("event_time", "event_time_format", "arrival")
#: of a network: how its packets are played
PLAYING = ("start", "speed", "rows_per_trigger")
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
        *("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "format", "failOnDataLoss"),
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
    "rate": ("rows_per_second", "rampUpTime", "numPartitions"),
    "network": (*option_names(), *PLAYING),
}


def plain_option(name: str) -> str:
    """An option as Spark reads it, which takes no notice of case: max_files_per_trigger is maxFilesPerTrigger."""
    return name if name.startswith("kafka.") else name.replace("_", "").lower()


def known_options(source: str, stored: str | None = None) -> dict[str, str]:
    """The options of a source: plain name -> the name as it is written.

    Args:
        source: the word after USING.
        stored: of a replay, the format of what it plays.
    """
    if source == "replay":
        own = (*_REPLAY, *_FILES, *_FORMATS.get(stored or "parquet", ()))
    elif source in _FORMATS:
        own = (*_FILES, *_FILE_STREAMS, *_FORMATS[source])
    else:
        own = _OTHERS.get(source, ())
    return {plain_option(name): name for name in (*_ALWAYS, *own)}
