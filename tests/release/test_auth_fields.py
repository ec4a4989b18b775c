"""Every field of an authorization, altered by itself: found by introspection, so that a new one cannot be forgotten."""

import json
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from release.authorized_by_hand import APPROVERS, HEAD, PUBLISHER, Scene, approved_by_hand, fields, key_of

from replicate import canonical
from replicate.errors import CkptierError
from replicate.release.authorization import Approval, AuthorizationRecord, LogPosition, Subject
from replicate.release.authorizing import Authorization, parse_authorization
from replicate.release.deciding import NotAuthorized, require
from replicate.release.destination import Destination
from replicate.release.envelope import PayloadType, sign

OTHER_DIGEST = "d" * 64
USED_NONCE = "0" * 32
WAIVER = {
    "rule": "secret",
    "path": "README.md",
    "place": "",
    "reason": "a test of what is bound",
    "author": "author",
    "expires": "2027-01-01T00:00:00Z",
}

ALTERED: dict[str, Any] = {
    "act": "set-visibility",
    "nonce": USED_NONCE,
    "subject.name": "other",
    "subject.version": "2.0",
    "subject.source_generation": "a0001-g000007-u000000000221-1f3a9c2e",
    "subject.source_record_sha256": OTHER_DIGEST,
    "subject.export_manifest_sha256": OTHER_DIGEST,
    "subject.content_sha256": OTHER_DIGEST,
    "subject.transforms_sha256": OTHER_DIGEST,
    "subject.exporter": "ckptier 9.9.9",
    "subject.license": "mit",
    "subject.license_sha256": OTHER_DIGEST,
    "subject.card_sha256": OTHER_DIGEST,
    "subject.scan_report_sha256": OTHER_DIGEST,
    "subject.waivers": [WAIVER],
    "destination.url": "hf://acme/other",
    "destination.endpoint": "https://hub.example",
    "destination.revision": "dev",
    "destination.tag": "v2.0",
    "destination.visibility": "public",
    "destination.gating": "manual",
    "expected_parent": "3" * 40,
    "commit": "4" * 40,
    "policy_sha256": OTHER_DIGEST,
    "threshold": 1,
    "requester_may_approve": True,
    "requester": APPROVERS[0],
    "requested_at": "2026-03-01T13:00:00Z",
    "not_before": "2026-03-01T12:00:01Z",
    "expires_at": "2026-03-01T12:00:00Z",
    "log_position.slot": 1,
    "log_position.sha256": OTHER_DIGEST,
}
"""What each field is altered to: refused under the field's own name, or that of the whole ``log_position``."""

UNREADABLE: dict[str, Any] = {"format": 2, "destination.repo_type": "dataset"}
"""Fields that have one value: another one is refused when the file is read."""

FREE: dict[str, Any] = {"statement": "Something else."}
"""Words for people.  Another statement, signed and approved by everybody, is another valid record."""


def paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every field of a record, and those of its parts."""
    nested: dict[str, type[BaseModel]] = {"subject": Subject, "destination": Destination, "log_position": LogPosition}
    for name in model.model_fields:
        if not prefix and name in nested:
            yield from paths(nested[name], f"{name}.")
        else:
            yield prefix + name


def test_every_field_has_its_alteration() -> None:
    assert sorted(ALTERED | UNREADABLE | FREE) == sorted(paths(AuthorizationRecord))
    assert sorted(APPROVAL | UNREADABLE_APPROVAL) == sorted(Approval.model_fields)


class Signers(Enum):
    """Who signs the altered record again."""

    NOBODY = "nobody"
    REQUESTER = "requester"
    EVERYBODY = "everybody"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return a scene whose log holds an earlier publication, of the nonce USED_NONCE."""
    made = Scene.set(tmp_path_factory.mktemp("fields"))
    made.publish(made.authorized(nonce=USED_NONCE))
    return made


@pytest.fixture(scope="module")
def authorization(scene: Scene) -> Authorization:
    made = scene.authorized()
    assert scene.decide(made) == ()
    return made


def altered(authorization: Authorization, path: str, value: Any, signers: Signers) -> bytes:
    """Return the file of an authorization with one field of its record altered."""
    document = json.loads(authorization.record_envelope.payload)
    *parents, name = path.split(".")
    part = document
    for parent in parents:
        part = part[parent]
    assert part[name] != value
    part[name] = value
    payload = canonical.dump(document)
    file = json.loads(authorization.encode())
    signed = sign(PayloadType.AUTHORIZATION, payload, key_of(document["requester"])).document()
    kept = file["record"]["signatures"]
    file["record"] = signed if signers is not Signers.NOBODY else signed | {"signatures": kept}
    if signers is Signers.EVERYBODY:
        digest = canonical.sha256(payload)
        file["approvals"] = [
            sign(
                PayloadType.APPROVAL,
                canonical.dump(one.approval.model_copy(update={"record_sha256": digest}).model_dump(mode="json")),
                key_of(one.approval.approver),
            ).document()
            for one in authorization.approvals
        ]
    return canonical.dump(file)


@pytest.mark.parametrize("signers", Signers)
@pytest.mark.parametrize("path", ALTERED)
def test_an_altered_field_is_refused_by_its_name(
    scene: Scene, authorization: Authorization, path: str, signers: Signers
) -> None:
    read = parse_authorization(altered(authorization, path, ALTERED[path], signers), what="the authorization")
    refusals = scene.decide(read)
    named = "log_position" if path.startswith("log_position") else path
    assert named in fields(refusals)
    assert ("signature" in fields(refusals)) == (signers is Signers.NOBODY)
    assert ("approvals.0.record_sha256" in fields(refusals)) == (signers is not Signers.EVERYBODY)
    with pytest.raises(NotAuthorized, match=named.replace(".", r"\.")) as refused:
        require(refusals)
    assert refused.value.hint
    assert refused.value.refusals == refusals


@pytest.mark.parametrize("signers", Signers)
@pytest.mark.parametrize("path", UNREADABLE)
def test_a_field_with_one_value_is_refused_on_reading(
    authorization: Authorization, path: str, signers: Signers
) -> None:
    with pytest.raises(CkptierError, match=path.rpartition(".")[2]):
        parse_authorization(altered(authorization, path, UNREADABLE[path], signers), what="the authorization")


@pytest.mark.parametrize("signers", Signers)
def test_words_for_people_are_signed_too(scene: Scene, authorization: Authorization, signers: Signers) -> None:
    read = parse_authorization(altered(authorization, "statement", "Other words.", signers), what="the authorization")
    refused = set(fields(scene.decide(read)))
    stale = {"approvals.0.record_sha256", "approvals.1.record_sha256", "threshold"}
    assert (
        refused
        == {
            Signers.NOBODY: {"signature", *stale},
            Signers.REQUESTER: stale,
            Signers.EVERYBODY: set(),
        }[signers]
    )


@pytest.mark.parametrize("path", ["expected_parent", "destination.tag", "log_position"])
def test_leaving_a_field_empty_is_no_way_around_it(tmp_path: Path, path: str) -> None:
    """The log has entries from before the request, so a record that calls it empty is wrong."""
    scene = Scene.set(tmp_path)
    scene.publish(scene.authorized())
    scene.clock.advance(3600)
    later = scene.authorized()
    read = parse_authorization(altered(later, path, None, Signers.EVERYBODY), what="the authorization")
    assert path in fields(scene.decide(read))


@pytest.mark.parametrize("path", [path for path in ALTERED if path.startswith("subject.")])
def test_what_is_found_is_compared_as_well(scene: Scene, authorization: Authorization, path: str) -> None:
    """The same the other way round: the record stands, what lies there is another thing."""
    name = path.removeprefix("subject.")
    document = scene.observed.subject.model_dump(mode="json") | {name: ALTERED[path]}
    found = replace(scene.observed, subject=Subject.model_validate_json(canonical.dump(document)))
    assert fields(scene.decide(authorization, observed=found)) == (path,)


APPROVAL: dict[str, Any] = {
    "record_sha256": OTHER_DIGEST,
    "approver": PUBLISHER,
    "approved_at": "2026-03-01T11:00:00Z",
}
UNREADABLE_APPROVAL: dict[str, Any] = {"format": 2, "decision": "reject"}


@pytest.mark.parametrize("signed", [False, True], ids=["as it was signed", "signed again"])
@pytest.mark.parametrize("name", APPROVAL)
def test_an_altered_approval_is_refused_by_its_field(
    scene: Scene, authorization: Authorization, name: str, *, signed: bool
) -> None:
    file = json.loads(authorization.encode())
    document = json.loads(authorization.approvals[0].envelope.payload) | {name: APPROVAL[name]}
    again = sign(PayloadType.APPROVAL, canonical.dump(document), key_of(document["approver"])).document()
    kept = file["approvals"][0]["signatures"]
    file["approvals"][0] = again if signed else again | {"signatures": kept}
    refused = fields(scene.decide(parse_authorization(canonical.dump(file), what="the authorization")))
    assert f"approvals.0.{name}" in refused
    assert ("approvals.0.signature" in refused) == (not signed)
    assert "threshold" in refused


@pytest.mark.parametrize("name", UNREADABLE_APPROVAL)
def test_an_approval_says_yes_or_is_none(authorization: Authorization, name: str) -> None:
    file = json.loads(authorization.encode())
    document = json.loads(authorization.approvals[0].envelope.payload) | {name: UNREADABLE_APPROVAL[name]}
    file["approvals"][0] = sign(PayloadType.APPROVAL, canonical.dump(document), key_of(APPROVERS[0])).document()
    with pytest.raises(CkptierError, match=name):
        parse_authorization(canonical.dump(file), what="the authorization")


def test_approvals_do_not_move_between_records(scene: Scene, authorization: Authorization) -> None:
    other = scene.authorized(statement="Another request.")
    first, second = (json.loads(one.encode()) for one in (authorization, other))
    first["approvals"], second["approvals"] = second["approvals"], first["approvals"]
    for file in (first, second):
        refused = fields(scene.decide(parse_authorization(canonical.dump(file), what="the authorization")))
        assert refused == ("approvals.0.record_sha256", "approvals.1.record_sha256", "threshold")


def test_a_record_is_no_approval(scene: Scene, authorization: Authorization) -> None:
    """A payload signed as one type is not verified as another, whatever the file calls it."""
    file = json.loads(authorization.encode())
    approval = json.loads(authorization.approvals[0].envelope.payload)
    forged = sign(PayloadType.LOG_ENTRY, canonical.dump(approval), key_of(APPROVERS[0])).document()
    file["approvals"][0] = forged | {"payloadType": PayloadType.APPROVAL.value}
    refused = fields(scene.decide(parse_authorization(canonical.dump(file), what="the authorization")))
    assert refused == ("approvals.0.signature", "threshold")


def test_the_parent_is_that_of_the_place(scene: Scene, authorization: Authorization) -> None:
    assert authorization.record.expected_parent == HEAD
    made = approved_by_hand(authorization, "approver-three", at=scene.clock.now())
    assert scene.decide(made) == ()
