"""A probe of an S3 store; it needs a key that may read, write and list under the tier's prefix."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tiers.clock import Clock
from tiers.errors import TierError, TierUnavailable
from tiers.opening import BadTierUrl, TierSpec
from tiers.probing.clocks import judge_clock, read_clock
from tiers.probing.deciding import contradictions, decide, merged
from tiers.probing.outcomes import Outcome, ProbeReport, Subject, Verdict, no, unknown, yes
from tiers.probing.racing import WRITERS
from tiers.probing.s3_bucket import check_lifecycle, check_versioning
from tiers.probing.s3_copies import check_copy
from tiers.probing.s3_objects import (
    check_content_md5,
    check_listing,
    check_payload_hash,
    check_put_if_absent,
    check_round_trip,
    check_sha256,
)
from tiers.probing.s3_requests import Store, brief
from tiers.probing.s3_uploads import check_uploads
from tiers.probing.scratch import SCRATCH
from tiers.profiles import Checksum, Profile, choose_profile
from tiers.s3_client import bucket_and_prefix, build_client, resolve_endpoint
from tiers.s3_setup import equip

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

Check = Callable[[Store], list[Outcome]]

_CHECKS: tuple[tuple[Check, tuple[Subject, ...]], ...] = (
    (check_content_md5, (Subject.CONTENT_MD5,)),
    (check_payload_hash, (Subject.PAYLOAD_HASH,)),
    (check_put_if_absent, (Subject.PUT_IF_ABSENT, Subject.ONE_WINNER)),
    (check_listing, (Subject.LIST_PAGES, Subject.LIST_ORDER)),
)
_UPLOADS = (Subject.SHA256_PART, Subject.MULTIPART_ETAG, Subject.SHA256_COPY, Subject.RESUME, Subject.ABORT)
_COPIES = (Subject.SHA256_COPY_OBJECT,)


def probe_s3(spec: TierSpec, *, nonce: str, clock: Clock) -> ProbeReport:
    """Try a store under ``<prefix>/.ckptier-probe/<nonce>/``; sends about twice the smallest part.

    Raises BadTierUrl, and TierError where not even a small object can be written and read.
    """
    try:
        bucket, prefix = bucket_and_prefix(spec.url)
        endpoint_url = resolve_endpoint(spec.endpoint_url, allow_insecure=spec.allow_insecure)
        profile = choose_profile(spec.profile, endpoint_url)
    except ValueError as error:
        raise BadTierUrl(f"tier {spec.name}: {error}", "see url, endpoint_url and profile of this tier") from error
    with _opened(spec, profile, endpoint_url, bucket, prefix, f"{SCRATCH}/{nonce}/", clock) as store:
        tried, leftovers = _run(store)
    reading = read_clock(store.sightings)
    outcomes = merged([*tried, judge_clock(reading)])
    facts = decide(outcomes, profile.capabilities)
    return ProbeReport(
        tier=spec.name,
        store=f"{bucket} at {endpoint_url or 'AWS'}",
        profile=profile.name,
        scratch=store.scratch,
        outcomes=outcomes,
        facts=facts,
        fencing=facts.fencing or profile.fencing,
        verification=facts.verification or profile.verification,
        contradictions=contradictions(facts, profile.capabilities, sorted_listing=profile.sorted_listing),
        clock=reading,
        leftovers=leftovers,
    )


@contextmanager
def _opened(
    spec: TierSpec, profile: Profile, endpoint_url: str | None, bucket: str, prefix: str, scratch: str, clock: Clock
) -> Iterator[Store]:
    def connect(checksum: Checksum) -> "S3Client":
        client = build_client(
            replace(profile, checksum=checksum),
            endpoint_url,
            spec.region,
            WRITERS,
            ca_bundle=spec.ca_bundle,
            timeout_seconds=spec.timeout_seconds,
        )
        equip(client, profile)
        return client

    plain, signing = connect(Checksum.NONE), connect(Checksum.SIGNED_PAYLOAD)
    try:
        yield Store(
            tier=spec.name,
            bucket=bucket,
            root=f"{prefix}/" if prefix else "",
            scratch=scratch,
            profile=profile,
            clock=clock,
            plain=plain,
            signing=signing,
            fresh=partial(connect, Checksum.NONE),
        )
    finally:
        plain.close()
        signing.close()


def _run(store: Store) -> tuple[list[Outcome], tuple[str, ...]]:
    try:
        outcomes = check_round_trip(store)
        outcomes += _tried(store, check_sha256, (Subject.SHA256_TAKEN, Subject.SHA256_PUT, Subject.SHA256_ECHO))
        takes = any(one.subject is Subject.SHA256_TAKEN and one.verdict is Verdict.YES for one in outcomes)
        outcomes += _tried(store, partial(_uploads, takes=takes), _UPLOADS)
        outcomes += _tried(store, partial(check_copy, with_sha256=takes), _COPIES)
        for check, subjects in _CHECKS:
            outcomes += _tried(store, check, subjects)
        outcomes += check_lifecycle(store) + check_versioning(store)
    except BaseException:
        _clean(store)
        raise
    deleted, leftovers = _clean(store)
    return [*outcomes, deleted], leftovers


def _uploads(store: Store, *, takes: bool) -> list[Outcome]:
    """Upload in parts, with digests where they are taken; a store may take them on PUT and not on parts."""
    if not takes:
        return check_uploads(store, with_sha256=False)
    try:
        return check_uploads(store, with_sha256=True)
    except TierUnavailable:
        raise
    except TierError as error:
        refused = no(Subject.SHA256_PART, f"a right one on a part is refused: {brief(error)}")
        return [refused, *check_uploads(store, with_sha256=False)]


def _tried(store: Store, check: Check, subjects: tuple[Subject, ...]) -> list[Outcome]:
    """Run one check; where the store does not let it end, its subjects stay unknown."""
    try:
        return check(store)
    except TierError as error:
        return [unknown(subject, f"{error.operation}: {brief(error)}") for subject in subjects]


def _clean(store: Store) -> tuple[Outcome, tuple[str, ...]]:
    """Delete what was written; a key that may not delete leaves it, and says so."""
    for upload in store.uploads:  # one that was completed or aborted is gone, and that is fine
        with suppress(TierError):
            store.ask("abort", partial(store.plain.abort_multipart_upload, **upload))
    refused, why = [], ""
    for key in store.written:
        try:
            store.ask("delete", partial(store.plain.delete_object, Bucket=store.bucket, Key=store.root + key))
        except TierError as error:
            refused.append(key)
            why = why or brief(error)
    if not refused:
        return yes(Subject.DELETE, f"all {len(store.written)} scratch keys are gone"), ()
    left = _still_there(store, refused)
    if len(refused) == len(store.written):
        return no(Subject.DELETE, f"this key may not delete: {why}"), left
    return unknown(Subject.DELETE, f"{len(left)} scratch keys stay: {why}"), left


def _still_there(store: Store, keys: list[str]) -> tuple[str, ...]:
    """Return which of ``keys`` exist: not all that was tried was also taken."""
    start = store.root + store.scratch
    try:
        page = store.ask("list_objects", partial(store.plain.list_objects_v2, Bucket=store.bucket, Prefix=start))
    except TierError:
        return tuple(keys)
    found = {entry["Key"].removeprefix(store.root) for entry in page.get("Contents", [])}
    return tuple(key for key in keys if key in found)
