"""What a store makes of single objects: bytes, digests, conditions, ranges, listings."""

import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.failures import Where
from tiers.probing.outcomes import Outcome, Subject, Verdict, no, unknown, whether, yes
from tiers.probing.racing import ROUNDS, Claim, Round, judge, race
from tiers.probing.s3_requests import Answer, Store, TwoFaced, brief
from tiers.probing.scratch import ORDER, SIZE
from tiers.s3_streams import object_stream

if TYPE_CHECKING:
    pass

_PAGE = 2
_MOST_PAGES = 4 * len(ORDER)


def sha256(data: bytes) -> str:
    """Return the digest as the header has it."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def md5(data: bytes) -> "hashlib._Hash":
    """Return an MD5 that secures nothing."""
    return hashlib.md5(data, usedforsecurity=False)


def check_round_trip(store: Store) -> list[Outcome]:
    """Write and read back; what fails here fails the probe (TierError)."""
    data = secrets.token_bytes(SIZE)
    target = store.target("object")
    answer = store.ask("put", lambda: store.plain.put_object(**target, Body=data))
    found = store.body("open", lambda: store.plain.get_object(**target))
    same = whether(
        Subject.ROUND_TRIP,
        found == data,
        f"{SIZE} bytes came back as they went",
        f"{SIZE} bytes went, {len(found)} others came back",
    )
    plain = answer.get("ETag", "").strip('"') == md5(data).hexdigest()
    etag = whether(Subject.MD5_ETAG, plain, "the ETag is the MD5 of the bytes", "the ETag is not the MD5 of the bytes")
    return [same, etag, _check_range(store, data)]


def _check_range(store: Store, data: bytes) -> Outcome:
    target = store.target("object")
    where = Where(tier=store.tier, operation="open", key=store.scratch)
    answer = store.ask("open", lambda: store.plain.get_object(**target, Range="bytes=100-299"))
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    try:
        with object_stream(answer, 100, 200, where) as stream:
            found = stream.read()
    except IntegrityError as error:
        return no(Subject.RANGES, brief(error))
    words = f"a range is answered with {status}"
    return whether(Subject.RANGES, found == data[100:300], words, f"{words} and other bytes")


def check_sha256(store: Store) -> list[Outcome]:
    """Send a right digest, and a wrong one."""
    data = secrets.token_bytes(SIZE)
    right, wrong = sha256(data), sha256(b"other bytes")
    good, bad = store.target("sha256"), store.target("sha256-wrong")
    try:
        put = store.ask("put", lambda: store.plain.put_object(**good, Body=data, ChecksumSHA256=right))
    except TierUnavailable:
        raise
    except TierError as error:
        return [no(Subject.SHA256_TAKEN, f"the header is refused: {brief(error)}")]
    head = store.ask("stat", lambda: store.plain.head_object(**good, ChecksumMode="ENABLED"))
    outcomes = [yes(Subject.SHA256_TAKEN, "the header is taken"), _echo(put, head, right)]
    refused = store.refuses(
        Subject.SHA256_PUT, "a wrong one", lambda: store.plain.put_object(**bad, Body=data, ChecksumSHA256=wrong)
    )
    if refused.verdict is Verdict.NO:
        head = store.ask("stat", lambda: store.plain.head_object(**bad, ChecksumMode="ENABLED"))
        if head.get("ChecksumSHA256") == wrong:
            refused = no(Subject.SHA256_PUT, "a wrong one is taken, and repeated as if it were true")
    return [*outcomes, refused]


def _echo(put: Answer, head: Answer, right: str) -> Outcome:
    silent = [verb for verb, answer in (("PUT", put), ("HEAD", head)) if answer.get("ChecksumSHA256") != right]
    return whether(
        Subject.SHA256_ECHO, not silent, "PUT and HEAD return it", f"{' and '.join(silent)} did not return it"
    )


def check_content_md5(store: Store) -> list[Outcome]:
    """Send a wrong Content-MD5."""
    data, target = secrets.token_bytes(SIZE), store.target("md5-wrong")
    wrong = base64.b64encode(md5(b"other bytes").digest()).decode()
    return [
        store.refuses(
            Subject.CONTENT_MD5, "a wrong one", lambda: store.plain.put_object(**target, Body=data, ContentMD5=wrong)
        )
    ]


def check_payload_hash(store: Store) -> list[Outcome]:
    """Sign one body, and send another."""
    right, target = secrets.token_bytes(SIZE), store.target("signed")
    try:
        store.ask("put", lambda: store.signing.put_object(**target, Body=right))
    except TierUnavailable:
        raise
    except TierError as error:
        return [unknown(Subject.PAYLOAD_HASH, f"signed payloads are not taken: {brief(error)}")]
    body, bad = TwoFaced(right, secrets.token_bytes(SIZE)), store.target("signed-wrong")

    def send() -> object:
        return store.signing.put_object(**bad, Body=body, ContentLength=SIZE)  # type: ignore[arg-type]

    return [store.refuses(Subject.PAYLOAD_HASH, "another body than was signed", send, denied=Verdict.YES)]


def check_put_if_absent(store: Store) -> list[Outcome]:
    """Create a key twice, then many times at once."""
    target = store.target("create/once")
    try:
        store.ask("create", lambda: store.plain.put_object(**target, Body=b"first", IfNoneMatch="*"))
    except TierUnavailable:
        raise
    except TierError as error:
        return [no(Subject.PUT_IF_ABSENT, f"If-None-Match is refused: {brief(error)}")]
    try:
        store.ask("create", lambda: store.plain.put_object(**target, Body=b"second", IfNoneMatch="*"))
    except ObjectExists as error:
        refused = yes(Subject.PUT_IF_ABSENT, f"a second one is refused: {brief(error)}")
    except TierError as error:
        refused = unknown(Subject.PUT_IF_ABSENT, f"a second one: {brief(error)}")
    else:
        return [no(Subject.PUT_IF_ABSENT, "a second one is taken, and replaces the first")]
    if store.body("open", lambda: store.plain.get_object(**target)) != b"first":
        return [no(Subject.PUT_IF_ABSENT, "a second one is refused, and replaces the first all the same")]
    rounds = [_race(store, f"create/race-{number}") for number in range(ROUNDS)]
    return [refused, judge(rounds)]


def _race(store: Store, name: str) -> Round:
    target = store.target(name)

    def create(number: int) -> Claim:
        try:
            store.ask("create", lambda: store.plain.put_object(**target, Body=b"%d" % number, IfNoneMatch="*"))
        except ObjectExists:
            return Claim.LOST
        except TierError:
            return Claim.UNCLEAR
        return Claim.WON

    def holder() -> int | None:
        try:
            return int(store.body("open", lambda: store.plain.get_object(**target)))
        except ObjectNotFound:
            return None

    return race(create, holder)


def check_listing(store: Store) -> list[Outcome]:
    """List a few keys in small pages, and look at their order."""
    for name in ORDER:
        target = store.target(name)
        store.ask("put", lambda target=target: store.plain.put_object(**target, Body=b"x"))  # type: ignore[misc]
    start = store.root + store.scratch
    found: list[str] = []
    token: str | None = None
    pages = 0
    while pages == 0 or (token is not None and pages < _MOST_PAGES):
        pages += 1
        page = _page(store, f"{start}order/", token)
        found += [entry["Key"].removeprefix(start) for entry in page.get("Contents", [])]
        token = page.get("NextContinuationToken") if page.get("IsTruncated") else None
    whole = sorted(found) == sorted(ORDER) and token is None
    paged = f"{len(found)} keys in {pages} pages"
    return [
        whether(Subject.LIST_PAGES, whole and pages > 1, paged, f"{paged}, {len(ORDER)} keys are there"),
        whether(Subject.LIST_ORDER, tuple(found) == ORDER, "in order of bytes", "not in order of bytes"),
    ]


def _page(store: Store, prefix: str, token: str | None) -> Answer:
    more: dict[str, Any] = {"ContinuationToken": token} if token is not None else {}
    return store.ask(
        "list_objects",
        lambda: store.plain.list_objects_v2(Bucket=store.bucket, Prefix=prefix, MaxKeys=_PAGE, **more),
    )
