"""Which states a disk may be in after a power cut: every legal loss of what was not fsynced.

What is legal, :mod:`support.disk_model` says.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.disk_model import Change, Choice, Disk, Fate, Tree
from support.strace_log import Mark, Operation, Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One state after a power cut: where, what had been said by then, what was lost, and what is there."""

    at: int
    said: tuple[str, ...]
    choice: Choice
    lost: tuple[str, ...]
    tree: Tree

    def __str__(self) -> str:
        odd = [f"{change.what}: {fate}" for change, fate in self.choice if fate is not Fate.DONE]
        return f"power cut before operation {self.at}, lost: {'; '.join((*self.lost, *odd)) or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How many states: every combination where at most ``all_of`` changes hang, else a systematic choice.

    ``random`` are drawn besides at each point, ``pairs`` adds the loss of each two.  Of all
    these a ``share`` is taken by chance, but for the loss of everything right before something
    is said; before an fsync that is tried with the chance ``bare``.
    """

    all_of: int = 4
    pairs: bool = False
    random: int = 2
    share: float = 1.0
    bare: float = 1.0
    seed: int = 0


def crashes(
    operations: Sequence[Operation],
    disk: Disk,
    sampling: Sampling,
    *,
    commits: Callable[[Disk, Mark], None] | None = None,
    in_order: Callable[[Change], bool] = lambda _change: False,
) -> Iterator[Crash]:
    """Yield every state once, at each point where something becomes durable or is said, and at the end.

    Between two such points nothing is possible that is not possible at the second.  ``commits``
    does to the disk what a mark means; changes that are ``in_order`` arrive whole and in their order.
    """
    said: list[str] = []
    seen: set[bytes] = set()
    for index, operation in enumerate((*operations, None)):
        if operation is None or isinstance(operation, Sync | Mark):
            bare = sampling.bare if isinstance(operation, Sync) else 1
            for choice in _sampled(disk.pending, sampling, index, bare=bare, in_order=in_order):
                tree = disk.after(choice)
                key = _digest(tree, said)
                if key not in seen:
                    seen.add(key)
                    yield Crash(at=index, said=tuple(said), choice=choice, lost=_lost(disk, choice), tree=tree)
        if isinstance(operation, Mark):
            said.append(operation.text)
            if commits is not None:
                commits(disk, operation)
        elif operation is not None:
            disk.apply(operation)


def _is_in_order(pending: Sequence[Change], choice: Choice, in_order: Callable[[Change], bool]) -> bool:
    fates = {id(change): fate for change, fate in choice}
    ordered = [fates.get(id(change), Fate.LOST) for change in pending if in_order(change)]
    done = ordered.count(Fate.DONE)
    return ordered == [Fate.DONE] * done + [Fate.LOST] * (len(ordered) - done)


def _lost(disk: Disk, choice: Choice) -> tuple[str, ...]:
    kept = {id(change) for change, _ in choice}
    return tuple(change.what for change in disk.pending if id(change) not in kept)


def _sampled(
    pending: Sequence[Change], sampling: Sampling, index: int, *, bare: float, in_order: Callable[[Change], bool]
) -> Iterator[Choice]:
    """Yield the share of all combinations that is wanted; ``bare`` is that of the loss of everything."""
    chance = random.Random(f"{sampling.seed}/share/{index}")
    for choice in _choices(pending, sampling, index):
        wanted = sampling.share if choice else bare
        if (wanted >= 1 or chance.random() < wanted) and _is_in_order(pending, choice, in_order):
            yield choice


def _choices(pending: Sequence[Change], sampling: Sampling, index: int) -> Iterator[Choice]:
    """Yield combinations: none, all, each prefix, all but one, one alone, each tear; then pairs, then by chance."""
    done = tuple((change, Fate.DONE) for change in pending)
    if len(pending) <= sampling.all_of:
        yield from _product(pending)
        return
    yield ()
    yield done
    for number in range(len(pending)):
        yield done[:number]
        yield done[:number] + done[number + 1 :]
        yield (done[number],)
        for fate in pending[number].fates()[1:]:
            yield (*done[:number], (pending[number], fate), *done[number + 1 :])
            yield (*done[:number], (pending[number], fate))
    if sampling.pairs:
        for one, other in itertools.combinations(range(len(pending)), 2):
            yield tuple(pair for number, pair in enumerate(done) if number not in (one, other))
    chance = random.Random(f"{sampling.seed}/{index}")
    for _ in range(sampling.random):
        yield tuple(
            (change, chance.choice(change.fates()))
            for change in pending
            if chance.random() < chance.choice((0.2, 0.5, 0.8))
        )


def _product(pending: Sequence[Change]) -> Iterator[Choice]:
    for fates in itertools.product(*((Fate.LOST, *change.fates()) for change in pending)):
        yield tuple((change, fate) for change, fate in zip(pending, fates, strict=True) if fate is not Fate.LOST)


def _digest(tree: Tree, said: Iterable[str]) -> bytes:
    digest = hashlib.sha256(repr(tuple(said)).encode())
    for path, data in tree.items():
        digest.update(f"{path}\0{'' if data is None else len(data)}\0".encode())
        digest.update(data or b"")
    return digest.digest()


def materialise(tree: Tree, folder: Path) -> None:
    """Write a state to a real folder, which is made."""
    folder.mkdir()
    for path, data in tree.items():
        full = folder / path
        if data is None:
            full.mkdir()
        else:
            full.write_bytes(data)
