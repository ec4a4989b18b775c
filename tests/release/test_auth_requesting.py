"""Requesting and approving: what would be refused later is refused while it can still be changed."""

import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from release.authorized_by_hand import (
    APPROVERS,
    HEAD,
    OUTSIDER,
    PUBLISHER,
    REQUESTER,
    SECOND_REQUESTER,
    Scene,
    key_of,
    policy_toml,
)

from replicate.errors import CkptierError, Denied, IntegrityFailure, LocalDisk, UsageError
from replicate.release.authorization import Act
from replicate.release.authorizing import approve, merge, read_authorization, replace_authorization, write_authorization
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.findings import Finding, Rule
from replicate.release.policy import parse_policy


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.set(tmp_path)


SHOW: dict[str, Any] = {"act": Act.SET_VISIBILITY, "commit": HEAD, "visibility": Visibility.PUBLIC}


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"requester": OUTSIDER}, Denied, "'outsider' may not request"),
        ({"requester": PUBLISHER, "requester_key": key_of(PUBLISHER)}, Denied, "'publisher' may not request"),
        ({"requester_key": key_of(OUTSIDER)}, Denied, "is not the one that the policy pins for 'requester'"),
        ({"valid_for": timedelta(0)}, UsageError, "expires_at"),
        ({"valid_for": timedelta(days=15)}, Denied, "expires_at"),
        ({"commit": HEAD}, UsageError, "commit belongs to set-visibility"),
        ({"visibility": Visibility.PRIVATE}, UsageError, "from the description"),
        ({"gating": Gating.AUTO}, UsageError, "from the description"),
        ({"nonce": "short"}, UsageError, "nonce"),
        ({"expected_parent": "main"}, UsageError, "expected_parent"),
        (SHOW | {"visibility": None}, UsageError, "set-visibility needs a visibility"),
        (SHOW | {"commit": None, "expected_parent": None}, UsageError, "needs the commit"),
        (SHOW | {"expected_parent": "3" * 40}, UsageError, "needs the commit"),
        (SHOW | {"visibility": Visibility.UNMANAGED}, UsageError, "visibility"),
    ],
)
def test_a_request_that_could_not_hold_is_refused(
    scene: Scene, changes: dict[str, Any], kind: type[CkptierError], words: str
) -> None:
    with pytest.raises(kind, match=words) as refused:
        scene.requested(**changes)
    assert refused.value.hint


def test_a_request_for_too_late_is_refused(scene: Scene) -> None:
    """The days count from the request, so that an approval does not lie about for long."""
    with pytest.raises(Denied, match="max_valid_days"):
        scene.requested(not_before=scene.clock.now() + timedelta(days=10), valid_for=timedelta(days=5))


def test_a_public_release_is_requested_in_two_acts(scene: Scene) -> None:
    public = Destination(url="hf://acme/tiny", tag="v1.0", visibility=Visibility.PUBLIC)
    scene.observed = replace(scene.observed, destination=public)
    with pytest.raises(Denied, match=r"destination.visibility: public") as refused:
        scene.requested()
    assert "set-visibility" in refused.value.hint
    shown = scene.requested(**SHOW).record
    assert (shown.expected_parent, shown.commit, shown.destination.visibility) == (HEAD, HEAD, Visibility.PUBLIC)


def test_a_place_without_visibility_has_none_to_set(scene: Scene) -> None:
    scene.observed = replace(
        scene.observed, destination=Destination(url="file:///srv/releases/tiny", visibility=Visibility.UNMANAGED)
    )
    with pytest.raises(UsageError, match="a repository of the Hub"):
        scene.requested(**SHOW)
    with pytest.raises(Denied, match=r"destination.url: the policy allows no unmanaged release to file:///srv"):
        scene.requested()


def test_what_the_scan_blocks_is_not_requested(scene: Scene) -> None:
    finding = Finding(rule=Rule.PICKLE, path="model.pt", detail="a pickle")
    report = scene.observed.report.model_copy(update={"blocking": (finding,)})
    scene.observed = replace(scene.observed, report=report)
    with pytest.raises(IntegrityFailure, match=r"1 findings .* first pickle in model.pt"):
        scene.requested()


def test_a_record_says_how_many_eyes_saw_it(tmp_path: Path, scene: Scene) -> None:
    assert (scene.requested().record.threshold, scene.requested().record.requester_may_approve) == (2, False)
    (tmp_path / "solo").mkdir()
    solo = Scene.set(tmp_path / "solo", top="threshold = 1\nrequester_may_approve = true")
    record = solo.requested().record
    assert (record.threshold, record.requester_may_approve, record.policy_sha256) == (1, True, solo.policy.sha256)


def test_nonces_differ(scene: Scene) -> None:
    assert scene.requested().record.nonce != scene.requested().record.nonce


def test_an_approval_that_would_not_count_is_refused(scene: Scene) -> None:
    asked = scene.requested()

    def give(name: str, **changes: Any) -> None:
        known: dict[str, Any] = {"authorization": asked, "policy": scene.policy, "key": key_of(name), "approver": name}
        approve(**known | {"clock": scene.clock} | changes)

    with pytest.raises(Denied, match="'publisher' may not approve"):
        give(PUBLISHER)
    with pytest.raises(Denied, match="is not the one that the policy pins for 'approver-one'"):
        give(APPROVERS[0], key=key_of(APPROVERS[1]))
    with pytest.raises(Denied, match="approver: 'requester' requested it"):
        give(REQUESTER)
    stricter = parse_policy(policy_toml(Path("/srv/log"), top="max_valid_days = 13").encode(), what="the policy")
    with pytest.raises(Denied, match="policy_sha256"):
        give(APPROVERS[0], policy=stricter)
    once = approve(asked, scene.policy, key_of(APPROVERS[0]), APPROVERS[0], scene.clock)
    with pytest.raises(Denied, match="approver: 'approver-one' has approved it already"):
        give(APPROVERS[0], authorization=once)
    scene.clock.advance(8 * 86_400)
    with pytest.raises(Denied, match="expires_at"):
        give(APPROVERS[0])


def test_an_approver_sees_a_record_of_its_requester(scene: Scene) -> None:
    forged = scene.requested(requester=SECOND_REQUESTER, requester_key=key_of(SECOND_REQUESTER))
    envelope = replace(forged.record_envelope, signatures=scene.requested().record_envelope.signatures)
    with pytest.raises(Denied, match="not signed by 'second-requester'"):
        approve(
            replace(forged, record_envelope=envelope), scene.policy, key_of(APPROVERS[0]), APPROVERS[0], scene.clock
        )


def test_an_approver_approves_what_was_seen(scene: Scene) -> None:
    asked = scene.requested()
    other = replace(
        scene.observed,
        subject=scene.observed.subject.model_copy(update={"card_sha256": "d" * 64}),
        destination=scene.observed.destination.model_copy(update={"tag": None}),
    )
    with pytest.raises(IntegrityFailure, match=r"subject.card_sha256, destination.tag"):
        approve(asked, scene.policy, key_of(APPROVERS[0]), APPROVERS[0], scene.clock, observed=other)
    shown = scene.requested(**SHOW)
    assert approve(shown, scene.policy, key_of(APPROVERS[0]), APPROVERS[0], scene.clock, observed=scene.observed)


def test_people_who_left_do_not_sign(scene: Scene) -> None:
    text = policy_toml(Path("/srv/log")).replace(
        "name = 'approver-one'\n", "name = 'approver-one'\nnot_after = 2026-02-01T00:00:00Z\n"
    )
    scene.policy = parse_policy(text.encode(), what="the policy")
    with pytest.raises(Denied, match="not_after has passed"):
        approve(scene.requested(), scene.policy, key_of(APPROVERS[0]), APPROVERS[0], scene.clock)


def test_approvals_given_on_copies_are_put_together(scene: Scene) -> None:
    asked = scene.requested()
    one, two = (approve(asked, scene.policy, key_of(name), name, scene.clock) for name in APPROVERS)
    together = merge(one, two, one)
    assert [signed.approval.approver for signed in together.approvals] == list(APPROVERS)
    assert scene.decide(together) == ()
    with pytest.raises(UsageError, match="two records"):
        merge(one, scene.requested())


def test_the_file_is_written_once_and_read_again(scene: Scene, tmp_path: Path) -> None:
    authorization = scene.authorized()
    path = tmp_path / "authorization.json"
    write_authorization(authorization, path)
    assert read_authorization(path) == authorization
    assert read_authorization(path).record_sha256 == authorization.record_sha256
    assert stat.S_ISREG(path.lstat().st_mode)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        write_authorization(scene.requested(), path)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.glob("*authorization*")) == ["authorization.json"]
    with pytest.raises(LocalDisk, match="cannot be written"):
        write_authorization(authorization, tmp_path / "absent" / "authorization.json")
    with pytest.raises(LocalDisk, match="cannot be read"):
        read_authorization(tmp_path / "absent.json")


def test_an_approval_is_added_to_the_file_and_none_is_lost(scene: Scene, tmp_path: Path) -> None:
    asked, path = scene.requested(), tmp_path / "authorization.json"
    write_authorization(asked, path)
    one, two = (approve(asked, scene.policy, key_of(name), name, scene.clock) for name in APPROVERS)
    replace_authorization(one, path)
    for other in (two, scene.requested()):
        with pytest.raises(UsageError, match="changed meanwhile"):
            replace_authorization(other, path)
    assert read_authorization(path) == one
    replace_authorization(merge(one, two), path)
    assert scene.decide(read_authorization(path)) == ()
    assert [one.name for one in tmp_path.glob("*authorization*")] == ["authorization.json"]
    with pytest.raises(LocalDisk, match="cannot be read"):
        replace_authorization(asked, tmp_path / "absent.json")


def test_a_document_that_is_not_what_was_signed_cannot_be_made(scene: Scene) -> None:
    authorization = scene.authorized()
    other = authorization.record.model_copy(update={"statement": "Something else."})
    with pytest.raises(IntegrityFailure, match="record: payload"):
        replace(authorization, record=other)
    signed = authorization.approvals[0]
    with pytest.raises(IntegrityFailure, match="approval: payload"):
        replace(signed, approval=authorization.approvals[1].approval)
