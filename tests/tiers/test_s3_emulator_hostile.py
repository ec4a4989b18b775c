"""What the S3 tier makes of answers that are none: an error of tiers, and never a statement about the store."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.profiles import PROFILES
from tiers.protocol import Key, Tier
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_direct import direct
from tiers.testing import content, read_all
from tiers.testing.s3_emulator import AWS, ENDLESS_LIMIT, Credentials, Lie, LieKind, S3Emulator, When

DATA = content(5_000)
KEY = Key("k")
COPYING = replace(PROFILES["aws"], copy=True)
Act = Callable[[], object]
_prefixes = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A tier with one object, on an emulator that tells the truth so far."""

    emulator: S3Emulator
    tier: S3Tier
    prefix: str


@pytest.fixture(scope="module", params=[False, True], ids=["direct", "sdk"])
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[S3Emulator, Callable[[str], S3Tier]]]:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with S3Emulator(AWS, buckets=(BUCKET,), credentials=[known]) as emulator:
        built = build_client(PROFILES["aws"], emulator.endpoint_url, None, 4)
        client = built if request.param else direct(built)
        yield (
            emulator,
            lambda prefix: S3Tier("store", bucket=BUCKET, prefix=prefix, profile=COPYING, connect=lambda: client),
        )
        client.close()


@pytest.fixture
def stage(shared: tuple[S3Emulator, Callable[[str], S3Tier]]) -> Stage:
    emulator, open_tier = shared
    prefix = f"h{next(_prefixes):04d}"
    emulator.forget_requests()
    emulator.put(f"{prefix}/{KEY}", DATA)
    return Stage(emulator=emulator, tier=open_tier(prefix), prefix=prefix)


def _put_part(tier: Tier) -> Act:
    upload = tier.begin_upload(Key("u"), size=len(DATA), part_size=len(DATA))
    return lambda: tier.put_part(upload, 1, BytesBody(DATA))


def _list_parts(tier: Tier) -> Act:
    upload = tier.begin_upload(Key("u"), size=len(DATA), part_size=len(DATA))
    tier.put_part(upload, 1, BytesBody(DATA))
    return lambda: tier.list_parts(upload)


def _complete(tier: Tier) -> Act:
    upload = tier.begin_upload(Key("u"), size=len(DATA), part_size=len(DATA))
    part = tier.put_part(upload, 1, BytesBody(DATA))
    return lambda: tier.complete(upload, [part])


def _copy_part(tier: Tier) -> Act:
    upload = tier.begin_upload(Key("u"), size=len(DATA), part_size=len(DATA))
    source = tier.stat(KEY)
    return lambda: tier.copy_part(upload, 1, source, 0, len(DATA))


def _copy(tier: Tier) -> Act:
    source = tier.stat(KEY)
    return lambda: tier.copy(Key("new"), source)


def _abort(tier: Tier) -> Act:
    upload = tier.begin_upload(Key("u"), size=len(DATA), part_size=len(DATA))
    return lambda: tier.abort(upload)


VERBS: dict[str, Callable[[Tier], Act]] = {
    "put": lambda tier: lambda: tier.put(Key("new"), BytesBody(DATA)),
    "create": lambda tier: lambda: tier.create(Key("new"), DATA),
    "open": lambda tier: lambda: read_all(tier.open(KEY)),
    "open range": lambda tier: lambda: read_all(tier.open(KEY, 100, 200)),
    "stat": lambda tier: lambda: tier.stat(KEY),
    "list_objects": lambda tier: lambda: tier.list_objects(""),
    "delete": lambda tier: lambda: tier.delete(KEY),
    "begin_upload": lambda tier: lambda: tier.begin_upload(Key("u"), size=1, part_size=1),
    "put_part": _put_part,
    "list_parts": _list_parts,
    "complete": _complete,
    "copy": _copy,
    "copy_part": _copy_part,
    "abort": _abort,
}

LIES = {
    "page 200": Lie(operation="*", kind=LieKind.HTML_PAGE, when=When.BEFORE),
    "page 403": Lie(operation="*", kind=LieKind.HTML_PAGE, when=When.BEFORE, status=403),
    "page 502": Lie(operation="*", kind=LieKind.HTML_PAGE, when=When.BEFORE, status=502),
    "error in 200": Lie(operation="*", kind=LieKind.ERROR_IN_200, when=When.BEFORE),
    "redirect": Lie(operation="*", kind=LieKind.REDIRECT_LOOP, when=When.BEFORE),
    "garbage": Lie(operation="*", kind=LieKind.GARBAGE_STATUS_LINE, when=When.BEFORE),
    "early reply": Lie(operation="*", kind=LieKind.EARLY_REPLY, when=When.BEFORE, status=503),
}

PAIRS = [pytest.param(lie, verb, id=f"{lie}-{verb}") for lie in LIES for verb in VERBS]


@pytest.mark.parametrize(("lie", "verb"), PAIRS)
def test_an_answer_of_somebody_else_is_an_error(stage: Stage, lie: str, verb: str) -> None:
    """Neither a page of a proxy nor an error in a success says that there is nothing, or that it was done."""
    act = VERBS[verb](stage.tier)
    held = dict(stage.emulator.objects())
    stage.emulator.inject(LIES[lie])
    with pytest.raises(TierError) as caught:
        act()
    assert not isinstance(caught.value, ObjectNotFound | ObjectExists)
    assert len(stage.emulator.told) == 1
    assert stage.emulator.objects() == held


def outcome_of(act: Act) -> object:
    """Return what an act returned, or the error of tiers that it raised."""
    try:
        return act()
    except TierError as error:
        return error


BROKEN = (LieKind.TRUNCATED_XML, LieKind.UNASKED_GZIP, LieKind.SHORT_READ, LieKind.LENGTH_TOO_SHORT)


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("verb", ["put", "create", "delete", "put_part", "abort"])
def test_what_has_no_body_cannot_be_broken_in_it(stage: Stage, verb: str, kind: LieKind) -> None:
    """Whatever is said of the outcome, it is not that something was there before or is missing."""
    act = VERBS[verb](stage.tier)
    stage.emulator.inject(Lie(operation="*", kind=kind))
    said = outcome_of(act)
    assert not isinstance(said, ObjectNotFound | ObjectExists), said
    assert len(stage.emulator.told) == 1
    done = {"put": {"k": DATA, "new": DATA}, "create": {"k": DATA, "new": DATA}, "delete": {}}
    start = f"{stage.prefix}/"
    held = {key.removeprefix(start): data for key, data in stage.emulator.objects().items() if key.startswith(start)}
    assert held == done.get(verb, {"k": DATA})


@pytest.mark.parametrize("verb", ["open", "open range", "stat"])
def test_compressed_bytes_are_not_an_object(stage: Stage, verb: str) -> None:
    """They would be handed out as the object's; a proxy or a bucket's setting made them."""
    act = VERBS[verb](stage.tier)
    stage.emulator.inject(Lie(operation="*", kind=LieKind.UNASKED_GZIP))
    with pytest.raises(IntegrityError, match="Content-Encoding gzip") as caught:
        act()
    assert "compresses" in caught.value.hint


@pytest.mark.parametrize("verb", ["list_objects", "begin_upload", "list_parts", "complete", "copy", "copy_part"])
@pytest.mark.parametrize("kind", [LieKind.TRUNCATED_XML, LieKind.UNASKED_GZIP, LieKind.SHORT_READ])
def test_a_document_that_broke_is_an_error(stage: Stage, verb: str, kind: LieKind) -> None:
    act = VERBS[verb](stage.tier)
    stage.emulator.inject(Lie(operation="*", kind=kind))
    with pytest.raises(TierUnavailable):
        act()
    assert len(stage.emulator.told) == 1


def test_a_download_that_ends_early_is_an_error(stage: Stage) -> None:
    stage.emulator.inject(Lie(operation="GetObject", kind=LieKind.SHORT_READ))
    with pytest.raises(TierUnavailable, match="2500 bytes to come"):
        read_all(stage.tier.open(KEY))


@pytest.fixture
def endless() -> Iterator[Stage]:
    """Run an emulator of one's own, for answers that keep their connection busy until it stops."""
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with S3Emulator(AWS, buckets=(BUCKET,), credentials=[known]) as emulator:
        emulator.put(f"p/{KEY}", DATA)
        tier = S3Tier(
            "store",
            bucket=BUCKET,
            prefix="p",
            profile=COPYING,
            connect=lambda: direct(build_client(PROFILES["aws"], emulator.endpoint_url, None, 1)),
        )
        yield Stage(emulator=emulator, tier=tier, prefix="p")
        tier.close()


@pytest.mark.parametrize("verb", ["open", "open range", "stat"])
def test_an_object_without_a_length_is_an_error_of_tiers(endless: Stage, verb: str) -> None:
    endless.emulator.inject(Lie(operation="*", kind=LieKind.ENDLESS_BODY))
    with pytest.raises(TierUnavailable, match="no Content-Length"):
        VERBS[verb](endless.tier)()
    assert len(endless.emulator.told) == 1


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in {"open", "open range", "stat"}])
def test_an_answer_without_end_does_not_take_all_memory(endless: Stage, verb: str) -> None:
    act = VERBS[verb](endless.tier)
    endless.emulator.inject(Lie(operation="*", kind=LieKind.ENDLESS_BODY, when=When.BEFORE))
    with pytest.raises(TierUnavailable, match="more than the"):
        act()
    assert len(endless.emulator.told) == 1
    assert endless.emulator.requests[-1].sent < ENDLESS_LIMIT
