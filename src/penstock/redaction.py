"""Secrets in the options of a script and in URIs: found, so that no message shows them.

An option holds a secret where its name says so, as Spark has it with `spark.redaction.regex`, and where its value names a
user of a URI or a host (`s3a://KEY:SECRET@bucket`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from threading import Lock

#: what a secret is replaced by
MASK = "***"
_SECRET = re.compile(
    r"secret|^headers$|passw|passphrase|(?<![a-z])pwd|token|jaas|user[._]?info|credential|authorization|\.header\.|access[-._]?key|private|account[-._]?key|[-._]key$",
    re.IGNORECASE,
)
_STRING = r"""[rR]?'(?:[^'\\]|\\.|'')*(?:'|$)|[rR]?"(?:[^"\\]|\\.)*(?:"|$)"""
_COMMENT = r"--[^\n]*|/\*.*?(?:\*/|$)"
#: what a list of options begins with, slips included: the message about one shows the line
_LIST = r"\b(?:options?|(?:tbl|serde)?propert(?:y|ies)|with)"
#: name and value of a setting, the value up to the end of its line where it has no quotes
_SET = rf"""\bSET\s+[`'"]?(?P<setting>[\w.-]+)[`'"]?\s*(?:=|\bTO\b)\s*(?P<value>{_STRING}|[^;\n]*)"""
_OPTIONS = re.compile(
    rf"{_COMMENT}|{_SET}|{_STRING}|(?P<options>{_LIST}(?>\s|{_COMMENT})*+\()", re.IGNORECASE | re.DOTALL
)
_PART = re.compile(
    rf"(?P<skipped>{_COMMENT}|\s+|=)|(?P<string>{_STRING})|(?P<word>[\w`-]+(?:\s*\.\s*[\w`-]+)*)|(?P<mark>.)",
    re.DOTALL,
)
#: a literal within a value, such as the password of a JAAS entry
_INNER = re.compile(r"""["']([^"']+)["']""")
#: the user of a URI; the secret of one may have a slash, and what follows a port is a path
_OF_URI = r"(?<=://)[^\s'\"@/]*(?::(?!\d+/)[^\s'\"@]*)?(?=@)"
_URI_USER = re.compile(_OF_URI)
#: that of a value, where it may stand without a scheme, and as Oracle writes it: user/password
_USER = re.compile(
    rf"{_OF_URI}|(?<![^\s'\",])[\w.%+-]+:[^\s'\",@/]+(?=@)|(?:(?<=:thin:)|(?<=:oci:)|(?<=:oci8:))[\w.%+-]+/[^\s'\",@/]+(?=@)"
)
#: name and value within a value
_PAIR = re.compile(r"""(?P<name>[\w.]+)\s*=\s*(?:"([^"]+)"|'([^']+)'|([^\s;&,"']+))""")
#: shorter values are words of messages too
_LEAST_CHARACTERS = 4
#: secrets of the tables that this process has opened; replaced, never changed
_known: frozenset[str] = frozenset()
_learning = Lock()


def is_secret(option: str) -> bool:
    """Whether the value of an option is a secret, by the option's name."""
    return _SECRET.search(option) is not None


def remember(values: Iterable[str]) -> None:
    """Mask these secrets in all messages from now on, and what they hold: lines, passwords of users, headers and their tokens."""
    global _known
    found: set[str] = set()
    for value in values:
        for line in (value, *value.splitlines(), *_texts_of(value)):
            behind = line.partition(":")[2].strip()
            parts = (line.strip(), behind, *line.split()[-1:], *secrets_within(line))
            found.update(part for part in parts if len(part) >= _LEAST_CHARACTERS)
    with _learning:
        _known |= found


def _texts_of(value: str) -> list[str]:
    """The texts of a JSON object; none of another value."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return []
    return [each for each in found.values() if isinstance(each, str)] if isinstance(found, dict) else []


def secrets_within(value: str) -> list[str]:
    """The secrets in a value that is none as a whole: users of URIs and hosts with passwords, and `password=...`."""
    users = [user for each in _USER.finditer(value) if ":" in (user := each[0])]
    pairs = [each for each in _PAIR.finditer(value) if is_secret(each["name"])]
    return [*users, *(next(filter(None, each.groups()[1:])) for each in pairs)]


def masked_known(message: str) -> str:
    """A message with the secrets masked that this process knows, and the users of its URIs."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in message:
            message = message.replace(secret, MASK)
    return users_masked(message)


@lru_cache(maxsize=4)
def secret_places(text: str) -> tuple[tuple[int, int], ...]:
    """Where secrets stand in a script, in order; it need not be a right one.

    Args:
        text: statements with `OPTIONS (key 'value', ...)` and `SET name = value`.

    Returns:
        First character and the one after the last of each value, its quotes left out.

    >>> secret_places("USING kafka OPTIONS (topic 't', kafka.ssl.key.password 'x y')")
    ((56, 59),)
    """
    found = []
    position = 0
    while (begun := _OPTIONS.search(text, position)) is not None:
        position = begun.end()
        if begun["options"] is not None:
            for places, end in _values(text, position):
                found += places
                position = end
        elif begun["setting"] is not None:
            first, after = begun.span("value")
            if first < after and is_secret(begun["setting"]):
                found.append(_bare(begun["value"], first))
            elif first < after:
                found += _within(text, first, after)
    return tuple(found)


def _values(text: str, position: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Of each value among the options that begin at a position its secrets, and where it ends."""
    name = ""
    for part in _PART.finditer(text, position):
        if part["mark"] == ")":
            return
        if part["mark"] == ",":
            name = ""
        elif part["string"] is not None or part["word"] is not None:
            if not name:
                name = part[0].strip("`'\"")
            elif is_secret(name):
                yield [_bare(part[0], part.start())], part.end()
            else:
                yield _within(text, *part.span()), part.end()
                # a comma is missing where this was the value of a word
                name = "" if part["string"] is not None else part[0]


def _within(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Where secrets stand within a value that is none as a whole; see `secrets_within`."""
    users = [each.span() for each in _USER.finditer(text, start, end)]
    inside = start + 1 if text[start] in "'\"" else start
    pairs = [each for each in _PAIR.finditer(text, inside, end) if is_secret(each["name"])]
    apart = [
        each for each in pairs if not any(first < each.end() and each.start() < last for first, last in users)
    ]
    values = [each.span(next(group for group in (2, 3, 4) if each[group])) for each in apart]
    return sorted([*users, *values])


def _bare(value: str, start: int) -> tuple[int, int]:
    """The place of what a literal holds."""
    inner = value[1:] if value[:1] in "rR" and value[1:2] in ("'", '"') else value
    start += len(value) - len(inner)
    quote = inner[:1] if inner[:1] in ("'", '"') else ""
    closed = len(inner) > 1 and bool(quote) and inner.endswith(quote)
    return start + len(quote), start + len(inner) - closed


def without_secrets(text: str, start: int, end: int) -> tuple[str, int, int]:
    """A script with its secrets masked.

    Args:
        text: the script.
        start, end: a place in it.

    Returns:
        The masked script, and the place there.
    """
    places = secret_places(text)

    def moved(place: int, *, is_end: bool) -> int:
        shift = 0
        for first, after in places:
            if place >= after:
                shift += len(MASK) - (after - first)
            elif place > first:
                return first + shift + (len(MASK) if is_end else 0)
        return place + shift

    pieces, taken = [], 0
    for first, after in places:
        pieces += [text[taken:first], MASK]
        taken = after
    return "".join([*pieces, text[taken:]]), moved(start, is_end=False), moved(end, is_end=True)


def secrets_masked(message: str, text: str) -> str:
    """A message with the users of its URIs masked, the secrets of a script, and the literals and passwords that they hold."""
    for start, end in secret_places(text):
        value = text[start:end]
        for secret in (value, *_INNER.findall(value), *_password(text, start, end)):
            if len(secret) >= _LEAST_CHARACTERS:
                message = message.replace(secret, MASK)
    return masked_known(message)


def users_masked(message: str) -> str:
    """A message with the users of its URIs masked.

    >>> users_masked("no bucket at s3a://KEY:SECRET@bucket/a")
    'no bucket at s3a://***@bucket/a'
    """
    return _URI_USER.sub(MASK, message)


def option_secrets_masked(message: str, options: Mapping[str, str]) -> str:
    """A message with the secrets among some options masked, and the users of its URIs.

    >>> option_secrets_masked("no user me:1234", {"kafka.sasl.password": "1234"})
    'no user me:***'
    """
    for name, value in options.items():
        if is_secret(name):
            for secret in (value, *_INNER.findall(value)):
                if len(secret) >= _LEAST_CHARACTERS:
                    message = message.replace(secret, MASK)
        else:
            for first, after in _within(value, 0, len(value)) if value else ():
                message = message.replace(value[first:after], MASK)
    return users_masked(message)


def _password(text: str, start: int, end: int) -> list[str]:
    """The password of a secret that is a user; none of any other."""
    return [text[start:end].partition(":")[2]] if text[end : end + 1] == "@" else []
