"""What `penstock why` and `penstock try` print of an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.try_view import backtest_lines
from penstock.cli.why import read_row, why_lines
from penstock.errors import InputError
from penstock.provenance import (
    Backtest,
    Conjunct,
    Count,
    Judged,
    Partners,
    Passed,
    Revision,
    TupleWindow,
    Value,
    Why,
)

_LARGE = Judged("amount > 9", "test", "NULL", values=(Value("amount", None),))
_SHARE = Judged(
    "100 / amount > 2",
    "test",
    "error",
    "Division by zero.",
    (Value("100 / amount", None, "Division by zero."),),
)


def test_the_verdict_is_that_of_a_conjunction() -> None:
    true, false = Judged("a", "test", "true"), Judged("b", "test", "false")
    assert Why("v", "selection", "s").verdict == "true"
    assert Why("v", "selection", "s", conjuncts=(Conjunct("v", true),)).verdict == "true"
    assert (
        Why("v", "selection", "s", conjuncts=(Conjunct("v", true), Conjunct("v", _LARGE))).verdict == "NULL"
    )
    both = tuple(Conjunct("v", each) for each in (_LARGE, _SHARE, true))
    assert Why("v", "selection", "s", conjuncts=both).verdict == "error"
    assert Why("v", "selection", "s", conjuncts=(*both, Conjunct("v", false))).verdict == "false"


def test_a_window_view_shows_what_became_of_each_window() -> None:
    revisions = (
        Revision(0, 0.875, False, "upsert", {"host": "it's", "n": 3}),
        Revision(1, None, True, "upsert", {"host": "it's", "n": 4}),
    )
    windows = (TupleWindow("10:00", "11:00", {"host": "it's"}, "final", "", revisions),)
    found = Why(
        "busy",
        "window",
        "logs",
        values={"host": "it's", "amount": None},
        missing=("amount",),
        unknown=("amuont",),
        conjuncts=(Conjunct("busy", _SHARE),),
        windows=windows,
        notes=("HAVING is a condition on groups: n > 2",),
    )
    assert list(why_lines(found)) == [
        "busy: the tuple does not match: 100 / amount > 2 is error",
        "tuple of logs: host = 'it''s', amount = NULL",
        "not given, so NULL: amount",
        "warning: not a column of logs, ignored: amuont",
        "  error  100 / amount > 2   100 / amount: Division by zero.",
        "  window 10:00 - 11:00, host = 'it''s': final",
        "    revision 0, not final, coverage 0.875, upsert: host = 'it''s', n = 3",
        "    revision 1, final, upsert: host = 'it''s', n = 4",
        "note: HAVING is a condition on groups: n > 2",
    ]
    assert json.loads(json.dumps(found.to_dict()))["windows"][0]["revisions"][1]["row"]["n"] == 4


def test_partners_and_what_cannot_be_read() -> None:
    partners = (
        Partners("c", "cities", 3, 1, ({"country": "CH"},)),
        Partners("w", "w", None, None, (), "Stream w is a kafka source."),
    )
    found = Why("j", "join", "payments", "p", {"id": 1}, partners=partners)
    assert list(why_lines(found)) == [
        "j: the tuple takes part in the join",
        "tuple of p (payments): id = 1",
        "  partners from c (cities): 1 of 3 tuples",
        "    country = 'CH'",
        "  partners from w: unknown. Stream w is a kafka source.",
    ]


def test_a_record_that_is_set_aside_has_no_verdict() -> None:
    found = Why("v", "selection", "s", set_aside="malformed JSON: id is no INT")
    assert list(why_lines(found)) == ["v: Penstock sets the record aside: malformed JSON: id is no INT"]


def test_a_backtest_shows_matches_by_hour() -> None:
    found = Backtest(
        "large",
        "SELECT ...",
        {"payments": "in"},
        {"payments": 1_200},
        1,
        5,
        2,
        "hour",
        (Count("2026-01-01 10:00:00", 700, 4), Count("2026-01-01 11:00:00", 400, 0), Count("", 100, 1)),
        ({"id": 1},),
        (Passed("amount > 900", 1_100), Passed("city = 'Rome'", 6)),
    )
    assert list(backtest_lines(found)) == [
        "large: 5 matches in 1,200 tuples of payments",
        "payments: in",
        "1 record set aside: they do not fit the columns",
        "2 tuples not matched: the condition raises an error",
        "tuples that each part of the condition lets through:",
        "  1,100  amount > 900",
        "      6  city = 'Rome'",
        "matches by hour:",
        f"  2026-01-01 10:00:00        4 {'#' * 40}",
        "  2026-01-01 11:00:00        0",
        f"  unknown                    1 {'#' * 10}",
        "rows, 1 of 5:",
        "  id = 1",
    ]


def test_many_hours_are_shown_by_day() -> None:
    hours = (Count(f"2026-01-{day:02} {hour:02}:00:00", 9, 1) for day in (1, 2, 3) for hour in range(24))
    found = Backtest("v", "", {"s": "in"}, {"s": 648}, 0, 72, 0, "hour", tuple(hours))
    assert list(backtest_lines(found))[2:] == [
        "matches by day:",
        *(f"  2026-01-0{day}       24 {'#' * 40}" for day in (1, 2, 3)),
    ]


def test_a_row_is_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text('{"id": 1}')
    assert read_row('{"id": 2}') == '{"id": 2}'
    assert read_row(f"@{tmp_path}/row.json") == '{"id": 1}'
    with pytest.raises(InputError, match="--row @nowhere: No such file"):
        read_row("@nowhere")
