"""Calls of some functions are written anew wherever they stand; texts, names and other calls remain as they are."""

from __future__ import annotations

import pytest

from penstock.sql.text.rewritten_calls import rewritten_calls


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("f(x) + 1 > 5", "<`r_f`(x)> + 1 > 5"),
        ("1 + f( x , y+1 )", "1 + <`r_f`(x, y+1)>"),
        ("`f`(x) = F(y)", "<`r_f`(x)> = <`r_F`(y)>"),
        ("g(f(x)) + 1", "<`r_g`(`r_f`(x))> + 1"),
        ("g((f(x)), f(y) + 1, 'f(z)', f)", "<`r_g`((f(x)), f(y) + 1, 'f(z)', f)>"),
        ("coalesce(f(x), 0) < 9 AND f > 1", "coalesce(<`r_f`(x)>, 0) < 9 AND f > 1"),
        ("CASE WHEN f(a) THEN left(f(b), 2) END", "CASE WHEN <`r_f`(a)> THEN left(<`r_f`(b)>, 2) END"),
        ("f()", "<`r_f`()>"),
        ("f(x).a[f(y)] -- f(z)\n > 'f(x)'", "<`r_f`(x)>.a[<`r_f`(y)>] -- f(z)\n > 'f(x)'"),
        ("ff(x) + a.f", "ff(x) + a.f"),
    ],
)
def test_calls_are_written_anew(text: str, wanted: str) -> None:
    found = rewritten_calls(
        text, lambda name: f"r_{name}" if name.lower() in ("f", "g") else None, lambda call: f"<{call}>"
    )
    assert found == wanted
