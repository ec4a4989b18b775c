"""Log entries: their bytes, what they are bound to, and the rules of folding."""

import hashlib
import json

import pytest
from core.builders import RUN, RUN_UID
from core.logs import CLAIM, commit, entry, fold_all, generation

from replicate import canonical
from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.log import Body, Claim, Entry, LogState, Pin, Retire, Unpin, Verdict, Void, fold, parse_entry

STATE = LogState(run_uid=RUN_UID, term=1, writer="one", claim_nonce="nonce-0")


def test_entry_is_two_lines_and_the_second_is_the_digest_of_the_first() -> None:
    data = entry(1, commit(1)).encode()
    line, digest, end = data.split(b"\n")
    assert digest == hashlib.sha256(line).hexdigest().encode()
    assert end == b""
    assert canonical.dump(json.loads(line)) == line


@pytest.mark.parametrize(
    "body",
    [
        CLAIM,
        Claim(writer="two", takeover="the machine burned down"),
        commit(1),
        Retire(generation=str(generation(1)), manifest_key="k", reason="policy"),
        Pin(generation=str(generation(1)), reason="paper"),
        Unpin(generation=str(generation(1))),
        Void(slot=3, found_sha256="0" * 64),
    ],
)
def test_every_kind_survives_its_bytes(body: Body) -> None:
    one = entry(1, body)
    assert parse_entry(one.encode(), slot=1, run=RUN) == one


def test_fields_of_the_future_do_not_hinder_reading() -> None:
    document = json.loads(entry(1, commit(1)).encode().split(b"\n")[0]) | {"signature_of": "tomorrow"}
    line = canonical.dump(document)
    data = line + b"\n" + canonical.sha256(line).encode() + b"\n"
    assert parse_entry(data, slot=1, run=RUN) == entry(1, commit(1))


@pytest.mark.parametrize("at", [0, 1, 50, -2, -70])
def test_flipped_bit_is_noticed(at: int) -> None:
    data = bytearray(entry(1, commit(1)).encode())
    data[at] ^= 1
    with pytest.raises(IntegrityFailure, match="log entry 1"):
        parse_entry(bytes(data), slot=1, run=RUN)


@pytest.mark.parametrize("bad", ["cut", "empty", "longer", "no-end", "three"])
def test_wrong_length_is_noticed(bad: str) -> None:
    good = entry(1, commit(1)).encode()
    data = {"cut": good[:-20], "empty": b"", "longer": good + b"x", "no-end": good[:-1], "three": good + good}[bad]
    with pytest.raises(IntegrityFailure):
        parse_entry(data, slot=1, run=RUN)


def test_moved_or_copied_entry_is_refused() -> None:
    """Bytes that are right somewhere else prove nothing here."""
    data = entry(3, commit(1)).encode()
    with pytest.raises(IntegrityFailure, match="moved or copied"):
        parse_entry(data, slot=4, run=RUN)
    with pytest.raises(IntegrityFailure, match="moved or copied"):
        parse_entry(data, slot=3, run="other-run")


def test_folded_state_stands_on_every_256th_slot_and_nowhere_else() -> None:
    assert parse_entry(entry(256, commit(1), state=STATE).encode(), slot=256, run=RUN).state == STATE
    for slot, state in [(256, None), (0, STATE), (255, STATE), (257, STATE)]:
        body: Body = CLAIM if slot == 0 else commit(1)
        with pytest.raises(IntegrityFailure, match="folded state"):
            parse_entry(entry(slot, body, state=state).encode(), slot=slot, run=RUN)


def test_generation_that_is_none_makes_the_entry_damaged() -> None:
    """Else one hostile entry would make every reader fail at sorting."""
    document = json.loads(entry(1, commit(1)).encode().split(b"\n")[0])
    document["body"]["generation"] = "../x"
    line = canonical.dump(document)
    with pytest.raises(IntegrityFailure, match="not a generation id"):
        parse_entry(line + b"\n" + canonical.sha256(line).encode() + b"\n", slot=1, run=RUN)


def test_newer_format_is_told_from_damage() -> None:
    line = canonical.dump({"format": 2})
    with pytest.raises(CapabilityMissing, match="format 2"):
        parse_entry(line + b"\n" + canonical.sha256(line).encode() + b"\n", slot=1, run=RUN)


def test_log_begins_with_a_claim() -> None:
    for body in (commit(1), Pin(generation=str(generation(1)), reason=""), Void(slot=0, found_sha256="0" * 64)):
        assert fold(None, entry(0, body)) == (None, Verdict.STALE_TERM)
    state, verdict = fold(None, entry(0, CLAIM))
    assert verdict is Verdict.APPLIED
    assert state is not None
    assert (state.term, state.writer, state.claim_nonce, state.highest_attempt) == (1, "one", "nonce-0", 1)


def refused(state: LogState, one: Entry, verdict: Verdict) -> None:
    assert fold(state, one) == (state, verdict)


def test_what_breaks_a_rule_changes_nothing_and_is_named() -> None:
    state = fold_all(
        entry(0, CLAIM), entry(1, Claim(writer="two"), term=2, nonce="b"), entry(2, commit(1, term=2), term=2)
    )
    refused(state, entry(3, commit(2, term=1), term=1), Verdict.STALE_TERM)
    refused(state, entry(3, commit(2, term=3), term=3), Verdict.STALE_TERM)
    refused(state, entry(3, Claim(writer="one"), term=2), Verdict.STALE_TERM)
    refused(state, entry(3, Claim(writer="one"), term=1), Verdict.STALE_TERM)
    refused(state, entry(3, commit(2, term=1), term=2), Verdict.FOREIGN_PREFIX)
    refused(state, entry(3, commit(1, term=2, nonce="again"), term=2), Verdict.REPEATED)
    refused(state, entry(3, commit(2, term=2), term=2, run_uid="another"), Verdict.UNRELATED)
    retire = Retire(generation=str(generation(1)), manifest_key=state.live[0].manifest_key, reason="")
    refused(state, entry(3, retire, term=1), Verdict.STALE_TERM)
    refused(state, entry(3, Void(slot=1, found_sha256="0" * 64), term=1), Verdict.STALE_TERM)


def test_a_log_that_never_committed_may_be_taken_by_another_run_and_a_founded_one_never() -> None:
    """A machine lost during its first upload leaves a claim, which must not bar the name for ever."""
    claimed = fold_all(entry(0, CLAIM))
    refused(claimed, entry(1, commit(1), run_uid="another"), Verdict.UNRELATED)
    refused(claimed, entry(1, Claim(writer="two"), term=1, run_uid="another"), Verdict.STALE_TERM)
    taken, verdict = fold(claimed, entry(1, Claim(writer="two"), term=2, run_uid="another"))
    assert verdict is Verdict.APPLIED
    assert taken is not None
    assert (taken.run_uid, taken.term, taken.writer, len(taken.attempts)) == ("another", 2, "two", 1)
    refused(taken, entry(2, commit(1)), Verdict.UNRELATED)
    founded = fold_all(entry(0, CLAIM), entry(1, commit(1)))
    refused(founded, entry(2, Claim(writer="two"), term=2, run_uid="another"), Verdict.UNRELATED)
    key = founded.live[0].manifest_key
    emptied, _ = fold(founded, entry(2, Retire(generation=str(generation(1)), manifest_key=key, reason="damaged")))
    assert emptied is not None
    assert emptied.live == ()
    refused(emptied, entry(3, Claim(writer="two"), term=2, run_uid="another"), Verdict.UNRELATED)


def test_retire_takes_exactly_its_commit_and_the_generation_may_come_again() -> None:
    state = fold_all(entry(0, CLAIM), entry(1, commit(1)), entry(2, commit(2)))
    key = state.live[0].manifest_key
    state, _ = fold(state, entry(3, Retire(generation=str(generation(1)), manifest_key=key, reason="damaged")))  # type: ignore[assignment]
    assert [live.id for live in state.live] == [generation(2)]
    again, verdict = fold(state, entry(4, commit(1, nonce="again")))
    assert verdict is Verdict.APPLIED
    assert again is not None
    found = again.find(generation(1))
    assert found is not None
    assert found.slot == 4


def test_pins_need_no_term_and_are_taken_back() -> None:
    """Anybody who can write may pin: a pin only ever keeps more."""
    one = str(generation(1))
    state = fold_all(entry(0, CLAIM), entry(1, commit(1)), entry(2, Pin(generation=one, reason="paper"), term=0))
    assert state.pins == (one,)
    state = fold_all(
        entry(0, CLAIM), entry(2, Pin(generation=one, reason="")), entry(3, Pin(generation=one, reason=""))
    )
    assert state.pins == (one,)
    after, _ = fold(state, entry(4, Unpin(generation=one), term=0))
    assert after is not None
    assert after.pins == ()


def test_void_changes_nothing() -> None:
    state = fold_all(entry(0, CLAIM), entry(1, commit(1)))
    assert fold(state, entry(2, Void(slot=1, found_sha256="0" * 64))) == (state, Verdict.APPLIED)


def test_newest_is_by_attempt_and_sequence() -> None:
    state = fold_all(
        entry(0, CLAIM),
        entry(1, commit(9)),
        entry(2, Claim(writer="two"), term=2, attempt=2, attempt_id="b"),
        entry(3, commit(4, term=2, attempt=2), term=2, attempt=2, attempt_id="b"),
    )
    assert state.newest is not None
    assert state.newest.id == generation(4, attempt=2)
    assert (state.highest_attempt, state.highest_sequence, state.forks) == (2, 9, ())


def test_fork_is_one_number_under_two_ids() -> None:
    state = fold_all(entry(0, CLAIM), entry(1, Claim(writer="two"), term=2, attempt_id="other"))
    assert state.forks == (1,)
