"""How long publications take, by how many windows each is about."""

from __future__ import annotations

#: what the newest publication counts for, in the time the next one of its size is taken to take
_FADING = 0.5
#: believed before the first one, seconds
_BELIEVED = 0.05


class PublicationTimes:
    """Learns from publications; one that tells of a whole backlog says little of one window's.

    Sizes are told apart by powers of four.
    """

    def __init__(self) -> None:
        #: by size class; replaced as a whole, since one thread learns and another asks
        self._seconds: dict[int, float] = {}

    def learn(self, windows: int, seconds: float) -> None:
        """A publication about so many windows took so long."""
        size = _class_of(windows)
        before = self._seconds.get(size, seconds if self._seconds else _BELIEVED)
        self._seconds = {**self._seconds, size: before + _FADING * (seconds - before)}

    def expected(self, windows: int) -> float:
        """Seconds that a publication about so many windows takes.

        Of a size that none had, those of the next smaller one; of one smaller than all, its share of the smallest. So many windows
        never take longer than as many publications about fewer: what a large one took long ago does not last.
        """
        size, known = _class_of(windows), self._seconds
        if not known:
            return _BELIEVED
        smaller = [each for each in known if each <= size]
        if smaller:
            return min(known[max(smaller)], *(known[each] * 4.0 ** (size - each) for each in smaller))
        least = min(known)
        return max(_BELIEVED, known[least] / 4.0 ** (least - size))


def _class_of(windows: int) -> int:
    return (max(1, windows).bit_length() - 1) // 2
