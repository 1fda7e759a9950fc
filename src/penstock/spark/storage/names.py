"""Names of streams, views and lanes as names of folders and files."""

from __future__ import annotations

import re
from urllib.parse import quote

from penstock.errors import InputError

#: bytes of a name on disk: names of files have some more, and a file system takes 255
MOST_BYTES = 200
#: what separates folders, what Spark takes for a pattern, and what marks such a character here
_MARKED = re.compile(r"[/\\*?\[\]{}%]|^\.")


def on_disk(name: str) -> str:
    """A name as that of a folder or file: as it is but for characters that mean something in a path, which are `%XX`.

    Different names stay different.
    """
    return _MARKED.sub(lambda found: quote(found.group(), safe="") if found.group() != "." else "%2E", name)


def check_name(what: str, name: str) -> None:
    """Makes sure that a name can be told and stored.

    Args:
        what: what it names, for the message.
        name: the name.

    Raises:
        InputError: it is empty, or has a character that no file's name can have.
    """
    if not name.strip() or any(ord(each) < 32 or 0xD800 <= ord(each) < 0xE000 for each in name):
        raise InputError(f"{what} {name!r}: a name must not be empty or contain control characters.")


def check_length(what: str, name: str) -> None:
    """Makes sure that a name can be a folder's, see `check_name`.

    Raises:
        InputError: it is too long.
    """
    taken = len(on_disk(name).encode())
    if taken > MOST_BYTES:
        raise InputError(
            f"{what} {name[:40]}...: its name takes {taken} bytes on disk; at most {MOST_BYTES} are allowed"
        )
