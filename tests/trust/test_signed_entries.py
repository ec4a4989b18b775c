"""Which entries count under a trust root: signed by a trusted key, for this run and slot, whole, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.commits import REMOTE, RUN_UID, Writer, generation
from trust.stage import (
    ONE,
    READER,
    TIER,
    entries,
    grown,
    key,
    made,
    put,
    read,
    remote,
    respelled,
    signer,
    trusted,
    two_lines,
)

from replicate.errors import CkptierError, ConfigInvalid, ExitCode, TrustFailure
from replicate.layout import FOLD_EVERY, RemoteRun, run_name
from replicate.log import MAX_ENTRY_BYTES, Pin, parse_entry
from replicate.logbook import Logbook
from replicate.signing.lines import CONTEXT, SIGNATURE_LINE_BYTES, key_id, sign
from replicate.signing.trust import NotTrusted
from tiers.memory import MemoryStore, MemoryTier

Change = Callable[[list[bytes]], bytes]


@pytest.fixture
def store() -> MemoryStore:
    """Return a signed log: a claim and three commits."""
    found = MemoryStore()
    grown(found, ONE, 3)
    return found


def test_a_signed_log_reads_as_an_unsigned_one_does(store: MemoryStore) -> None:
    plain = MemoryStore()
    grown(plain, REMOTE, 3)
    signed, unsigned = read(store, READER), read(plain, REMOTE)
    assert not signed.damaged
    assert signed.state == unsigned.state
    assert [len(entry) - len(other) for entry, other in zip(entries(store), entries(plain), strict=True)] == [
        SIGNATURE_LINE_BYTES
    ] * 4
    assert read(store, REMOTE).state == signed.state, "without a trust root the third line says nothing"


def test_the_signature_is_over_exactly_the_first_two_lines_and_says_what_they_are(store: MemoryStore) -> None:
    entry = entries(store)[2]
    text = entry.split(b"\n")[2].decode()
    assert text.startswith(f"ed25519 {key_id(key(1).public)} ")
    assert sign(two_lines(entry), key(1)) == entry
    again = key(1).sign(two_lines(entry))
    assert not key(1).public.verifies(again, CONTEXT + two_lines(entry)), "a bare signature is not one over an entry"


def test_prev_covers_the_signature_of_the_entry_before(store: MemoryStore) -> None:
    """One key signs twice alike, so two signatures of one entry are by two keys."""
    both = remote(trusted(1), trusted(2))
    other = sign(two_lines(entries(store)[1]), key(2))
    put(store, 1, other)
    (damage,) = read(store, both).damaged
    assert (damage.slot, damage.trusted) == (2, False)
    assert "follow" in damage.reason


REFUSED: dict[str, tuple[Change, str]] = {
    "unsigned": (lambda log: two_lines(log[2]), "not signed"),
    "unknown-key": (lambda log: sign(two_lines(log[2]), key(9)), "does not list"),
    "flipped-signature": (lambda log: log[2][:-20] + bytes([log[2][-20] ^ 1]) + log[2][-19:], ""),
    "another-entry's-signature": (lambda log: two_lines(log[2]) + log[1].split(b"\n")[2] + b"\n", "does not verify"),
    "flipped-text": (lambda log: log[2].replace(b'"objects":3', b'"objects":2'), "does not verify"),
    "moved": (lambda log: log[1], "moved or copied"),
    "fourth-line": (lambda log: log[2] + b"more\n", "two lines"),
    "no-last-line-end": (lambda log: log[2][:-1], "two lines"),
    "respelled": (lambda log: respelled(log[2]), "no signature"),
    "other-algorithm": (lambda log: log[2].replace(b"ed25519 ", b"none "), "no signature"),
    "oversize": (lambda log: log[2] + b"x" * MAX_ENTRY_BYTES, "bytes"),
    "empty": (lambda _log: b"", "two lines"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_signed_for_here_counts_for_nothing(name: str, store: MemoryStore) -> None:
    change, reason = REFUSED[name]
    changed = change(entries(store))
    assert changed != entries(store)[2]
    put(store, 2, changed)
    view = read(store, READER)
    assert [damage.slot for damage in view.damaged] == [2]
    assert reason in view.damaged[0].reason
    assert [commit.id for commit in view.live] == [made(3).id, made(1).id], "what is intact stays restorable"
    with pytest.raises(CkptierError, match="nothing is appended"):
        Writer(MemoryTier(TIER, store), remote=ONE, view=view).commit(made(4))
    assert len(entries(store)) == 4


def test_an_entry_of_another_run_does_not_count(store: MemoryStore) -> None:
    """Signed by the same key, for the same slot, of a run that has another name."""
    elsewhere = MemoryTier(TIER, MemoryStore())
    other = RemoteRun(run_name("other"), trust=ONE.trust)
    entry, _ = Logbook(MemoryTier(TIER, store), READER).entry(0)
    data = Logbook(elsewhere, other).write(entry.model_copy(update={"run": "other"}))
    put(store, 2, data.replace(b'"slot":0', b'"slot":2'))
    assert "does not verify" in read(store, READER).damaged[0].reason
    signed = Logbook(elsewhere, other).write(entry.model_copy(update={"run": "other", "slot": 2}))
    put(store, 2, signed)
    assert "run 'other'" in read(store, READER).damaged[0].reason


def test_a_history_of_another_run_is_refused_where_the_trust_root_names_the_run(store: MemoryStore) -> None:
    """An old run of this name, signed by the same key, is put back."""
    bound = remote(trusted(1), run_uid=RUN_UID)
    assert read(store, bound).state is not None
    old = MemoryStore()
    writer = Writer(MemoryTier(TIER, old), remote=ONE, run_uid="d" * 32)
    writer.claim()
    assert read(old, bound).state is not None, "a claim alone is nobody's history"
    writer.commit(generation(1, run_uid="d" * 32))
    with pytest.raises(TrustFailure, match="the trust root is for run"):
        read(old, bound)
    assert read(old, READER).state is not None, "without run_uid a fresh machine cannot tell"


def test_entries_of_two_logs_of_one_run_do_not_mix(store: MemoryStore) -> None:
    """Both are genuine; the one that does not follow is not folded, which matters for a claim with a higher term."""
    other = MemoryStore()
    twin = Writer(MemoryTier(TIER, other), remote=ONE, term=7)
    twin.serial = 50
    twin.commit(made(1))
    twin.commit(made(2))
    put(store, 2, entries(other)[2])
    view = read(store, READER)
    assert [(damage.slot, damage.trusted) for damage in view.damaged] == [(2, False)]
    assert view.state is not None
    assert view.state.term == 1
    assert [commit.id for commit in view.live] == [made(3).id, made(1).id]


def test_without_a_trust_root_a_third_line_has_to_be_well_formed(store: MemoryStore) -> None:
    data = sign(two_lines(entries(store)[2]), key(9))
    assert parse_entry(data, slot=2, run=REMOTE.run) == parse_entry(entries(store)[2], slot=2, run=REMOTE.run)
    put(store, 2, entries(store)[2].replace(b"ed25519", b"rot13"))
    assert [damage.slot for damage in read(store, REMOTE).damaged] == [2]


def test_a_machine_without_a_key_only_reads(store: MemoryStore) -> None:
    before = entries(store)
    with pytest.raises(TrustFailure, match="only reads") as refused:
        Writer(MemoryTier(TIER, store), remote=READER, view=read(store, READER)).append(
            Pin(generation=str(made(1).id), reason="keep"), attempt=1, attempt_id="attempt-1"
        )
    assert "CKPTIER_SIGNING_KEY_FILE" in refused.value.hint
    assert entries(store) == before


def test_a_key_that_is_not_in_the_keyring_signs_nothing(store: MemoryStore) -> None:
    before = entries(store)
    stranger = replace(REMOTE, trust=replace(READER.trust, signer=signer(2)))
    with pytest.raises(ConfigInvalid, match="not in the keyring") as refused:
        Writer(MemoryTier(TIER, store), remote=stranger, view=read(store, READER)).commit(made(4))
    assert "keys show" in refused.value.hint
    assert entries(store) == before


def test_the_folded_state_of_a_signed_log_is_signed() -> None:
    """A reader starts there and believes it: an unsigned one is not a place to start."""
    store = MemoryStore()
    writer = grown(store, ONE, 1)
    while writer.view.next_slot <= FOLD_EVERY + 1:
        writer.append(Pin(generation=str(made(1).id), reason=""), attempt=1, attempt_id="attempt-1")
    Logbook(writer.tier, ONE).write_head(FOLD_EVERY + 1)
    assert read(store, READER, thorough=False).first_slot == FOLD_EVERY
    put(store, FOLD_EVERY, two_lines(entries(store)[FOLD_EVERY]))
    view = read(store, READER, thorough=False)
    assert view.first_slot == 0
    assert [damage.slot for damage in view.damaged] == [FOLD_EVERY]


def test_not_trusted_has_the_exit_code_of_trust() -> None:
    assert NotTrusted("x").exit_code == ExitCode.TRUST
