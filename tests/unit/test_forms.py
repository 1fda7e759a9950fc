"""The form of the tests is `all`, or the short one; another word is refused."""

from __future__ import annotations

import pytest

from forms import is_all


@pytest.mark.parametrize("value", ["ALL", "all ", "1", "short"])
def test_another_word_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="Set it to 'all', or unset it"):
        is_all(value)


def test_the_two_forms() -> None:
    assert is_all("all")
    assert not is_all("")
