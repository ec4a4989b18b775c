"""Hurting what a tier holds, and undoing it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum

from tiers.memory import MemoryStore
from tiers.testing.faulty import flip


class Hurt(StrEnum):
    """What happens to a stored object."""

    FLIP = "flip"
    CUT = "cut"
    EXTEND = "extend"
    SWAP = "swap"
    LOSE = "lose"


DAMAGES = tuple(Hurt)
LOG_DAMAGES = (Hurt.FLIP, Hurt.CUT, Hurt.EXTEND, Hurt.LOSE)


@contextmanager
def damaged(store: MemoryStore, key: str, how: Hurt, others: Sequence[str]) -> Iterator[None]:
    """Hurt one object while the block runs; ``others`` are what it may change places with."""
    held = store.objects[key]
    hurt(store, key, how, others)
    try:
        yield
    finally:
        store.objects[key] = held


def hurt(store: MemoryStore, key: str, how: Hurt, others: Sequence[str]) -> None:
    """Hurt one object for good."""
    held = store.objects[key]
    if how is Hurt.LOSE:
        del store.objects[key]
        return
    data = _hurt(store, key, held.data, how, others)
    assert data != held.data
    # The store goes on attesting the digest that it was given: rot does not ask it.
    store.objects[key] = replace(held, data=data, info=replace(held.info, size=len(data)))


def _hurt(store: MemoryStore, key: str, data: bytes, how: Hurt, others: Sequence[str]) -> bytes:
    other = next((one for one in others if one != key and store.objects[one].data != data), None)
    match how:
        case Hurt.CUT:
            return data[:-1]
        case Hurt.EXTEND:
            return data + b"\0"
        case Hurt.SWAP if other is not None:
            return store.objects[other].data
        case _:
            return flip(data, len(data) // 2)
