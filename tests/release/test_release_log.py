"""The release log on real tiers: created once, chained, signed where it matters, and one begins."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from release.authorized_by_hand import (
    APPROVERS,
    OUTSIDER,
    PUBLISHER,
    REQUESTER,
    REVOKER,
    START,
    Scene,
    fields,
    key_of,
    policy_toml,
)

from replicate import canonical
from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    ConfigInvalid,
    Denied,
    Fenced,
    IntegrityFailure,
    TrustFailure,
    Unreachable,
)
from replicate.release.authorizing import Authorization
from replicate.release.deciding import require
from replicate.release.destination import Gating, Visibility
from replicate.release.envelope import PayloadType, sign
from replicate.release.history import NO_ENTRY, EntryKind, Event, LogEntry, ReleaseHistory, Standing, fold
from replicate.release.policy import parse_policy
from replicate.release.releaselog import LogMoved, ReleaseLog, open_log, revoke, withdraw
from replicate.signing.keys import SigningKey
from tiers.bodies import BytesBody
from tiers.effects import Effect, Moment, observing
from tiers.memory import MEMORY_CAPABILITIES, MemoryTier
from tiers.protocol import Fencing, Key, ObjectInfo
from tiers.testing import Action, Fault, FaultyTier, When
from tiers.volume import VolumeTier

COMMIT = "2" * 40
MANIFEST = "e" * 64
RECORD = "c" * 64
USED: dict[str, Any] = {"nonce": "a" * 32, "record_sha256": RECORD, "export_manifest_sha256": MANIFEST}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.set(tmp_path)


def slot_file(scene: Scene, slot: int) -> Path:
    """Return the file of an entry: a volume keeps an object at its key."""
    return Path(scene.policy.log.removeprefix("file://")) / "log" / f"{slot:012d}.json"


def take_back(scene: Scene, what: str = RECORD) -> None:
    revoke(scene.log, what, reason="a reason", who=REVOKER, key=key_of(REVOKER), clock=scene.clock)


def entries(scene: Scene) -> list[bytes]:
    return [slot_file(scene, slot).read_bytes() for slot in range(1, scene.history.next_slot)]


# What is written


def test_an_empty_log_has_no_position(scene: Scene) -> None:
    history = scene.history
    assert (history.position, history.next_slot, history.last_sha256) == (None, 1, NO_ENTRY)
    assert history.nonce("0" * 32).standing is Standing.UNUSED


def test_entries_are_two_lines_numbered_and_chained(scene: Scene) -> None:
    scene.publish(scene.authorized())
    previous = NO_ENTRY
    for slot, data in enumerate(entries(scene), 1):
        line, digest, rest = data.split(b"\n")
        document = json.loads(line)
        assert digest.decode() == canonical.sha256(line)
        assert canonical.dump(document) == line
        assert rest == b""
        assert (document["slot"], document["prev"]) == (slot, previous)
        previous = canonical.sha256(data)
    position = scene.history.position
    assert position is not None
    assert (position.slot, position.sha256) == (2, previous)


def test_the_log_tells_what_became_of_a_nonce(scene: Scene) -> None:
    authorization = scene.authorized()
    nonce = authorization.record.nonce
    scene.begin(authorization)
    begun = scene.history.nonce(nonce)
    assert begun.standing is Standing.BEGUN
    assert begun.entry is not None
    assert (begun.entry.who, begun.entry.at, begun.spent) == (PUBLISHER, START, False)
    scene.log.append(scene.event(authorization, EntryKind.FAILED, detail="no network"))
    assert scene.history.nonce(nonce).standing is Standing.FAILED
    scene.begin(authorization)
    scene.log.append(scene.event(authorization, EntryKind.PUBLISHED, commit=COMMIT))
    assert scene.history.nonce(nonce).spent


def test_the_log_tells_what_is_published_where(scene: Scene) -> None:
    first, shown = scene.authorized(), scene.authorized()
    manifest = first.record.subject.export_manifest_sha256
    scene.publish(first, COMMIT)
    scene.begin(shown)
    scene.log.append(
        scene.event(
            shown, EntryKind.VISIBILITY_CHANGED, commit=COMMIT, visibility=Visibility.PUBLIC, gating=Gating.AUTO
        )
    )
    (publication,) = scene.history.published_where(manifest)
    assert (publication.url, publication.commit, publication.who) == ("hf://acme/tiny", COMMIT, PUBLISHER)
    assert (publication.visibility, publication.gating) == (Visibility.PUBLIC, Gating.AUTO)
    assert publication.withdrawn_at is None
    scene.clock.advance(60)
    withdraw(scene.log, manifest, reason="wrong data", who=REVOKER, key=key_of(REVOKER), clock=scene.clock)
    assert scene.history.published_where()[0].withdrawn_at == START + timedelta(minutes=1)
    assert scene.history.published_where("d" * 64) == ()


def test_a_withdrawal_can_name_one_place(scene: Scene) -> None:
    one, two = scene.authorized(), scene.authorized()
    manifest = one.record.subject.export_manifest_sha256
    scene.publish(one, COMMIT)
    scene.publish(two, "4" * 40)
    withdraw(
        scene.log,
        manifest,
        reason="gone there",
        who=REVOKER,
        key=key_of(REVOKER),
        clock=scene.clock,
        url="hf://acme/tiny",
        commit=COMMIT,
    )
    assert [one.withdrawn_at is None for one in scene.history.published_where(manifest)] == [False, True]


@pytest.mark.parametrize("kind", [EntryKind.PUBLISHED, EntryKind.FAILED, EntryKind.VISIBILITY_CHANGED])
def test_nothing_ends_that_was_not_begun(scene: Scene, kind: EntryKind) -> None:
    with pytest.raises(TrustFailure, match=rf"entry 1 \({kind}\): nonce: nothing was begun"):
        scene.log.append(scene.event(scene.authorized(), kind))
    assert scene.history.next_slot == 1


def test_the_log_itself_keeps_single_use(scene: Scene) -> None:
    """Whoever appends without deciding is refused all the same."""
    authorization = scene.authorized()
    scene.publish(authorization)
    with pytest.raises(TrustFailure, match="nonce: it was used up by entry 2"):
        scene.begin(authorization)
    second = scene.authorized(nonce=authorization.record.nonce[::-1])
    scene.begin(second)
    other = scene.event(second, EntryKind.BEGUN, record_sha256=RECORD)
    with pytest.raises(TrustFailure, match="nonce: entry 3 used it for another record"):
        scene.log.append(other, expect=scene.history)
    with pytest.raises(TrustFailure, match="are needed"):
        scene.log.append(Event(kind=EntryKind.BEGUN, at=START, who=PUBLISHER), expect=scene.history)
    assert scene.history.next_slot == 4


def test_a_beginning_names_what_permitted_it(scene: Scene) -> None:
    with pytest.raises(ValueError, match="give expect"):
        scene.log.append(scene.event(scene.authorized(), EntryKind.BEGUN))


# Who may write what


def test_what_takes_back_is_signed_by_who_may(scene: Scene) -> None:
    take_back(scene)
    revoked = scene.history.revoked(RECORD)
    assert revoked is not None
    assert (revoked.who, revoked.detail) == (REVOKER, "a reason")
    assert scene.history.logged[0].signer == REVOKER
    for who, key in ((OUTSIDER, OUTSIDER), (PUBLISHER, PUBLISHER), (REVOKER, PUBLISHER)):
        with pytest.raises(Denied):
            revoke(scene.log, RECORD, reason="x", who=who, key=key_of(key), clock=scene.clock)
        with pytest.raises(Denied):
            withdraw(scene.log, MANIFEST, reason="x", who=who, key=key_of(key), clock=scene.clock)
    assert scene.history.next_slot == 2


def test_who_left_revokes_nothing_and_what_was_revoked_stands(scene: Scene) -> None:
    take_back(scene)
    text = policy_toml(Path(scene.policy.log.removeprefix("file://"))).replace(
        f"name = {REVOKER!r}\n", f"name = {REVOKER!r}\nnot_after = 2026-03-01T12:00:01Z\n"
    )
    scene.policy = scene.log.policy = parse_policy(text.encode(), what="the policy")
    scene.clock.advance(60)
    assert scene.history.revoked(RECORD) is not None
    with pytest.raises(Denied, match="may not revoke"):
        take_back(scene)


@pytest.mark.parametrize("kind", [EntryKind.REVOKED, EntryKind.WITHDRAWN])
@pytest.mark.parametrize(
    ("who", "key", "words"),
    [
        (REVOKER, None, "is not signed"),
        (REVOKER, OUTSIDER, "not by the key that the policy pins for 'revoker'"),
        (OUTSIDER, OUTSIDER, "names no 'outsider' who may revoke"),
        (PUBLISHER, PUBLISHER, "names no 'publisher' who may revoke"),
    ],
)
def test_a_forged_entry_is_neither_written_nor_read(
    scene: Scene, kind: EntryKind, who: str, key: str | None, words: str
) -> None:
    signer = key_of(key) if key else None
    event = Event(kind=kind, at=START, who=who, record_sha256=RECORD, export_manifest_sha256=MANIFEST)
    with pytest.raises(TrustFailure, match=words):
        scene.log.append(event, key=signer)
    assert scene.history.next_slot == 1
    forge(scene, event, signer)
    with pytest.raises(TrustFailure, match=f"entry 1 .*{words}") as refused:
        scene.log.read()
    assert refused.value.hint


def forge(scene: Scene, event: Event, key: SigningKey | None, **changes: Any) -> None:
    """Write an entry past the log's own checks."""
    history = fold([], scene.policy)
    made = LogEntry(**event.model_dump() | {"slot": 1, "prev": history.last_sha256, "entry_nonce": "0" * 32} | changes)
    slot_file(scene, 1).parent.mkdir()
    slot_file(scene, 1).write_bytes(made.encode(key))


def test_a_publisher_may_sign(scene: Scene) -> None:
    authorization = scene.authorized()
    event = scene.event(authorization, EntryKind.BEGUN)
    scene.log.append(event, expect=scene.history, key=key_of(PUBLISHER))
    assert scene.history.logged[0].signer == PUBLISHER
    failed = scene.event(authorization, EntryKind.FAILED)
    for key in (OUTSIDER, REVOKER, APPROVERS[0]):
        with pytest.raises(TrustFailure, match="not by the key that the policy pins for 'publisher'"):
            scene.log.append(failed, key=key_of(key))
    with pytest.raises(TrustFailure, match=f"names no {REQUESTER!r} who may publish"):
        scene.log.append(failed.model_copy(update={"who": REQUESTER}), key=key_of(REQUESTER))


@pytest.mark.parametrize("which", [0, 2], ids=["entry", "signature"])
def test_an_entry_has_one_spelling(scene: Scene, which: int) -> None:
    """Spelled otherwise, with its digest made anew: the same words would have two digests."""
    forge(scene, Event(kind=EntryKind.BEGUN, at=START, who=PUBLISHER, **USED), key_of(PUBLISHER))
    assert scene.history.next_slot == 2
    lines = slot_file(scene, 1).read_bytes().split(b"\n")
    lines[which] = json.dumps(json.loads(lines[which])).encode()
    lines[1] = canonical.sha256(lines[0]).encode()
    slot_file(scene, 1).write_bytes(b"\n".join(lines))
    with pytest.raises(IntegrityFailure, match="entry 1 is not in its canonical form"):
        scene.log.read()


def test_an_entry_signed_as_something_else_is_refused(scene: Scene) -> None:
    event = Event(kind=EntryKind.REVOKED, at=START, who=REVOKER, record_sha256=RECORD)
    forge(scene, event, key_of(REVOKER))
    line, digest, _, _ = slot_file(scene, 1).read_bytes().split(b"\n")
    other = sign(PayloadType.APPROVAL, line, key_of(REVOKER)).document()["signatures"][0]
    slot_file(scene, 1).write_bytes(b"\n".join((line, digest, canonical.dump(other), b"")))
    with pytest.raises(TrustFailure, match="the signature is not by the key"):
        scene.log.read()


# Damage, forks, rollbacks


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_the_log_changes_unseen(scene: Scene, data: st.DataObject) -> None:
    if scene.history.next_slot == 1:
        scene.publish(scene.authorized())
        take_back(scene)
    whole = entries(scene)
    which = data.draw(st.integers(0, len(whole) - 1), label="entry")
    at = data.draw(st.integers(0, len(whole[which]) - 1), label="position")
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[which][at]), label="byte")
    hurt = whole[which][:at] + bytes([byte]) + whole[which][at + 1 :]
    with pytest.raises(CkptierError, match=f"entry {which + 1}"):
        fold([*whole[:which], hurt, *whole[which + 1 :]], scene.policy)


@pytest.mark.parametrize("slot", [1, 2])
def test_a_damaged_entry_is_named(scene: Scene, slot: int) -> None:
    scene.publish(scene.authorized())
    slot_file(scene, slot).write_bytes(entries(scene)[slot - 1][:-3])
    with pytest.raises(IntegrityFailure, match=f"release log entry {slot} is damaged") as refused:
        scene.log.read()
    assert refused.value.hint


def test_a_missing_entry_is_named(scene: Scene) -> None:
    scene.publish(scene.authorized())
    take_back(scene)
    slot_file(scene, 2).unlink()
    with pytest.raises(TrustFailure, match="entry 2 is missing, and 3 is there"):
        scene.log.read()


def test_an_edited_entry_breaks_the_chain(scene: Scene) -> None:
    """Edited, with its digest made anew: what follows does not follow it any more."""
    scene.publish(scene.authorized())
    document = json.loads(entries(scene)[0].split(b"\n")[0])
    line = canonical.dump(document | {"detail": "edited"})
    slot_file(scene, 1).write_bytes(line + b"\n" + canonical.sha256(line).encode() + b"\n")
    with pytest.raises(TrustFailure, match="release log entry 2: prev"):
        scene.log.read()


def test_a_moved_entry_is_refused(scene: Scene) -> None:
    scene.publish(scene.authorized())
    data = entries(scene)
    slot_file(scene, 3).write_bytes(data[1])
    with pytest.raises(TrustFailure, match="entry 3: slot: it was written for slot 2"):
        scene.log.read()


def test_a_log_that_was_cut_or_replaced_is_refused(tmp_path: Path, scene: Scene) -> None:
    scene.publish(scene.authorized())
    authorization = scene.authorized()
    data = entries(scene)
    slot_file(scene, 2).unlink()
    assert fields(scene.decide(authorization)) == ("log_position",)
    slot_file(scene, 1).unlink()
    assert fields(scene.decide(authorization)) == ("log_position",)
    slot_file(scene, 1).parent.mkdir(exist_ok=True)
    slot_file(scene, 1).write_bytes(data[0])
    other = json.loads(data[1].split(b"\n")[0]) | {"commit": "6" * 40}
    line = canonical.dump(other)
    slot_file(scene, 2).write_bytes(line + b"\n" + canonical.sha256(line).encode() + b"\n")
    assert scene.history.next_slot == 3, "a fork of its own that reads well"
    assert fields(scene.decide(authorization)) == ("log_position",)
    slot_file(scene, 2).write_bytes(data[1])
    assert scene.decide(authorization) == ()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "damaged"),
        (b"{}\n" + canonical.sha256(b"{}").encode() + b"\n", "missing"),
        (b"x" * (1 << 20), "damaged"),
        (b'{"format":2}\n' + canonical.sha256(b'{"format":2}').encode() + b"\n", "update ckptier|format 2"),
    ],
)
def test_what_is_no_entry_is_refused(scene: Scene, data: bytes, words: str) -> None:
    slot_file(scene, 1).parent.mkdir()
    slot_file(scene, 1).write_bytes(data)
    with pytest.raises(CkptierError, match=words):
        scene.log.read()


def test_other_files_beside_the_entries_are_not_the_log(scene: Scene) -> None:
    scene.begin(scene.authorized())
    slot_file(scene, 1).with_name("README").write_text("not an entry", encoding="utf-8")
    assert scene.history.next_slot == 2


# Racing and crashing


def publish_once(scene: Scene, authorization: Authorization, barrier: threading.Barrier) -> str:
    """Do what a publisher does up to its beginning; return what it came to."""
    log = ReleaseLog(VolumeTier("release log", Path(scene.policy.log.removeprefix("file://"))), scene.policy)
    history = log.read()
    require(scene.decide(authorization, history=history))
    barrier.wait(timeout=30)
    try:
        log.append(scene.event(authorization, EntryKind.BEGUN), expect=history)
    except LogMoved:
        refused = scene.decide(authorization, history=log.read())
        return ",".join(fields(refused))
    return "begun"


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_publishers_with_one_authorization_one_begins(scene: Scene, attempt: int) -> None:
    authorization, barrier = scene.authorized(), threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(publish_once, scene, authorization, barrier) for _ in range(2)]
        assert sorted(run.result(timeout=60) for run in runs) == ["begun", "nonce"]
    assert scene.history.next_slot == 2


def test_of_two_with_authorizations_of_their_own_both_begin(scene: Scene) -> None:
    """The one who was second reads on, decides again, and is permitted."""
    one, two = scene.authorized(), scene.authorized()
    before = scene.history
    scene.begin(one)
    with pytest.raises(LogMoved) as moved:
        scene.log.append(scene.event(two, EntryKind.BEGUN), expect=before)
    assert (moved.value.slot, isinstance(moved.value, Fenced)) == (1, True)
    assert scene.decide(two) == ()
    scene.begin(two)
    assert scene.history.next_slot == 3


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(effect: Effect, moment: Moment, nth: int) -> Iterator[list[str]]:
    """Raise Killed at the nth announcement of an effect; what was announced is in the list."""
    seen: list[str] = []

    def observer(kind: Effect, what: str, when: Moment) -> None:
        if (kind, when) == (effect, moment):
            seen.append(what)
            if len(seen) == nth:
                raise Killed

    with observing(observer):
        yield seen


@pytest.mark.parametrize(
    ("effect", "moment", "written"),
    [
        (Effect.FSYNC, Moment.BEFORE, False),
        (Effect.LINK, Moment.BEFORE, False),
        (Effect.LINK, Moment.AFTER, True),
    ],
)
def test_a_crash_leaves_a_whole_entry_or_none(scene: Scene, effect: Effect, moment: Moment, *, written: bool) -> None:
    authorization = scene.authorized()
    scene.log.tier.put(Key("settled"), BytesBody(b"a volume marks itself at its first write"))
    with killed_at(effect, moment, 1) as seen, pytest.raises(Killed):
        scene.begin(authorization)
    assert len(seen) == 1
    assert (scene.history.nonce(authorization.record.nonce).standing is Standing.BEGUN) == written
    assert (scene.decide(authorization) == ()) != written
    assert scene.decide(authorization, resume=True) == ()


def test_a_crash_between_begun_and_published_is_resumed(scene: Scene) -> None:
    authorization = scene.authorized()
    scene.begin(authorization)
    assert fields(scene.decide(authorization)) == ("nonce",)
    require(scene.decide(authorization, resume=True))
    scene.begin(authorization)
    scene.log.append(scene.event(authorization, EntryKind.PUBLISHED, commit=COMMIT))
    assert fields(scene.decide(authorization, resume=True)) == ("nonce",)
    assert [one.entry.kind for one in scene.history.logged] == ["begun", "begun", "published"]


def faulty(scene: Scene, *faults: Fault) -> tuple[ReleaseLog, FaultyTier]:
    tier = FaultyTier(scene.log.tier, faults)
    return ReleaseLog(tier, scene.policy), tier


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_reply_is_resolved_by_reading(scene: Scene, times: int) -> None:
    log, tier = faulty(scene, Fault(verb="create", action=Action.LOST_REPLY, times=times))
    position = log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=scene.history)
    assert len(tier.fired) == 1
    assert scene.history.position == position


def test_a_request_that_never_arrived_is_made_again(scene: Scene) -> None:
    log, tier = faulty(scene, Fault(verb="create", when=When.BEFORE))
    log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=scene.history)
    tier.assert_all_fired()
    assert scene.history.next_slot == 2


def test_a_tier_that_does_not_answer_is_no_empty_log(scene: Scene) -> None:
    scene.begin(scene.authorized())
    for verb in ("open", "list_objects"):
        log, tier = faulty(scene, Fault(verb=verb))
        with pytest.raises(Unreachable):
            log.read()
        tier.assert_all_fired()
    log, tier = faulty(scene, Fault(verb="create", times=2))
    with pytest.raises(Unreachable):
        log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=scene.history)
    tier.assert_all_fired()
    assert scene.history.next_slot == 2


def test_a_reply_that_hides_a_loss_is_seen(scene: Scene) -> None:
    """The create was lost on its way, and somebody else took the slot meanwhile."""
    authorization, other = scene.authorized(), scene.authorized()
    before = scene.history
    scene.begin(other)
    log, tier = faulty(scene, Fault(verb="create", when=When.BEFORE))
    with pytest.raises(LogMoved):
        log.append(scene.event(authorization, EntryKind.BEGUN), expect=before)
    tier.assert_all_fired()


def test_bytes_that_changed_on_their_way_do_not_begin(scene: Scene) -> None:
    log, tier = faulty(scene, Fault(verb="create", action=Action.CORRUPT, at=20))
    with pytest.raises(LogMoved):
        log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=scene.history)
    tier.assert_all_fired()
    with pytest.raises(IntegrityFailure, match="entry 1 is damaged"):
        scene.log.read()


class Crowded(MemoryTier):
    """A store in which somebody else's entry is always there first."""

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        entry = json.loads(data.split(b"\n")[0])
        begun = {
            "kind": "begun",
            "nonce": f"{entry['slot']:032x}",
            "record_sha256": RECORD,
            "export_manifest_sha256": MANIFEST,
            "entry_nonce": "f" * 32,
        }
        line = canonical.dump(entry | begun)
        super().create(key, line + b"\n" + canonical.sha256(line).encode() + b"\n")
        return super().create(key, data)


def test_one_who_is_always_second_gives_up(scene: Scene) -> None:
    log = ReleaseLog(Crowded("crowded"), scene.policy)
    with pytest.raises(LogMoved):
        log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=log.read())
    with pytest.raises(Fenced, match="keep taking its slots"):
        revoke(log, RECORD, reason="x", who=REVOKER, key=key_of(REVOKER), clock=scene.clock)
    assert log.read().next_slot > 60


# Which tiers


def test_a_store_without_put_if_absent_is_refused(scene: Scene) -> None:
    tier = MemoryTier("weak", capabilities=replace(MEMORY_CAPABILITIES, fencing=Fencing.ADVISORY))
    with pytest.raises(CapabilityMissing, match="weak: the release log needs") as refused:
        ReleaseLog(tier, scene.policy)
    assert "file:///" in refused.value.hint


@pytest.mark.parametrize("fencing", [Fencing.CAS, Fencing.POSIX, Fencing.GIT])
def test_other_stores_will_do(scene: Scene, fencing: Fencing) -> None:
    log = ReleaseLog(MemoryTier("store", capabilities=replace(MEMORY_CAPABILITIES, fencing=fencing)), scene.policy)
    log.append(scene.event(scene.authorized(), EntryKind.BEGUN), expect=log.read())
    assert log.read().next_slot == 2
    log.close()


def test_the_log_is_the_one_that_the_policy_names(scene: Scene) -> None:
    scene.begin(scene.authorized())
    opened = open_log(scene.policy, clock=scene.clock)
    assert opened.read() == scene.history
    opened.close()
    for log, words in (("gopher://host/log", "gopher"), ("file://relative", "not an absolute")):
        policy = scene.policy.model_copy(update={"log": log})
        with pytest.raises(ConfigInvalid, match=words):
            open_log(policy, clock=scene.clock)
    absent = scene.policy.model_copy(update={"log": "file:///nowhere/at/all"})
    with pytest.raises(Unreachable, match="no folder"):
        open_log(absent, clock=scene.clock).read()


def test_the_latest_time_is_the_latest_of_all(scene: Scene) -> None:
    """Clocks differ: an entry from a clock that is behind does not set the log back."""
    scene.clock.advance(3600)
    late = scene.clock.now()
    scene.begin(scene.authorized())
    scene.log.append(
        scene.event(scene.authorized(), EntryKind.BEGUN, at=datetime(2026, 3, 1, tzinfo=UTC)), expect=scene.history
    )
    assert scene.history.latest_at == late
    assert ReleaseHistory().latest_at is None
