"""A probe of any tier, through the fourteen verbs alone."""

import hashlib
import secrets
from collections.abc import Callable
from contextlib import ExitStack

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, IntegrityError, ObjectExists, ObjectNotFound, TierError, Unsupported
from tiers.probing.deciding import contradictions, decide, merged
from tiers.probing.outcomes import Outcome, ProbeReport, Subject, no, unknown, whether, yes
from tiers.probing.racing import ROUNDS, WRITERS, Claim, Round, judge, race
from tiers.probing.scratch import ORDER, SCRATCH, SIZE, WrongDigest
from tiers.protocol import Key, Tier, all_parts, walk

Check = Callable[["_Place"], list[Outcome]]


class _Place:
    """A tier and its scratch prefix; remembers what it wrote.  ``others`` are further connections to the same store."""

    def __init__(self, tier: Tier, others: list[Tier], nonce: str) -> None:
        self.tier = tier
        self.others = others
        self.scratch = f"{SCRATCH}/{nonce}/"
        self.written: list[Key] = []

    def key(self, name: str) -> Key:
        """Return a scratch key."""
        key = Key(f"{self.scratch}{name}")
        if key not in self.written:
            self.written.append(key)
        return key


def probe_tier(tier: Tier, another: Callable[[], Tier], *, nonce: str, store: str = "") -> ProbeReport:
    """Try a tier under ``.ckptier-probe/<nonce>/``; ``another`` opens the same store again, and is closed here.

    ``store`` says for people where it is.
    Raises TierError where not even a small object can be written and read.
    """
    with ExitStack() as stack:
        others: list[Tier] = []
        for _ in range(WRITERS - 1):
            other = another()
            stack.callback(other.close)
            others.append(other)
        place = _Place(tier, others, nonce)
        outcomes, leftovers = _run(place)
    before = tier.capabilities
    facts = decide(outcomes, before)
    return ProbeReport(
        tier=tier.name,
        store=store,
        profile="",
        scratch=place.scratch,
        outcomes=outcomes,
        facts=facts,
        fencing=facts.fencing or before.fencing,
        verification=facts.verification or before.verification,
        contradictions=contradictions(facts, before, sorted_listing=True),
        leftovers=leftovers,
    )


def _run(place: _Place) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
    try:
        outcomes = _round_trip(place)
        for check, subjects in _CHECKS:
            outcomes += _tried(place, check, subjects)
    except BaseException:
        _clean(place)
        raise
    deleted, leftovers = _clean(place)
    return merged([*outcomes, deleted]), leftovers


def _tried(place: _Place, check: Check, subjects: tuple[Subject, ...]) -> list[Outcome]:
    try:
        return check(place)
    except TierError as error:
        return [unknown(subject, f"{error.operation}: {error.message}") for subject in subjects]


def _round_trip(place: _Place) -> list[Outcome]:
    data, key = secrets.token_bytes(SIZE), place.key("object")
    place.tier.put(key, BytesBody(data))
    with place.tier.open(key) as stream:
        found = stream.read()
    with place.tier.open(key, 100, 200) as stream:
        span = stream.read()
    size = place.tier.stat(key).size
    same = found == data and size == SIZE
    return [
        whether(Subject.ROUND_TRIP, same, f"{SIZE} bytes came back as they went", "other bytes came back"),
        whether(Subject.RANGES, span == data[100:300], "a range is what was asked for", "a range has other bytes"),
    ]


def _wrong_bytes(place: _Place) -> list[Outcome]:
    """Put bytes under the digest of others; where that is taken, the digest must not be attested."""
    data, digest = secrets.token_bytes(SIZE), hashlib.sha256(b"other bytes").hexdigest()
    try:
        info = place.tier.put(place.key("wrong"), WrongDigest(data, digest))
    except IntegrityError:
        return [yes(Subject.WRONG_BYTES, "bytes that are not those sealed are refused")]
    if info.sha256 == digest:
        return [no(Subject.WRONG_BYTES, "bytes that are not those sealed are taken and vouched for")]
    return [no(Subject.WRONG_BYTES, "bytes that are not those sealed are taken: they are read back to be proved")]


def _put_if_absent(place: _Place) -> list[Outcome]:
    key = place.key("create/once")
    place.tier.create(key, b"first")
    try:
        place.tier.create(key, b"second")
    except ObjectExists:
        refused = yes(Subject.PUT_IF_ABSENT, "a second create is refused")
    else:
        return [no(Subject.PUT_IF_ABSENT, "a second create is taken")]
    return [refused, judge([_race(place, place.key(f"create/race-{number}")) for number in range(ROUNDS)])]


def _race(place: _Place, key: Key) -> Round:
    tiers = [place.tier, *place.others]

    def create(number: int) -> Claim:
        try:
            tiers[number].create(key, b"%d" % number)
        except ObjectExists:
            return Claim.LOST
        except TierError:
            return Claim.UNCLEAR
        return Claim.WON

    def holder() -> int | None:
        try:
            with place.tier.open(key) as stream:
                return int(stream.read())
        except ObjectNotFound:
            return None

    return race(create, holder, len(tiers))


def _listing(place: _Place) -> list[Outcome]:
    for name in ORDER:
        place.tier.put(place.key(name), BytesBody(b"x"))
    found = [info.key.removeprefix(place.scratch) for info in walk(place.tier, f"{place.scratch}order/")]
    words = f"{len(found)} of {len(ORDER)} keys"
    return [
        whether(Subject.LIST_PAGES, sorted(found) == sorted(ORDER), words, words),
        whether(Subject.LIST_ORDER, tuple(found) == ORDER, "in order of bytes", "not in order of bytes"),
    ]


def _uploads(place: _Place) -> list[Outcome]:
    can = place.tier.capabilities
    if not can.multipart:
        return [no(Subject.RESUME, "no upload in parts: a large file is sent in one go, and again after a break")]
    part_size = max(can.min_part, SIZE)
    data = secrets.token_bytes(part_size + 1)
    upload = place.tier.begin_upload(place.key("parts"), size=len(data), part_size=part_size)
    pieces = [data[:part_size], data[part_size:]]
    parts = [place.tier.put_part(upload, number, BytesBody(piece)) for number, piece in enumerate(pieces, start=1)]
    listed = {part.number for part in all_parts(place.others[0], upload)} if can.resumable else set()
    place.tier.complete(upload, parts)
    with place.tier.open(upload.key) as stream:
        joined = stream.read() == data
    found = [] if joined else [no(Subject.ROUND_TRIP, "an object in parts came back otherwise than it went")]
    resumed = f"another connection finds {len(listed)} of 2 parts"
    return [*found, whether(Subject.RESUME, bool(listed), resumed, "parts do not outlive the process"), _abort(place)]


def _abort(place: _Place) -> Outcome:
    upload = place.tier.begin_upload(place.key("aborted"), size=1, part_size=SIZE)
    place.tier.abort(upload)
    try:
        place.tier.list_parts(upload)
    except ObjectNotFound:
        return yes(Subject.ABORT, "an aborted upload is gone")
    except Unsupported as error:
        return unknown(Subject.ABORT, error.message)
    return no(Subject.ABORT, "an aborted upload still lists its parts")


def _clean(place: _Place) -> tuple[Outcome, tuple[str, ...]]:
    left, why = [], ""
    for key in place.written:
        try:
            place.tier.delete(key)
        except (AccessDenied, TierError) as error:
            left.append(key)
            why = why or error.message
    if not left:
        return yes(Subject.DELETE, f"all {len(place.written)} scratch keys are gone"), ()
    return no(Subject.DELETE, f"{len(left)} of {len(place.written)} keys stay: {why}"), tuple(left)


_CHECKS: tuple[tuple[Check, tuple[Subject, ...]], ...] = (
    (_wrong_bytes, (Subject.WRONG_BYTES,)),
    (_put_if_absent, (Subject.PUT_IF_ABSENT, Subject.ONE_WINNER)),
    (_listing, (Subject.LIST_PAGES, Subject.LIST_ORDER)),
    (_uploads, (Subject.RESUME, Subject.ABORT)),
)
