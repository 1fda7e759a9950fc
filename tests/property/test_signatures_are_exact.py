"""Signatures say of each value exactly the patterns it satisfies, whatever a column's form and what was seen before."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.text.signatures import SignatureEncoder
from penstock.plan.patterns import holds
from text_cases import random_pattern, random_value


def column(random: Random, values: list[str | None]) -> pa.Array | pa.ChunkedArray:
    """The values as any of the types, behind others, in chunks or not."""
    kind = random.choice((pa.string(), pa.large_string(), pa.string_view()))
    behind = random.randrange(3)
    array = pa.array([*["x%"] * behind, *values], kind)
    if random.random() < 0.5 and kind != pa.string_view():
        array = array.dictionary_encode()
    array = array.slice(behind)
    if random.random() < 0.5:
        cut = random.randrange(len(values) + 1)
        return pa.chunked_array([array.slice(0, cut), array.slice(cut)])
    return array


@settings(max_examples=examples(600))
@given(st.integers(0, 2**32), st.sampled_from((2048, 1 << 20)))
def test_signatures_are_exact(seed: int, cache_bytes: int) -> None:
    random = Random(seed)
    values = [random_value(random, random.choice((4, 12, 60))) for _ in range(random.randrange(1, 60))]
    patterns = [random_pattern(random, random.choice(values)) for _ in range(random.randrange(60))]
    encoder = SignatureEncoder(patterns, cache_bytes)
    for _ in range(3):
        batch = [
            random.choice((random.choice(values), random.choice(values), None))
            for _ in range(random.randrange(100))
        ]
        rows = None
        if random.random() < 0.5:
            rows = np.array([random.randrange(len(batch)) for _ in batch], np.int64)
        signatures = encoder.encode(column(random, batch), rows)
        asked = batch if rows is None else [batch[row] for row in rows]
        assert len(signatures) == len(asked)
        for value, signature in zip(asked, signatures.tolist(), strict=True):
            expected = (
                []
                if value is None
                else [number for number, pattern in enumerate(patterns) if holds(pattern, value)]
            )
            assert (signature == 0) == (value is None)
            assert encoder.satisfied(signature).tolist() == expected
