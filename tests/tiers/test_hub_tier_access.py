"""Who may: private repos only, the right token, at the right place, and no secret in any message."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.hub import Action, Fault, Operation, TokenRole, When, rate_limited
from support.hub_tiers import PREFIX, REPO, HubSite, hub_site

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, TierError, TierUnavailable, Unsupported
from tiers.hub import HubTier, open_hub
from tiers.hub_errors import MAX_RETRY_AFTER
from tiers.hub_urls import place_of
from tiers.opening import FACTORIES, BadTierUrl, TierSpec, open_tier
from tiers.protocol import Fencing, Key, Verification
from tiers.testing import ManualClock, read_all

VERBS: dict[str, Callable[[HubTier], object]] = {
    "put": lambda tier: tier.put(Key("a"), BytesBody(b"a")),
    "create": lambda tier: tier.create(Key("c"), b"c"),
    "open": lambda tier: tier.open(Key("before")),
    "stat": lambda tier: tier.stat(Key("before")),
    "list_objects": lambda tier: tier.list_objects(""),
    "delete": lambda tier: tier.delete(Key("before")),
}
every_verb = pytest.mark.parametrize("act", VERBS.values(), ids=VERBS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home") as found:
        found.open().put(Key("before"), BytesBody(b"before"))
        found.hub.forget_requests()
        yield found


def show(site: HubSite, *, private: bool, gated: str | None = None) -> None:
    site.api.update_repo_settings(REPO, repo_type="dataset", private=private, gated=gated)  # type: ignore[arg-type]
    site.hub.forget_requests()


@every_verb
def test_a_repo_that_anybody_may_see_is_refused(site: HubSite, act: Callable[[HubTier], object]) -> None:
    for gated in (None, "manual"):
        show(site, private=False, gated=gated)
        with pytest.raises(AccessDenied) as caught:
            act(site.open())
        assert ("gated" if gated else "public") in caught.value.message
        assert f"hf repos settings {REPO} --repo-type dataset --private" in caught.value.hint
        assert site.hub.operations() == [Operation.REPO_INFO], "nothing else was asked, and nothing was sent"


@pytest.mark.parametrize("verb", ["put", "create", "delete"])
def test_a_repo_made_public_midway_gets_no_commit(site: HubSite, verb: str) -> None:
    tier = site.open()
    tier.stat(Key("before"))
    before = site.commits()
    show(site, private=False)
    with pytest.raises(AccessDenied, match="public"):
        VERBS[verb](tier)
    assert site.commits() == before
    assert Operation.COMMIT not in site.hub.operations()
    show(site, private=True)
    VERBS[verb](tier)
    assert site.commits() == before + 1


@every_verb
def test_a_repo_that_is_not_there_is_not_made(site: HubSite, act: Callable[[HubTier], object]) -> None:
    spec = TierSpec(name="hub", url="hf://datasets/acme/absent/x", endpoint_url=site.hub.url)
    tier = FACTORIES["hf"](spec)
    try:
        with pytest.raises(AccessDenied) as caught:
            act(tier)  # type: ignore[arg-type]
    finally:
        tier.close()
    assert "hf repos create acme/absent --repo-type dataset --private" in caught.value.hint
    assert list(site.hub.repos) == [f"datasets/{REPO}"]
    assert site.hub.operations() == [Operation.REPO_INFO]


@every_verb
def test_without_access_no_key_is_missing(
    site: HubSite, act: Callable[[HubTier], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger, a token that was revoked, and nobody."""
    monkeypatch.setenv("HF_TOKEN", site.hub.add_token("stranger", user="mallory"))
    for _ in range(2):
        with pytest.raises(AccessDenied) as caught:
            act(site.open())
        assert "token" in caught.value.hint
        site.hub.revoke_token("stranger")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(AccessDenied):
        act(site.open())


@every_verb
def test_a_token_that_only_reads(
    site: HubSite, act: Callable[[HubTier], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", site.hub.add_token("reader", user="alice", role=TokenRole.READ))
    if act in (VERBS["put"], VERBS["create"], VERBS["delete"]):
        with pytest.raises(AccessDenied, match="HTTP 403"):
            act(site.open())
    else:
        act(site.open())


def test_a_token_that_rotates_is_picked_up(site: HubSite, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = site.open()
    tier.stat(Key("before"))
    monkeypatch.setenv("HF_TOKEN", site.hub.add_token("next", user="alice"))
    site.hub.revoke_token("writer")
    tier.put(Key("a"), BytesBody(b"a"))
    assert {seen.token for seen in site.hub.requests} == {"writer", "next", None}, "and none at the storage"


def test_the_librarys_file_of_tokens_is_read(site: HubSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "token").write_text(site.token + "\n")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    assert site.open().stat(Key("before")).size == 6
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    with pytest.raises(AccessDenied):
        site.open().stat(Key("before"))


@pytest.mark.parametrize("token", ["hf_secret\nX-Evil: 1", "hf_secret two", "hf_sécret"])
def test_a_token_that_no_header_takes(site: HubSite, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiers.hub_http.get_token", lambda: token)
    with pytest.raises(AccessDenied) as caught:
        site.open().stat(Key("before"))
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert site.hub.operations() == []


def test_offline_is_offline(site: HubSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(AccessDenied) as caught:
        site.open().stat(Key("before"))
    assert "HF_HUB_OFFLINE" in caught.value.hint
    assert site.hub.operations() == []


@pytest.mark.parametrize(("operation", "verb"), [("repo-info", "stat"), ("paths-info", "stat"), ("get-file", "open")])
def test_a_repo_that_was_renamed_is_no_missing_key(site: HubSite, operation: str, verb: str) -> None:
    moved = {"Location": "/datasets/acme/new-name/resolve/main/runs/before"}
    tier = site.open()
    site.hub.inject(Fault(operation=operation, action=Action.STATUS, status=307, headers=moved))
    with pytest.raises(AccessDenied) as caught:
        VERBS[verb](tier)
    assert "renamed" in caught.value.hint
    assert len(site.hub.fired) == 1
    assert not [seen for seen in site.hub.requests if "new-name" in seen.path]


def test_a_repo_that_answers_by_another_name(site: HubSite) -> None:
    body = b'{"id":"acme/new-name","sha":"%s","private":true}' % (b"a" * 40)
    site.hub.inject(Fault(operation="repo-info", action=Action.STATUS, status=200, body=body))
    with pytest.raises(AccessDenied, match="another name"):
        site.open().put(Key("a"), BytesBody(b"a"))


def test_a_redirect_within_the_repo_is_followed(site: HubSite) -> None:
    """The Hub sends for small files to a place of its own."""
    there = {"Location": f"/datasets/{REPO}/resolve/main/{PREFIX}/before"}
    site.hub.inject(Fault(operation="get-file", action=Action.STATUS, status=307, headers=there))
    assert read_all(site.open().open(Key("before"))) == b"before"


def test_redirects_that_go_round_are_given_up(site: HubSite) -> None:
    there = {"Location": f"/datasets/{REPO}/resolve/main/{PREFIX}/before"}
    for nth in range(1, 9):
        fault = Fault(operation="get-file", action=Action.STATUS, status=307, headers=there, nth=nth)
        site.hub.inject(fault)
    with pytest.raises(TierUnavailable, match="circles"):
        site.open().open(Key("before"))


@pytest.mark.parametrize("place", ["http://storage.example/x", "ftp://storage.example/x", "http://[::1"])
def test_bytes_without_tls_are_refused(site: HubSite, place: str) -> None:
    headers = {"Location": place, "X-Linked-ETag": '"0"', "X-Linked-Size": "6"}
    site.hub.inject(Fault(operation="get-file", action=Action.STATUS, status=302, headers=headers))
    with pytest.raises((AccessDenied, TierUnavailable)) as caught:
        site.open().open(Key("before"))
    assert "storage.example" not in str(caught.value)


@every_verb
def test_a_refusal_that_is_not_the_hubs_says_nothing_about_a_key(
    site: HubSite, act: Callable[[HubTier], object]
) -> None:
    """A proxy or a web site answered, in whatever words."""
    tier = site.open()
    tier.stat(Key("before"))
    page = b"<html>Not Found: EntryNotFound</html>"
    for count, status in enumerate((404, 403, 401, 400), start=1):
        site.hub.inject(Fault(operation="*", action=Action.STATUS, status=status, body=page))
        with pytest.raises(TierError) as caught:
            act(tier)
        assert type(caught.value) in (AccessDenied, Unsupported)
        assert len(site.hub.fired) == count


LIMITS: tuple[tuple[Mapping[str, str], float | None], ...] = (
    (rate_limited(7), 8.0),
    ({"Retry-After": "30"}, 30.0),
    ({"Retry-After": "999999"}, MAX_RETRY_AFTER),
    (rate_limited(999_999), MAX_RETRY_AFTER),
    ({"Retry-After": "soon"}, None),
    ({}, None),
)


@every_verb
def test_a_rate_limit_is_honoured_once(site: HubSite, act: Callable[[HubTier], object]) -> None:
    for headers, seconds in LIMITS:
        tier = site.open()
        site.hub.forget_requests()
        site.hub.inject(Fault(operation="repo-info", action=Action.STATUS, status=429, headers=headers))
        with pytest.raises(TierUnavailable) as caught:
            act(tier)
        assert caught.value.retry_after == seconds
        assert "commits an hour" in caught.value.hint
        assert site.hub.operations() == [Operation.REPO_INFO], "the one retry of the project is elsewhere"
    assert len(site.hub.fired) == len(LIMITS)


def test_a_limit_on_commits_is_told_too(site: HubSite) -> None:
    site.hub.inject(Fault(operation="commit", action=Action.STATUS, status=429, headers={"Retry-After": "2580"}))
    with pytest.raises(TierUnavailable) as caught:
        site.open().put(Key("a"), BytesBody(b"a"))
    assert caught.value.retry_after == 2580.0
    assert site.asked(Operation.COMMIT) == 1


CANARY = "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"


STATUSES = (200, 302, 400, 401, 403, 404, 409, 412, 413, 416, 422, 429, 500, 503)


@every_verb
def test_no_token_gets_into_messages_or_logs(
    site: HubSite,
    act: Callable[[HubTier], object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The Hub quotes what it was sent; the library's exceptions and the client's log would pass it on."""
    tier = site.open()
    tier.stat(Key("before"))
    monkeypatch.setenv("HF_TOKEN", CANARY)
    said = f'{{"error":"token {CANARY}, storage limit: {CANARY}"}}'.encode()
    headers = {
        "X-Error-Message": f"Bearer {CANARY}",
        "X-Error-Code": CANARY,
        "X-Request-Id": CANARY,
        "Location": f"https://storage.invalid/{CANARY}?signature={CANARY}",
    }
    for status in STATUSES:
        if status == 200 and act is VERBS["open"]:  # any bytes are a file's
            continue
        fault = Fault(operation="*", action=Action.STATUS, status=status, body=said, headers=headers)
        site.hub.inject(fault)
        with caplog.at_level(logging.DEBUG), pytest.raises(TierError) as caught:
            act(tier)
        assert site.hub.fired[-1].fault is fault
        _assert_silent(caught.value, caplog.text)


def _assert_silent(error: BaseException | None, logged: str) -> None:
    found = [logged, getattr(error, "hint", "")]
    while error is not None:
        found += [str(error), repr(error), repr(vars(error))]
        error = error.__cause__ or error.__context__
    assert not [text for text in found if "CANARY" in text or "signature" in text]


def test_signed_urls_stay_out_of_logs(site: HubSite, caplog: pytest.LogCaptureFixture) -> None:
    tier = site.open()
    with caplog.at_level(logging.DEBUG):
        tier.put(Key("a"), BytesBody(b"a"))
        read_all(tier.open(Key("a")))
    assert "signature" not in caplog.text
    assert site.token not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "hf://datasets",
        "hf://datasets/acme",
        "hf://datasets/acme/",
        "hf://datasets//x",
        "hf://models/acme/x",
        "hf://spaces/acme/x",
        "hf://acme/x",
        "hf:///datasets/acme/x",
        "hf://datasets/acme/x?revision=y",
        "hf://datasets/acme/x#y",
        "hf://datasets/acme/x@main",
        "hf://datasets/acme/x/../y",
        "hf://datasets/acme/x/a b",
        "hf://datasets/-acme/x",
    ],
)
def test_urls_that_name_no_dataset_repo(url: str) -> None:
    with pytest.raises(BadTierUrl) as caught:
        open_tier(TierSpec(name="t", url=url), clock=ManualClock())
    assert "hf://datasets/owner/name" in caught.value.hint


def test_a_token_in_the_url_is_refused() -> None:
    with pytest.raises(BadTierUrl, match="credentials") as caught:
        open_tier(TierSpec(name="t", url=f"hf://user:{CANARY}@datasets/acme/x"), clock=ManualClock())
    assert "CANARY" not in f"{caught.value} {caught.value.hint}"


def test_a_hub_with_tls_sends_nobody_to_this_machine() -> None:
    spec = TierSpec(name="t", url="hf://datasets/acme/x", endpoint_url="https://hub.example")
    place = place_of(spec, "")
    assert place.may_talk_to("https://storage.example/x")
    assert not place.may_talk_to("http://127.0.0.1:80/x")
    assert place.is_home("https://HUB.example:443/api")
    assert not place.is_home("https://hub.example:444/api")
    assert not place.is_home("https://hub.example@evil.example/api")


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from tiers.clock import SystemClock\n"
        "from tiers.opening import TierSpec, open_tier\n"
        "from tiers.errors import Unsupported\n"
        "try: open_tier(TierSpec(name='t', url='hf://datasets/acme/x'), clock=SystemClock())\n"
        "except Unsupported as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "pip install 'ckptier[hub]'\n"


def test_a_bucket_is_reached_another_way() -> None:
    with pytest.raises(Unsupported) as caught:
        open_tier(TierSpec(name="t", url="hf://buckets/acme/x"), clock=ManualClock())
    assert 'profile = "hf-s3"' in caught.value.hint


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://hub.example", "plain http"),
        ("hub.example", "must be http"),
        ("https://user:x@hub.example", "credentials"),
        ("https://hub.example?a=b", "credentials, a query"),
    ],
)
def test_endpoints_that_are_refused(endpoint: str, words: str) -> None:
    with pytest.raises(BadTierUrl, match=words):
        open_tier(TierSpec(name="t", url="hf://datasets/acme/x", endpoint_url=endpoint), clock=ManualClock())


@pytest.mark.parametrize(
    "fields",
    [
        {"profile": "aws"},
        {"region": "eu"},
        {"storage_class": "STANDARD"},
        {"encryption": "sse-s3"},
        {"kms_key": "x"},
        {"mode": "auto"},
        {"options": {"a": 1}},
        {"ca_bundle": "/no/such/file"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_settings_that_would_not_be_followed(fields: dict[str, object]) -> None:
    with pytest.raises(BadTierUrl, match=next(iter(fields)).replace("ca_bundle", "/no/such/file")):
        open_tier(TierSpec(name="t", url="hf://datasets/acme/x", **fields), clock=ManualClock())  # type: ignore[arg-type]


def test_what_it_says_it_can_do() -> None:
    tier = open_hub(
        TierSpec(name="t", url="hf://datasets/acme/x", endpoint_url="http://hub.example", allow_insecure=True)
    )
    can = tier.capabilities
    assert (can.fencing, can.verification, can.multipart) == (Fencing.GIT, Verification.READ_BACK, False)
    assert can.max_put == can.max_object == 500 * 10**9


def test_the_public_hub_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    tier = open_hub(TierSpec(name="t", url="hf://datasets/acme/x/a/b"))
    assert isinstance(tier, HubTier)
    assert tier._place.api == "https://huggingface.co/api/datasets/acme/x"
    assert tier._place.root == "a/b/"


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_delete_whose_reply_was_lost_may_be_repeated(site: HubSite, when: When) -> None:
    tier = site.open()
    site.hub.inject(Fault(operation="commit", action=Action.DROP, when=when))
    for _ in range(2):
        try:
            tier.delete(Key("before"))
        except TierUnavailable:
            assert when is When.BEFORE
    assert f"{PREFIX}/before" not in site.repo.files()
