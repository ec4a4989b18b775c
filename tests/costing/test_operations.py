"""From verbs to operations on the wire, for stores of each kind."""

import pytest

from cost.rates.terms import DAEMON_OPERATIONS, Operation
from replicate.asked import NOT_FOUND, Asked
from replicate.config import TierConfig
from replicate.costing.operations import PLAIN, STATUSES, VERBS, Traits, operations, s3_traits, status_of, traits_of
from replicate.errors import CkptierError
from tiers import errors as tier_errors
from tiers.metered import BILLING_CLASSES

SEAWEED = s3_traits("seaweedfs")
GENERIC = s3_traits("generic-s3")


def seen(asked: Asked, traits: Traits) -> dict[tuple[str, int], int]:
    return {(operation.value, int(status)): count for (operation, status), count in operations([asked], traits).items()}


def test_every_verb_is_an_operation_that_cards_have_to_map() -> None:
    assert VERBS.keys() == BILLING_CLASSES.keys()
    assert set(VERBS.values()) == set(DAEMON_OPERATIONS)


def test_every_tier_error_has_a_status() -> None:
    """A request that ended some other way was broken off: it counts as refused, and not as free."""
    kinds = {name for name, kind in vars(tier_errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds - {"TierError"} == STATUSES.keys() - {"ok"}
    assert status_of("KeyboardInterrupt") == 400


@pytest.mark.parametrize(
    ("asked", "traits", "wire"),
    [
        (Asked(verb="put", count=3), PLAIN, {("PutObject", 200): 3}),
        (Asked(verb="create", outcome="ObjectExists"), SEAWEED, {("PutObject", 412): 1}),
        (Asked(verb="create", outcome="ObjectExists"), GENERIC, {("HeadObject", 200): 1}),
        (Asked(verb="create"), GENERIC, {("HeadObject", 404): 1, ("GetObject", 404): 1, ("PutObject", 200): 1}),
        (Asked(verb="stat", outcome=NOT_FOUND), SEAWEED, {("HeadObject", 404): 1, ("GetObject", 404): 1}),
        (Asked(verb="stat", outcome=NOT_FOUND), PLAIN, {("HeadObject", 404): 1}),
        (Asked(verb="stat", outcome="AccessDenied"), SEAWEED, {("HeadObject", 403): 1}),
        (Asked(verb="open", count=2, empty=True), SEAWEED, {("HeadObject", 200): 2}),
        (Asked(verb="open", count=2, empty=True), PLAIN, {("GetObject", 200): 2}),
        (Asked(verb="list_objects", pages=3), SEAWEED, {("ListObjectsV2", 200): 3}),
        (Asked(verb="list_objects", count=3, pages=3), s3_traits("aws"), {("ListObjectsV2", 200): 3}),
        (Asked(verb="list_objects"), SEAWEED, {("ListObjectsV2", 200): 1}),
        (Asked(verb="put_part", outcome="TierUnavailable"), SEAWEED, {("UploadPart", 503): 1}),
    ],
)
def test_on_the_wire(asked: Asked, traits: Traits, wire: dict[tuple[str, int], int]) -> None:
    assert seen(asked, traits) == wire


def test_traits_follow_the_profile() -> None:
    assert traits_of(TierConfig(name="v", url="file:///v")) == PLAIN
    r2 = TierConfig(name="r", url="s3://b", endpoint_url="https://0.r2.cloudflarestorage.com")
    assert traits_of(r2) == Traits(asks_twice=True)
    assert traits_of(TierConfig(name="g", url="s3://b", endpoint_url="https://s3.example.com")) == GENERIC
    with pytest.raises(CkptierError, match="unknown profile"):
        s3_traits("nobody")


def test_a_listing_is_a_class_of_its_own() -> None:
    assert VERBS["list_objects"] is Operation.LIST_OBJECTS
