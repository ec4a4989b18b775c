"""From a tier's verbs to the operations that a rate card prices, and from outcomes to HTTP statuses.

The names are those of the S3 API, which cards use for every store: a store of another kind
has a card that prices the same operations, or none at all (``request_billing = "unmetered"``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType

from cost.rates.terms import Operation
from replicate.asked import NOT_FOUND, Asked
from replicate.config import TierConfig
from replicate.errors import CkptierError
from tiers.metered import BILLING_CLASSES, OK
from tiers.profiles import choose_profile
from tiers.protocol import Fencing

VERBS: Mapping[str, Operation] = MappingProxyType(
    {
        "put": Operation.PUT_OBJECT,
        "create": Operation.PUT_OBJECT,
        "open": Operation.GET_OBJECT,
        "stat": Operation.HEAD_OBJECT,
        "list_objects": Operation.LIST_OBJECTS,
        "delete": Operation.DELETE_OBJECT,
        "begin_upload": Operation.CREATE_MULTIPART_UPLOAD,
        "put_part": Operation.UPLOAD_PART,
        "list_parts": Operation.LIST_PARTS,
        "copy_part": Operation.UPLOAD_PART_COPY,
        "copy": Operation.COPY_OBJECT,
        "complete": Operation.COMPLETE_MULTIPART_UPLOAD,
        "abort": Operation.ABORT_MULTIPART_UPLOAD,
    }
)
"""Every verb that is a request (tiers.metered.BILLING_CLASSES), by the operation that it is on a bill."""
if VERBS.keys() != BILLING_CLASSES.keys():
    raise AssertionError("a verb of a tier has no operation")

STATUSES: Mapping[str, HTTPStatus] = MappingProxyType(
    {
        OK: HTTPStatus.OK,
        NOT_FOUND: HTTPStatus.NOT_FOUND,
        "ObjectExists": HTTPStatus.PRECONDITION_FAILED,
        "IntegrityError": HTTPStatus.BAD_REQUEST,
        "AccessDenied": HTTPStatus.FORBIDDEN,
        "CapacityExceeded": HTTPStatus.INSUFFICIENT_STORAGE,
        "Unsupported": HTTPStatus.NOT_IMPLEMENTED,
        "TierUnavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""What a card's ``billed_status`` is asked about for each outcome.

The meter knows outcomes, not statuses.  An outcome that is not here (the process was
stopped, a local file could not be read) broke off a request that the store may have
counted: it is taken as a 400.
"""

Billed = tuple[Operation, HTTPStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a tier's verbs become requests.

    ``looks_first``: put-if-absent is a look and a put.  ``whole_listing``: a listing is read
    to its end by one verb, since the store does not sort it.
    ``asks_twice``: a look at a missing key is a HEAD, and a GET that says what is missing.
    """

    looks_first: bool = False
    whole_listing: bool = False
    asks_twice: bool = False


PLAIN = Traits()
"""A verb is one request: volumes, memory."""


def traits_of(settings: TierConfig) -> Traits:
    """Return the traits of a configured tier; raises CkptierError for a profile that is not known."""
    if not settings.url.startswith("s3://"):
        return PLAIN
    return s3_traits(settings.profile, settings.endpoint_url)


def s3_traits(profile: str | None, endpoint_url: str | None = None) -> Traits:
    """Return the traits of an S3 profile; raises CkptierError."""
    try:
        chosen = choose_profile(profile, endpoint_url)
    except ValueError as error:
        raise CkptierError(str(error), hint="correct `profile`") from error
    return Traits(
        looks_first=chosen.fencing is Fencing.ADVISORY,
        whole_listing=not chosen.sorted_listing,
        asks_twice=True,
    )


def operations(asked: Iterable[Asked], traits: Traits) -> Counter[Billed]:
    """Return the operations, with the status of each, that some requests are on the wire."""
    found: Counter[Billed] = Counter()
    for each in asked:
        found.update(_operations(each, traits))
    return found


def _operations(asked: Asked, traits: Traits) -> Counter[Billed]:
    status = status_of(asked.outcome)
    operation = VERBS[asked.verb]
    if asked.verb == "create" and traits.looks_first:
        return _looked_first(asked, traits)
    if asked.verb == "list_objects" and traits.whole_listing:
        return Counter({(operation, status): max(asked.pages, asked.count)})
    if asked.verb == "open" and asked.empty and traits.asks_twice:
        return Counter({(Operation.HEAD_OBJECT, status): asked.count})
    found = Counter({(operation, status): asked.count})
    if asked.verb == "stat" and asked.outcome == NOT_FOUND and traits.asks_twice:
        found[Operation.GET_OBJECT, status] += asked.count
    return found


def _looked_first(asked: Asked, traits: Traits) -> Counter[Billed]:
    """Return the look at the key and, where it was not taken, the put."""
    if asked.outcome == "ObjectExists":
        return Counter({(Operation.HEAD_OBJECT, HTTPStatus.OK): asked.count})
    look = _operations(Asked(verb="stat", outcome=NOT_FOUND, count=asked.count), traits)
    return look + Counter({(Operation.PUT_OBJECT, status_of(asked.outcome)): asked.count})


def status_of(outcome: str) -> HTTPStatus:
    """Return the status that an outcome is billed by."""
    return STATUSES.get(outcome, HTTPStatus.BAD_REQUEST)
