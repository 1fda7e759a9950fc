"""Patterns and values that stress text matching, drawn at random."""

from __future__ import annotations

from random import Random

from penstock.plan.patterns import TextPattern, is_kernel_pattern, spark_lower

#: letters whose case, width or class is special, signs of LIKE and of regular expressions, ends of lines
SIGNS = [*"aAbBkKsSiI01 _%\\.-+`", "\n", "\r", "\r\n", "\x85", "\u2028", "é", "É", "ß", "İ", "\u212a", "\u212b", "Σ", "σ", "ς", "ı", "ſ", "\u0301", "日", "😀", "\U00010400"]  # fmt: skip
#: parts of regular expressions inside the subset
ATOMS = [
    "a", "b", "A", "k", "é", "Σ", "😀", r"\.", r"\\", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "^", "$", r"\A", r"\Z", r"\z", r"\n", r"\t", r"\x41", r"\u00e9",
    "[ab]", "[^a]", "[a-k_]", "[^\\w\\s]", "[\\d%-]", "[é-日]", "(?=a)", "(?!b)", "(?i)", "(?s)", "(?i:aK)", "(?s:.)", "]", "}", "-", "%", "_", " ",
]  # fmt: skip
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,2}?"]


def random_value(random: Random, longest: int = 8) -> str:
    """A short text; some have a long one before or behind it."""
    text = "".join(random.choice(SIGNS) for _ in range(random.randrange(longest)))
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
    folding = random.choice(("", "lower"))
    return TextPattern("like", spark_lower(text) if folding and random.random() < 0.95 else text, folding)


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
        pattern = TextPattern("regex", "".join(parts), random.choice(("", "", "", "lower")))
        if is_kernel_pattern(pattern):
            return pattern


def random_pattern(random: Random, value: str) -> TextPattern:
    """Three of four are LIKE."""
    return (random_like if random.random() < 0.75 else random_regex)(random, value)
