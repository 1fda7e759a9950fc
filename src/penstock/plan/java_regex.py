"""Java's regular expressions, as far as Python's `re` is known to find the same: syntax tree and translation.

The subset: characters and their escapes, `.`, `^`, `$`, `\\A`, `\\Z`, `\\z`, `\\b`, `\\d \\D \\s \\S \\w \\W`, classes of characters and
ranges, groups of any kind that no back-reference reads, `|`, greedy and lazy quantifiers, lookahead, the flags `i` and
`s`. Every construct is translated into characters, ranges and positions, so that no rule of `re` about flags, words or lines
takes part. `\\b` is that of Java before 19 (`word_boundaries`). Refused are other constructs: among them back-references, lookbehind,
atomic groups, possessive quantifiers, `\\B`, `\\Q`, `\\p`, `&&`, a class in a class, and unbounded repetition of what may be empty.

Source: Java SE 17, `java.util.regex.Pattern`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise

Ranges = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x85, 0x85), (0x2028, 0x2029))
_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "s": ((9, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
_CONTROL = {"t": 9, "n": 10, "f": 12, "r": 13, "a": 7, "e": 27}
#: `$`: the end, or before a line terminator that ends the text; never inside of \r\n
_END = r"(?=\r\n\Z|[\r\x85\u2028\u2029]\Z|(?<!\r)\n\Z|\Z)"
#: a larger bound of a quantifier is refused
_MOST = 65_535


class Place(Enum):
    """A place in a text, as `re` writes it."""

    BEGIN = r"\A"
    END_OF_LINE = _END
    END = r"\Z"
    #: of ASCII; elsewhere letters and marks count that `re` does not know
    WORD_BOUNDARY = r"(?a:\b)"


_POSITIONS = {
    "^": Place.BEGIN,
    "A": Place.BEGIN,
    "$": Place.END_OF_LINE,
    "Z": Place.END_OF_LINE,
    "z": Place.END,
    "b": Place.WORD_BOUNDARY,
}
_ESCAPED_POSITIONS = "AZzb"


class UnprovenError(ValueError):
    """A pattern is outside the subset, or invalid."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of any of some ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Position:
    """No character, but a place in the text."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part`, at least `least` and at most `most` times; None: without a bound. `part` is no `Group`."""

    part: Node
    least: int
    most: int | None
    lazy: bool

    @property
    def quantifier(self) -> str:
        """As Java, `re` and RE2 write it."""
        bounds = (
            str(self.least)
            if self.least == self.most
            else f"{self.least},{'' if self.most is None else self.most}"
        )
        return f"{{{bounds}}}{'?' if self.lazy else ''}"


@dataclass(frozen=True, slots=True)
class Lookahead:
    part: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class Group:
    """What a pair of parentheses captures, counted from 1 by their opening ones; only `regexp_extract` reads it."""

    part: Node
    number: int


Node = Characters | Position | Sequence | Choice | Repeat | Lookahead | Group


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The syntax tree of a pattern.

    Raises:
        UnprovenError: the pattern is outside the subset, or invalid.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnprovenError("half of a surrogate pair") from None
    parser = _Parser(text)
    tree = parser.choice()
    if parser.place < len(text):
        raise UnprovenError("a parenthesis that nothing opens")
    return tree


def translated(text: str) -> re.Pattern[str]:
    """A compiled pattern whose `search` finds what Java's `find` finds; raises UnprovenError."""
    try:
        return re.compile(_written(parse(text)))
    except (re.error, RecursionError, OverflowError) as error:
        raise UnprovenError(str(error)) from None


def tests_words(node: Node) -> bool:
    """Whether a pattern has `\\b`."""
    match node:
        case Position(place):
            return place is Place.WORD_BOUNDARY
        case Sequence(parts) | Choice(parts):
            return any(map(tests_words, parts))
        case Lookahead(part) | Repeat(part) | Group(part):
            return tests_words(part)
        case _:
            return False


# ------------------------------------------------------------------------------------------------ parsing


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.folds = self.dot_is_any = False
        #: groups that were opened
        self.groups = 0

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.place)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        self.place += len(text) * found
        return found

    def next(self) -> str:
        if self.place == len(self.text):
            raise UnprovenError("the pattern ends too early")
        self.place += 1
        return self.text[self.place - 1]

    def choice(self) -> Node:
        """Branches up to a closing parenthesis or the end; flags set inside of them end with them."""
        flags = self.folds, self.dot_is_any
        branches = [self.sequence()]
        while self.take("|"):
            branches.append(self.sequence())
        self.folds, self.dot_is_any = flags
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.place < len(self.text) and not self.peek("|") and not self.peek(")"):
            part = self.atom()
            if part is not None:
                parts.append(self.quantified(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def atom(self) -> Node | None:
        """The next part without its quantifier; None where flags were set."""
        sign = self.next()
        if sign == "(":
            return self.group()
        if sign == "[":
            return self.characters(self.ranges())
        if sign == ".":
            return Characters(((0, _LAST),) if self.dot_is_any else _complement(_LINE_ENDS))
        if sign in "^$":
            return Position(_POSITIONS[sign])
        if sign in "*+?{":
            raise UnprovenError("a quantifier of nothing")
        if sign == "\\":
            for name in _ESCAPED_POSITIONS:
                if self.take(name):
                    return Position(_POSITIONS[name])
            return self.characters(self.escape())
        return self.characters(((ord(sign), ord(sign)),))

    def group(self) -> Node | None:
        if not self.take("?"):
            return self.captured()
        if self.take(":"):
            return self.grouped()
        if self.take("="):
            return Lookahead(self.grouped(), negative=False)
        if self.take("!"):
            return Lookahead(self.grouped(), negative=True)
        if named := re.compile(r"<[a-zA-Z][a-zA-Z0-9]*>").match(self.text, self.place):
            self.place = named.end()
            return self.captured()
        if flags := re.compile(r"([is]+)([:)])").match(self.text, self.place):
            self.place = flags.end()
            before = self.folds, self.dot_is_any
            self.folds |= "i" in flags[1]
            self.dot_is_any |= "s" in flags[1]
            if flags[2] == ")":
                return None
            part = self.grouped()
            self.folds, self.dot_is_any = before
            return part
        raise UnprovenError("a group of this kind")

    def captured(self) -> Node:
        self.groups += 1
        number = self.groups
        return Group(self.grouped(), number)

    def grouped(self) -> Node:
        part = self.choice()
        if not self.take(")"):
            raise UnprovenError("a parenthesis that nothing closes")
        return part

    def quantified(self, part: Node) -> Node:
        least = 1
        most: int | None = 1
        if self.take("*"):
            least, most = 0, None
        elif self.take("+"):
            least, most = 1, None
        elif self.take("?"):
            least, most = 0, 1
        elif bounds := re.compile(r"\{([0-9]{1,5})(,([0-9]{1,5})?)?\}").match(self.text, self.place):
            self.place = bounds.end()
            least = int(bounds[1])
            most = least if bounds[2] is None else None if bounds[3] is None else int(bounds[3])
            if max(least, most or 0) > _MOST or (most is not None and least > most):
                raise UnprovenError("bounds of a quantifier")
        else:
            return part
        lazy = self.take("?")
        if self.text[self.place : self.place + 1] in ("*", "+", "?", "{"):
            raise UnprovenError("a quantifier of a quantifier")
        while isinstance(part, Group):
            part = part.part
        if isinstance(part, Position | Lookahead):
            raise UnprovenError("a quantifier of a position")
        if most is None and _may_be_empty(part):
            raise UnprovenError("unbounded repetition of what may be empty")
        return Repeat(part, least, most, lazy)

    def characters(self, ranges: Ranges) -> Characters:
        return Characters(both_cases(ranges) if self.folds else ranges)

    def escape(self) -> Ranges:
        """What stands behind a backslash, in a class or outside."""
        sign = self.next()
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign in "DSW":
            return _complement(_CLASSES[sign.lower()])
        code = _CONTROL.get(sign)
        if code is None and sign in "xu":
            digits = 2 if sign == "x" else 4
            found = re.compile(f"[0-9a-fA-F]{{{digits}}}").match(self.text, self.place)
            if found is None:
                raise UnprovenError("a character by its number")
            self.place = found.end()
            code = int(found[0], 16)
        if code is None:
            if sign.isascii() and sign.isalnum():
                raise UnprovenError(f"\\{sign}")
            code = ord(sign)
        if 0xD800 <= code < 0xE000:
            raise UnprovenError("half of a surrogate pair")
        return ((code, code),)

    def ranges(self) -> Ranges:
        """A class behind its opening bracket."""
        negative = self.take("^")
        found: list[tuple[int, int]] = []
        if self.peek("]"):
            raise UnprovenError("a class that begins with a bracket")
        while not self.take("]"):
            first = self.class_character()
            if self.peek("-") and not self.peek("-]"):
                self.place += 1
                last = self.class_character()
                if (
                    len(first) != 1
                    or len(last) != 1
                    or first[0][0] != first[0][1]
                    or last[0][0] != last[0][1]
                ):
                    raise UnprovenError("a range of classes")
                if first[0][0] > last[0][0]:
                    raise UnprovenError("a range that ends before it begins")
                first = ((first[0][0], last[0][0]),)
            found += first
        ranges = _united(found)
        if negative:
            return _complement(both_cases(ranges) if self.folds else ranges)
        return ranges

    def class_character(self) -> Ranges:
        if self.peek("[") or self.peek("&&"):
            raise UnprovenError("a class in a class")
        sign = self.next()
        return self.escape() if sign == "\\" else ((ord(sign), ord(sign)),)


def _united(ranges: list[tuple[int, int]]) -> Ranges:
    """Sorted ranges that neither overlap nor touch."""
    united: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if united and low <= united[-1][1] + 1:
            united[-1] = united[-1][0], max(high, united[-1][1])
        else:
            united.append((low, high))
    return tuple(united)


def _complement(ranges: Ranges) -> Ranges:
    edges = [(-1, -1), *_united(list(ranges)), (_LAST + 1, _LAST + 1)]
    return tuple((low[1] + 1, high[0] - 1) for low, high in pairwise(edges) if low[1] + 1 < high[0])


def both_cases(ranges: Ranges) -> Ranges:
    """With both cases of each ASCII letter, as the flag `i` without `u`."""
    found = list(ranges)
    for low, high in ranges:
        for begin, distance in ((65, 32), (97, -32)):
            first, last = max(low, begin), min(high, begin + 25)
            if first <= last:
                found.append((first + distance, last + distance))
    return _united(found)


def _may_be_empty(node: Node) -> bool:
    match node:
        case Characters():
            return False
        case Sequence(parts):
            return all(map(_may_be_empty, parts))
        case Choice(branches):
            return any(map(_may_be_empty, branches))
        case Repeat(part, least):
            return least == 0 or _may_be_empty(part)
        case Group(part):
            return _may_be_empty(part)
        case _:
            return True


# ------------------------------------------------------------------------------------------------ translation


def _written(node: Node) -> str:
    match node:
        case Characters(ranges):
            return _written_class(ranges)
        case Position(place):
            return place.value
        case Sequence(parts):
            return "".join(map(_written, parts))
        case Choice(branches):
            return f"(?:{'|'.join(map(_written, branches))})"
        case Lookahead(part, negative):
            return f"(?{'!' if negative else '='}{_written(part)})"
        case Group(part):
            return _written(part)
        case Repeat(part):
            return f"(?:{_written(part)}){node.quantifier}"


def _written_class(ranges: Ranges) -> str:
    if not ranges:
        return r"(?!)"
    if ranges == ((0, _LAST),):
        return r"[\s\S]"
    if ranges[0][0] == ranges[-1][1]:
        return re.escape(chr(ranges[0][0]))
    negative = ranges[0][0] == 0 and ranges[-1][1] == _LAST
    inner = "".join(
        f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
        for low, high in (_complement(ranges) if negative else ranges)
    )
    return f"[{'^' if negative else ''}{inner}]"
