"""Which records of a block pyarrow's JSON reader takes just as Spark's does, if it takes them at all.

pyarrow's reader checks the grammar of JSON, but it takes words, and lengths of numbers, names and nesting, that Jackson
refuses. A short record is beyond no limit: a look for these words is enough, a fraction of a nanosecond a byte. A longer one,
or one with such a word, is read byte by byte: its names, numbers and nesting are bounded far below the limits of Jackson's
`StreamReadConstraints` (50,000 characters, 1,000 digits, 1,000 levels), and doubles far from where they overflow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

#: most bytes of a name and of a number, most digits of an exponent, most levels of nesting
NAME_BYTES, NUMBER_BYTES, EXPONENT_DIGITS, LEVELS = 10_000, 100, 2, 100
#: a shorter record holds nothing beyond a limit of Jackson
SHORT_BYTES = 1_000

Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH, _COLON, _COMMA, _MINUS, _POINT, _ZERO, _NINE = (ord(each) for each in '"\\:,-.09')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _SPACE, _TAB, _U = (ord(each) for each in "{}[] \tu")
_LINE_FEED = ord("\n")
_N, _A, _I, _SMALL_N = (ord(each) for each in "NaIn")

#: what comes next: a value, a value or the end of a list, a name, a name or the end of an object, a colon, or what is
#: behind a value
_VALUE, _FIRST_VALUE, _NAME, _FIRST_NAME, _NAMED, _BEHIND = range(6)

#: bytes that a string has as they are
_IN_STRING = np.array([byte >= 32 and byte not in b'"\\' for byte in range(256)])
#: bytes that stand for a character behind a backslash
_ESCAPED = np.array([byte in b'"\\/bfnrt' for byte in range(256)])
_HEX = np.array([int(chr(byte), 16) if byte in b"0123456789abcdefABCDEF" else 255 for byte in range(256)])


@compiled(nogil=True)
def plain_records(
    data: Bytes,
    begins: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int32],
    most: int,
    plain: npt.NDArray[np.bool_],
) -> None:
    """Finds the plain records of a block: those that both readers take alike, or pyarrow's refuses.

    Linear in the bytes: 0.3 to 0.5 ns a byte of short records, 1 to 3 ns of others; space is constant.

    Args:
        data: uint8[bytes], UTF-8 or not.
        begins, ends: int32[records], where the records begin and end.
        most: a record of more bytes is refused.
        plain: bool[records], written.
    """
    is_object = np.empty(LEVELS + 1, np.bool_)
    for each in range(len(plain)):
        begin, end = begins[each], ends[each]
        if not 1 < end - begin <= most or data[begin] != _OPEN:
            plain[each] = False
        elif end - begin < SHORT_BYTES and data[end - 1] == _CLOSE and not _is_odd(data[begin:end]):
            plain[each] = True
        else:
            plain[each] = _is_plain(data, begin, end, is_object)


@compiled(nogil=True)
def has_replaced(data: Bytes) -> bool:
    """Whether bytes may hold U+FFFD, which stands for bytes that are no UTF-8, as it is or as an escape.

    Linear: 0.1 to 0.3 ns a byte.
    """
    found = 0
    for place in range(len(data) - 2):
        first, second, third = data[place], data[place + 1], data[place + 2]
        is_letter = (first == 0xEF) & (second == 0xBF) & (third == 0xBD)
        is_escape = (first == _BACKSLASH) & (second == _U) & ((third == ord("f")) | (third == ord("F")))
        found |= is_letter | is_escape
    return bool(found)


@compiled(nogil=True)
def copied_lines(
    data: Bytes, begins: npt.NDArray[np.int32], ends: npt.NDArray[np.int32], lines: Bytes
) -> None:
    """Copies records to lines, each with a line feed behind it.

    Args:
        data: uint8[bytes].
        begins, ends: int32[records], where the records begin and end.
        lines: uint8[bytes of the records and their line feeds], written.
    """
    place = 0
    for each in range(len(begins)):
        size = ends[each] - begins[each]
        lines[place : place + size] = data[begins[each] : ends[each]]
        place += size + 1
        lines[place - 1] = _LINE_FEED


@compiled(nogil=True)
def _is_odd(record: Bytes) -> bool:
    """Whether a record may hold NaN, infinity or a zero with a sign as words, or holds control characters."""
    odd = 0
    before, behind = record[:-2], record[2:]
    for place, byte in enumerate(record[1:-1]):
        last, after = before[place], behind[place]
        is_word = (last != _QUOTE) & (((byte == _N) & (after == _A)) | ((byte == _I) & (after == _SMALL_N)))
        is_zero = (byte == _MINUS) & (after == _ZERO) & ((last < _ZERO) | (last > _NINE))
        odd |= is_word | is_zero | (byte < _SPACE)
    return bool(odd)


@compiled(nogil=True)
def _is_plain(data: Bytes, place: int, end: int, is_object: npt.NDArray[np.bool_]) -> bool:
    depth = 0
    expected = _VALUE
    while place < end:
        byte = data[place]
        place += 1
        if byte in (_SPACE, _TAB):
            continue
        if expected == _BEHIND:
            if depth == 0:
                return False
            if byte == _COMMA:
                expected = _NAME if is_object[depth] else _VALUE
            elif byte == (_CLOSE if is_object[depth] else _CLOSE_LIST):
                depth -= 1
            else:
                return False
        elif expected == _NAMED:
            if byte != _COLON:
                return False
            expected = _VALUE
        elif byte == _QUOTE:
            behind = _behind_string(data, place, end)
            if behind < 0:
                return False
            if expected in (_NAME, _FIRST_NAME):
                if behind - place > NAME_BYTES:
                    return False
                expected = _NAMED
            else:
                expected = _BEHIND
            place = behind
        elif expected in (_FIRST_NAME, _NAME):
            if byte != _CLOSE or expected == _NAME:
                return False
            depth -= 1
            expected = _BEHIND
        elif byte in (_OPEN, _OPEN_LIST):
            if depth == LEVELS:
                return False
            depth += 1
            is_object[depth] = byte == _OPEN
            expected = _FIRST_NAME if byte == _OPEN else _FIRST_VALUE
        elif byte == _CLOSE_LIST and expected == _FIRST_VALUE:
            depth -= 1
            expected = _BEHIND
        else:
            behind = _behind_number(data, place - 1, end)
            if behind < 0:
                behind = _behind_word(data, place - 1, end)
            if behind < 0:
                return False
            place = behind
            expected = _BEHIND
    return depth == 0


@compiled(nogil=True)
def _behind_string(data: Bytes, place: int, end: int) -> int:
    """Where a string ends whose first character is at a place; -1 where it is not plain."""
    while place < end:
        byte = data[place]
        place += 1
        if _IN_STRING[byte]:
            continue
        if byte == _QUOTE:
            return place
        if byte != _BACKSLASH or place == end:
            return -1
        byte = data[place]
        place += 1
        if _ESCAPED[byte]:
            continue
        if byte != _U:
            return -1
        unit = _code_unit(data, place, end)
        place += 4
        if (
            0xD800 <= unit < 0xDC00
            and place + 6 <= end
            and data[place] == _BACKSLASH
            and data[place + 1] == _U
        ):
            low = _code_unit(data, place + 2, end)
            place += 6
            if not 0xDC00 <= low < 0xE000:
                return -1
        elif unit < 0 or 0xD800 <= unit < 0xE000:
            return -1
    return -1


@compiled(nogil=True)
def _code_unit(data: Bytes, place: int, end: int) -> int:
    """The number of four hexadecimal digits; -1 where there are none."""
    if place + 4 > end:
        return -1
    unit = 0
    for each in range(place, place + 4):
        digit = _HEX[data[each]]
        if digit > 15:
            return -1
        unit = unit * 16 + digit
    return unit


@compiled(nogil=True)
def _behind_number(data: Bytes, place: int, end: int) -> int:
    """Where a number ends that begins at a place; -1 where it is none, or not plain."""
    begin = place
    if data[place] == _MINUS:
        place += 1
    digits = place
    place = _behind_digits(data, place, end)
    if place == digits or (data[digits] == _ZERO and place > digits + 1):
        return -1
    has_point = place < end and data[place] == _POINT
    if has_point:
        digits = place + 1
        place = _behind_digits(data, digits, end)
        if place == digits:
            return -1
    # the sign of a zero that is written as a whole number is kept by one reader and lost by the other
    elif digits > begin and data[digits] == _ZERO:
        return -1
    if place < end and (data[place] == ord("e") or data[place] == ord("E")):
        place += 1
        if place < end and (data[place] == ord("+") or data[place] == _MINUS):
            place += 1
        digits = place
        place = _behind_digits(data, place, end)
        if not 0 < place - digits <= EXPONENT_DIGITS:
            return -1
    return place if place - begin <= NUMBER_BYTES else -1


@compiled(nogil=True)
def _behind_digits(data: Bytes, place: int, end: int) -> int:
    while place < end and _ZERO <= data[place] <= _NINE:
        place += 1
    return place


@compiled(nogil=True)
def _behind_word(data: Bytes, place: int, end: int) -> int:
    """Where `true`, `false` or `null` ends that begins at a place; -1 where it is none of them."""
    for word in (b"true", b"false", b"null"):
        if place + len(word) > end:
            continue
        same = 0
        while same < len(word) and data[place + same] == word[same]:
            same += 1
        if same == len(word):
            return place + same
    return -1
