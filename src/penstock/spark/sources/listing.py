"""Which files of a local folder Spark's file sources read."""

from __future__ import annotations

import os


def is_passed_over(name: str) -> bool:
    """Whether Spark passes over a file or folder because of its name.

    The rule is that of Spark's `HadoopFSUtils.shouldFilterOutPathName`.
    """
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


def files_read(folder: str, *, is_recursive: bool = False) -> set[str]:
    """Paths of the files in a folder that Spark's file source reads.

    Spark reads folders inside the folder only where one of them is a partition, such as `day=1`.

    Args:
        folder: its path; that of a single file is read too.
        is_recursive: whether the option `recursiveFileLookup` is set.

    Raises:
        OSError: the folder cannot be listed.
    """
    if os.path.isfile(folder):  # noqa: PTH113, Spark's paths are text
        return {folder}
    direct: set[str] = set()
    below: set[str] = set()
    has_partitions = False
    folders = [(folder, False)]
    while folders:
        path, is_partition = folders.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if is_passed_over(entry.name):
                    continue
                if entry.is_dir():
                    folders.append((entry.path, is_partition or "=" in entry.name))
                else:
                    (direct if path == folder else below).add(entry.path)
                    has_partitions = has_partitions or is_partition
    return direct | below if is_recursive or has_partitions else direct
