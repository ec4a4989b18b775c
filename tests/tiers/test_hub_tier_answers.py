"""Answers that are not quite those of the Hub: each is read for what it is, or refused."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from support.hub import Action, Fault, Limits, When
from support.hub_tiers import HubSite, hub_site

from tiers.bodies import BytesBody
from tiers.errors import CapacityExceeded, IntegrityError, TierError, TierUnavailable, Unsupported
from tiers.hub import HubTier
from tiers.hub_repo import Entry, HubRepo
from tiers.protocol import Key, Part, Upload, UploadId
from tiers.testing import content, read_all

DATA = content(1_000)
WHERE = {"start": 100, "length": 50}
WANTED = DATA[100:150]
PARTS = Limits(multipart_above=600, part=400)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home", limits=PARTS) as found:
        yield found


@pytest.fixture
def tier(site: HubSite) -> HubTier:
    tier = site.open()
    tier.put(Key("a"), BytesBody(DATA))
    return tier


def answer(site: HubSite, operation: str, status: int, body: bytes, **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    site.hub.inject(Fault(operation=operation, action=Action.STATUS, status=status, body=body, headers=named))


def test_the_whole_object_for_a_range_is_cut_to_it(site: HubSite, tier: HubTier) -> None:
    answer(site, "lfs-get", 200, DATA)
    assert read_all(tier.open(Key("a"), **WHERE)) == WANTED
    answer(site, "lfs-get", 206, DATA[50:], Content_Range="bytes 50-999/1000")
    assert read_all(tier.open(Key("a"), **WHERE)) == WANTED
    answer(site, "lfs-get", 206, WANTED, Content_Range="bytes 100-149/*")
    assert read_all(tier.open(Key("a"), **WHERE)) == WANTED
    assert len(site.hub.fired) == 3


@pytest.mark.parametrize(
    ("status", "body", "content_range"),
    [
        (206, WANTED, ""),
        (206, WANTED, "bytes */1000"),
        (206, WANTED, "bytes 101-150/1000"),
        (206, WANTED[:-1], "bytes 100-148/1000"),
        (206, WANTED, "bytes 100-149/999"),
        (200, WANTED, ""),
        (416, b"", "bytes */1000"),
    ],
    ids=["unnamed", "nonsense", "shifted", "short", "other-size", "a-part-as-if-whole", "unsatisfiable"],
)
def test_another_range_is_not_taken_for_ours(
    site: HubSite, tier: HubTier, status: int, body: bytes, content_range: str
) -> None:
    answer(site, "lfs-get", status, body, **({"Content_Range": content_range} if content_range else {}))
    with pytest.raises(IntegrityError):
        tier.open(Key("a"), **WHERE)
    assert len(site.hub.fired) == 1
    assert read_all(tier.open(Key("a"), **WHERE)) == WANTED, "the connection was released"


def test_a_compressed_object_is_not_handed_out(site: HubSite, tier: HubTier) -> None:
    answer(site, "lfs-get", 200, DATA, Content_Encoding="gzip")
    with pytest.raises(TierUnavailable, match="compressed"):
        tier.open(Key("a"))


def test_streams_are_files(tier: HubTier) -> None:
    stream = tier.open(Key("a"))
    assert stream.readable()
    buffer = bytearray(7)
    assert stream.readinto(buffer) == 7  # type: ignore[attr-defined]
    assert bytes(buffer) == DATA[:7]
    assert stream.read(0) == b""
    assert stream.read() == DATA[7:]
    assert stream.read(1) == b""
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def test_what_makes_no_sense_is_the_callers_mistake(tier: HubTier) -> None:
    for start, length in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            tier.open(Key("a"), start, length)
    with pytest.raises(ValueError, match="token"):
        tier.list_objects("", "7")
    for act in (tier.stat, tier.open, tier.delete):
        with pytest.raises(ValueError, match="not a key"):
            act(Key("../a"))


def test_there_are_no_parts(tier: HubTier) -> None:
    upload = Upload(key=Key("a"), upload_id=UploadId("x"), size=1, part_size=1)
    part = Part(number=1, size=1, etag="x")
    acts: tuple[Callable[[], object], ...] = (
        lambda: tier.begin_upload(Key("a"), size=1, part_size=1),
        lambda: tier.put_part(upload, 1, BytesBody(b"x")),
        lambda: tier.list_parts(upload),
        lambda: tier.copy_part(upload, 1, tier.stat(Key("a")), 0, 1),
        lambda: tier.complete(upload, [part]),
        lambda: tier.abort(upload),
    )
    for act in acts:
        with pytest.raises(Unsupported, match="no parts"):
            act()
    with pytest.raises(Unsupported, match="no copies"):
        tier.copy(Key("b"), tier.stat(Key("a")))


def batch(data: bytes, **fields: object) -> bytes:
    found = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), **fields}
    return json.dumps({"objects": [found]}).encode()


NEW = content(1_001)
UPLOAD = {"href": "https://storage.invalid/x"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (batch(NEW, error={"code": 422, "message": "no"}), Unsupported),
        (batch(NEW, error={"code": 403, "message": "storage limit"}), CapacityExceeded),
        (batch(NEW, error={"code": 500, "message": "no"}), TierUnavailable),
        (batch(b"other"), TierUnavailable),
        (json.dumps({"objects": []}).encode(), TierUnavailable),
        (batch(NEW, actions={"upload": {**UPLOAD, "header": {"chunk_size": "many"}}}), TierUnavailable),
        (batch(NEW, actions={"upload": {**UPLOAD, "header": {"chunk_size": "0"}}}), TierUnavailable),
        (
            batch(NEW, actions={"upload": {**UPLOAD, "header": {"chunk_size": "400", "1": "https://x"}}}),
            TierUnavailable,
        ),
    ],
    ids=["refused", "full", "later", "other-object", "nothing", "no-number", "no-size", "too-few-parts"],
)
def test_where_to_send_has_to_be_understood(site: HubSite, tier: HubTier, body: bytes, error: type[TierError]) -> None:
    before = site.commits()
    answer(site, "lfs-batch", 200, body)
    with pytest.raises(error):
        tier.put(Key("b"), BytesBody(NEW))
    assert site.commits() == before


def test_a_part_without_a_name_did_not_arrive(site: HubSite, tier: HubTier) -> None:
    answer(site, "lfs-put", 200, b"")
    with pytest.raises(TierUnavailable, match="without an ETag"):
        tier.put(Key("b"), BytesBody(NEW))
    tier.put(Key("b"), BytesBody(NEW))
    assert read_all(tier.open(Key("b"))) == NEW


@pytest.mark.parametrize("operation", ["lfs-verify", "lfs-complete"])
def test_what_the_hub_does_not_confirm_is_sent_again(site: HubSite, tier: HubTier, operation: str) -> None:
    before = site.commits()
    answer(site, operation, 400 if operation == "lfs-complete" else 404, b"{}")
    with pytest.raises(IntegrityError):
        tier.put(Key("b"), BytesBody(NEW))
    assert site.commits() == before
    assert tier.put(Key("b"), BytesBody(NEW)).size == len(NEW)


def test_a_commit_that_holds_something_else_is_noticed(site: HubSite, tier: HubTier) -> None:
    genuine = HubRepo.entries

    def other(self: HubRepo, revision: str, paths: list[str]) -> dict[str, Entry]:
        return {} if revision == site.repo.head() and site.commits() > before else genuine(self, revision, paths)

    before = site.commits()
    with mock.patch.object(HubRepo, "entries", other), pytest.raises(IntegrityError, match="does not hold"):
        tier.put(Key("b"), BytesBody(b"b"))


def test_a_reader_of_a_history_that_is_squashed_meanwhile_looks_again(site: HubSite, tier: HubTier) -> None:
    gone = b"{}"
    for operation in ("tree", "paths-info"):
        site.hub.inject(
            Fault(
                operation=operation,
                action=Action.STATUS,
                when=When.BEFORE,
                status=404,
                headers={"X-Error-Code": "RevisionNotFound"},
                body=gone,
            )
        )
        with pytest.raises(TierUnavailable) as caught:
            tier.list_objects("") if operation == "tree" else tier.put(Key("c"), BytesBody(b"c"))
        assert "squashed" in caught.value.hint
    assert [info.key for info in tier.list_objects("").objects] == ["a"]


def test_a_listing_that_goes_round_is_given_up(site: HubSite, tier: HubTier) -> None:
    head = site.repo.head()
    link = f'<{site.hub.url}/api/datasets/acme/states/tree/{head}/runs?recursive=true>; rel="next"'
    answer(site, "tree", 200, b"[]", Link=link)
    with pytest.raises(TierUnavailable, match="leads nowhere"):
        tier.list_objects("")
    answer(site, "tree", 200, b"[]", Link='<https://elsewhere.invalid/x>; rel="next"')
    with pytest.raises(TierUnavailable, match="leads nowhere"):
        tier.list_objects("")


def test_urls_of_the_public_hub_are_taken_to_the_endpoint_that_stands_in_for_it(site: HubSite) -> None:
    client = site.open()._client
    assert client.adopted("https://huggingface.co/x.git/verify") == f"{site.hub.url}/x.git/verify"
    assert client.adopted("https://huggingface.co.evil.example/x") == "https://huggingface.co.evil.example/x"
    assert client.adopted("https://storage.example/x") == "https://storage.example/x"
