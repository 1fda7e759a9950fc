"""Words of other streaming systems (Flink, ksqlDB), which Spark's SQL has not: the message has what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnsupportedError

_TUMBLING = "Write GROUP BY window(time, '10 minutes'), and window.start or window.end in the SELECT list"
_SLIDING = "Write GROUP BY window(time, '10 minutes', '5 minutes'): size, then slide"
_SESSIONS = "Write GROUP BY session_window(time, '10 minutes')"
#: by the name of a function, or by words
_INSTEAD = {
    "TUMBLE": _TUMBLING,
    "TUMBLING": _TUMBLING,
    "HOP": _SLIDING,
    "HOPPING": _SLIDING,
    "SESSION": _SESSIONS,
}
_SUFFIXES = ("_START", "_END", "_ROWTIME")
_CHANGES = "Leave EMIT out: each view publishes its changes, and `penstock results --changes` prints them"


def refuse_other_dialects(script: str, tokens: Sequence[Token]) -> None:
    """Refuses the first window function, WINDOW clause or EMIT of another system.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.

    Raises:
        UnsupportedError: there is one.
    """
    words = [token.text.upper() for token in tokens]
    is_grouped = False
    for position, (token, word) in enumerate(zip(tokens, words, strict=True)):
        is_grouped = is_grouped or token.token_type is TokenType.GROUP_BY
        after = words[position + 1] if position + 1 < len(words) else ""
        name = next((word.removesuffix(each) for each in _SUFFIXES if word.endswith(each)), word)
        is_table = words[max(0, position - 2) : position] == ["TABLE", "("]
        if after == "(" and name in _INSTEAD and (is_grouped or is_table or name != word):
            told = _INSTEAD[name]
        elif word == "WINDOW" and after in _INSTEAD:
            told = _INSTEAD[after]
        elif word == "EMIT" and after in ("CHANGES", "FINAL"):
            told = _CHANGES
        else:
            continue
        message = f"{token.text} is not Spark's SQL. {told}."
        raise UnsupportedError(message, script, token.start, token.end + 1)
