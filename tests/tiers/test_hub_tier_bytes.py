"""Bytes on their way to the Hub's storage and back: sent once, whole, and never wrong without a word."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub.utils import _http
from support.hub import Action, Fault, Limits, Operation, When
from support.hub.objects import LargeFile, RegularFile
from support.hub_tiers import PREFIX, REPO, HubSite, hub_site

from tiers.bodies import Body, BytesBody, FileSlice
from tiers.clock import SystemClock
from tiers.errors import CapacityExceeded, IntegrityError, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.hub import MAX_FILE, HubTier
from tiers.hub_http import HubClient, Patience
from tiers.hub_urls import place_of
from tiers.opening import open_tier
from tiers.protocol import Key
from tiers.retrying import RetryPolicy
from tiers.testing import ManualClock, content, read_all
from tiers.testing.objects import LyingBody

PARTS = Limits(page=7, expanded_page=5, multipart_above=64 * 1024, part=24 * 1024)
LARGE = content(100_000)
"""Five parts."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home", limits=PARTS) as found:
        yield found


@pytest.fixture
def tier(site: HubSite) -> HubTier:
    return site.open()


def stored(site: HubSite, key: str) -> LargeFile:
    file = site.repo.resolve("main").tree[f"{PREFIX}/{key}"]
    assert isinstance(file, LargeFile)
    return file


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 72 * 1024, 100_000])
def test_large_files_go_in_parts(site: HubSite, size: int, checked: bool) -> None:
    data = content(size)
    tier = site.open(checked=checked)
    info = tier.put(Key("large"), BytesBody(data))
    assert info.sha256 == (hashlib.sha256(data).hexdigest() if checked else None)
    assert read_all(tier.open(Key("large"))) == data
    parts = 1 if size <= PARTS.multipart_above else -(-size // PARTS.part)
    assert site.asked(Operation.LFS_PUT) == parts
    assert stored(site, "large").sha256 == hashlib.sha256(data).hexdigest()


def test_parts_that_arrived_are_not_sent_again(site: HubSite, tier: HubTier) -> None:
    site.hub.inject(Fault(operation="lfs-put", action=Action.STATUS, status=503, nth=4))
    with pytest.raises(TierUnavailable):
        tier.put(Key("large"), BytesBody(LARGE))
    assert len(site.hub.fired) == 1
    site.hub.forget_requests()
    tier.put(Key("large"), BytesBody(LARGE))
    assert site.asked(Operation.LFS_PUT) == 2
    assert site.asked(Operation.LFS_BATCH) == 0
    assert read_all(tier.open(Key("large"))) == LARGE


def test_a_url_that_ran_out_is_asked_for_again(site: HubSite, tier: HubTier) -> None:
    site.hub.inject(Fault(operation="lfs-put", action=Action.STATUS, status=403, nth=4))
    with pytest.raises(TierUnavailable, match="from the storage"):
        tier.put(Key("large"), BytesBody(LARGE))
    site.hub.forget_requests()
    tier.put(Key("large"), BytesBody(LARGE))
    assert (site.asked(Operation.LFS_BATCH), site.asked(Operation.LFS_PUT)) == (1, 5)


def test_bytes_that_the_hub_has_are_not_sent_again(site: HubSite, tier: HubTier) -> None:
    site.hub.inject(Fault(operation="commit", action=Action.STATUS, status=503))
    with pytest.raises(TierUnavailable):
        tier.put(Key("a"), BytesBody(LARGE))
    site.hub.forget_requests()
    site.open().put(Key("a"), BytesBody(LARGE))
    assert site.asked(Operation.LFS_PUT) == 0
    assert read_all(tier.open(Key("a"))) == LARGE


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("size", [500, 100_000])
def test_bytes_flipped_on_the_way_up_are_refused(site: HubSite, size: int, checked: bool) -> None:
    tier = site.open(checked=checked)
    site.hub.inject(Fault(operation="lfs-put", action=Action.CORRUPT, when=When.MID_BODY))
    with pytest.raises(IntegrityError):
        tier.put(Key("a"), BytesBody(content(size)))
    assert len(site.hub.fired) == 1
    assert not site.repo.objects
    tier.put(Key("a"), BytesBody(content(size)))
    assert read_all(tier.open(Key("a"))) == content(size)


@pytest.mark.parametrize("size", [500, 100_000])
def test_a_body_that_is_not_its_digest_is_never_sent_whole(site: HubSite, tier: HubTier, size: int) -> None:
    """Were other bytes to lie under a digest, every later upload of the right ones would be taken for done."""
    lying = LyingBody(content(size, seed=1), size, hashlib.sha256(content(size, seed=2)).hexdigest())
    with pytest.raises(IntegrityError):
        tier.put(Key("a"), lying)
    assert not site.repo.objects
    received = sum(seen.received for seen in site.hub.requests if seen.operation is Operation.LFS_PUT)
    assert received < size
    with pytest.raises(ObjectNotFound):
        tier.stat(Key("a"))


@pytest.mark.parametrize(
    ("body", "checked"),
    [
        (LyingBody(content(2_100), 2_000, "0" * 64), True),
        (LyingBody(content(2_100), 2_000, None), False),
        (LyingBody(content(1_900), 2_000, "0" * 64), True),
        (LyingBody(b"x", 0, hashlib.sha256(b"").hexdigest()), True),
        (LyingBody(b"", 0, "0" * 64), False),
    ],
    ids=["long", "long-unknown", "short", "not-empty", "empty-wrong"],
)
def test_a_body_of_another_size_is_refused(site: HubSite, body: Body, checked: bool) -> None:
    with pytest.raises(IntegrityError):
        site.open(checked=checked).put(Key("a"), body)
    assert not site.repo.objects
    assert site.repo.files() == [".gitattributes"]


def test_a_local_file_that_cannot_be_read_is_the_callers_affair(site: HubSite, tier: HubTier, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(FileNotFoundError):
        tier.put(Key("a"), FileSlice(path=tmp_path / "absent", start=0, size=1, sha256=digest))
    (tmp_path / "shorter").write_bytes(b"x")
    with pytest.raises(IntegrityError, match="shorter"):
        tier.put(Key("a"), FileSlice(path=tmp_path / "shorter", start=0, size=2, sha256=digest))
    assert not site.repo.objects


def test_a_full_account_needs_a_person(site: HubSite, tier: HubTier) -> None:
    site.hub.limit_private_storage("acme", 1_000)
    before = site.commits()
    with pytest.raises(CapacityExceeded) as caught:
        tier.put(Key("a"), BytesBody(LARGE))
    assert "squash the history of acme/states" in caught.value.hint
    assert site.commits() == before


def test_what_the_hub_cannot_hold_is_refused_unasked(site: HubSite, tier: HubTier) -> None:
    with pytest.raises(Unsupported, match="at most"):
        tier.put(Key("a"), LyingBody(b"", MAX_FILE + 1, "0" * 64))
    assert site.hub.operations() == []


@pytest.mark.parametrize("operation", ["lfs-batch", "lfs-put", "lfs-verify", "lfs-complete"])
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_an_upload_that_breaks_anywhere_is_repeated(site: HubSite, operation: str, when: When) -> None:
    site.hub.inject(Fault(operation=operation, action=Action.DROP, when=when))
    tier = site.open()
    with pytest.raises(TierUnavailable):
        tier.put(Key("a"), BytesBody(LARGE))
    assert len(site.hub.fired) == 1
    for again in range(3):
        try:
            tier.put(Key("a"), BytesBody(LARGE))
        except TierError:
            assert again < 2
        else:
            break
    assert read_all(tier.open(Key("a"))) == LARGE


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
@pytest.mark.parametrize(("start", "length"), [(0, None), (10, 50_000), (99_000, None)])
def test_an_early_end_does_not_look_like_the_end(
    site: HubSite, tier: HubTier, action: Action, start: int, length: int | None
) -> None:
    tier.put(Key("large"), BytesBody(LARGE))
    site.hub.inject(Fault(operation="lfs-get", action=action, when=When.MID_BODY))
    with pytest.raises(TierUnavailable):
        read_all(tier.open(Key("large"), start, length))
    assert len(site.hub.fired) == 1
    assert read_all(tier.open(Key("large"), start, length)) == LARGE[start : None if length is None else start + length]


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_a_small_file_of_git_is_read_just_as_well(site: HubSite, tier: HubTier, action: Action) -> None:
    """Somebody else committed it; the Hub hands it out itself, and knows no SHA-256 of it."""
    text = b"text" * 50
    where = f"{PREFIX}/small"
    site.api.upload_file(path_or_fileobj=text, path_in_repo=where, repo_id=REPO, repo_type="dataset")
    assert isinstance(site.repo.resolve("main").tree[where], RegularFile)
    info = site.open(checked=True).stat(Key("small"))
    assert (info.size, info.sha256) == (len(text), None)
    site.hub.inject(Fault(operation="get-file", action=action, when=When.MID_BODY))
    with pytest.raises(TierUnavailable):
        read_all(tier.open(Key("small")))
    assert len(site.hub.fired) == 1
    assert read_all(tier.open(Key("small"))) == text
    assert read_all(tier.open(Key("small"), 3, 10)) == text[3:13]
    with pytest.raises(IntegrityError):
        tier.open(Key("small"), 190, 11)
    with pytest.raises(IntegrityError):
        tier.open(Key("small"), 200)


def test_a_stream_that_breaks_goes_on_where_it_was(site: HubSite) -> None:
    site.open().put(Key("a"), BytesBody(LARGE))
    site.hub.inject(Fault(operation="lfs-get", action=Action.DROP, when=When.MID_BODY))
    whole = open_tier(replace(site.spec(), retry=RetryPolicy(attempts=2, base=0.01)), clock=SystemClock())
    try:
        assert read_all(whole.open(Key("a"))) == LARGE
    finally:
        whole.close()
    assert len(site.hub.fired) == 1
    assert "range" in [seen for seen in site.hub.requests if seen.operation is Operation.LFS_GET][-1].headers


def test_an_object_that_was_never_whole_is_not_handed_out(site: HubSite, tier: HubTier) -> None:
    """The pointer says one size and the storage has another: seen on the real Hub."""
    tier.put(Key("a"), BytesBody(LARGE))
    oid = stored(site, "a").sha256
    site.repo.objects[oid] = replace(site.repo.objects[oid], content=LARGE[:-1])
    for start, length in ((0, None), (0, 10), (99_000, 1_000)):
        with pytest.raises(IntegrityError):
            read_all(tier.open(Key("a"), start, length))
    assert tier.stat(Key("a")).size == len(LARGE), "the Hub itself does not know"


def test_bytes_that_are_gone_are_no_missing_key(site: HubSite, tier: HubTier) -> None:
    tier.put(Key("a"), BytesBody(LARGE))
    site.repo.delete_objects([stored(site, "a").sha256], rewrite_history=False)
    with pytest.raises(TierUnavailable) as caught:
        tier.open(Key("a"))
    assert "permanently deleted" in caught.value.hint


NO_ANSWERS: tuple[dict[str, object], ...] = (
    {"status": 200, "body": b"<html>Welcome</html>"},
    {"status": 200, "body": b'[{"type":"file","path"'},
    {"status": 200, "body": b'{"error":"none"}'},
    {"status": 200, "body": b"\x1f\x8b\x08", "headers": {"Content-Encoding": "gzip"}},
    {"status": 204, "body": b""},
)


ASKING: dict[str, Callable[[HubTier], object]] = {
    "repo-info": lambda tier: tier.stat(Key("a")),
    "paths-info": lambda tier: tier.stat(Key("a")),
    "tree": lambda tier: tier.list_objects(""),
    "lfs-batch": lambda tier: tier.put(Key("a"), BytesBody(b"a")),
}


@pytest.mark.parametrize(("operation", "act"), ASKING.items(), ids=ASKING)
def test_a_success_that_is_none_passes(site: HubSite, operation: str, act: Callable[[HubTier], object]) -> None:
    """It never looks like a missing key, an empty listing or an object that is there."""
    for fault in NO_ANSWERS:
        tier = site.open()
        site.hub.inject(Fault(operation=operation, action=Action.STATUS, **fault))  # type: ignore[arg-type]
        with pytest.raises(TierUnavailable):
            act(tier)
    assert len(site.hub.fired) == len(NO_ANSWERS)


def test_an_endless_answer_is_given_up(site: HubSite, tier: HubTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiers.hub_http.MAX_ANSWER", 1_000)
    site.hub.inject(Fault(operation="tree", action=Action.STATUS, status=200, body=b" " * 2_000 + b"[]"))
    with pytest.raises(TierUnavailable, match="longer than 1000"):
        tier.list_objects("")


def test_a_request_has_a_deadline(site: HubSite) -> None:
    """The clock runs away at each look: what trickles is given up."""

    class Hasty(ManualClock):
        def monotonic(self) -> float:
            self.advance(100.0)
            return super().monotonic()

    spec = site.spec()
    client = HubClient(
        place_of(spec, spec.endpoint_url or ""), clock=Hasty(), patience=Patience(progress=5.0, whole=50.0)
    )
    tier = HubTier("hub", client)
    with pytest.raises(TierUnavailable, match="took too long") as caught:
        tier.stat(Key("a"))
    assert "deadline_seconds" in caught.value.hint
    tier.close()


def test_a_server_that_says_nothing_is_given_up(site: HubSite) -> None:
    tier = site.open(timeout_seconds=0.2)
    site.hub.inject(Fault(operation="repo-info", action=Action.STALL, seconds=5.0))
    with pytest.raises(TierUnavailable, match="ReadTimeout"):
        tier.stat(Key("a"))


def test_nothing_is_left_in_the_process_or_on_its_disk(site: HubSite, tier: HubTier, tmp_path: Path) -> None:
    _http.close_session()
    factory = _http._GLOBAL_CLIENT_FACTORY
    tier.put(Key("a"), BytesBody(LARGE))
    assert read_all(tier.open(Key("a"))) == LARGE
    assert _http._GLOBAL_CLIENT is None, "the library's client was not so much as made"
    assert _http._GLOBAL_CLIENT_FACTORY is factory
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
