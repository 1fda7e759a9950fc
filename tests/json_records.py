"""Generated JSON records at and about every limit of the readers: words, digits, nesting, names, escapes, bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

COLUMNS = "id BIGINT, i INT, x DOUBLE, s STRING, b BOOLEAN, t TIMESTAMP"
#: a declared column twice as often as an ignored field
_NAMES = ["id", "i", "x", "x", "s", "b", "t", "z", "Z", "ID", "", "é", "\\u0078", "\\u0069d"]
_WORDS = [
    *("Inf", "-Inf", "+Inf", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF", "inf", "NaN", "-NaN", "nan", "+NaN"),
    *("true", "false", "null", "True", "nul", "nulll", "truefalse", "undefined", "TRUE", "None"),
    *("-0", "-0.0", "-0e1", "-0E-1", "-0.00e5", "0", "00", "01", "-01", "+1", "-", "--1", ".5", "5.", "1e", "1e+", "1.e5", "0x10", "1_000", "1L"),
    *("1e5", "1E+5", "1e-5", "1e05", "1e22", "1e23", "1e99", "1e100", "1e307", "1e308", "1e309", "1e400", "-1e400", "1e-307", "1e-308", "1e-400"),
    *("1e99999999999", "1e-99999999999", "1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "2.4e-324", "2.2250738585072011e-308"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "9007199254740993", "9007199254740993.0000000001", "123456789012345678901234567890"),
    *("0.1000000000000000055511151231257827021181583404541015625", "1.0", "1e2", "1.5", "3"),
]  # fmt: skip
_TEXTS = [
    *("", "a", "north", "NaN", "Infinity", "-Infinity", "Inf", "1.5", "-0", "true", " Info ", "More Info, NaN"),
    *("2024-02-28T00:00:00Z", "2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2024-01-01T23:59:60Z", "2024-01-01T24:00:00Z"),
    *("1900-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "2099-12-28T23:59:59.999999Z", "2024-01-01T00:00:00.1234567Z", "2024-01-01"),
    *("2024-01-01T00:00:00", "2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00.1Z", "2024-1-1T00:00:00Z", "\\u00322024-01-01T00:00:00Z"),
    *("\\u0032024-01-01T00:00:00Z", "é", "日本", "😀", "\x7f", "\u2028", "\ufffd", "\ufeff", "\uffff", "\U0010ffff", "\x85", "\xa0"),
    *(r"\"", r"\\", r"\/", r"\b\f\n\r\t", r"\x", r"\'", r"\0", r"\u0000", r"\u00e9", r"\u00E9", r"\u12", r"\uZZZZ", r"\u", "\\"),
    *(r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud800", r"\udc00", r"\udc00\ud800", r"\ud800\ud800", r"\ud800a", r"\ud800\n", r"\ud83d\u0041"),
    *(r"\ud83d\\ude00", r"\\ud800", r"\uDFFF", r"\ud7ff", r"\ue000", r"\uffff"),
    *map(chr, range(32)),
]  # fmt: skip
_BYTES = [
    *(b"\xff", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xf0\x9f\x98", b"\xe0\x80\xaf"),
]  # fmt: skip
_WHOLE = [
    *('{"id":1} {"id":2}', '{"id":1}{"id":2}', '{"id":1}\r{"id":2}', '{"id":1}\n', ' {"id":1}', '{"id":1} ', '{"id":1}\t', '\ufeff{"id":1}'),
    *('{"id":1,}', '{,"id":1}', '{"id":1,,"x":2}', '{"id" 1}', '{"id"::1}', '{"id":}', '{"id":1', '"id":1}', '{"id":1}}', '{{"id":1}}'),
    *("{'id':1}", "{\"s\":'a'}", "{id:1}", '{"id":1/*c*/}', '{"id":1}//c', '{"id":1}#c', '{"id":1 "x":2}', '{"id":1;"x":2}'),
    *('{"id":1,"id":2}', '{"id":1,"\\u0069d":2}', '{"z":1,"z":2,"id":3}', '{"z":{"a":1,"a":2},"id":3}', '{"id":1,"ID":2}'),
    *("", " ", "{}", "{ }", "{\t}", "{\r}", "{\f}", "[]", "null", "1", '"a"', '[{"id":1}]', "{]", "{[}", '{"z":[1,]}', '{"z":[,1]}', '{"z":[}'),
    *('{"z":[1 2],"id":1}', '{"z":{"a"},"id":1}', '{"z":{]},"id":1}', '{"id":1,"z":[[],{},[{}]]}', '{ "id" :\t1 , "x" : 2 }'),
    *('{"s":{"a": 1}}', '{"s":[1]}', '{"s":1.50}', '{"x":[1]}', '{"b":1}', '{"t":1700000000}', '{"t":null,"x":null,"s":null}'),
    *('{"id":1}\x00', '{"id":1\x00}', '\x00{"id":1}', '{"id":1}\x00}', '{"id"\x0b:1}', '{"id":1,"z":"}', '{"}', '{"id":"}"}', '{"s":"}{"}'),
]  # fmt: skip
_DIGITS = [
    1,
    17,
    18,
    19,
    20,
    98,
    99,
    100,
    101,
    102,
    307,
    308,
    309,
    310,
    400,
    998,
    999,
    1000,
    1001,
    1002,
    1100,
    2000,
]
_LEVELS = [1, 50, 97, 98, 99, 100, 101, 102, 500, 990, 997, 998, 999, 1000, 1001, 1002, 1100]
_NAME_LENGTHS = [
    100,
    985,
    998,
    9_998,
    9_999,
    10_000,
    10_001,
    16_667,
    25_001,
    49_998,
    49_999,
    50_000,
    50_001,
    50_002,
    60_000,
]
_MUTATING = b"{}[]\":,\\-+.0159eEINaftnu \t\n\r\x00\x7f\xc3\xa9\xff/'"


def records(number: int, seed: int = 7) -> list[bytes]:
    """So many records, the same for the same seed; about a third of them are good JSON."""
    drawn = random.Random(seed)
    kinds: list[Callable[[random.Random], bytes]] = [
        _of_words,
        _of_texts,
        _of_digits,
        _nested,
        _named,
        _mutated,
        _mutated,
    ]
    made = [text.encode() for text in _WHOLE]
    made += [_object([(name, word)]) for word in _WORDS for name in ("x", "z")]
    made += [_object([(name, f'"{text}"')]) for text in _TEXTS for name in ("s", "z")]
    while len(made) < number:
        made.append(drawn.choice(kinds)(drawn))
    # what is longer than the scan's short form is looked at byte by byte
    return [record if drawn.random() < 0.7 else _lengthened(record, drawn) for record in made[:number]]


def good_record(drawn: random.Random) -> bytes:
    """A record that both readers take."""
    seconds, micros = drawn.randrange(60), drawn.randrange(1_000_000)
    return _object(
        [
            ("id", str(drawn.randrange(-(2**63), 2**63))),
            ("i", str(drawn.randrange(-(2**31), 2**31))),
            ("x", repr(drawn.uniform(-1e6, 1e6))),
            ("s", '"' + drawn.choice(["north", "été", "\\u00e9", "a b", ""]) + '"'),
            ("b", drawn.choice(["true", "false", "null"])),
            ("t", f'"2024-01-0{drawn.randrange(1, 9)}T00:00:{seconds:02d}.{micros:06d}Z"'),
            ("z", drawn.choice(['{"a":[1,2,{"b":null}]}', "[]", "-1.5e3", '"n"'])),
        ]
    )


def _object(fields: list[tuple[str, str]]) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}").encode()


def _of_words(drawn: random.Random) -> bytes:
    fields = [(drawn.choice(_NAMES), drawn.choice(_WORDS)) for _ in range(drawn.randrange(1, 3))]
    if drawn.random() < 0.3:
        fields.append(("z", f"[{drawn.choice(_WORDS)},{drawn.choice(_WORDS)}]"))
    return _object(fields)


def _of_texts(drawn: random.Random) -> bytes:
    name = drawn.choice([drawn.choice(_NAMES), "s", "t", drawn.choice(_TEXTS)])
    record = _object([("id", "1"), (name, f'"{drawn.choice(_TEXTS)}{drawn.choice(["", *_TEXTS])}"')])
    if drawn.random() < 0.15:
        place = drawn.randrange(len(record))
        record = record[:place] + drawn.choice(_BYTES) + record[place:]
    return record


def _of_digits(drawn: random.Random) -> bytes:
    digits = drawn.choice(_DIGITS)
    text = "".join(drawn.choices("123456789", k=digits))
    form = drawn.randrange(6)
    point = drawn.randrange(digits) if digits > 1 else 0
    if form == 1:
        text = text[: max(1, point)] + "." + (text[max(1, point) :] or "5")
    elif form == 2:
        text = "0." + "0" * (digits - 1) + "1"
    elif form == 3:
        text = (
            text[:20]
            + "e"
            + drawn.choice(["", "+", "-"])
            + "0" * drawn.choice([0, 1, 5, digits])
            + str(drawn.randrange(330))
        )
    elif form == 4:
        text = "1" + "0" * (digits - 1) + ".0"
    return _object(
        [("id", "1"), (drawn.choice(["x", "x", "z", "id", "i", "s"]), drawn.choice(["", "", "-"]) + text)]
    )


def _nested(drawn: random.Random) -> bytes:
    levels = drawn.choice(_LEVELS)
    opened = (
        [drawn.choice("[{") for _ in range(levels)] if drawn.random() < 0.5 else [drawn.choice("[{")] * levels
    )
    inner = "".join("[" if each == "[" else '{"a":' for each in opened)
    closed = "".join("]" if each == "[" else "}" for each in reversed(opened))
    if drawn.random() < 0.05:
        closed = closed[:-1]
    return _object(
        [
            ("id", "1"),
            (drawn.choice(["z", "z", "x", "s"]), inner + drawn.choice(["1", "null", '"a"']) + closed),
        ]
    )


def _named(drawn: random.Random) -> bytes:
    length = drawn.choice(_NAME_LENGTHS)
    text = drawn.choice(["k", "é", "\\u00e9", "\\n"])
    many = length if drawn.random() < 0.7 else max(1, length // len(text))
    as_name = _object([("id", "1"), (text * many, "1")])
    return as_name if drawn.random() < 0.8 else _object([("s", f'"{text * many}"'), ("z", "1")])


def _mutated(drawn: random.Random) -> bytes:
    record = bytearray(good_record(drawn))
    for _ in range(drawn.randrange(1, 3)):
        place = drawn.randrange(len(record))
        change = drawn.randrange(4)
        if change == 0:
            del record[place]
        elif change == 1:
            record.insert(place, drawn.choice(_MUTATING))
        elif change == 2:
            record[place] = drawn.choice(_MUTATING)
        else:
            until = min(len(record), place + drawn.randrange(1, 9))
            record[place:place] = record[place:until]
    return bytes(record)


def _lengthened(record: bytes, drawn: random.Random) -> bytes:
    """The record with one more field at its beginning, so that it has some 1,000 bytes or more."""
    if not record.startswith(b'{"'):
        return record
    fill = max(1, drawn.choice([998, 999, 1_000, 1_001, 1_500]) - len(record) - len(b'"f":"",'))
    return b'{"f":"' + b"f" * fill + b'",' + record[1:]
