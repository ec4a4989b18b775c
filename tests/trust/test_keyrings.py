"""The keyring: who may sign which slots of which log; rotation, stolen keys, and logs that were begun unsigned."""

import io
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
from support.commits import REMOTE, Writer
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
    put,
    read,
    remote,
    trusted,
    two_lines,
)

from replicate.config import load_config
from replicate.errors import ConfigInvalid, Denied, UsageError
from replicate.layout import FOLD_EVERY
from replicate.log import LogView, Pin
from replicate.logbook import Logbook
from replicate.signing.anchor import Anchor
from replicate.signing.keyring import block, read_keyring, table
from replicate.signing.lines import key_id, sign
from tiers.memory import MemoryStore, MemoryTier
from tiers.metered import Meter, MeteredTier
from tiers.protocol import Key


def damaged(view: LogView) -> list[int]:
    return [damage.slot for damage in view.damaged]


def reasons(view: LogView) -> str:
    return "; ".join(damage.reason for damage in view.damaged)


@pytest.mark.parametrize(("first", "last", "slots"), [(2, None, [0, 1]), (0, 1, [2, 3]), (1, 2, [0, 3])])
def test_a_key_counts_in_its_slots_only(first: int, last: int | None, slots: list[int]) -> None:
    store = MemoryStore()
    grown(store, ONE, 3)
    view = read(store, remote(trusted(1, first_slot=first, last_slot=last)))
    assert damaged(view) == slots
    assert "not trusted for slot" in reasons(view)


def test_limits_are_those_of_each_tier() -> None:
    store = MemoryStore()
    grown(store, ONE, 3)
    here = trusted(1, first_slot={TIER: 2, "b": 0}, last_slot={TIER: 3})
    assert damaged(read(store, remote(here))) == [0, 1]
    elsewhere = trusted(1, last_slot={"b": 900})
    assert damaged(read(store, remote(elsewhere))) == [0, 1, 2, 3], "a key that was given up signs on no new tier"
    assert damaged(read(store, remote(trusted(1, first_slot={"b": 9})))) == []


def test_a_machine_does_not_sign_beyond_its_key() -> None:
    store = MemoryStore()
    writer = grown(store, remote(trusted(1, last_slot=2), signs=1), 2)
    with pytest.raises(ConfigInvalid, match="not trusted for slot 3"):
        writer.commit(made(3))
    assert len(entries(store)) == 3


def rotated() -> tuple[MemoryStore, Anchor]:
    """Return a log that key 2 goes on with, and where key 1 ended."""
    store = MemoryStore()
    old = grown(store, ONE, 2)
    anchor = end_of(old.view)
    both = remote(trusted(1, last_slot=str(anchor)), trusted(2, first_slot=anchor.slot + 1), signs=2)
    new = Writer(MemoryTier(TIER, store), remote=both, view=read(store, both), serial=20)
    new.commit(made(3))
    new.commit(made(4))
    return store, anchor


def test_rotation() -> None:
    store, anchor = rotated()
    both = remote(trusted(1, last_slot=str(anchor)), trusted(2, first_slot=anchor.slot + 1))
    view = read(store, both)
    assert not view.damaged
    assert [commit.id for commit in view.live] == [made(number).id for number in (4, 3, 2, 1)]
    assert damaged(read(store, remote(trusted(2)))) == [0, 1, 2], "a keyring keeps the keys of the past"
    late = sign(two_lines(entries(store)[3]), key(1))
    put(store, 3, late)
    assert 3 in damaged(read(store, both))


def test_a_stolen_key_is_worth_nothing_below_its_pinned_end() -> None:
    """The thief has the bucket too, and signs another history with the old key, as long as the true one was then."""
    store, anchor = rotated()
    forged = MemoryStore()
    thief = Writer(MemoryTier(TIER, forged), remote=ONE, serial=60)
    thief.commit(made(7))
    thief.commit(made(8))
    log = dict(enumerate(entries(store)))
    pinned = remote(trusted(1, last_slot=str(anchor)), trusted(2, first_slot=anchor.slot + 1))
    number = remote(trusted(1, last_slot=anchor.slot), trusted(2, first_slot=anchor.slot + 1))
    alone = lay(dict(enumerate(entries(forged))))
    assert not read(alone, number).damaged, "a number alone does not tell the forged history from the true one"
    assert damaged(read(alone, pinned)) == [0, 1, 2]
    assert "given up" in reasons(read(alone, pinned))
    spliced = read(lay({**log, **dict(enumerate(entries(forged)))}), pinned)
    assert damaged(spliced) == [0, 1, 2]
    assert [commit.id for commit in spliced.live] == [made(4).id, made(3).id]


def adopted(count: int) -> tuple[MemoryStore, Anchor]:
    """Return an unsigned log that a signing machine went on with, and the end of its unsigned part."""
    store = MemoryStore()
    plain = grown(store, REMOTE, count)
    anchor = end_of(plain.view)
    signing = remote(trusted(1), signs=1, unsigned_until={TIER: anchor})
    writer = Writer(MemoryTier(TIER, store), remote=signing, view=read(store, signing), serial=30)
    assert not writer.view.damaged
    writer.commit(made(count + 1))
    return store, anchor


def test_an_unsigned_log_is_adopted_by_the_digest_of_its_end() -> None:
    store, anchor = adopted(3)
    view = read(store, remote(trusted(1), unsigned_until={TIER: anchor}))
    assert not view.damaged
    assert [commit.id for commit in view.live] == [made(number).id for number in (4, 3, 2, 1)]
    refused = read(store, READER)
    assert damaged(refused) == [0, 1, 2, 3], "without the pin nothing that is unsigned counts"
    assert [commit.id for commit in refused.live] == [made(4).id]
    assert damaged(read(store, remote(trusted(1), unsigned_until={"b": anchor}))) == [0, 1, 2, 3]


def test_a_pinned_prefix_is_the_pinned_one_throughout() -> None:
    store, anchor = adopted(3)
    root = remote(trusted(1), unsigned_until={TIER: anchor})
    other = MemoryStore()
    grown(other, REMOTE, 3)
    log = dict(enumerate(entries(store)))
    for slot in range(anchor.slot + 1):
        changed = lay({**log, slot: entries(other)[slot].replace(b"2026-01-01", b"2026-01-02")})
        assert slot in damaged(read(changed, root))
    cut = read(lay({slot: log[slot] for slot in range(anchor.slot)}), root)
    assert damaged(cut) == [0, 1, 2], "a prefix of the prefix leads to no anchor"
    assert "pinned slot 3" in reasons(cut)
    longer = {**log, 4: two_lines(log[4])}
    assert damaged(read(lay(longer), root)) == [4]
    hurt = read(lay({**log, 1: b"x"}), root)
    assert damaged(hurt) == [0, 1], "what lies below a broken entry leads to no anchor either"
    assert [commit.id for commit in hurt.live] == [made(number).id for number in (4, 3, 2)]


def test_a_pinned_prefix_costs_its_reading_once_more_until_the_next_folded_slot() -> None:
    store, anchor = adopted(3)
    root = remote(trusted(1), signs=1, unsigned_until={TIER: anchor})
    Logbook(MemoryTier(TIER, store), root).write_head(4)

    def opened() -> int:
        meter = Meter()
        view = Logbook(MeteredTier(MemoryTier(TIER, store), meter), root).read()
        assert not view.damaged
        return sum(count for (verb, _), count in meter.snapshot().requests.items() if verb == "open")

    head, log, absent = 1, 5, 1
    assert opened() == head + log + absent + (anchor.slot + 1)
    writer = Writer(MemoryTier(TIER, store), remote=root, view=read(store, root), serial=40)
    while writer.view.next_slot <= FOLD_EVERY:
        writer.append(Pin(generation=str(made(1).id), reason=""), attempt=1, attempt_id="attempt-1")
    Logbook(writer.tier, root).write_head(FOLD_EVERY)
    assert opened() == head + 1 + absent


def test_bytes_that_flip_on_the_way_do_not_break_a_pinned_chain() -> None:
    store, anchor = adopted(2)
    root = remote(trusted(1), unsigned_until={TIER: anchor})
    asked: list[str] = []

    class Flipping(MemoryTier):
        def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
            data = super().open(key, start, length).read()
            asked.append(key)
            flip = key == REMOTE.log(1) and asked.count(key) == 1
            return io.BytesIO(data[:40] + bytes([data[40] ^ 1]) + data[41:] if flip else data)

    assert not Logbook(Flipping(TIER, store), root).read(thorough=True).damaged
    assert asked.count(REMOTE.log(1)) > 1, "the fault was met"


GOOD: dict[str, object] = {"id": key_id(key(1).public), "public": key(1).public.text}
KEYRINGS: dict[str, tuple[dict[str, object], str]] = {
    "id that is another's": (GOOD | {"id": key_id(key(2).public)}, "is not that of the key"),
    "no key": (GOOD | {"public": "ed25519:AAAA"}, "32 bytes"),
    "unknown": (GOOD | {"slots": 3}, "unknown key"),
    "negative": (GOOD | {"first_slot": -1}, "greater"),
    "no anchor": (GOOD | {"last_slot": "12"}, "not an anchor"),
    "no anchor of a tier": (GOOD | {"last_slot": {"a": "12:00"}}, "not an anchor"),
}


@pytest.mark.parametrize("name", sorted(KEYRINGS))
def test_a_keyring_that_is_wrong_is_refused_by_the_key_that_is(name: str, tmp_path: Path) -> None:
    content, reason = KEYRINGS[name]
    lines = [
        f"{field} = {table(value) if isinstance(value, dict) else repr(value)}" for field, value in content.items()
    ]
    (tmp_path / "trust.toml").write_text("\n".join(["[[key]]", *lines]))
    with pytest.raises(ConfigInvalid, match=reason) as refused:
        read_keyring(tmp_path / "trust.toml")
    assert refused.value.hint


def test_a_keyring_file(tmp_path: Path) -> None:
    path = tmp_path / "trust.toml"
    for content, reason in ((None, "does not exist"), ("", "key"), ("[[key", "TOML"), ("x" * 2_000_000, "larger")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigInvalid, match=reason):
            read_keyring(path)
    path.write_text(block(key(1).public) + "\n" + block(key(1).public))
    with pytest.raises(ConfigInvalid, match="same id"):
        read_keyring(path)
    path.write_text(block(key(1).public, comment='pod "A"', first_slot={"b.c": 3}) + "\n" + block(key(2).public))
    found = read_keyring(path)
    assert [one.id for one in found.key] == [key_id(key(1).public), key_id(key(2).public)]
    span = found.key[0].span("b.c")
    assert span is not None
    assert (span.first, found.key[0].comment) == (3, 'pod "A"')
    path.chmod(0o666)
    with pytest.raises(Denied, match="written by everybody"):
        read_keyring(path)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ('[trust]\nunsigned_until = { a = "3" }', "not an anchor|trust root"),
        (f'[trust]\nkeyring = "trust.toml"\nunsigned_until = {{ b = "3:{"0" * 64}" }}', "no tier is called"),
        ('[signing]\nkey = "key.pem"', "means nothing without a trust root"),
        ('[trust]\nkeyring = "missing.toml"', "does not exist"),
        ('[trust]\nkeys = "trust.toml"', "unknown key"),
        ('[signing]\nprivate = "MC4CAQAw"', "unknown key"),
    ],
)
def test_a_configuration_of_trust_that_is_wrong(extra: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "trust.toml").write_text(block(key(1).public))
    path = tmp_path / "ckptier.toml"
    path.write_text(f'run = "toy"\nstore = "runs"\n{extra}\n[[tier]]\nname = "a"\nurl = "memory://a"\n')
    with pytest.raises(ConfigInvalid, match=reason):
        _ = load_config(path).remote


def test_anchors_have_one_spelling() -> None:
    text = f"12:{'ab' * 32}"
    assert str(Anchor.parse(text)) == text
    for wrong in ("", "12", f"012:{'ab' * 32}", f"12:{'AB' * 32}", f"-1:{'ab' * 32}", f"12:{'ab' * 31}", f" {text}"):
        with pytest.raises(UsageError, match="not an anchor"):
            Anchor.parse(wrong)


def test_trust_travels_with_the_run() -> None:
    """No reader can forget it, and two runs of one name are one, whatever is trusted of them."""
    assert replace(READER, trust=ONE.trust) == REMOTE
    assert hash(READER) == hash(REMOTE)
