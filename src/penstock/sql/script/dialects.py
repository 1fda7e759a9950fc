"""Words of other streaming systems (Flink, ksqlDB), which Spark's SQL has not: the message has what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnknownNameError, UnsupportedError
from penstock.sql.script.foreign_forms import JSON
from penstock.sql.text.lexing import tokenize

_TUMBLING = "Write GROUP BY window(time, '10 minutes'), and window.start or window.end in the SELECT list"
_SLIDING = "Write GROUP BY window(time, '10 minutes', '5 minutes'): size, then slide"
_SESSIONS = "Write GROUP BY session_window(time, '10 minutes'), and session_window.start or session_window.end in the SELECT list"
#: by the name of a function, or by words
_INSTEAD = {
    "TUMBLE": _TUMBLING,
    "TUMBLING": _TUMBLING,
    "HOP": _SLIDING,
    "HOPPING": _SLIDING,
    "SESSION": _SESSIONS,
    "CUMULATE": "Write /*+ CUMULATE('1 hour') */ behind SELECT, and GROUP BY window(time, '10 minutes'), which is the step",
    "UNNEST": "Write LATERAL VIEW explode(list) t AS item behind the table, with the hint REFRESH('1 minute')",
}
#: functions by name, where Spark has none of that name
_FUNCTIONS = {
    **{name: f"Write {instead}" for name, instead in JSON.items()},
    "JSON_VALUE": "Write get_json_object(text, '$.path')",
    "JSON_QUERY": "Write get_json_object(text, '$.path')",
    "JSON_EXISTS": "Write get_json_object(text, '$.path') IS NOT NULL",
    "SPLIT_INDEX": "Write split_part(text, ',', 1), which counts from 1",
    "STRPOS": "Write instr(text, 'part')",
    "HASH_CODE": "Write hash(x)",
    "ROW": "Write struct(1, x), or named_struct('a', 1, 'b', x)",
    "CONVERT_TZ": "Write convert_timezone('UTC', 'Europe/Berlin', time)",
    "PROCTIME": "Write the option arrival 'column' of the table, and that column",
    "CURRENT_WATERMARK": "Leave it out: late tuples correct the windows that they belong to",
}
_NOW = "Write current_timestamp(), in a view with the hint REFRESH('1 minute')"
#: words that are no names of columns in another system
_WORDS = {"LOCALTIMESTAMP": _NOW, "LOCALTIME": _NOW}
#: functions that Spark has too, which take other arguments in another system
_OTHER_ARGUMENTS = {
    "TO_TIMESTAMP_LTZ": "TO_TIMESTAMP_LTZ reads texts in Spark. Of milliseconds write timestamp_millis(number), of seconds timestamp_seconds(number)",
}
_BY_ARRIVAL = ["PROCTIME", "(", ")"]
_WITHOUT_GROUPS = (
    "Without GROUP BY, the window is an expression, in a SELECT list, PARTITION BY or ON: time_bucket(INTERVAL '10' MINUTE, time). "
    "Streams that are joined by it need the hint STATE_TTL('10 minutes')"
)
#: behind what to write for a window, where the last moment of it is asked for: windows over its end would be the next ones
_OF_LAST_MOMENT = ". For windows over this view, select window AS w here and write GROUP BY window(window_time(w), '1 hour') there"
_SUFFIXES = ("_START", "_END", "_ROWTIME")
_PATTERNS = "Write lag(column) OVER (PARTITION BY key ORDER BY time) for earlier rows, in a view with the hint REFRESH('1 minute')"
_CHANGES = "Leave EMIT out: each view publishes its changes, and `penstock results --changes` prints them"


def instead_of(function: str) -> str | None:
    """What a message says of a function of another system, and what Spark's SQL has in its place; None: nothing is known of the name."""
    instead = _FUNCTIONS.get(function.upper())
    return None if instead is None else f"Function {function} is not Spark's. {instead}."


def instead_of_word(column: str) -> str | None:
    """As `instead_of`, of a word that Spark takes for the name of a column."""
    instead = _WORDS.get(column.upper())
    return None if instead is None else f"{column} is not Spark's SQL. {instead}."


def other_arguments(text: str) -> str | None:
    """What to write for a call at which Spark fails, because it takes other arguments than another system; None: no such call is in the text."""
    words = [token.text.upper() for token in tokenize(text)]
    calls = (word for word, after in pairwise(words) if after == "(" and word in _OTHER_ARGUMENTS)
    return next((_OTHER_ARGUMENTS[word] for word in calls), None)


def refuse_other_dialects(script: str, tokens: Sequence[Token]) -> None:
    """Refuses the first window function, WINDOW clause, pattern, EMIT or PROCTIME() of another system.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.

    Raises:
        UnsupportedError: there is one.
        UnknownNameError: the time of arrival is called as a function.
    """
    words = [token.text.upper() for token in tokens]
    is_grouped, has_groups = False, any(token.token_type is TokenType.GROUP_BY for token in tokens)
    #: of each open parenthesis, whether a query begins in it
    queries: list[bool] = []
    for position, (token, word) in enumerate(zip(tokens, words, strict=True)):
        is_grouped = is_grouped or token.token_type is TokenType.GROUP_BY
        after = words[position + 1] if position + 1 < len(words) else ""
        name = next((word.removesuffix(each) for each in _SUFFIXES if word.endswith(each)), word)
        if token.token_type is TokenType.L_PAREN:
            queries.append(after in ("SELECT", "WITH"))
        elif token.token_type is TokenType.R_PAREN and queries:
            queries.pop()
        before = tokens[position - 1].token_type if position else None
        is_table = words[max(0, position - 2) : position] == ["TABLE", "("] or (
            before in (TokenType.FROM, TokenType.JOIN) and all(queries[-1:])
        )
        if after == "(" and name in _INSTEAD and (is_grouped or is_table or name != word):
            told = _INSTEAD[name]
            if word.endswith("_ROWTIME") and name != "SESSION":
                told += _OF_LAST_MOMENT
            elif is_table and not has_groups and name != "UNNEST":
                told = _WITHOUT_GROUPS
        elif word == "WINDOW" and after in _INSTEAD:
            told = _INSTEAD[after]
        elif word == "EMIT" and after in ("CHANGES", "FINAL"):
            told = _CHANGES
        elif word == "MATCH_RECOGNIZE" and after == "(":
            told = _PATTERNS
        elif (
            words[position : position + 3] == _BY_ARRIVAL and (message := instead_of(token.text)) is not None
        ):
            # clauses that need a column would blame something else
            raise UnknownNameError(message, script, token.start, tokens[position + 2].end + 1, token.text)
        else:
            continue
        message = f"{token.text} is not Spark's SQL. {told}."
        raise UnsupportedError(message, script, token.start, token.end + 1)
