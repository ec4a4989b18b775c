"""Every field of an authorization altered in turn: publishing names it, and the place sees no write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from release.authorized_by_hand import APPROVERS, OUTSIDER, PUBLISHER, REVOKER, Scene, key_of, sealed_again
from release.publish_hub_stage import LIBRARY_WARNING, hub_stage
from release.publish_stage import Steps, WatchedTier, carry, folder_destination, kinds, set_stage, tree_of

from replicate.release.authorization import Act, AuthorizationRecord, LogPosition, Subject
from replicate.release.authorizing import Authorization
from replicate.release.deciding import NotAuthorized
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.documents import Document
from replicate.release.findings import Rule, Waiver
from replicate.release.history import EntryKind
from replicate.release.policy import parse_policy
from replicate.release.publishing.folder import FolderPlace
from replicate.release.publishing.places import Place
from replicate.release.publishing.tier import TierPlace
from replicate.release.releaselog import revoke, withdraw
from tiers.clock import Clock
from tiers.memory import MemoryTier

pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)
_FAR = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A scene, its place, and a count of what was written there."""

    scene: Scene
    place: Place
    writes: Callable[[], int]


@contextmanager
def _folder(tmp_path: Path) -> Iterator[Ground]:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    scene = set_stage(tmp_path / "stage", folder_destination(shelf / "tiny"))
    yield Ground(scene=scene, place=FolderPlace(shelf / "tiny"), writes=lambda: len(list(shelf.iterdir())))


@contextmanager
def _tier(tmp_path: Path) -> Iterator[Ground]:
    scene = set_stage(tmp_path / "stage", Destination(url="memory://shelf", visibility=Visibility.UNMANAGED))
    tier = WatchedTier(MemoryTier("shelf"))
    yield Ground(scene=scene, place=TierPlace(tier, "memory://shelf"), writes=lambda: len(tier.writes))


@contextmanager
def _hub(tmp_path: Path) -> Iterator[Ground]:
    with hub_stage(tmp_path) as stage:
        yield Ground(scene=stage.scene, place=stage.place(), writes=lambda: len(stage.hub.writes))


GROUNDS = {"folder": _folder, "tier": _tier, "hub": _hub}


@pytest.fixture(params=GROUNDS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    with GROUNDS[request.param](tmp_path) as made:
        yield made


def altered(document: Document, field: str) -> object:
    """Return another value of the same kind for a field."""
    value = getattr(document, field)
    special: dict[str, object] = {
        "url": "hf://acme/other" if str(value).startswith("hf:") else "memory://other",
        "repo_type": "dataset",
        "tag": "v9",
        "revision": "other",
        "endpoint": "https://elsewhere.example",
        "visibility": Visibility.PUBLIC,
        "gating": Gating.MANUAL,
        "waivers": (
            Waiver(
                rule=Rule.CODE_FILE,
                path="x.py",
                reason="a reason of some length",
                author="author",
                expires=_FAR,
            ),
        ),
    }
    if field in special:
        return special[field]
    if isinstance(value, str) and len(value) == 64:
        return ("0" if value[0] != "0" else "1") + value[1:]
    return f"{value}-altered"


def refused(ground: Ground, authorization: Authorization, field: str, **changes: Any) -> None:
    """Publish, and check that the field is named, nothing was sent, and nothing begun."""
    before = kinds(ground.scene)
    with pytest.raises(NotAuthorized) as caught:
        carry(ground.scene, authorization, ground.place, **changes)
    assert field in [refusal.field for refusal in caught.value.refusals], caught.value.message
    assert field in caught.value.message
    assert caught.value.hint
    assert ground.writes() == 0
    assert kinds(ground.scene) == before


def base(ground: Ground) -> AuthorizationRecord:
    return ground.scene.authorized(expected_parent=None).record


@pytest.mark.parametrize("field", list(Subject.model_fields))
def test_each_field_of_the_subject(field: str, ground: Ground) -> None:
    record = base(ground)
    subject = record.subject.model_copy(update={field: altered(record.subject, field)})
    changed = record.model_copy(update={"subject": subject})
    refused(ground, sealed_again(changed, *APPROVERS), f"subject.{field}")


@pytest.mark.parametrize("field", list(Destination.model_fields))
def test_each_field_of_the_destination(field: str, ground: Ground) -> None:
    record = base(ground)
    destination = record.destination.model_copy(update={field: altered(record.destination, field)})
    changed = record.model_copy(update={"destination": destination})
    refused(ground, sealed_again(changed, *APPROVERS), f"destination.{field}")


Change = Callable[[AuthorizationRecord], dict[str, object]]
RECORD: dict[str, tuple[str, Change]] = {
    "act": ("act", lambda _: {"act": Act.SET_VISIBILITY, "commit": "3" * 40}),
    "commit": ("commit", lambda _: {"commit": "3" * 40}),
    "expected_parent": ("expected_parent", lambda _: {"expected_parent": "3" * 40}),
    "policy_sha256": ("policy_sha256", lambda _: {"policy_sha256": "3" * 64}),
    "threshold": ("threshold", lambda _: {"threshold": 1}),
    "more approvers": ("threshold", lambda _: {"threshold": 3}),
    "requester_may_approve": ("requester_may_approve", lambda _: {"requester_may_approve": True}),
    "requester": ("requester", lambda _: {"requester": OUTSIDER}),
    "not_before": ("not_before", lambda record: {"not_before": record.not_before + timedelta(hours=1)}),
    "expires_at": ("expires_at", lambda record: {"expires_at": record.not_before}),
    "expires_at, too far": ("expires_at", lambda record: {"expires_at": record.expires_at + timedelta(days=365)}),
    "requested_at": ("requested_at", lambda record: {"requested_at": record.requested_at + timedelta(hours=1)}),
    "log_position": ("log_position", lambda _: {"log_position": LogPosition(slot=1, sha256="3" * 64)}),
}


@pytest.mark.parametrize("what", RECORD)
def test_each_other_field_of_the_record(what: str, ground: Ground) -> None:
    field, change = RECORD[what]
    record = base(ground)
    refused(ground, sealed_again(record.model_copy(update=change(record)), *APPROVERS), field)


def test_no_field_of_the_record_is_forgotten_here() -> None:
    elsewhere = {"format", "subject", "destination", "nonce", "statement"}
    assert set(AuthorizationRecord.model_fields) - elsewhere == {field for field, _ in RECORD.values()}


def test_one_byte_of_what_was_signed(ground: Ground) -> None:
    """Also the statement, which decides nothing: it is signed, and so it cannot be exchanged."""
    made = ground.scene.authorized(expected_parent=None)
    changed = sealed_again(made.record.model_copy(update={"statement": "Another."}), requester=OUTSIDER)
    refused(ground, replace(changed, approvals=made.approvals), "signature")


@pytest.mark.parametrize(
    ("approvers", "field"),
    [
        ((), "threshold"),
        (APPROVERS[:1], "threshold"),
        ((APPROVERS[0], APPROVERS[0]), "approvals.1.approver"),
        ((APPROVERS[0], "requester"), "approvals.1.approver"),
        ((APPROVERS[0], OUTSIDER), "approvals.1.approver"),
        ((APPROVERS[0], PUBLISHER), "approvals.1.approver"),
    ],
)
def test_approvals_that_are_missing_doubled_or_by_the_wrong_people(
    approvers: tuple[str, ...], field: str, ground: Ground
) -> None:
    refused(ground, sealed_again(base(ground), *approvers), field)


def test_approvals_of_another_record(ground: Ground) -> None:
    other = ground.scene.authorized(expected_parent=None)
    made = ground.scene.authorized(expected_parent=None)
    refused(ground, replace(made, approvals=other.approvals), "approvals.0.record_sha256")


def test_a_publisher_whom_the_policy_does_not_name(ground: Ground) -> None:
    refused(ground, ground.scene.authorized(expected_parent=None), "publisher", publisher=OUTSIDER)


def test_an_authorization_that_has_expired_by_now(ground: Ground) -> None:
    made = ground.scene.authorized(expected_parent=None)
    ground.scene.clock.advance(timedelta(days=8).total_seconds())
    refused(ground, made, "expires_at")


def test_an_authorization_that_expires_between_the_two_decisions(ground: Ground) -> None:
    made = ground.scene.authorized(expected_parent=None)
    steps = Steps({"check everything again": lambda: ground.scene.clock.advance(timedelta(days=8).total_seconds())})
    with pytest.raises(NotAuthorized, match="expires_at"):
        carry(ground.scene, made, ground.place, steps=steps)
    assert ground.writes() == 0
    assert kinds(ground.scene) == [EntryKind.BEGUN, EntryKind.FAILED]


def _revoke(scene: Scene, made: Authorization, clock: Clock) -> None:
    revoke(scene.log, made.record_sha256, reason="a mistake", who=REVOKER, key=key_of(REVOKER), clock=clock)


def _withdraw(scene: Scene, made: Authorization, clock: Clock) -> None:
    digest = made.record.subject.export_manifest_sha256
    withdraw(scene.log, digest, reason="a mistake", who=REVOKER, key=key_of(REVOKER), clock=clock)


@pytest.mark.parametrize(("take_back", "field"), [(_revoke, "revocation"), (_withdraw, "withdrawal")])
@pytest.mark.parametrize("when", ["before", "log that it is begun"])
def test_an_authorization_that_was_taken_back(
    take_back: Callable[[Scene, Authorization, Clock], None], field: str, when: str, ground: Ground
) -> None:
    """Also in the last moment: the publication begins after exactly the history that permitted it."""
    scene = ground.scene
    made = scene.authorized(expected_parent=None)
    if when == "before":
        take_back(scene, made, scene.clock)
        refused(ground, made, field)
        return
    steps = Steps({when: lambda: take_back(scene, made, scene.clock)})
    with pytest.raises(NotAuthorized, match=field):
        carry(scene, made, ground.place, steps=steps)
    assert ground.writes() == 0
    assert EntryKind.BEGUN not in kinds(scene)


def test_a_nonce_that_was_used(ground: Ground) -> None:
    made = ground.scene.authorized(expected_parent=None)
    ground.scene.publish(made)
    refused(ground, made, "nonce")
    refused(ground, made, "nonce", resume=True)


def test_a_policy_that_was_changed(ground: Ground, tmp_path: Path) -> None:
    made = ground.scene.authorized(expected_parent=None)
    policy = ground.scene.policy
    ground.scene.policy = parse_policy(
        _as_toml(policy.model_copy(update={"max_valid_days": 13}).model_dump(mode="json")).encode(), what="the policy"
    )
    refused(ground, made, "policy_sha256")


def _as_toml(document: dict[str, object]) -> str:
    """Write the few kinds of values that a policy has."""
    plain = {key: value for key, value in document.items() if not isinstance(value, list)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, tables in document.items():
        for table in tables if isinstance(tables, list) else []:
            lines.append(f"[[{key}]]")
            lines += [f"{name} = {_value(value)}" for name, value in table.items() if value is not None]
    return "\n".join(lines)


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def test_the_prepared_bytes_are_never_changed_by_a_refusal(ground: Ground) -> None:
    before = tree_of(ground.scene.prepared.root)
    refused(ground, sealed_again(base(ground)), "threshold")
    assert tree_of(ground.scene.prepared.root) == before
