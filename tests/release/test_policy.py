"""The release policy: what it says, what it refuses, and that every fault is named at once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from release.authorized_by_hand import APPROVERS, PUBLISHER, REQUESTER, key_of, policy_toml

from replicate.errors import ConfigInvalid
from replicate.release.destination import Destination, Visibility
from replicate.release.policy import Permission, Policy, load_policy, parse_policy

PLACE = '[[destination]]\nurl = "hf://acme/*"\nvisibility = ["private"]\n'


def person(name: str, *may: str, key: str | None = None, more: str = "") -> str:
    """Return the table of one person."""
    text = key if key is not None else key_of(name).public.text
    return f"[[person]]\nname = {name!r}\nkey = {text!r}\nmay = {list(may)}\n{more}\n"


def policy(people: str, *, top: str = "", destinations: str = PLACE) -> Policy:
    return parse_policy(
        policy_toml(Path("/srv/log"), top=top, people=people, destinations=destinations).encode(), what="policy.toml"
    )


ALL = ("request", "approve", "publish", "revoke")
WHOLE = person(REQUESTER, *ALL) + person(APPROVERS[0], "approve") + person(APPROVERS[1], "approve")


def test_defaults_are_the_careful_ones() -> None:
    read = policy(WHOLE)
    assert (read.threshold, read.requester_may_approve, read.max_valid_days, read.solo) == (2, False, 14, False)
    assert read.log == "file:///srv/log"
    named = read.named(APPROVERS[0])
    assert named is not None
    assert named.public_key == key_of(APPROVERS[0]).public
    assert [one.name for one in read.who_may(Permission.APPROVE)] == [REQUESTER, *APPROVERS]
    assert read.named("nobody") is None


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "release-policy.toml"
    path.write_text(policy_toml(tmp_path), encoding="utf-8")
    assert load_policy(path).named(PUBLISHER) is not None
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_policy(tmp_path / "absent.toml")


def test_one_person_alone_has_to_be_said() -> None:
    alone = person(REQUESTER, *ALL)
    assert policy(alone, top="threshold = 1\nrequester_may_approve = true").solo
    with pytest.raises(ConfigInvalid, match=r"threshold: 1 approvers besides the requester are needed and there are 0"):
        policy(alone, top="threshold = 1")
    with pytest.raises(ConfigInvalid, match=r"threshold: 2 approvers are needed and there are 1"):
        policy(alone, top="requester_may_approve = true")


def test_too_few_approvers_says_what_to_add() -> None:
    with pytest.raises(ConfigInvalid, match=r"there are 1; add a \[\[person\]\] with their own key"):
        policy(person(REQUESTER, *ALL) + person(APPROVERS[0], "approve"))


def test_somebody_else_who_may_request_makes_it_possible() -> None:
    """Both approvers may request as well; whoever does cannot approve, but a third can request."""
    both = "".join(person(name, "request", "approve") for name in APPROVERS)
    with pytest.raises(ConfigInvalid, match="threshold: 2 approvers besides the requester"):
        policy(both + person(PUBLISHER, "publish", "revoke"))
    assert policy(both + person(REQUESTER, "request") + person(PUBLISHER, "publish", "revoke")).threshold == 2


def test_one_key_under_two_names_is_no_second_approver() -> None:
    twice = person("approver-three", "approve", key=key_of(APPROVERS[0]).public.text)
    with pytest.raises(ConfigInvalid, match="approver-one and approver-three have one key"):
        policy(person(REQUESTER, *ALL) + person(APPROVERS[0], "approve") + twice)


@pytest.mark.parametrize("name", ["approver-one", "Approver-One", "APPROVER-ONE"])
def test_names_that_look_alike_are_one_name(name: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"person.name: .* are one name"):
        policy(WHOLE + person(name, "approve", key=key_of("approver-three").public.text))


def test_every_fault_is_in_one_message() -> None:
    people = (
        person(REQUESTER, "request", "approve")
        + person(APPROVERS[0], "approve")
        + person("twin", "approve", key=key_of(APPROVERS[0]).public.text)
        + person(APPROVERS[0], "approve", key=key_of(APPROVERS[1]).public.text)
    )
    with pytest.raises(ConfigInvalid) as refused:
        policy(people, top="threshold = 9")
    for words in ("are one name", "have one key", "nobody may publish", "nobody may revoke", "threshold: 9"):
        assert words in refused.value.message
    assert "policy.toml" in refused.value.message
    assert refused.value.hint


def test_unknown_keys_and_wrong_values_are_named() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        policy(
            person(REQUESTER, "request", "dance", more='email = "x"')
            + person(APPROVERS[0], "approve", key="ed25519:AA"),
            top="treshold = 2\nmax_valid_days = 91\nrequester_may_approve = 1",
            destinations='[[destination]]\nurl = "hf://acme/*"\nvisibility = ["secret"]\n',
        )
    for words in (
        "treshold: unknown key",
        "max_valid_days",
        "requester_may_approve",
        "person.0.may.1",
        "person.0.email: unknown key",
        "person.1.key: a public key is the base64 of 32 bytes",
        "destination.0.visibility.0",
    ):
        assert words in refused.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "format: missing"),
        ("format = 2", "format"),
        ("format = ", "not valid TOML"),
        ("\udcff", "not valid TOML"),
        ("# " + "x" * (1 << 20), "larger than"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        parse_policy(text.encode(errors="surrogateescape"), what="policy.toml")


@pytest.mark.parametrize("log", ["/srv/log", "log", "https://user:secret@host/log"])
def test_the_log_is_a_url_without_credentials(log: str) -> None:
    text = policy_toml(Path("/srv/log"), people=WHOLE).replace("file:///srv/log", log)
    with pytest.raises(ConfigInvalid, match="log: "):
        parse_policy(text.encode(), what="policy.toml")


def test_not_after_ends_what_a_person_may_do() -> None:
    until = datetime(2026, 6, 1, tzinfo=UTC)
    read = policy(WHOLE + person("gone", "approve", more="not_after = 2026-06-01T00:00:00Z"))
    gone = read.named("gone")
    assert gone is not None
    assert gone.not_after == until
    assert gone.current(datetime(2026, 5, 31, tzinfo=UTC))
    assert not gone.current(until)
    with pytest.raises(ConfigInvalid, match="not_after"):
        policy(WHOLE + person("gone", "approve", more="not_after = 2026-06-01T00:00:00"))


def test_the_digest_is_of_what_it_says() -> None:
    spaced = policy(WHOLE.replace("[[person]]", "\n# a comment\n[[person]]"))
    assert spaced.sha256 == policy(WHOLE).sha256
    assert policy(WHOLE, top="max_valid_days = 13").sha256 != policy(WHOLE).sha256


def at(url: str, visibility: Visibility = Visibility.PRIVATE, endpoint: str = "") -> Destination:
    return Destination(url=url, endpoint=endpoint, visibility=visibility)


@pytest.mark.parametrize(
    ("url", "differing"),
    [
        ("hf://acme/tiny", ""),
        ("hf://other/tiny", "url"),
        ("hf://Acme/tiny", "url"),
        ("s3://bucket/releases/tiny", "url"),
        ("file:///srv/releases/tiny", ""),
        ("file:///srv/releases/tiny/deeper", "url"),
        ("file:///srv/releases/", "url"),
        ("file:///srv/releases/..", "url"),
        ("file:///srv/releases/%2e%2e", "url"),
        ("file:///srv/releases/..%2f..%2fetc", "url"),
        ("file:///srv/releases/a%00b", "url"),
        ("file:///srv/releases/../etc", "url"),
    ],
)
def test_a_destination_is_matched_part_by_part(url: str, differing: str) -> None:
    """``*`` does not cross a slash, also not one that is spelled in percents, and nothing climbs."""
    places = PLACE + '[[destination]]\nurl = "file:///srv/releases/*"\nvisibility = ["unmanaged"]\n'
    visibility = Visibility.PRIVATE if url.startswith("hf") else Visibility.UNMANAGED
    assert policy(WHOLE, destinations=places).differing(at(url, visibility)) == differing


def test_the_field_that_differs_is_named() -> None:
    places = PLACE + '[[destination]]\nurl = "hf://labs/*"\nvisibility = ["public"]\n'
    read = policy(WHOLE, destinations=places)
    assert read.differing(at("hf://acme/tiny", Visibility.PUBLIC)) == "visibility"
    assert read.differing(at("hf://labs/tiny", Visibility.PRIVATE)) == "visibility"
    assert read.differing(at("hf://acme/tiny", endpoint="https://hub.example")) == "endpoint"
    assert read.differing(at("hf://labs/tiny", Visibility.PUBLIC)) == ""
