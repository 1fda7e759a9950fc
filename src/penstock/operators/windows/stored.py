"""How the state of window views lies on disk: a line of JSON, then Arrow, never classes of this program.

{"format": 7, "tables": ["", "v"], ...}
an IPC stream for each table, one behind the other, and what else follows

The line ends in so many spaces that the streams begin at a multiple of eight bytes: Arrow computes on them as they lie, and
warns of every buffer that does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError

#: version of the stored state; another one is refused
STATE_VERSION = 7
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()
#: smaller tables are written faster as they are, and hardly larger
_WORTH_COMPRESSING = 2_048
_ALIGNMENT = 8
_REMEDY = "start with a new checkpoint and a new output folder"


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """What `packed` was given.

    Attributes:
        header: numbers, texts and lists of them.
        tables: by name.
        rest: bytes.
    """

    header: dict[str, Any]
    tables: dict[str, pa.Table]
    rest: bytes


def packed(
    tables: Mapping[str, pa.Table], header: Mapping[str, Any] | None = None, rest: bytes = b""
) -> bytes:
    """A part of the state in bytes: of tables that are slices only their own rows."""
    line = {"format": STATE_VERSION, "tables": list(tables), **(header or {})}
    sink = pa.BufferOutputStream()
    text = json.dumps(line, separators=(",", ":")).encode()
    sink.write(text + b" " * (-(len(text) + 1) % _ALIGNMENT) + b"\n")
    for table in tables.values():
        options = _COMPRESSED if table.nbytes >= _WORTH_COMPRESSING else _PLAIN
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table.combine_chunks())
    sink.write(rest)
    return bytes(sink.getvalue())


def unpacked(stored: bytes) -> Unpacked:
    """The part of the state that was packed.

    Raises:
        CheckpointError: another version of Penstock stored it.
    """
    try:
        line, _, _ = stored.partition(b"\n")
        header = json.loads(line)
        version = header.pop("format")
        names = header.pop("tables")
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"the state of the windows was stored by another version of Penstock; {_REMEDY}"
        ) from error
    if version != STATE_VERSION:
        raise CheckpointError(
            f"the state of the windows has version {version}, this program reads {STATE_VERSION}; {_REMEDY}"
        )
    reader = pa.BufferReader(stored)
    reader.seek(len(line) + 1)
    tables = {name: pa.ipc.open_stream(reader).read_all() for name in names}
    return Unpacked(header, tables, reader.read())
