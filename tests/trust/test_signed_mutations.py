"""Whatever is done to a signed log: it is refused, or it changes nothing of what the log adds up to."""

import json
from collections.abc import Callable
from functools import cache

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.commits import Writer
from trust.stage import (
    ONE,
    READER,
    TIER,
    end_of,
    entries,
    grown,
    key,
    lay,
    made,
    read,
    remembering,
    respelled,
    two_lines,
)

from replicate.canonical import dump, sha256
from replicate.log import NO_ENTRY, LogState, Pin
from replicate.logbook import RolledBack
from replicate.signing.anchor import Anchor
from replicate.signing.lines import sign
from tiers.memory import MemoryStore, MemoryTier

Log = dict[int, bytes]
Mutation = Callable[[Log], Log]
COMMITS = 4


@cache
def genuine() -> tuple[Log, LogState, Anchor]:
    """Return a signed log, what it adds up to, and where it ends."""
    store = MemoryStore()
    writer = grown(store, ONE, COMMITS)
    writer.retire(made(1))
    writer.append(Pin(generation=str(made(2).id), reason="keep"), attempt=1, attempt_id="attempt-1")
    assert writer.view.state is not None
    return dict(enumerate(entries(store))), writer.view.state, end_of(writer.view)


@cache
def twin() -> Log:
    """Return the log of the same run on another tier, by the same key, longer and under a higher term."""
    store = MemoryStore()
    writer = Writer(MemoryTier(TIER, store), remote=ONE, term=9)
    writer.serial = 70
    for sequence in range(2, COMMITS + 6):
        writer.commit(made(sequence))
    return dict(enumerate(entries(store)))


SLOTS = st.integers(0, COMMITS + 2)


def at(slot: int, change: Callable[[bytes], bytes]) -> Mutation:
    return lambda log: {**log, slot: change(log[slot])} if slot in log else log


def without(slot: int) -> Mutation:
    return lambda log: {each: data for each, data in log.items() if each != slot}


def cut(slot: int) -> Mutation:
    return lambda log: {each: data for each, data in log.items() if each < slot}


def placed(slot: int, source: int, other: Log) -> Mutation:
    return lambda log: {**log, slot: other[source]}


def appended(data: bytes) -> Mutation:
    return lambda log: {**log, max(log, default=-1) + 1: data}


FORGED: list[Callable[[bytes, bytes], bytes]] = [
    lambda line, _old: line,
    lambda line, _old: sign(line, key(9)),
    lambda line, old: line + (old.split(b"\n")[2:3] or [b""])[0] + b"\n",
]
"""Who vouches for what an intruder made: nobody, another key, the signature that stood there."""


def forged(kept: int, source: int, signature: int) -> Mutation:
    """Rewrite a slot and put it after those that are kept, chained and digested as it should be."""

    def mutate(log: Log) -> Log:
        slot = min(kept, len(log))
        before = log.get(slot - 1, b"")
        old = genuine()[0][source]
        entry = json.loads(old.split(b"\n")[0]) | {"slot": slot, "prev": sha256(before) if slot else NO_ENTRY}
        if entry["body"]["kind"] == "commit":
            entry["body"] |= {"generation": str(made(8).id), "manifest_key": f"toy/generations/x.t{entry['term']}-x/m"}
        line = dump(entry)
        return {**log, slot: FORGED[signature](line + b"\n" + sha256(line).encode() + b"\n", old)}

    return mutate


def flipped(place: float, bit: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        index = int(place * (len(data) - 1)) if data else 0
        return data[:index] + bytes([data[index] ^ 1 << bit]) + data[index + 1 :] if data else b"x"

    return change


CHANGES = st.one_of(
    st.builds(flipped, st.floats(0, 1), st.integers(0, 7)),
    st.sampled_from(
        [
            two_lines,
            lambda data: sign(two_lines(data), key(9)) if data.count(b"\n") > 1 else data,
            lambda data: data[: len(data) // 2],
            lambda data: data + b"\n",
            lambda data: respelled(data) if data.endswith(b"==\n") else b"",
            lambda data: data.replace(b"commit", b"retire"),
        ]
    ),
)
MUTATIONS = st.one_of(
    st.builds(forged, SLOTS, SLOTS, st.integers(0, len(FORGED) - 1)),
    st.builds(forged, st.just(COMMITS + 3), st.integers(1, COMMITS), st.integers(0, len(FORGED) - 1)),
    st.builds(at, SLOTS, CHANGES),
    st.builds(without, SLOTS),
    st.builds(cut, SLOTS),
    st.builds(lambda slot, source: placed(slot, source, genuine()[0]), SLOTS, SLOTS),
    st.builds(lambda slot, source: placed(slot, source, twin()), SLOTS, SLOTS),
    st.builds(lambda source: appended(twin()[source]), SLOTS),
    st.builds(lambda source: appended(two_lines(genuine()[0][source])), SLOTS),
    st.just(lambda _log: dict(twin())),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MUTATIONS, min_size=1, max_size=3))
def test_a_mutated_log_is_refused_or_means_the_same(mutations: list[Mutation]) -> None:
    log, state, end = genuine()
    changed = dict(log)
    for mutate in mutations:
        changed = mutate(changed)
    try:
        view = read(lay(changed), remembering(READER, end))
    except RolledBack:
        event("rolled back")
        return
    if view.damaged:
        event("damaged")
        genuine_commits = {one.manifest_key for one in state.live} | {one.manifest_key for one in state.retired}
        genuine_commits |= _keys_of_twin()
        assert all(commit.manifest_key in genuine_commits for commit in view.live), "nothing is made up"
        return
    event("the same")
    assert view.state == state


@cache
def _keys_of_twin() -> frozenset[str]:
    view = read(lay(twin()), READER)
    return frozenset(commit.manifest_key for commit in view.live)


def test_the_log_that_is_mutated_is_right() -> None:
    """Without this, a log that nobody could read would pass."""
    log, state, end = genuine()
    view = read(lay(log), remembering(READER, end))
    assert not view.damaged
    assert view.state == state
    assert len(view.live) == COMMITS - 1
    other = read(lay(twin()), READER)
    assert not other.damaged
    assert other.state != state
