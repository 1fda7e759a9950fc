"""Values in Avro or Protobuf: where their schemas are, and the readers that a worker makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.operators.wire.avro_programs import AvroSchema, AvroSchemaError
from penstock.operators.wire.protobuf_programs import ProtobufFiles, ProtobufSchemaError, protobuf_field
from penstock.operators.wire.readers import AVRO, AvroReader, ProtobufReader, Reader, WantedColumn
from penstock.operators.wire.value_decoder import UnknownSchemaError, ValueDecoder
from penstock.spark.tasks.schema_registry import RegisteredSchema, SchemaRegistry


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How values are encoded.

    Attributes:
        form: AVRO or PROTOBUF.
        registry: has the schema of each value, by the number before it; None: all values have `schema`.
        schema: a text of Avro, or a serialized FileDescriptorSet of Protobuf.
        message: name of the Protobuf message in `schema`; None: its first one.
        is_framed: whether values begin with zero and the number of their schema.
    """

    form: str
    registry: SchemaRegistry | None = None
    schema: bytes = field(default=b"", repr=False)
    message: str | None = None
    is_framed: bool = True

    def decoder(self, wanted: Sequence[WantedColumn], max_record_bytes: int) -> ValueDecoder:
        """What decodes values to columns; one for each task."""

        def readers(number: int, path: tuple[int, ...]) -> tuple[Reader, Sequence[bool]]:
            return self._reader(wanted, number, path)

        return ValueDecoder(wanted, self.form, readers, max_record_bytes, is_framed=self.is_framed)

    def _reader(
        self, wanted: Sequence[WantedColumn], number: int, path: tuple[int, ...]
    ) -> tuple[Reader, Sequence[bool]]:
        try:
            if self.registry is None:
                return self.reader_of_file(wanted, path if self.is_framed else None)
            found = self.registry.by_number(number)
            if found is None:
                raise UnknownSchemaError(f"the registry has no schema {number}")
            return self.reader_of(found, wanted, path)
        except (AvroSchemaError, ProtobufSchemaError, ValueError) as error:
            raise UnknownSchemaError(f"schema {number}: {error}") from None

    def reader_of_file(
        self, wanted: Sequence[WantedColumn], path: tuple[int, ...] | None = None
    ) -> tuple[Reader, Sequence[bool]]:
        """The reader of `schema`, and of each column whether the schema has its field.

        Args:
            wanted: the columns.
            path: of Protobuf, where a value says that its message is in the file; None: the named or the first one.

        Raises:
            AvroSchemaError, ProtobufSchemaError: it is none.
        """
        if self.form == AVRO:
            return _avro(self.schema.decode(errors="replace"), wanted)
        return _protobuf(ProtobufFiles.of_set(self.schema), self.message, path, wanted)

    def reader_of(
        self, found: RegisteredSchema, wanted: Sequence[WantedColumn], path: tuple[int, ...] | None = None
    ) -> tuple[Reader, Sequence[bool]]:
        """Likewise of a schema of the registry.

        Raises:
            AvroSchemaError, ProtobufSchemaError, ValueError: it is not one of this format, or cannot be read.
        """
        if found.kind.lower() != self.form:
            raise ValueError(f"it is {found.kind}, not {self.form.upper()}")
        if self.form == AVRO:
            if found.references:
                raise ValueError("it refers to other schemas, which is not supported")
            return _avro(found.text, wanted)
        assert self.registry is not None, "the schema is from there"
        return _protobuf(ProtobufFiles(self.registry.protobuf_files(found)), self.message, path, wanted)

    def field_names(self, found: RegisteredSchema | None) -> list[str]:
        """The fields of a schema of the registry, or of `schema`.

        Raises:
            AvroSchemaError, ProtobufSchemaError, ValueError: as above.
        """
        if self.form == AVRO:
            schema = AvroSchema(self.schema.decode(errors="replace") if found is None else found.text)
            return [each["name"] for each in schema.root["fields"]]
        if found is None:
            files = ProtobufFiles.of_set(self.schema)
        else:
            assert self.registry is not None, "the schema is from there"
            files = ProtobufFiles(self.registry.protobuf_files(found))
        return [each.name for each in files.message(self.message).fields]


def _avro(text: str, wanted: Sequence[WantedColumn]) -> tuple[Reader, Sequence[bool]]:
    schema = AvroSchema(text)
    return AvroReader(schema, wanted), [schema.field(each.path) is not None for each in wanted]


def _protobuf(
    files: ProtobufFiles, name: str | None, path: tuple[int, ...] | None, wanted: Sequence[WantedColumn]
) -> tuple[Reader, Sequence[bool]]:
    if path is None:
        message = files.message(name)
    else:
        message = files.message(None, path)
        if name is not None and name not in (message.name, message.full_name):
            raise ProtobufSchemaError(f"the value is a {message.full_name}, and schema.message is {name}")
    reader = ProtobufReader(message, wanted)
    return reader, [protobuf_field(message, each.path) is not None for each in wanted]
