"""The slope by which growth is told: a leak is seen, noise and outliers are not."""

from __future__ import annotations

import random

from disturbed_runs import slope


def test_a_leak_is_told_from_noise() -> None:
    rng = random.Random(1)
    minutes = [number / 12 for number in range(40, 120)]
    still = [1_500 + rng.uniform(-30, 30) + (400 if number % 9 == 0 else 0) for number in range(80)]
    assert abs(slope(minutes, still)) < 3
    assert slope(minutes, [value + 19 * minute for minute, value in zip(minutes, still, strict=True)]) > 16
