"""What LIKE, RLIKE and lower() find, and which patterns are left to Spark."""

from __future__ import annotations

import pytest

from penstock.plan.java_regex import translated
from penstock.plan.patterns import TextPattern, holds, is_kernel_pattern, spark_lower
from penstock.plan.required_literals import required_literals


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("_", "", False),
        ("_", "é", True),
        ("_", "😀", True),
        ("__", "e\u0301", True),
        ("_", "\n", True),
        ("a%z", "a\r\nz", True),
        ("a%b%c", "abcbc", True),
        ("a%b%c", "acb", False),
        (r"50\%", "50%", True),
        (r"50\%", "500", False),
        (r"\_%", "_a", True),
        (r"\_%", "aa", False),
        (r"c:\\%", "c:\\x", True),
        ("%x%", "a" * 5000 + "x", True),
        ("a.c", "abc", False),
        ("A", "a", False),
        ("É%", "éa", False),
    ],
)
def test_like(text: str, value: str, expected: bool) -> None:
    assert holds(TextPattern("like", text), value) is expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a%", "ABC", True),
        ("i%", "İ", True),
        ("k", "\u212a", True),
        ("_", "İ", False),
        ("%ς", "ΟΔΟΣ", True),
        ("%σ", "ΟΔΟΣ", False),
        ("A%", "abc", False),
        ("ß", "ẞ", True),
    ],
)
def test_the_value_is_folded_and_the_pattern_is_not(text: str, value: str, expected: bool) -> None:
    assert holds(TextPattern("like", text, ("lower",)), value) is expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("", "", True),
        ("a$", "a\n", True),
        ("a$", "a\r\n", True),
        ("a\r$", "a\r\n", False),
        ("a$", "a\u2028", True),
        ("a$", "a\n\n", False),
        (r"a\z", "a\n", False),
        (r"a\Z", "a\x85", True),
        ("a.b", "a\x85b", False),
        ("(?s)a.b", "a\nb", True),
        ("^.$", "😀", True),
        (r"\d", "٣", False),
        (r"\w", "é", False),
        (r"\s", "\xa0", False),
        ("(?i)k", "\u212a", False),
        ("(?i)é", "É", False),
        ("a(?i)b|c", "C", True),
        ("(?:(?i)a)b", "AB", False),
        ("(?i)[^a]", "A", False),
        ("(?i)[x-z]", "Y", True),
        ("a{2,3}$", "baa", True),
        ("a(?=b)", "ac", False),
        ("a(?!b)", "ac", True),
        ("(?<name>a)b", "ab", True),
        ("[-/–]x", "–x", True),
        (r"[\w+|\s]$", "|", True),
        ("x]}", "x]}", True),
    ],
)
def test_regular_expressions_of_java(text: str, value: str, expected: bool) -> None:
    assert holds(TextPattern("regex", text), value) is expected


@pytest.mark.parametrize(
    "text",
    [r"\Bx", r"\b{g}x", r"\b*", r"[\b]", r"(a)\1", "(?<=a)b", "(?>a)", "a++", "a*+", r"\Qa\E", r"\p{L}", "[a&&b]", "[a[b]]", "[]a]", "(a*)*", "(?m)^a", "(?x) a",
     "(?u)a", "a**", "*a", "(a", "a)", "[a", "a{", "a{3,1}", "[b-a]", r"[a-\d]", "\\", r"\y", r"\R", r"\x4", "^*", "\ud800", "a{99999}"],
)  # fmt: skip
def test_other_regular_expressions_are_left_to_spark(text: str) -> None:
    assert not is_kernel_pattern(TextPattern("regex", text))


@pytest.mark.parametrize("text", ["a\\", r"a\b", r"\\\x", "\udc00"])
def test_invalid_patterns_of_like_are_left_to_spark(text: str) -> None:
    assert not is_kernel_pattern(TextPattern("like", text))


def test_other_kinds_and_functions_are_left_to_spark() -> None:
    assert not is_kernel_pattern(TextPattern("glob", "a"))
    assert not is_kernel_pattern(TextPattern("like", "a", ("reverse",)))
    assert is_kernel_pattern(TextPattern("like", "a", ("lower",)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\$PSHome\[\s*\d{1,3}\s*\]", ("$pshome[",)),
        ("[Cc]:[^a]x", ("c:",)),
        ("a(?:bcd|xyz1)?e", ("a",)),
        ("a(?:bcd|xyz1)e", ("bcd", "xyz1")),
        ("a(?:bcd|.)e", ("a",)),
        ("a(b)c", ("abc",)),
        ("a((b|c)d)", ("a",)),
        ("(x){3}y", ("xxxy",)),
        ("ab+c", ("ab",)),
        ("b+cde", ("bcde",)),
        ("x{3}y", ("xxxy",)),
        ("a(?!bcd)e", ("ae",)),
        ("[ab]+", ()),
        ("É", ("É",)),
    ],
)
def test_a_text_that_every_match_has(text: str, expected: tuple[str, ...]) -> None:
    assert required_literals(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABC", "abc"),
        ("İ\u212a", "i\u0307k"),
        ("Σ", "σ"),
        ("ΑΣ", "ας"),
        ("ΑΣΑ", "ασα"),
        ("Α.Σ", "α.ς"),
        ("ΑΣ.Α", "ασ.α"),
        ("Α Σ", "α σ"),
        ("AʕΣ", "aʕσ"),
        ("\U00010d50\ua7cb", "\U00010d70\u0264"),
        ("A\u0897Σ", "a\u0897ς"),
    ],
)
def test_lower_case_is_that_of_spark(text: str, expected: str) -> None:
    assert spark_lower(text) == expected


@pytest.mark.parametrize(
    "text", ["(?:a+)+b", "(?:a|aa)+$", "(?:x|a*a)+b$", r"f(?:.*\)){1,}.*\"", "(?:a+){3,40}b"]
)
def test_no_pattern_takes_exponential_time(text: str) -> None:
    pattern = TextPattern("regex", text)
    assert is_kernel_pattern(pattern)
    assert not holds(pattern, "f" + "a)" * 40 + "a" * 60 + "c")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("^(?:a|bc)+$", "abcbca\r\n", True),
        ("^(?:a|bc)+$", "abcbcab", False),
        (r"^(?:a|bc)+\z", "a\n", False),
        ("(?:a|^b){2,}c", "xbac", False),
        ("(?:a|^b){2,}c", "bac", True),
        (r"(?:\d|é)*x", "y", False),
        ("(?:\\r|a)+$", "a\r\n", True),
        ("(?:a|b){5}", "ababa", True),
        ("(?:a|b){5}", "abab", False),
        ("(?i)(?:ab|c)+😀", "ABc😀", True),
    ],
)
def test_linear_search_finds_the_same(text: str, value: str, expected: bool) -> None:
    assert holds(TextPattern("regex", text), value) is expected
    assert (translated(text).search(value) is not None) is expected
