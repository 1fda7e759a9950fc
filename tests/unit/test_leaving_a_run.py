"""At the end of a `with` block the exception of its body wins over one of the stop."""

from __future__ import annotations

import pytest

from penstock.errors import StreamFailedError
from penstock.spark.run import Run


class Failing:
    """An execution whose stop fails."""

    def stop(self) -> None:
        raise StreamFailedError("The stream failed.")


def test_the_exception_of_the_body_wins() -> None:
    with pytest.raises(KeyError) as raised, Run(Failing()):  # type: ignore[arg-type]
        raise KeyError("own")
    assert raised.value.__notes__ == ["Stopping the run failed too: The stream failed."]


def test_the_exception_of_the_stop_is_raised_where_the_body_has_none() -> None:
    with pytest.raises(StreamFailedError, match="The stream failed"), Run(Failing()):  # type: ignore[arg-type]
        pass
