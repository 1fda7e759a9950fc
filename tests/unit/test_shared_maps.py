"""Maps that share entries are dicts in all that can be seen of them, and are compared without looking at what they share."""

from __future__ import annotations

import random

import pytest

from penstock.spark.storage.shared_maps import SharedMap, made_of


def change(chance: random.Random, shared: SharedMap[int], plain: dict[str, int]) -> None:
    """One change of both."""
    name = f"v{chance.randrange(120)}"
    match chance.randrange(5):
        case 0 | 1:
            shared[name] = plain[name] = chance.randrange(3)
        case 2 if name in plain:
            shared[name] = plain[name] = plain.pop(name)
            del shared[name]
            shared[name] = plain[name]
        case _ if name in plain:
            del shared[name], plain[name]
        case _:
            with pytest.raises(KeyError):
                del shared[name]


def follows(before: dict[str, int], now: dict[str, int]) -> bool:
    """Whether a dict has what remains of another in its order, and new names behind."""
    return list(now) == [
        *(name for name in before if name in now),
        *(name for name in now if name not in before),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_dict_whose_copies_change_apart(seed: int) -> None:
    chance = random.Random(seed)
    first = {f"v{number}": number for number in range(100)}
    kept: list[tuple[SharedMap[int], dict[str, int], SharedMap[str]]] = []
    shared, plain, texts = SharedMap(first), dict(first), SharedMap({n: str(v) for n, v in first.items()})
    in_order = 0
    for step in range(150):
        before, was = shared, plain
        shared, plain = shared.copy(), dict(plain)
        for _ in range(chance.choice((0, 1, 1, 2, 9))):
            change(chance, shared, plain)
        assert list(shared.items()) == list(plain.items())
        assert list(shared) == list(plain)
        assert list(shared.values()) == list(plain.values())
        assert len(shared) == len(plain)
        assert list(before.items()) == list(was.items())
        asked = chance.sample(list(plain), min(9, len(plain)))
        order = list(plain)
        assert shared.places(asked) == [order.index(name) for name in asked]
        texts = made_of(shared, str, (before, texts))
        assert list(texts.items()) == [(name, str(value)) for name, value in plain.items()]
        kept.append((shared, plain, texts))
        # copies of any age, and of copies that were never followed
        earlier, was, known = chance.choice(kept)
        changes = shared.changes_since(earlier)
        assert list(changes.others.items()) == [
            (name, value) for name, value in plain.items() if was.get(name) != value
        ]
        assert sorted(changes.gone) == sorted(was.keys() - plain.keys())
        assert follows(was, plain) or not changes.is_in_order
        in_order += changes.is_in_order
        assert list(made_of(shared, str, (earlier, known)).items()) == list(texts.items())
        if step % 10 == 9:
            shared, plain, texts = chance.choice(kept)
    assert in_order > 2


class Counted(str):
    """A value that counts its comparisons."""

    asked = 0

    def __eq__(self, other: object) -> bool:
        Counted.asked += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_a_comparison_looks_at_what_was_changed_alone() -> None:
    shared = SharedMap({f"v{number}": Counted(number) for number in range(10_000)})
    changed = shared.copy()
    changed["v7"] = Counted("7")
    changed["new"] = Counted("0")
    del changed["v9"]
    Counted.asked = 0
    changes = changed.changes_since(shared)
    assert Counted.asked <= 2
    assert (changes.others, changes.gone, changes.is_in_order) == ({"new": "0"}, ["v9"], True)
