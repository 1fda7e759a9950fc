"""Patterns and values that stress text matching, drawn at random."""

from __future__ import annotations

from random import Random

from penstock.plan.patterns import Form, TextPattern, formed, is_kernel_pattern

#: letters whose case, width or class is special, signs of LIKE and of regular expressions, ends of lines
SIGNS = [*"aAbBkKsSiI01 _%\\.-+`", "\n", "\r", "\r\n", "\x85", "\u2028", "é", "É", "ß", "İ", "\u212a", "\u212b", "Σ", "σ", "ς", "ı", "ſ", "\u0301", "日", "😀", "\U00010400", "ŉ", "ﬃ", "ῼ", "\u0345", "ǅ", "\U00010d3f", "\U0001e8d0", "\u00aa", "²"]  # fmt: skip
#: parts of regular expressions inside the subset
ATOMS = [
    "a", "b", "A", "k", "é", "Σ", "😀", r"\.", r"\\", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "^", "$", r"\A", r"\Z", r"\z", r"\b", r"\b", r"\n", r"\t", r"\x41", r"\u00e9",
    "[ab]", "[^a]", "[a-k_]", "[^\\w\\s]", "[\\d%-]", "[é-日]", "(?=a)", "(?!b)", "(?i)", "(?s)", "(?i:aK)", "(?s:.)", "]", "}", "-", "%", "_", " ",
]  # fmt: skip
#: functions that values pass through: half of the patterns have none
FORMS: list[Form] = [
    *[()] * 8,
    ("lower",),
    ("lower",),
    ("upper",),
    ("upper",),
    ("trim",),
    ("ltrim",),
    ("rtrim", "lower"),
    ("upper", "trim", "lower"),
]
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,2}?"]


def random_value(random: Random, longest: int = 8) -> str:
    """A short text; some have a long one before or behind it."""
    text = "".join(random.choice(SIGNS) for _ in range(random.randrange(longest)))
    text = random.choice(("", "", "", " ", "  ")) + text + random.choice(("", "", "", " ", "\t"))
    if random.random() < 0.1:
        long = random.choice(SIGNS) * random.randrange(40)
        text = long + text if random.random() < 0.5 else text + long
    return text


def random_like(random: Random, value: str) -> TextPattern:
    """A LIKE pattern made from a value, so that some values satisfy it."""
    begin = random.randrange(len(value) + 1)
    part = value[begin : random.randrange(begin, len(value) + 1)]
    parts = ["\\" + sign if sign in "\\%_" else sign for sign in part]
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        parts.insert(random.randrange(len(parts) + 1), random.choice(("%", "%", "_")))
        if random.random() < 0.3 and len(parts) > 1:
            del parts[random.randrange(len(parts))]
    text = random.choice(("", "%", "%")) + "".join(parts) + random.choice(("", "%", "%"))
    form = random.choice(FORMS)
    return TextPattern("like", formed(form, text) if random.random() < 0.95 else text, form)


def random_regex(random: Random, value: str) -> TextPattern:
    """A regular expression of the subset."""
    while True:
        parts = []
        for _ in range(random.randrange(1, 5)):
            kind = random.random()
            if kind < 0.25 and value:
                sign = random.choice(value)
                atom = sign if sign.isalnum() or not sign.isascii() else "\\" + sign
                atom = {"\\\n": "\\n", "\\\r": "\\r"}.get(atom, atom)
            elif kind < 0.4:
                atom = f"(?:{random.choice(ATOMS)}{random.choice(QUANTIFIERS)}{random.choice(ATOMS)}|{random.choice(ATOMS)})"
            else:
                atom = random.choice(ATOMS)
            parts.append(atom + random.choice(QUANTIFIERS))
        pattern = TextPattern("regex", "".join(parts), random.choice(FORMS))
        if is_kernel_pattern(pattern):
            return pattern


def random_length(random: Random, value: str) -> TextPattern:
    """A length that some values have."""
    form = random.choice(FORMS)
    least = len(formed(form, value)) + random.randrange(-2, 2)
    return TextPattern(
        "length", random.choice((f"{least}..{least}", f"{least}..", f"0..{least}", "2..1")), form
    )


def random_pattern(random: Random, value: str) -> TextPattern:
    """Two of three are LIKE."""
    return random.choice((*[random_like] * 6, *[random_regex] * 2, random_length))(random, value)


def literal(text: str) -> str:
    """A text as a string literal of Spark SQL."""
    signs = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
    return "'" + "".join(signs.get(sign, sign) for sign in text) + "'"


def called(form: Form, column: str) -> str:
    """A column behind functions as Spark SQL."""
    for function in form:
        column = f"{function}({column})"
    return column


def random_condition(random: Random, values: list[str], deep: int = 2) -> str:
    """A condition on the string columns `value` and `other` that kernels compute: tests of text under AND, OR, NOT and IS."""
    if deep and random.random() < 0.6:
        parts = [random_condition(random, values, deep - 1) for _ in range(random.choice((1, 2, 2, 3)))]
        joined = f" {random.choice(('AND', 'OR'))} ".join(f"({part})" for part in parts)
        return random.choice(
            (
                joined,
                joined,
                f"NOT ({joined})",
                f"({joined}) IS {random.choice(('', 'NOT '))}{random.choice(('TRUE', 'FALSE', 'UNKNOWN'))}",
            )
        )
    text, form = random.choice(values), random.choice(FORMS)
    column = random.choice(("value", "value", "other"))
    tested = called(form, column)
    if random.random() < 0.25:
        instead = literal(random.choice(("", random.choice(values))))
        tested = random.choice(
            (
                called(form, f"coalesce({column}, {instead})"),
                f"{random.choice(('coalesce', 'nvl', 'ifnull'))}({tested}, {instead})",
            )
        )
    changed = formed(form, text) if random.random() < 0.9 else text
    begin = random.randrange(len(changed) + 1)
    part = literal(changed[begin : random.randrange(begin, len(changed) + 1)])
    size, comparison = (
        len(changed) + random.randrange(-1, 2),
        random.choice(("=", "<>", "<", "<=", ">", ">=", "<=>")),
    )
    kind = random.randrange(11)
    if kind == 0:
        return f"{random.choice(('contains', 'startswith', 'endswith'))}({tested}, {part})"
    if kind == 1:
        found = random.choice(
            (
                f"instr({tested}, {part})",
                f"locate({part}, {tested})",
                f"position({part} IN {tested})",
            )
        )
        return (
            f"{found} {random.choice(('> 0', '>= 1', '= 0', '<> 0', '< 1', '= 1', '<=> 0', '!= 1', '>= 0'))}"
        )
    if kind == 2:
        return (
            f"{tested} {random.choice(('=', '<>', '<=>'))} {literal(changed)}"
            if form
            else f"trim({tested}) = {literal(changed.strip(' '))}"
        )
    if kind == 3:
        items = [literal(formed(form, each)) for each in random.sample(values, min(len(values), 3))]
        return f"{tested} {random.choice(('', 'NOT '))}IN ({', '.join([*items, *random.choice(((), (), ('NULL',)))])})"
    if kind in (4, 5):
        made = random_like(random, changed).text
        # the lower case of an upper case is Spark's own
        words = ("LIKE",) if form[-1:] == ("upper",) else ("LIKE", "ILIKE")
        return f"{tested} {random.choice(('', 'NOT '))}{random.choice(words)} {literal(made)}"
    if kind == 6:
        return f"length({tested}) {comparison} {size}"
    if kind == 7:
        return random.choice(
            (
                f"char_length({tested}) BETWEEN {size - 1} AND {size}",
                f"length({tested}) IN ({size}, 1, 0)",
                f"{tested} IS NULL",
            )
        )
    if kind == 8:
        return f"{tested} RLIKE {literal(random_regex(random, changed).text)}"
    if kind == 9:
        return f"{called(random.choice(FORMS), 'value')} {random.choice(('=', '<>'))} {called(random.choice(FORMS), 'other')}"
    return f"coalesce(value, '') = {called(form, random.choice(('other', 'value')))}"
