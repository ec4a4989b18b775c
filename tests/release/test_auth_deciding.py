"""What permits a publication: people, times, the log, the place.  Every refusal names its field."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from release.authorized_by_hand import (
    APPROVERS,
    HEAD,
    OUTSIDER,
    PUBLISHER,
    REQUESTER,
    REVOKER,
    SECOND_REQUESTER,
    START,
    Scene,
    approved_by_hand,
    fields,
    key_of,
    policy_toml,
    sealed_again,
)

from replicate.errors import ExitCode
from replicate.release.authorization import Act
from replicate.release.deciding import CLOCK_SKEW, NotAuthorized, require
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.findings import Finding, Rule, Waiver
from replicate.release.history import EntryKind, ReleaseHistory
from replicate.release.policy import Policy, parse_policy
from replicate.release.publishing.places import PlaceState
from replicate.release.releaselog import revoke, withdraw

COMMIT = "2" * 40
SECOND = timedelta(seconds=1)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.set(tmp_path)


def other_policy(scene: Scene, *, top: str = "", **parts: Any) -> Policy:
    return parse_policy(policy_toml(Path("/srv/log"), top=top, **parts).encode(), what="the policy")


def test_what_was_authorized_is_permitted(scene: Scene) -> None:
    authorization = scene.authorized()
    assert scene.decide(authorization) == ()
    require(())


def test_every_reason_is_given_at_once(scene: Scene) -> None:
    authorization = scene.authorized()
    place = PlaceState(exists=True, visibility=Visibility.PUBLIC, gating=Gating.AUTO, parent="3" * 40, tag_taken=HEAD)
    refusals = scene.decide(authorization, place=place, now=START + timedelta(days=30), publisher=OUTSIDER)
    assert fields(refusals) == (
        "publisher", "expires_at", "destination.visibility", "destination.gating", "destination.tag", "expected_parent",
    )  # fmt: skip
    with pytest.raises(NotAuthorized) as refused:
        require(refusals)
    assert refused.value.exit_code is ExitCode.TRUST
    for refusal in refusals:
        assert f"{refusal.field}: authorized {refusal.authorized}, found {refusal.found}" in refused.value.message
        assert refusal.next in refused.value.hint


# People


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_approvals_are_refused(scene: Scene, count: int) -> None:
    authorization = scene.authorized()
    fewer = replace(authorization, approvals=authorization.approvals[:count])
    assert fields(scene.decide(fewer)) == ("threshold",)
    assert "2 approvals" in scene.decide(fewer)[0].authorized


def test_one_approver_twice_is_one_approval(scene: Scene) -> None:
    asked = scene.requested()
    for _ in range(2):
        asked = approved_by_hand(asked, APPROVERS[0], at=START)
    assert fields(scene.decide(asked)) == ("approvals.1.approver", "threshold")


def test_one_key_for_two_people_is_one_approval(scene: Scene) -> None:
    """Approver one signs in the name of approver two as well."""
    asked = approved_by_hand(scene.requested(), APPROVERS[0], at=START)
    asked = approved_by_hand(asked, APPROVERS[1], at=START, key=key_of(APPROVERS[0]))
    assert fields(scene.decide(asked)) == ("approvals.1.signature", "threshold")


@pytest.mark.parametrize("name", [OUTSIDER, PUBLISHER, SECOND_REQUESTER, REVOKER])
def test_an_approval_by_somebody_who_may_not_is_refused(scene: Scene, name: str) -> None:
    asked = scene.requested()
    for approver in (APPROVERS[0], name):
        asked = approved_by_hand(asked, approver, at=START)
    assert fields(scene.decide(asked)) == ("approvals.1.approver", "threshold")


def test_the_requester_does_not_approve(scene: Scene) -> None:
    """Not even somebody who may approve what others request, and not beside two who did."""
    authorization = approved_by_hand(scene.authorized(), REQUESTER, at=START)
    assert fields(scene.decide(authorization)) == ("approvals.2.approver",)
    asked = approved_by_hand(scene.requested(), APPROVERS[0], at=START)
    assert fields(scene.decide(approved_by_hand(asked, REQUESTER, at=START))) == ("approvals.1.approver", "threshold")


def test_the_requester_approves_where_policy_and_record_say_so(tmp_path: Path) -> None:
    scene = Scene.set(tmp_path, top="threshold = 1\nrequester_may_approve = true")
    asked = approved_by_hand(scene.requested(), REQUESTER, at=START)
    assert (asked.record.threshold, asked.record.requester_may_approve) == (1, True)
    assert scene.decide(asked) == ()
    strict = asked.record.model_copy(update={"requester_may_approve": False})
    assert fields(scene.decide(sealed_again(strict, REQUESTER))) == ("approvals.0.approver", "threshold")


@pytest.mark.parametrize(("in_record", "in_policy"), [(3, 2), (2, 3)])
def test_the_higher_threshold_holds(scene: Scene, in_record: int, in_policy: int) -> None:
    scene.policy = other_policy(scene, top=f"threshold = {in_policy}")
    record = scene.requested().record.model_copy(update={"threshold": in_record})
    assert "threshold" in fields(scene.decide(sealed_again(record, *APPROVERS)))
    three = sealed_again(record, *APPROVERS, "approver-three")
    assert ("threshold" in fields(scene.decide(three))) == (in_record < in_policy)


@pytest.mark.parametrize("key", [OUTSIDER, *APPROVERS])
def test_a_record_signed_with_another_key_is_refused(scene: Scene, key: str) -> None:
    authorization = sealed_again(scene.requested().record, *APPROVERS, requester=key)
    assert fields(scene.decide(authorization)) == ("signature",)


@pytest.mark.parametrize("name", [OUTSIDER, *APPROVERS, PUBLISHER])
def test_a_request_by_somebody_who_may_not_is_refused(scene: Scene, name: str) -> None:
    record = scene.requested().record.model_copy(update={"requester": name})
    assert "requester" in fields(scene.decide(sealed_again(record, "approver-three", *APPROVERS)))


@pytest.mark.parametrize("name", [OUTSIDER, REQUESTER, APPROVERS[0]])
def test_a_publisher_has_to_be_permitted(scene: Scene, name: str) -> None:
    assert fields(scene.decide(scene.authorized(), publisher=name)) == ("publisher",)


@pytest.mark.parametrize(
    ("name", "field"),
    [(REQUESTER, "requester"), (APPROVERS[0], "approvals.0.approver"), (PUBLISHER, "publisher")],
)
def test_people_who_left_permit_nothing(scene: Scene, name: str, field: str) -> None:
    """Their approvals of before end too: who holds an old key can write any time into an approval."""
    text = policy_toml(Path("/srv/log")).replace(
        f"name = {name!r}\n", f"name = {name!r}\nnot_after = 2026-03-02T00:00:00Z\n"
    )
    scene.policy = parse_policy(text.encode(), what="the policy")
    authorization = scene.authorized()
    assert scene.decide(authorization) == ()
    assert field in fields(scene.decide(authorization, now=START + timedelta(days=1)))


def test_a_changed_policy_ends_what_was_authorized(scene: Scene) -> None:
    authorization = scene.authorized()
    scene.policy = other_policy(scene, top="max_valid_days = 13")
    assert fields(scene.decide(authorization)) == ("policy_sha256",)


# Time


def test_it_holds_from_then_to_then(scene: Scene) -> None:
    begin, end = START + timedelta(hours=1), START + timedelta(hours=3)
    authorization = scene.authorized(not_before=begin, valid_for=timedelta(hours=2))
    assert fields(scene.decide(authorization, now=begin - SECOND)) == ("not_before",)
    assert scene.decide(authorization, now=begin) == ()
    assert scene.decide(authorization, now=end - SECOND) == ()
    assert fields(scene.decide(authorization, now=end)) == ("expires_at",)


@pytest.mark.parametrize("early", [False, True], ids=["asked for long", "asked for long ago"])
def test_nothing_is_authorized_for_longer_than_the_policy_lets(scene: Scene, *, early: bool) -> None:
    record = scene.requested().record
    change = (
        {"not_before": START - timedelta(days=8)} if early else {"expires_at": START + timedelta(days=14, seconds=1)}
    )
    refused = scene.decide(sealed_again(record.model_copy(update=change), *APPROVERS))
    assert fields(refused) == ("expires_at",)
    assert "14 days" in refused[0].found


@pytest.mark.parametrize(
    ("at", "fits"),
    [
        (START - CLOCK_SKEW, True),
        (START - CLOCK_SKEW - SECOND, False),
        (START + CLOCK_SKEW, True),
        (START + CLOCK_SKEW + SECOND, False),
    ],
)
def test_an_approval_is_between_request_and_now(scene: Scene, at: datetime, *, fits: bool) -> None:
    asked = approved_by_hand(scene.requested(), APPROVERS[0], at=START)
    refused = fields(scene.decide(approved_by_hand(asked, APPROVERS[1], at=at)))
    assert refused == (() if fits else ("approvals.1.approved_at", "threshold"))


def test_an_approval_after_the_end_is_refused(scene: Scene) -> None:
    asked = scene.requested(valid_for=timedelta(minutes=1))
    for name in APPROVERS:
        asked = approved_by_hand(asked, name, at=START + timedelta(minutes=2))
    refused = fields(scene.decide(asked, now=START + timedelta(seconds=30)))
    assert refused == ("approvals.0.approved_at", "approvals.1.approved_at", "threshold")


def test_a_clock_set_back_does_not_revive_a_record(scene: Scene) -> None:
    """The log remembers how late it was."""
    authorization = scene.authorized(valid_for=timedelta(hours=1))
    scene.clock.advance(7200)
    scene.begin(scene.authorized())
    assert fields(scene.decide(authorization)) == ("expires_at",)
    assert fields(scene.decide(authorization, now=START + timedelta(minutes=30))) == ("now",)


# The scan


def test_findings_block(scene: Scene) -> None:
    finding = Finding(rule=Rule.SECRET, path="README.md", detail="a token")
    found = replace(scene.observed, report=scene.observed.report.model_copy(update={"blocking": (finding,)}))
    refused = scene.decide(scene.authorized(), observed=found)
    assert fields(refused) == ("scan_report.blocking",)
    assert "secret in README.md" in refused[0].found


def test_a_waiver_that_ran_out_waives_nothing(tmp_path: Path) -> None:
    waiver = Waiver(
        rule=Rule.SECRET,
        path="README.md",
        reason="an example token",
        author="author",
        expires=datetime(2026, 3, 2, 12, tzinfo=UTC),
    )
    scene = Scene.set(tmp_path, waivers=(waiver,))
    authorization = scene.authorized()
    assert scene.decide(authorization) == ()
    assert fields(scene.decide(authorization, now=waiver.expires)) == ("subject.waivers.0.expires",)


# The log


def test_an_authorization_is_used_once(scene: Scene) -> None:
    authorization = scene.authorized()
    scene.begin(authorization)
    for resume in (False, True):
        state = fields(scene.decide(authorization, resume=resume))
        assert state == (() if resume else ("nonce",))
    assert fields(scene.decide(authorization, resume=True, publisher=None)) == ("nonce",)
    scene.log.append(scene.event(authorization, EntryKind.PUBLISHED, commit=COMMIT))
    for resume in (False, True):
        refused = scene.decide(authorization, resume=resume)
        assert fields(refused) == ("nonce",)
        assert "published by publisher" in refused[0].found


def test_a_failed_publication_is_resumed_by_who_began_it(tmp_path: Path) -> None:
    scene = Scene.set(tmp_path)
    people = policy_toml(Path("/srv/log")).replace('["publish"]', '["publish"]') + (
        f'[[person]]\nname = "second-publisher"\nkey = "{key_of("second-publisher").public.text}"\nmay = ["publish"]\n'
    )
    scene.policy = scene.log.policy = parse_policy(people.encode(), what="the policy")
    authorization = scene.authorized()
    scene.begin(authorization)
    scene.log.append(scene.event(authorization, EntryKind.FAILED, detail="the network went away"))
    assert fields(scene.decide(authorization)) == ("nonce",)
    assert scene.decide(authorization, resume=True) == ()
    refused = scene.decide(authorization, resume=True, publisher="second-publisher")
    assert fields(refused) == ("nonce",)
    assert "publisher" in refused[0].authorized


def test_a_nonce_of_another_record_is_used(scene: Scene) -> None:
    first = scene.authorized()
    scene.begin(first)
    second = scene.authorized(nonce=first.record.nonce, statement="Another one.")
    refused = scene.decide(second, resume=True)
    assert fields(refused) == ("nonce",)
    assert "another record" in refused[0].found


def test_what_was_revoked_is_refused(scene: Scene) -> None:
    authorization, other = scene.authorized(), scene.authorized()
    revoke(
        scene.log, authorization.record_sha256, reason="wrong card", who=REVOKER, key=key_of(REVOKER), clock=scene.clock
    )
    refused = scene.decide(authorization)
    assert fields(refused) == ("revocation",)
    assert "wrong card" in refused[0].found
    assert scene.decide(other) == ()


def test_what_was_withdrawn_needs_an_authorization_from_after_that(scene: Scene) -> None:
    before = scene.authorized()
    withdraw(
        scene.log,
        before.record.subject.export_manifest_sha256,
        reason="trained on the wrong data",
        who=REVOKER,
        key=key_of(REVOKER),
        clock=scene.clock,
    )
    refused = scene.decide(before)
    assert fields(refused) == ("withdrawal",)
    assert "wrong data" in refused[0].found
    assert scene.decide(scene.authorized()) == ()


def test_another_log_is_refused(scene: Scene) -> None:
    scene.publish(scene.authorized())
    authorization = scene.authorized()
    assert scene.decide(authorization) == ()
    history = scene.history
    shorter = ReleaseHistory(logged=history.logged[:-1])
    forked = ReleaseHistory(logged=(*history.logged[:-1], replace(history.logged[-1], sha256="d" * 64)))
    for found in (ReleaseHistory(), shorter, forked):
        refused = scene.decide(authorization, history=found)
        assert fields(refused) == ("log_position",)
        assert "restore it" in refused[0].next


# The place


def place(scene: Scene, **changes: Any) -> PlaceState:
    return replace(scene.place, **changes)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"visibility": Visibility.PUBLIC}, "destination.visibility", "public already"),
        ({"gating": Gating.MANUAL}, "destination.gating", "manual"),
        ({"parent": "3" * 40}, "expected_parent", "3" * 40),
        ({"parent": None}, "expected_parent", "none"),
        ({"tag_taken": HEAD}, "destination.tag", HEAD),
        ({"occupied": "a folder with 3 files"}, "destination.url", "a folder with 3 files"),
    ],
)
def test_the_place_is_as_it_was_authorized(scene: Scene, changes: dict[str, Any], field: str, words: str) -> None:
    refused = scene.decide(scene.authorized(), place=place(scene, **changes))
    assert fields(refused) == (field,)
    assert words in refused[0].found


def test_a_new_repository_has_no_visibility_to_compare(scene: Scene) -> None:
    authorization = scene.authorized(expected_parent=None)
    absent = PlaceState(exists=False, visibility=Visibility.PUBLIC, gating=Gating.AUTO)
    assert scene.decide(authorization, place=absent) == ()
    assert fields(scene.decide(authorization)) == ("expected_parent",)


def test_a_publication_is_private_at_first(scene: Scene) -> None:
    record = scene.requested().record
    public = record.destination.model_copy(update={"visibility": Visibility.PUBLIC})
    made = sealed_again(record.model_copy(update={"destination": public}), *APPROVERS)
    found = replace(scene.observed, destination=public)
    refused = scene.decide(made, observed=found, place=place(scene, visibility=Visibility.PUBLIC))
    assert fields(refused) == ("destination.visibility",)
    assert "set-visibility" in refused[0].next


@pytest.mark.parametrize(
    ("destinations", "field"),
    [
        ('url = "hf://other/*"\nvisibility = ["private"]', "destination.url"),
        ('url = "hf://acme/*"\nvisibility = ["public"]', "destination.visibility"),
        ('url = "hf://acme/*"\nendpoint = "https://hub.example"\nvisibility = ["private"]', "destination.endpoint"),
    ],
)
def test_the_policy_names_the_destinations(scene: Scene, destinations: str, field: str) -> None:
    record = scene.requested().record
    scene.policy = other_policy(scene, destinations=f"[[destination]]\n{destinations}\n")
    made = sealed_again(record.model_copy(update={"policy_sha256": scene.policy.sha256}), *APPROVERS)
    assert fields(scene.decide(made)) == (field,)


# To show what was published


@pytest.fixture
def shown(scene: Scene) -> Scene:
    """Return a scene whose release was published at COMMIT."""
    scene.publish(scene.authorized(), COMMIT)
    scene.place = place(scene, parent=COMMIT, tag_taken=COMMIT)
    return scene


def showing(scene: Scene, **changes: Any) -> Any:
    asked = {
        "act": Act.SET_VISIBILITY,
        "expected_parent": None,
        "commit": COMMIT,
        "visibility": Visibility.PUBLIC,
        "gating": Gating.MANUAL,
    }
    return scene.authorized(**asked | changes)


def test_showing_is_an_act_of_its_own(shown: Scene) -> None:
    authorization = showing(shown)
    assert authorization.record.destination == Destination(
        url="hf://acme/tiny", tag="v1.0", visibility=Visibility.PUBLIC, gating=Gating.MANUAL
    )
    assert shown.decide(authorization, act=Act.SET_VISIBILITY) == ()
    assert "act" in fields(shown.decide(authorization))
    published = shown.authorized(expected_parent=COMMIT)
    assert "act" in fields(shown.decide(published, act=Act.SET_VISIBILITY))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"parent": "3" * 40}, ("commit", "expected_parent")),
        ({"tag_taken": "3" * 40}, ("destination.tag",)),
        ({"exists": False, "parent": None, "tag_taken": None}, ("destination.url", "commit", "expected_parent")),
    ],
)
def test_what_is_shown_is_what_was_published(shown: Scene, changes: dict[str, Any], named: tuple[str, ...]) -> None:
    refused = shown.decide(showing(shown), act=Act.SET_VISIBILITY, place=place(shown, **changes))
    assert fields(refused) == named


def test_a_commit_that_the_log_does_not_know_is_not_shown(shown: Scene) -> None:
    other = "5" * 40
    authorization = showing(shown, commit=other)
    refused = shown.decide(authorization, act=Act.SET_VISIBILITY, place=place(shown, parent=other, tag_taken=other))
    assert fields(refused) == ("commit",)


def test_a_change_of_visibility_is_used_once(shown: Scene) -> None:
    authorization = showing(shown)
    shown.begin(authorization)
    shown.log.append(
        shown.event(
            authorization,
            EntryKind.VISIBILITY_CHANGED,
            commit=COMMIT,
            visibility=Visibility.PUBLIC,
            gating=Gating.MANUAL,
        )
    )
    assert fields(shown.decide(authorization, act=Act.SET_VISIBILITY, resume=True)) == ("nonce",)
