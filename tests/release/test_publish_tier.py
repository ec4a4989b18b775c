"""Publishing to tiers: a memory, a volume, a real S3 server; the manifest makes it a release."""

import hashlib
import io
import itertools
from pathlib import Path
from typing import BinaryIO

import pytest
from release.authorized_by_hand import Scene
from release.prepared_by_hand import reseal
from release.publish_stage import (
    Steps,
    WatchedTier,
    carry,
    entries,
    grow,
    kinds,
    payload_of,
    released,
    set_stage,
)
from support.seaweed import SeaweedServer

from replicate.canonical import sha256
from replicate.errors import CapabilityMissing, Denied, IntegrityFailure, TrustFailure, Unreachable
from replicate.release.authorizing import Authorization
from replicate.release.bundle import MANIFEST
from replicate.release.deciding import NotAuthorized
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.documents import encode
from replicate.release.history import EntryKind
from replicate.release.publishing import tier as tier_module
from replicate.release.publishing.publishing import open_place
from replicate.release.publishing.tier import CLAIM, Claim, TierPlace
from replicate.release.subject import observe
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import AccessDenied, TierUnavailable
from tiers.memory import MemoryTier
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Tier, walk
from tiers.volume import VolumeTier

URL = "memory://releases"
MIB = 1024 * 1024
LARGE = "weights-2.bin"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return set_stage(tmp_path / "stage", Destination(url=URL, visibility=Visibility.UNMANAGED))


@pytest.fixture(params=["memory", "volume"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> WatchedTier:
    """Return a tier that attests digests, or one whose objects have to be read back."""
    if request.param == "memory":
        return WatchedTier(MemoryTier("releases"))
    (tmp_path / "volume").mkdir()
    return WatchedTier(VolumeTier("releases", tmp_path / "volume"))


@pytest.fixture
def place(watched: WatchedTier) -> TierPlace:
    return TierPlace(watched, URL)


def objects(tier: Tier) -> dict[str, bytes]:
    found = {}
    for info in walk(tier, ""):
        with tier.open(info.key) as stream:
            found[str(info.key)] = stream.read()
    return found


def unavailable(verb: str, key: str) -> TierUnavailable:
    return TierUnavailable("503", tier="releases", operation=verb, key=key)


def test_the_manifest_comes_last_and_the_claim_goes(scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    report = carry(scene, scene.authorized(expected_parent=None), place)

    assert objects(watched) == released(scene)
    assert watched.writes[0] == ("create", CLAIM)
    assert watched.writes[-2:] == [("create", MANIFEST), ("delete", CLAIM)]
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]
    assert (report.url, report.commit) == (URL, sha256(scene.observed.manifest_bytes))
    assert report.files == len(released(scene))
    attested = watched.capabilities.verification == "store-sha256"
    assert report.read_back == (1 if attested else report.files)


def test_a_large_file_goes_in_parts_that_the_store_checks_one_by_one(
    scene: Scene, watched: WatchedTier, place: TierPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "PART", 100)
    size = len(released(scene)["model.safetensors"])
    place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert watched.writes.count(("put_part", "model.safetensors")) == -(-size // 100)
    assert ("put", "model.safetensors") not in watched.writes
    assert objects(watched) == released(scene)


def test_a_real_store_takes_it_and_gives_it_back(
    tmp_path: Path, seaweed: SeaweedServer, bucket: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in parts, also the same release once more under another authorization: refused."""
    monkeypatch.setattr(tier_module, "PART", 5 * MIB)
    destination = Destination(
        url=f"s3://{bucket}/{prefix}", endpoint=seaweed.endpoint_url, visibility=Visibility.UNMANAGED
    )
    scene = set_stage(tmp_path / "stage", destination)
    (scene.prepared.tree / LARGE).write_bytes(hashlib.sha256(b"noise").digest() * (13 * MIB // 32))
    reseal(scene.prepared)
    scene.observed = observe(scene.prepared)
    place = open_place(destination, clock=scene.clock)
    try:
        report = carry(scene, scene.authorized(expected_parent=None), place)
        assert report.files == len(released(scene))
        again = open_tier(
            TierSpec(name="reader", url=destination.url, endpoint_url=destination.endpoint), clock=SystemClock()
        )
        assert objects(again) == released(scene)
        again.close()
        with pytest.raises(NotAuthorized, match=r"destination\.url: authorized a place that is free, found a release"):
            carry(scene, scene.authorized(expected_parent=None), place)
    finally:
        place.close()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize(
    "when", ["log that it is begun", "check everything again", "hash 7 files", "put LICENSE", "put model.safetensors"]
)
def test_bytes_that_change_after_the_decision_are_not_published(
    when: str,
    parts: bool,
    scene: Scene,
    watched: WatchedTier,
    place: TierPlace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if parts:
        monkeypatch.setattr(tier_module, "PART", 100)
    steps = Steps({when: lambda: grow(scene)})
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        carry(scene, scene.authorized(expected_parent=None), place, steps=steps)
    assert steps.ran == [when]
    assert objects(watched) == {}
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.FAILED]
    if not when.startswith("put"):
        assert watched.writes == []


def test_a_file_that_vanishes_meanwhile_is_named(scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    steps = Steps({"put LICENSE": (scene.prepared.tree / "model.safetensors").unlink})
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors: the file is missing"):
        place.publish(payload_of(scene), expected_parent=None, step=steps)
    assert objects(watched) == {}


class _Wrong(WatchedTier):
    """Hands out other bytes of one key than it was given; the store attests nothing."""

    wrong = "LICENSE"

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        stream = self.inner.open(key, start, length)
        if key != self.wrong:
            return stream
        data = bytearray(stream.read())
        data[0] ^= 1
        return io.BytesIO(bytes(data))


@pytest.mark.parametrize("wrong", ["LICENSE", MANIFEST])
def test_a_store_that_hands_out_other_bytes_has_nothing_of_it_afterwards(
    wrong: str, scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "volume").mkdir()
    tier = _Wrong(VolumeTier("releases", tmp_path / "volume"))
    tier.wrong = wrong
    with pytest.raises(IntegrityFailure, match=f"{wrong}: other bytes than were sent"):
        TierPlace(tier, URL).publish(payload_of(scene), expected_parent=None, step=Steps())
    assert [info.key for info in walk(tier, "")] == []


@pytest.mark.parametrize("nth", range(9))
def test_whichever_write_fails_everything_is_taken_away_again(
    nth: int, scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    """Every write in turn: the claim, each of six files, the manifest.  The ninth is a delete, and only told."""
    counter = itertools.count()

    def broken(verb: str, key: str) -> None:
        if next(counter) == nth:
            raise AccessDenied("403", tier="releases", operation=verb, key=key)

    watched.broken = broken
    steps = Steps()
    if nth == 8:
        place.publish(payload_of(scene), expected_parent=None, step=steps)
        assert objects(watched).keys() - {CLAIM} == released(scene).keys()
        assert any("could not be removed and means nothing" in told for told in steps.told)
        assert place.state().occupied is not None
        return
    with pytest.raises(Denied):
        place.publish(payload_of(scene), expected_parent=None, step=steps)
    assert objects(watched) == {}
    assert place.state().occupied is None


def test_what_could_not_be_taken_away_is_named(scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    def broken(verb: str, key: str) -> None:
        if key == MANIFEST or (verb == "delete" and key in ("LICENSE", "README.md")):
            raise AccessDenied("403", tier="releases", operation=verb, key=key)

    watched.broken = broken
    with pytest.raises(Denied, match=r"could not be removed from memory://releases again: .*LICENSE.*"):
        carry(scene, scene.authorized(expected_parent=None), place)
    assert set(objects(watched)) == {"LICENSE", "README.md"}
    assert "could not be removed" in entries(scene)[-1].detail


@pytest.mark.parametrize("key", [CLAIM, MANIFEST])
def test_a_lost_reply_is_made_good_by_looking(key: str, scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    lost = []

    def lose(verb: str, about: str) -> None:
        if about == key:
            lost.append(about)
            raise unavailable(verb, about)

    watched.lose = lose
    place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert lost == [key]
    assert objects(watched) == released(scene)


def test_a_create_that_does_not_arrive_is_tried_again_and_not_for_ever(
    scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    failures = 2

    def broken(verb: str, key: str) -> None:
        nonlocal failures
        if key == MANIFEST and verb == "create" and failures:
            failures -= 1
            raise unavailable(verb, key)

    watched.broken = broken
    place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert (failures, objects(watched)) == (0, released(scene))

    for key in list(objects(watched)):
        watched.inner.delete(Key(key))
    failures = 1_000
    with pytest.raises(Unreachable):
        place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert objects(watched) == {}


STANDING = {
    "a release": (MANIFEST, b"{}", "a release"),
    "a claim": (CLAIM, encode(Claim(manifest_sha256="0" * 64, nonce="x")), "begun and not finished"),
    "something": ("notes.txt", b"mine", r"something that is no release \(notes\.txt\)"),
}


@pytest.mark.parametrize("what", STANDING)
def test_a_place_that_is_taken_is_refused_and_left_alone(
    what: str, scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    key, data, words = STANDING[what]
    watched.inner.put(Key(key), BytesBody(data))
    with pytest.raises(NotAuthorized, match=rf"destination\.url: .*{words}"):
        carry(scene, scene.authorized(expected_parent=None), place)
    with pytest.raises(TrustFailure, match="is not free"):
        place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert objects(watched) == {key: data}
    assert watched.writes == []


def test_another_publication_that_is_faster_is_left_alone(scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    """The same release by two publishers past each other's log: the claim lets one through."""
    other = TierPlace(watched, URL)
    failures: list[TrustFailure] = []

    def intrude() -> None:
        with pytest.raises(TrustFailure, match="is under way there, or died") as caught:
            other.publish(payload_of(scene), expected_parent=None, step=Steps())
        failures.append(caught.value)

    place.publish(payload_of(scene), expected_parent=None, step=Steps({"put LICENSE": intrude}))
    assert len(failures) == 1
    assert objects(watched) == released(scene)


def test_something_that_appears_meanwhile_keeps_it_from_becoming_a_release(
    scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    def appear() -> None:
        watched.inner.put(Key("optimizer.pt"), BytesBody(b"state"))

    with pytest.raises(IntegrityFailure, match=r"optimizer\.pt was never authorized"):
        place.publish(payload_of(scene), expected_parent=None, step=Steps({"put model.safetensors": appear}))
    assert set(objects(watched)) == {"optimizer.pt"}


class _KilledError(BaseException):
    """Ends a publication as a kill would: nothing is tidied up, because nothing can be reached any more."""


@pytest.fixture
def killed(scene: Scene, watched: WatchedTier, place: TierPlace) -> Authorization:
    """Return an authorization whose publication died after three files."""
    authorization = scene.authorized(expected_parent=None)
    gone = False

    def broken(verb: str, key: str) -> None:
        nonlocal gone
        if gone or key == "config.json":
            gone = True
            raise _KilledError

    watched.broken = broken
    appended = scene.log.append
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.log, "append", lambda event, **more: appended(event, **more) if not gone else None)
        with pytest.raises(_KilledError):
            carry(scene, authorization, place)
    watched.broken = lambda _verb, _key: None
    assert kinds(scene) == [EntryKind.BEGUN]
    return authorization


def test_a_killed_publication_is_no_release_and_goes_on_with_resume(
    scene: Scene, watched: WatchedTier, killed: Authorization
) -> None:
    assert CLAIM in objects(watched)
    assert MANIFEST not in objects(watched)
    with pytest.raises(NotAuthorized, match="begun and not finished"):
        carry(scene, killed, TierPlace(watched, URL))
    carry(scene, killed, TierPlace(watched, URL), resume=True)
    assert objects(watched) == released(scene)
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.BEGUN, EntryKind.PUBLISHED]


def test_a_resumed_publication_that_fails_takes_everything_away(
    scene: Scene, watched: WatchedTier, killed: Authorization
) -> None:
    """Also what the killed one had put, and not what somebody else did."""

    def broken(verb: str, key: str) -> None:
        if key == "README.md" and verb == "put":
            raise AccessDenied("403", tier="releases", operation=verb, key=key)

    watched.broken = broken
    with pytest.raises(Denied):
        carry(scene, killed, TierPlace(watched, URL), resume=True)
    assert objects(watched) == {}


def test_a_publication_that_was_taken_over_does_not_delete_for_its_successor(
    scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    """The one that was thought dead wakes up, fails, and keeps its hands off."""
    successor = TierPlace(watched, URL)

    def wake_up() -> None:
        raise IntegrityFailure("woken up too late")

    def take_over() -> None:
        successor.resume(payload_of(scene), expected_parent=None)
        successor.publish(payload_of(scene), expected_parent=None, step=Steps())

    with pytest.raises((TrustFailure, IntegrityFailure)):
        place.publish(
            payload_of(scene),
            expected_parent=None,
            step=Steps({"put config.json": take_over, f"create {MANIFEST}": wake_up}),
        )
    assert objects(watched) == released(scene)


def test_a_publication_whose_end_was_not_logged_is_verified_and_logged(
    scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    authorization = scene.authorized(expected_parent=None)
    appended = scene.log.append

    def lost(event: object, **more: object) -> object:
        if getattr(event, "kind", None) is EntryKind.PUBLISHED:
            raise Unreachable("the log's store is away")
        return appended(event, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.log, "append", lost)
        with pytest.raises(Unreachable, match=r"it is done .* could not be logged: run it again with --resume"):
            carry(scene, authorization, place)
    assert objects(watched) == released(scene)
    watched.writes.clear()
    report = carry(scene, authorization, TierPlace(watched, URL), resume=True)
    assert report.read_back == report.files
    assert [verb for verb, _ in watched.writes] == ["delete"]
    assert kinds(scene)[-1] is EntryKind.PUBLISHED


def test_a_release_that_was_hurt_meanwhile_is_not_logged_as_published(
    scene: Scene, watched: WatchedTier, place: TierPlace
) -> None:
    place.publish(payload_of(scene), expected_parent=None, step=Steps())
    watched.inner.put(Key("LICENSE"), BytesBody(b"other"))
    again = TierPlace(watched, URL)
    again.resume(payload_of(scene), expected_parent=None)
    with pytest.raises(IntegrityFailure, match="LICENSE"):
        again.publish(payload_of(scene), expected_parent=None, step=Steps())


def test_a_tier_has_no_commits_and_no_visibility(scene: Scene, watched: WatchedTier, place: TierPlace) -> None:
    with pytest.raises(TrustFailure, match="expected_parent"):
        place.publish(payload_of(scene), expected_parent="1" * 40, step=Steps())
    with pytest.raises(CapabilityMissing):
        place.set_visibility(Visibility.PUBLIC, Gating.NONE, commit="1" * 40, step=Steps())
    with pytest.raises(CapabilityMissing):
        place.withdraw(step=Steps())
    assert watched.writes == []
