"""Worked example E16: the whole run on each tier, with the example's own request counts."""

from dataclasses import replace

import pytest
from support.example_rates import GB, brackets, gcs, hub, r2, s3, volume
from support.example_run import (
    DAY,
    GENERATION,
    START,
    category,
    priced,
    r7b,
    requests,
    retrieval,
    shown,
    transfer,
)

from cost.estimate import Estimate, Plan
from cost.pricing.lines import Category
from cost.pricing.volumes import Size, Volume
from cost.rates.model import RateCard
from cost.rates.terms import Operation, TransferPath
from cost.schedule import LeftBehind
from cost.units import total
from cost.usage import Usage

LISTS = 360
WRITES = 554_400 - LISTS
HEADS = 35 * 360
GETS = 15_550 - HEADS


def protocol(tier: str) -> Usage:
    """Return the example's requests: 64 MiB parts, one LIST and 35 HEADs a generation, two restores."""
    return Usage(
        requests=(
            requests(tier, Operation.UPLOAD_PART, WRITES),
            requests(tier, Operation.LIST_OBJECTS, LISTS),
            requests(tier, Operation.HEAD_OBJECT, HEADS),
            requests(tier, Operation.GET_OBJECT, GETS, label="restore"),
        )
    )


def whole(tier: str, *cards: RateCard, upload: int = 0, usage: Usage | None = None) -> Estimate:
    run = r7b(tier, upload=upload)
    used = protocol(tier) if usage is None else usage
    return priced(Plan(plan_id="whole", runs=(run,), usage=used, restores=2), *cards)


def restores(from_zone: str) -> Usage:
    return transfer("internet", TransferPath.INTERNET, 2 * GENERATION, from_zone, label="restore")


def test_e16_s3_standard() -> None:
    """The text prints 36.222297 for storage, the sum of two rounded figures; its total is of the exact ones."""
    result = whole("standard", s3(), upload=196)
    stored = result.by(lambda line: str(line.about.category in {Category.STORAGE, Category.STAGING}))
    assert shown(stored["True"]) == "36.222298"
    assert category(result, Category.REQUESTS) == "2.778220"
    assert shown(result.total) == "39.000518"
    with_egress = whole("standard", s3(), upload=196, usage=protocol("standard") + restores("aws"))
    assert category(with_egress, Category.RESTORE_TRANSFER) == "7.428530"
    assert shown(with_egress.total) == "46.429048"


def test_e16_all_direct_to_infrequent_access() -> None:
    """The example leaves the parts in flight out of this row."""
    result = whole("sia", s3(), usage=protocol("sia") + retrieval("sia", "get", generations=2))
    assert category(result, Category.STORAGE) == "19.670503"
    assert category(result, Category.REQUESTS) == "5.557750"
    assert category(result, Category.EARLY_DELETE) == "371.087032"
    assert category(result, Category.RETRIEVAL) == "1.825392"
    assert shown(result.total) == "398.140677"
    assert shown(result.open_liability, 4) == "19.9557"
    with_egress = whole("sia", s3(), usage=protocol("sia") + retrieval("sia", "get", generations=2) + restores("aws"))
    assert category(with_egress, Category.RESTORE_TRANSFER) == "7.428530"


def test_e16_r2_standard() -> None:
    result = whole("standard", r2(), upload=196)
    assert category(result, Category.REQUESTS) == "0.000000"
    assert shown(result.total, 3) == "27.045"


def test_e16_r2_infrequent_access_bills_each_objects_stay() -> None:
    result = whole("ia", r2(), usage=protocol("ia") + retrieval("ia", "get", generations=2))
    kept = [line for line in result.lines if line.meter == "r2/ia/storage"]
    assert sum(piece.quantity for line in kept for piece in line.low.slices) == 33_566
    assert shown(total(line.low.amount for line in kept), 2) == "335.66"
    assert category(result, Category.REQUESTS, 2) == "9.90"
    assert category(result, Category.RETRIEVAL, 2) == "1.96"
    assert shown(result.total, 2) == "347.52"
    assert any("own stay" in text for text in result.assumptions)


@pytest.mark.parametrize(
    ("leaves", "stored", "expected"),
    [(LeftBehind(), "31.041375", "33.82"), (None, "152.341289", "155.12")],
)
def test_e16_gcs_with_and_without_soft_delete(leaves: LeftBehind | None, stored: str, expected: str) -> None:
    run = r7b("gcs", leaves=leaves)
    result = priced(Plan(plan_id="gcs", runs=(run,), usage=protocol("gcs")), gcs())
    assert category(result, Category.STORAGE) == stored
    assert category(result, Category.REQUESTS) == "2.778220"
    assert shown(result.total, 2) == expected
    egress = priced(Plan(plan_id="gcs", runs=(run,), usage=restores("gcs")), gcs())
    assert category(egress, Category.RESTORE_TRANSFER, 4) == "21.9047"


def test_e16_a_volume() -> None:
    card = volume("runpod", brackets(("1000", "0.07"), (None, "0.05")), GB)
    bought = Volume(tier="runpod", sizes=(Size(at=START, bytes=3600 * GB),), end=START + 30 * DAY)
    result = priced(Plan(plan_id="volume", runs=(r7b("runpod"),), volumes=(bought,), usage=protocol("runpod")), card)
    assert category(result, Category.REQUESTS) == "0.000000"
    assert shown(result.total, 2) == "200.00"


def test_e16_the_hub() -> None:
    bucket = whole("private", hub()).total
    assert (shown(bucket.low, 2), shown(bucket.high, 2)) == ("27.00", "63.00")


def test_e16_a_repository_that_is_never_squashed() -> None:
    """639 is the peak; what the card leaves open reaches down to the month's average, 17.591 TB."""
    result = priced(r7b("private", leaves=LeftBehind(history=True)), hub())
    assert shown(result.total.high, 2) == "639.00"
    assert shown(result.total.low, 2) == "315.00"


@pytest.mark.parametrize(
    ("tier", "in_run", "committed"),
    [
        ("standard", "30.4384", "30.4384"),
        ("sia", "16.5426", "34.2261"),
        ("gir", "5.2936", "32.8571"),
        ("gfr", "4.7643", "29.5714"),
        ("gda", "1.3102", "16.2642"),
    ],
)
def test_e16_milestones_in_the_cold(tier: str, in_run: str, committed: str) -> None:
    """What the milestones cost in the run, and with the minimum that they have to be kept for.

    Without overheads, as in the example.  Its 62.9760 for Standard is 30 days for each.
    """
    card = s3()
    bare = card.model_copy(
        update={"tiers": tuple(each.model_copy(update={"per_object_overhead": ()}) for each in card.tiers)}
    )
    result = priced(r7b(tier, every=12, keep_last=30, keep_every=None), bare)
    assert category(result, Category.STORAGE, 4) == in_run
    assert shown(result.total.low + result.open_liability.low, 4) == committed


def test_e16_milestones_held_for_a_month_after_the_run() -> None:
    held = replace(r7b("standard"), cadence=None, commits=(START,), horizon=0, hold=30 * DAY)
    assert shown(priced(held, s3()).total.low * 30, 4) == "62.9760"
