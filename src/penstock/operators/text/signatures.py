"""What values satisfy, as codes: a column's patterns are matched in one pass over its distinct values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.text import BY_CALLER, FOLDS_TO_ASCII, FOREIGN, SPACED, count_points
from penstock.operators.text.automaton import Automaton, Hits, Item, items_of
from penstock.operators.text.columns import Rows, Texts, plain, texts_in, texts_of
from penstock.operators.text.known_sets import KnownSets
from penstock.operators.text.known_values import KnownValues
from penstock.plan.patterns import (
    Form,
    TextPattern,
    Wildcard,
    formed,
    is_kernel_pattern,
    length_bounds,
    like_parts,
    regex_search,
)

#: the signature of NULL
NULL_SIGNATURE = 0
#: bytes that a column's known values may take
CACHE_BYTES = 32 << 20

Signatures = npt.NDArray[np.uint32]

#: values that are looked up of each batch of a column that does not repeat
_SAMPLE = 1024
#: a column repeats if at least this fraction of its values was known
_REPEATED = 0.1


class SignatureEncoder:
    """Gives each value of a string column the number of the set of patterns that it satisfies: its signature.

    A number keeps its meaning until `forget`. A pickled encoder is built again and numbers again. One thread at a time uses an encoder. Bytes that are
    no UTF-8 are matched as they are by LIKE (a stray byte belongs to the code point before it), and as U+FFFD by regular
    expressions and where a pattern or lower case asks for letters beyond ASCII.

    Args:
        patterns: kernel patterns; a pattern's number is its place.
        cache_bytes: bytes that known values may take, in two generations: the older half is dropped where they are full.

    Raises:
        ValueError: one of them is no kernel pattern.
    """

    def __init__(self, patterns: Sequence[TextPattern], cache_bytes: int = CACHE_BYTES) -> None:
        self._patterns, self._cache_bytes = tuple(patterns), cache_bytes
        always: list[int] = []
        items: list[Item] = []
        self._lengths: list[tuple[int, int, int | None]] = []
        for number, pattern in enumerate(self._patterns):
            if not is_kernel_pattern(pattern):
                raise ValueError(f"Only Spark can compute the pattern {pattern.text!r} ({pattern.kind}).")
            if pattern.kind == "like" and like_parts(pattern.text) == (Wildcard.ANY,):
                always.append(number)
            elif pattern.kind == "length":
                self._lengths.append((number, *length_bounds(pattern.text)))
            else:
                items += items_of(number, pattern)
        self._forms = list(dict.fromkeys(pattern.form for pattern in self._patterns))
        self._form_of = np.array([self._forms.index(pattern.form) for pattern in self._patterns], np.int32)
        self._always = np.array(always, np.int32)
        self._unannounced = [item.pattern for item in items if item.deciding == BY_CALLER and not item.text]
        items = [item for item in items if item.text or item.deciding != BY_CALLER]
        self._automaton = Automaton(items, self._forms)
        self._pattern_of = np.array([item.pattern for item in items], np.int32)
        self._by_caller = np.array([item.deciding == BY_CALLER for item in items], np.bool_)
        self._strange = [self._strangeness(form) for form in self._forms]
        self._known_sets = KnownSets()
        self._known_values = KnownValues(cache_bytes)
        self._repeated = 1.0

    def __reduce__(self) -> tuple[type[SignatureEncoder], tuple[tuple[TextPattern, ...], int]]:
        return SignatureEncoder, (self._patterns, self._cache_bytes)

    @property
    def signatures(self) -> int:
        """How many signatures are known, that of NULL among them."""
        return len(self._known_sets) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of the automaton, of known values and of known sets."""
        return self._automaton.nbytes + self._known_values.nbytes + self._known_sets.nbytes

    def forget(self) -> None:
        """Drops all values and signatures; later ones get new numbers."""
        self._known_sets = KnownSets()
        self._known_values = KnownValues(self._cache_bytes)

    def satisfied(self, signature: int) -> npt.NDArray[np.int32]:
        """int32[], ascending: numbers of the patterns that values of a signature satisfy; of NULL none."""
        if signature == NULL_SIGNATURE:
            return np.empty(0, np.int32)
        return np.union1d(self._always, self._known_sets.members(signature - 1))

    def encode(self, column: pa.Array | pa.ChunkedArray, rows: Rows | None = None) -> Signatures:
        """The signature of each row.

        Args:
            column: string, large_string, string_view, or a dictionary of these.
            rows: int64[], the rows that matter; None: all.

        Returns:
            uint32[rows], in their order; 0 of NULL.
        """
        if isinstance(column, pa.Array):
            return self._encode(column, rows)
        if column.num_chunks == 1:
            return self._encode(column.chunk(0), rows)
        if rows is None:
            parts = [self._encode(chunk, None) for chunk in column.chunks]
            return np.concatenate([np.empty(0, np.uint32), *parts])
        signatures = np.empty(len(rows), np.uint32)
        first = 0
        for chunk in column.chunks:
            inside = np.flatnonzero((rows >= first) & (rows < first + len(chunk)))
            if len(inside):
                signatures[inside] = self._encode(chunk, rows[inside] - first)
            first += len(chunk)
        return signatures

    # -------------------------------------------------------------------------------------------- rows to values

    def _encode(self, array: pa.Array, rows: Rows | None) -> Signatures:
        if pa.types.is_dictionary(array.type):
            return self._encode_dictionary(array, rows)
        valid = _valid(array, rows)
        array = plain(array)
        if valid is None:
            return self._of_rows(texts_in(array, rows))
        chosen = np.flatnonzero(valid)
        signatures = np.full(len(valid), NULL_SIGNATURE, np.uint32)
        signatures[chosen] = self._of_rows(texts_in(array, chosen if rows is None else rows[chosen]))
        return signatures

    def _encode_dictionary(self, array: pa.DictionaryArray, rows: Rows | None) -> Signatures:
        """Of a dictionary only entries that the rows use."""
        valid = _valid(array, rows)
        indices = array.indices.fill_null(0).to_numpy() if array.null_count else array.indices.to_numpy()
        codes = (indices if rows is None else indices[rows]).astype(np.int64)
        used = np.zeros(len(array.dictionary), np.bool_)
        used[codes if valid is None else codes[valid]] = True
        entries = np.flatnonzero(used)
        of_entry = np.zeros(max(len(used), 1), np.uint32)
        of_entry[entries] = self._encode(array.dictionary, entries)
        return (
            of_entry[codes] if valid is None else np.where(valid, of_entry[codes], np.uint32(NULL_SIGNATURE))
        )

    def _of_rows(self, texts: Texts) -> Signatures:
        """Signatures of values, of which some are known and some occur again, if this column does repeat."""
        if self._repeated >= _REPEATED or len(texts) <= _SAMPLE:
            signatures, news = self._known_values.signatures(texts, self._of_values)
            self._count(len(texts), news)
            return signatures
        sample, news = self._known_values.signatures(texts.take(slice(_SAMPLE)), self._of_values)
        self._count(_SAMPLE, news)
        return np.concatenate([sample, self._of_values(texts.take(slice(_SAMPLE, None)))])

    def _count(self, values: int, news: int) -> None:
        weight = min(1.0, values / (4 * _SAMPLE))
        self._repeated += weight * ((values - news) / max(values, 1) - self._repeated)

    # -------------------------------------------------------------------------------------------- values to sets

    def _of_values(self, texts: Texts) -> Signatures:
        """Signatures of values that are not known."""
        signatures = np.full(len(texts), 1, np.uint32)
        if not len(texts):
            return signatures
        for hits in self._automaton.steps(texts):
            values, patterns = self._confirmed(texts, hits)
            self._known_sets.number(patterns, values, signatures)
        return signatures

    def _confirmed(self, texts: Texts, hits: Hits) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Values and patterns they satisfy, of one step; those of a value are together."""
        values, items = hits.values, hits.items
        changed: dict[int, dict[int, str]] = {}
        for form, flags in enumerate(self._strange):
            is_strange = (hits.strange & flags) != 0
            strange = np.flatnonzero(is_strange[hits.begin : hits.done]) + hits.begin
            if len(strange):
                changed[form] = {
                    value: formed(self._forms[form], texts.text(value)) for value in strange.tolist()
                }
                keep = (self._form_of[self._pattern_of[items]] != form) | ~is_strange[values]
                more_values, more_items = self._of_formed(form, changed[form])
                values = np.concatenate([values[keep], more_values])
                items = np.concatenate([items[keep], more_items])
        doubtful = np.flatnonzero(self._by_caller[items])
        if len(doubtful):
            right = np.ones(len(items), np.bool_)
            pairs = zip(values[doubtful].tolist(), self._pattern_of[items[doubtful]].tolist(), strict=True)
            right[doubtful] = self._search(texts, pairs)
            values, items = values[right], items[right]
        patterns = self._pattern_of[items]
        if self._unannounced:
            asked = [
                (value, number) for value in range(hits.begin, hits.done) for number in self._unannounced
            ]
            found = np.array(asked, np.int32)[self._search(texts, asked)]
            values = np.concatenate([values, found[:, 0]])
            patterns = np.concatenate([patterns, found[:, 1]])
        if self._lengths:
            more_values, more_patterns = self._of_lengths(texts, hits, changed)
            values, patterns = (
                np.concatenate([values, more_values]),
                np.concatenate([patterns, more_patterns]),
            )
        if changed or self._unannounced or self._lengths:
            order = np.argsort(values, kind="stable")
            values, patterns = values[order], patterns[order]
        return values, patterns

    def _of_formed(
        self, form: int, texts: dict[int, str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Values and items of a form, of values that are matched behind its functions."""
        numbers = np.array(list(texts), np.int32)
        steps = list(self._automaton.steps(texts_of(list(texts.values())), form))
        values = np.concatenate([numbers[step.values] for step in steps])
        return values, np.concatenate([step.items for step in steps])

    def _of_lengths(
        self, texts: Texts, hits: Hits, changed: dict[int, dict[int, str]]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Values and patterns of lengths that they satisfy, of one step."""
        step = texts.take(slice(hits.begin, hits.done))
        plain = count_points(np.uint64(step.address), step.begins, step.ends)
        of_form: dict[int, npt.NDArray[np.int64]] = {}
        for form in {int(self._form_of[number]) for number, _, _ in self._lengths}:
            points = of_form[form] = plain.copy()
            for value, text in changed.get(form, {}).items():
                points[value - hits.begin] = len(text)
        values, patterns = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for number, least, most in self._lengths:
            points = of_form[int(self._form_of[number])]
            fits = (points >= least) if most is None else (points >= least) & (points <= most)
            values.append((np.flatnonzero(fits) + hits.begin).astype(np.int32))
            patterns.append(np.full(len(values[-1]), number, np.int32))
        return np.concatenate(values), np.concatenate(patterns)

    def _search(self, texts: Texts, pairs: Iterable[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        """Whether values satisfy regular expressions, of (value, pattern); those of a value follow each other."""
        found, last = [], -1
        known: dict[Form, str] = {}
        for value, number in pairs:
            if value != last:
                last, known = value, {(): texts.text(value)}
            pattern = self._patterns[number]
            text = known.get(pattern.form)
            if text is None:
                text = known[pattern.form] = formed(pattern.form, known[()])
            found.append(bool(regex_search(pattern.text)(text)))
        return np.array(found, np.bool_)

    def _strangeness(self, form: Form) -> int:
        """The flags of values that must be matched behind the functions of a form, apart from the others."""
        flags = SPACED if {"trim", "ltrim", "rtrim"} & {*form} else 0
        if "upper" in form:
            return flags | FOREIGN
        if "lower" not in form:
            return flags
        has_letters = any(
            pattern.kind == "regex" or not pattern.text.isascii()
            for pattern in self._patterns
            if pattern.form == form
        )
        return flags | (FOREIGN | FOLDS_TO_ASCII if has_letters else FOLDS_TO_ASCII)


def _valid(array: pa.Array, rows: Rows | None) -> npt.NDArray[np.bool_] | None:
    """Which of the rows are not NULL; None: all."""
    if not array.null_count:
        return None
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid if rows is None else valid[rows]
