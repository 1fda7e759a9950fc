"""The log sources of Windows as conditions on the channel and the number of an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sigma.pipelines.common import windows_logsource_mapping
from sigma.processing.conditions import LogsourceCondition
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations import AddConditionTransformation, FieldMappingTransformation
from sigma.rule import SigmaLogSource

#: what a field must be: one value, or one of several
_Condition = dict[str, int | str | list[str]]

_SYSMON = "Microsoft-Windows-Sysmon/Operational"
_KERNEL_FILE = "Microsoft-Windows-Kernel-File"
_POWERSHELL = "Microsoft-Windows-PowerShell/Operational"
_POWERSHELL_CLASSIC = "Windows PowerShell"
#: channel and numbers of the events of each category of Sigma's taxonomy
_CATEGORIES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "process_creation": (_SYSMON, (1,)),
    "file_change": (_SYSMON, (2,)),
    "network_connection": (_SYSMON, (3,)),
    "sysmon_status": (_SYSMON, (4, 16)),
    "process_termination": (_SYSMON, (5,)),
    "driver_load": (_SYSMON, (6,)),
    "image_load": (_SYSMON, (7,)),
    "create_remote_thread": (_SYSMON, (8,)),
    "raw_access_thread": (_SYSMON, (9,)),
    "process_access": (_SYSMON, (10,)),
    "file_event": (_SYSMON, (11,)),
    "registry_event": (_SYSMON, (12, 13, 14)),
    "registry_add": (_SYSMON, (12,)),
    "registry_delete": (_SYSMON, (12,)),
    "registry_set": (_SYSMON, (13,)),
    "registry_rename": (_SYSMON, (14,)),
    "create_stream_hash": (_SYSMON, (15,)),
    "pipe_created": (_SYSMON, (17, 18)),
    "wmi_event": (_SYSMON, (19, 20, 21)),
    "dns_query": (_SYSMON, (22,)),
    "file_delete": (_SYSMON, (23, 26)),
    "clipboard_capture": (_SYSMON, (24,)),
    "process_tampering": (_SYSMON, (25,)),
    "file_block_executable": (_SYSMON, (27,)),
    "file_block_shredding": (_SYSMON, (28,)),
    "file_executable_detected": (_SYSMON, (29,)),
    "sysmon_error": (_SYSMON, (255,)),
    "file_access": (_KERNEL_FILE, (12,)),
    "file_rename": (_KERNEL_FILE, (19,)),
    "ps_module": (_POWERSHELL, (4103,)),
    "ps_script": (_POWERSHELL, (4104,)),
    "ps_classic_start": (_POWERSHELL_CLASSIC, (400,)),
    "ps_classic_provider_start": (_POWERSHELL_CLASSIC, (600,)),
}
#: what else the events of a category have
_FURTHER: Mapping[str, _Condition] = {
    "registry_add": {"EventType": "CreateKey"},
    "registry_delete": {"EventType": "Delete*"},
    "registry_set": {"EventType": "SetValue"},
}
#: the channels of each service: pySigma's, and some that it does not know
_SERVICES: Mapping[str, Sequence[str]] = {
    **windows_logsource_mapping,
    "smbclient-connectivity": "Microsoft-Windows-SmbClient/Connectivity",
    "smbserver-connectivity": "Microsoft-Windows-SMBServer/Connectivity",
}


def windows() -> ProcessingPipeline:
    """Return the pipeline that adds the conditions of Windows log sources to rules."""
    return ProcessingPipeline(
        [
            ProcessingItem(
                AddConditionTransformation(condition),
                rule_conditions=[LogsourceCondition(product="windows", **{kind: value})],
            )
            for kind, value, condition in _conditions()
        ]
    )


def renamed(fields: Mapping[str, str]) -> ProcessingPipeline:
    """Return the pipeline that gives fields the names of columns.

    Args:
        fields: the column of each field.
    """
    if not fields:
        return ProcessingPipeline()
    columns: dict[str | None, str | list[str]] = {}
    columns.update(fields.items())
    return ProcessingPipeline([ProcessingItem(FieldMappingTransformation(columns))])


def is_known(source: SigmaLogSource) -> bool:
    """Return whether `windows` has the condition of a log source, or it needs none."""
    if source.product != "windows":
        return False
    return (source.category is None or source.category in _CATEGORIES) and (
        source.service is None or source.service in _SERVICES
    )


def _conditions() -> Iterator[tuple[str, str, _Condition]]:
    """Kind and value of each log source, and its condition."""
    for category, (channel, numbers) in _CATEGORIES.items():
        condition: _Condition = {"Channel": channel}
        # numbers in a list are numbers to pySigma too, whatever its annotation
        condition["EventID"] = numbers[0] if len(numbers) == 1 else list(numbers)  # type: ignore[arg-type]
        yield "category", category, condition | _FURTHER.get(category, {})
    for service, channels in _SERVICES.items():
        yield "service", service, {"Channel": channels if isinstance(channels, str) else list(channels)}
