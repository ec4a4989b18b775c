"""Looking rates up: what is not on the card is an error, never zero."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from cost.errors import PlanInvalid, RateMissing
from cost.rates.loading import read_card
from cost.rates.model import UNMETERED, FreeAllowance, RateCard
from cost.rates.sources import is_own_page
from cost.rates.terms import DAEMON_OPERATIONS, Operation, SourceKind, TransferPath
from cost.units import ByteUnit

EXAMPLES = Path(__file__).parents[2] / "examples" / "rates"
TODAY = date(2026, 10, 1)


def example(name: str) -> RateCard:
    return read_card(EXAMPLES / f"{name}.toml", today=TODAY).card


@pytest.fixture(scope="module")
def aws() -> RateCard:
    return example("aws-s3-us-east-1")


@pytest.fixture(scope="module")
def r2() -> RateCard:
    return example("r2")


def test_rates_are_the_dated_examples(aws: RateCard, r2: RateCard) -> None:
    standard = aws.tier("standard")
    assert [(bracket.up_to, bracket.unit_price) for bracket in standard.storage_brackets] == [
        (Decimal(51200), Decimal("0.023")),
        (Decimal(512000), Decimal("0.022")),
        (None, Decimal("0.021")),
    ]
    assert (standard.bytes_per_unit, standard.month, standard.month_hours) == (ByteUnit.GIB, "calendar", "calendar")
    assert (r2.tier("standard").bytes_per_unit, r2.tier("standard").month) == (ByteUnit.GB, 720)
    glacier = aws.tier("glacier")
    assert [(overhead.bytes, overhead.billed_at) for overhead in glacier.per_object_overhead] == [
        (32768, "self"),
        (8192, "standard"),
    ]
    expedited = glacier.retrieval_mode("expedited")
    assert (expedited.unit_price, expedited.request_price, expedited.latency_max_s) == (
        Decimal("0.03"),
        Decimal(10),
        300,
    )
    assert glacier.transition_into().price == Decimal("0.03")
    assert example("gcs-us-central1").tier("standard").month == "calendar"


@pytest.mark.parametrize("name", ["aws-s3-us-east-1", "r2", "gcs-us-central1", "runpod-volume", "hf-hub"])
def test_every_request_of_the_daemon_has_a_rate(name: str) -> None:
    card = example(name)
    for tier in card.tiers:
        for operation in DAEMON_OPERATIONS:
            rate = card.request(tier.tier_id, operation)
            assert rate.price > 0 or rate.free


@pytest.mark.parametrize(
    ("tier", "operation", "price"),
    [
        ("standard", Operation.PUT_OBJECT, "0.005"),
        ("standard-ia", Operation.PUT_OBJECT, "0.01"),
        ("standard-ia", Operation.LIST_OBJECTS, "0.005"),  # LIST is billed at Standard's rate
        ("standard-ia", Operation.HEAD_OBJECT, "0.001"),
        ("glacier", Operation.UPLOAD_PART, "0.005"),  # parts are billed where they are staged
        ("glacier", Operation.CREATE_MULTIPART_UPLOAD, "0.005"),
        ("glacier", Operation.COMPLETE_MULTIPART_UPLOAD, "0.03"),
        ("glacier", Operation.DELETE_OBJECT, "0"),
    ],
)
def test_requests_by_class(aws: RateCard, tier: str, operation: Operation, price: str) -> None:
    rate = aws.request(tier, operation)
    assert (rate.unit_count, rate.price) == (1000, Decimal(price))


def test_unmetered_is_said_not_assumed() -> None:
    assert example("runpod-volume").request("volume", Operation.PUT_OBJECT) is UNMETERED


def test_what_is_not_on_the_card_is_an_error(aws: RateCard, r2: RateCard) -> None:
    with pytest.raises(RateMissing, match="RestoreObject is in no request class") as caught:
        r2.request("standard", Operation.RESTORE_OBJECT)
    assert "[operations]" in caught.value.hint
    with pytest.raises(RateMissing, match="no tier 'cold'") as caught:
        r2.request("cold", Operation.PUT_OBJECT)
    assert "standard, infrequent-access" in caught.value.hint
    with pytest.raises(RateMissing, match="no retrieval mode 'bulk'") as caught:
        aws.tier("standard-ia").retrieval_mode("bulk")
    assert "immediate" in caught.value.hint
    with pytest.raises(RateMissing, match="lifecycle transitions"):
        aws.tier("standard").transition_into()
    with pytest.raises(RateMissing, match="billed_status"):
        example("hf-hub").bills(200)
    override = r2.tier("standard").model_copy(update={"operations": {Operation.RESTORE_OBJECT: "thaw"}})
    with pytest.raises(RateMissing, match="class 'thaw'"):
        r2.model_copy(update={"tiers": (override,)}).request("standard", Operation.RESTORE_OBJECT)


def test_each_path_has_its_own_price(aws: RateCard) -> None:
    def price(path: TransferPath) -> Decimal:
        return aws.transfer("us-east-1", "us-east-1", path).brackets[0].unit_price

    assert price(TransferPath.NAT) == Decimal("0.045")
    assert price(TransferPath.GATEWAY_ENDPOINT) == 0
    assert price(TransferPath.CROSS_AZ) == Decimal("0.01")
    with pytest.raises(RateMissing, match="no rate from us-east-1 to us-east-1 by interconnect") as caught:
        price(TransferPath.INTERCONNECT)
    assert "us-east-1 to internet by internet" in caught.value.hint
    with pytest.raises(RateMissing):
        aws.transfer("internet", "other-region", TransferPath.INTERNET)


def test_which_answers_are_billed(aws: RateCard, r2: RateCard) -> None:
    assert [aws.bills(status) for status in (200, 404, 412, 403, 500, 503)] == [True, True, True, False, False, False]
    assert [r2.bills(status) for status in (200, 412, 400, 401, 403, 500)] == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("size", "part", "said"),
    [
        (98_000_000_000, 5 * 2**20, "18693 parts"),
        (2**40, 2**20, "parts of 1048576"),
        (2**40, 6 * 2**30, "parts of 6442450944"),
        (2**40, 0, "parts of 0"),
        (2**43, None, "the limit is 5497558138880"),
    ],
)
def test_objects_that_the_quota_forbids(size: int, part: int | None, said: str) -> None:
    tier = example("gcs-us-central1").tier("standard")
    with pytest.raises(PlanInvalid, match=said) as caught:
        tier.require_object(size, part)
    assert caught.value.hint
    tier.require_object(98_000_000_000, 64 * 2**20)
    tier.require_object(1, None)


def test_the_hint_names_a_part_size_that_works() -> None:
    tier = example("gcs-us-central1").tier("standard")
    with pytest.raises(PlanInvalid, match="10000 are allowed") as caught:
        tier.require_object(98_000_000_000, 5 * 2**20)
    assert caught.value.hint == "use parts of at least 9800000 bytes"
    tier.require_object(98_000_000_000, 9_800_000)


def test_cards_are_frozen(r2: RateCard) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        r2.currency = "EUR"


def test_allowances_know_their_unit(aws: RateCard, r2: RateCard) -> None:
    def known(allowance: FreeAllowance) -> tuple[ByteUnit | None, bool]:
        return allowance.byte_unit, allowance.by_month

    storage, writes, _ = r2.tier("standard").free_allowance
    assert (known(storage), known(writes)) == ((ByteUnit.GB, True), (None, False))
    egress = aws.transfer("us-east-1", "internet", TransferPath.INTERNET).free_allowance[0]
    assert known(egress) == (ByteUnit.GIB, False)


def test_examples_and_third_parties_carry_a_banner(r2: RateCard) -> None:
    assert "EXAMPLE" in (r2.banner or "")
    assert "third party" in (r2.model_copy(update={"source_kind": SourceKind.THIRD_PARTY}).banner or "")
    assert r2.model_copy(update={"source_kind": SourceKind.PROVIDER_PAGE}).banner is None


@pytest.mark.parametrize(
    ("provider", "url", "own"),
    [
        ("aws", "https://aws.amazon.com/s3/pricing/", True),
        ("aws", "https://example.org/aws.amazon.com", False),
        ("aws", "https://evilamazon.com/", False),
        ("huggingface", "https://huggingface.co./docs", True),
        ("acme", "https://www.acme.com/prices", True),
        ("acme", "https://acme.com/", True),
        ("acme", "https://acme.evil.example.com/", False),
        ("acme", "https://notacme.com/", False),
    ],
)
def test_whose_page_it_is(provider: str, url: str, own: bool) -> None:
    assert is_own_page(provider, url) is own
