"""Which of several views fail is found by halves; a job that somebody broke off is no view's fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.spark.lanes.stopped import divided


def test_what_fails_is_found_by_halves() -> None:
    def attempt(parts: Sequence[int]) -> list[int]:
        if sick := [part for part in parts if part in (2, 5)]:
            raise ValueError(f"{sick[0]} is too much")
        return list(parts)

    answers, failed = divided(attempt, range(7), was_tried=False)
    assert sorted(each for answer in answers for each in answer) == [0, 1, 3, 4, 6]
    assert [part for part, _ in failed] == [2, 5]
    assert "5 is too much" in failed[1][1].told


def test_a_job_that_is_cancelled_is_tried_for_no_part() -> None:
    tried = []

    def attempt(parts: Sequence[int]) -> None:
        tried.append(list(parts))
        raise RuntimeError("[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group x")

    with pytest.raises(RuntimeError, match="SPARK_JOB_CANCELLED"):
        divided(attempt, [1, 2], was_tried=True)
    assert tried == [[1, 2]]
