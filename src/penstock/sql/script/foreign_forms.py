"""Expressions and types of other systems (Flink) that Spark's grammar has not: without a word of them, Spark names a syntax error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnsupportedError
from penstock.sql.text.lexing import closing, outer

#: what to write, and the places of the first and the last token of the form; None: another one is meant
_Found = tuple[str, int, int] | None
#: tokens whose text is no word of the language
_QUOTED = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
#: the most digits of the seconds of a time in microseconds
_DIGITS = 6
#: types of texts, which need a length in Spark
_TEXTS = ("VARCHAR", "CHAR", "CHARACTER")
#: types of other systems
_TYPES = {"BYTES": "BINARY", "MULTISET": "MAP<STRING, INT>", "ROW": "STRUCT<a: INT>"}
#: what follows a type, not the name of a field
_BEHIND_TYPES = ("", ">", ">>", ",", ")", "<", "(")
#: words between the arguments of a function that makes JSON
_OF_JSON = frozenset({"KEY", "VALUE", ":", "ABSENT"})
_METADATA = (
    "METADATA is not supported. Leave the column out. A kafka table without declared columns has the columns key, value, topic, "
    "partition, offset and timestamp."
)


def refuse_foreign_forms(script: str, tokens: Sequence[Token]) -> None:
    """Refuses the first expression of another system that Spark would call a syntax error.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.

    Raises:
        UnsupportedError: there is one.
    """
    words = _words(tokens)
    for position, word in enumerate(words):
        if word in _FORMS and (found := _FORMS[word](tokens, words, position)) is not None:
            raise _refusal(script, tokens, *found)


def refuse_foreign_type(script: str, tokens: Sequence[Token]) -> None:
    """Refuses what another system writes as the type of a column, or behind it.

    Args:
        script: the text the tokens come from.
        tokens: those behind the name of the column.

    Raises:
        UnsupportedError: it is something like that.
    """
    words = _words(tokens)
    for position, word in enumerate(words):
        if (
            position
            and word == "METADATA"
            and words[position + 1 : position + 2] in ([], ["FROM"], ["VIRTUAL"])
        ):
            raise UnsupportedError(_METADATA, script, tokens[position].start, tokens[-1].end + 1)
        if (found := _type(words, position)) is not None:
            raise _refusal(script, tokens, *found)


def _words(tokens: Sequence[Token]) -> list[str]:
    """What each token says in upper case; `'` where it is quoted."""
    return ["'" if token.token_type in _QUOTED else token.text.upper() for token in tokens]


def _refusal(script: str, tokens: Sequence[Token], instead: str, first: int, last: int) -> UnsupportedError:
    start, end = tokens[first].start, tokens[last].end + 1
    return UnsupportedError(f"{script[start:end]} is not Spark's SQL. Write {instead}.", script, start, end)


def _text(tokens: Sequence[Token], position: int, otherwise: str) -> str:
    """The name at a place, for what the message has to write; `otherwise` where something longer is there."""
    is_name = 0 <= position < len(tokens) and tokens[position].token_type is TokenType.VAR
    is_whole = position == 0 or tokens[position - 1].token_type is not TokenType.DOT
    return tokens[position].text if is_name and is_whole else otherwise


def _type(words: Sequence[str], position: int) -> _Found:
    """A type that Spark has not."""
    after = words[position + 1] if position + 1 < len(words) else ""
    if words[position] in _TYPES and after in _BEHIND_TYPES:
        return _TYPES[words[position]], position, position
    return None


def _cast_type(words: Sequence[str], position: int) -> _Found:
    """A type of a cast that Spark has not."""
    length = words[position + 1 : position + 4]
    if words[position] in _TEXTS and (not length or length[0] in _BEHIND_TYPES) and length[:1] != ["("]:
        return "STRING", position, position
    is_precise = length[::2] == ["(", ")"] and length[1].isdigit() and int(length[1]) <= _DIGITS
    if words[position] in _TIMES and is_precise:
        return words[position], position, position + 3
    return _type(words, position)


def _cast(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    end = _end(tokens, words, position)
    if end is None:
        return None
    named = [at for at, token in outer(tokens[position + 2 : end]) if token.token_type is TokenType.ALIAS]
    types = range(position + 3 + named[-1], end) if named else range(0)
    return next(filter(None, (_cast_type(words[:end], each) for each in types)), None)


def _short_cast(_: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    return _cast_type(words, position + 1) if position + 1 < len(words) else None


def _end(tokens: Sequence[Token], words: Sequence[str], position: int) -> int | None:
    """Where the parentheses of a call end; None: the word is not called."""
    return closing(tokens, position + 1) if words[position + 1 : position + 2] == ["("] else None


def _similar(tokens: Sequence[Token], _: Sequence[str], position: int) -> _Found:
    name = _text(tokens, position - 1, "x")
    return f"{name} RLIKE '^(pattern)$', with .* for % and . for _", position, position


def _is_json(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    is_not = words[position + 1 : position + 2] == ["NOT"]
    last = position + 1 + is_not
    if words[last : last + 1] != ["JSON"]:
        return None
    name = _text(tokens, position - 1, "x")
    return f"get_json_object({name}, '$') IS {'' if is_not else 'NOT '}NULL", position, last


def _json_object(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    end = _end(tokens, words, position)
    if end is None or _OF_JSON.isdisjoint(
        token.text.upper() for _, token in outer(tokens[position + 2 : end])
    ):
        return None
    return JSON[words[position]], position, position


def _list(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    """`ARRAY[a, b]`; with one value in brackets it may be an element of a column of that name."""
    if words[position + 1 : position + 2] != ["["] or (end := closing(tokens, position + 1)) is None:
        return None
    inner = [token.token_type for _, token in outer(tokens[position + 2 : end])]
    if inner and TokenType.COMMA not in inner:
        return None
    name = words[position].lower()
    return f"{name}('a', x), in parentheses", position, position + 1


def _rounded(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    end = _end(tokens, words, position)
    if end is None or words[end - 2] != "TO":
        return None
    unit, name = words[end - 1], _text(tokens, position + 2, "t") if end - 2 == position + 3 else "t"
    if words[position] == "FLOOR":
        return f"date_trunc('{unit}', {name})", position, end
    return f"date_trunc('{unit}', {name} - INTERVAL 1 MICROSECOND) + INTERVAL 1 {unit}", position, end


def _truncate(tokens: Sequence[Token], words: Sequence[str], position: int) -> _Found:
    if _end(tokens, words, position) is None:
        return None
    return "sign(x) * floor(abs(x), 1), with the number of decimals", position, position


#: functions that make JSON
JSON: Mapping[str, str] = {
    "JSON_OBJECT": "to_json(named_struct('a', b))",
    "JSON_ARRAY": "to_json(array(a, b))",
    "JSON_OBJECTAGG": "to_json(map_from_entries(collect_list(struct(a, b)))), with the hint REFRESH('1 minute')",
    "JSON_ARRAYAGG": "to_json(collect_list(a))",
}
#: by the word that a form begins with, or that tells it from others
_FORMS: Mapping[str, Callable[[Sequence[Token], Sequence[str], int], _Found]] = {
    "SIMILAR TO": _similar,
    "IS": _is_json,
    **dict.fromkeys(JSON, _json_object),
    **dict.fromkeys(("ARRAY", "MAP"), _list),
    **dict.fromkeys(("FLOOR", "CEIL", "CEILING"), _rounded),
    "TRUNCATE": _truncate,
    **dict.fromkeys(("CAST", "TRY_CAST"), _cast),
    "::": _short_cast,
}
