"""Worked examples E4, E8 and E14: requests by class, egress by bracket, and the legs of uploads."""

import pytest
from support.example_rates import EGRESS, GIB, S3_BRACKETS, brackets, card, leg, r2, s3, tier
from support.example_run import GENERATION, START, ledger, priced, requests, shown, stored, transfer

from cost.rates.terms import Operation, TransferPath
from cost.usage import FeeUse, Usage


@pytest.mark.parametrize(
    ("count", "on_s3", "on_r2", "on_r2_ia"),
    [
        (6_763_320, "33.816600", "27.00", "63.00"),
        (4_240_440, "21.202200", "18.00", "45.00"),
        (2_132_280, "10.661400", "9.00", "27.00"),
        (554_040, "2.770200", "0.00", "9.00"),
        (289_080, "1.445400", "0.00", "9.00"),
        (93_240, "0.466200", "0.00", "9.00"),
    ],
)
def test_e4_what_part_sizes_cost(count: int, on_s3: str, on_r2: str, on_r2_ia: str) -> None:
    """The counts are the example's, not those of our protocol: whoever uploads hands its own over."""

    def cost(tier_id: str) -> Usage:
        return Usage(requests=(requests(tier_id, Operation.UPLOAD_PART, count),))

    assert shown(priced(cost("standard"), s3()).total) == on_s3
    assert shown(priced(cost("standard"), r2()).total, 2) == on_r2
    assert shown(priced(cost("ia"), r2()).total, 2) == on_r2_ia


@pytest.mark.parametrize(
    ("to_zone", "path", "expected"),
    [
        ("internet", TransferPath.INTERNET, "73.142651"),
        ("aws-2", TransferPath.CROSS_REGION, "18.253922"),
        ("s3", TransferPath.NAT, "41.071326"),
        ("s3", TransferPath.GATEWAY_ENDPOINT, "0.000000"),
    ],
)
def test_e8_ten_restores_by_path(to_zone: str, path: TransferPath, expected: str) -> None:
    result = priced(transfer(to_zone, path, 10 * GENERATION, label="restore"), s3())
    assert shown(result.total) == expected


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (57_000, "4809.200"),
        (10_240, "921.600"),
        (10_241, "921.685"),
        (51_200, "4403.200"),
        (153_601, "11571.250"),
    ],
)
def test_e8_egress_brackets_are_cumulative(units: int, expected: str) -> None:
    plain = card("aws", tier("any", "0.023"), transfer=[leg("internet", "internet", EGRESS)])
    result = priced(transfer("internet", TransferPath.INTERNET, units * GIB), plain)
    assert shown(result.total, 3) == expected


@pytest.mark.parametrize(
    ("units", "graduated", "volume"),
    [
        (51_200, "1177.600", "1177.600"),
        (60_000, "1371.200", "1320.000"),
        (600_000, "13163.200", "12600.000"),
    ],
)
def test_e8_storage_brackets_by_mode(units: int, graduated: str, volume: str) -> None:
    """Where prices are by volume, all units cost what the last bracket reached does."""
    month = ledger(stored("standard", units * GIB, 30))
    assert shown(priced(month, s3()).total, 3) == graduated
    by_volume = card("aws", tier("standard", S3_BRACKETS, bracket_mode="volume"))
    assert shown(priced(month, by_volume).total, 3) == volume


@pytest.mark.parametrize(
    ("to_zone", "path", "generations", "expected"),
    [
        ("s3", TransferPath.GATEWAY_ENDPOINT, 360, "0.0000"),
        ("s3", TransferPath.NAT, 360, "1478.5677"),
        ("aws-2", TransferPath.CROSS_REGION, 360, "657.1412"),
        ("internet", TransferPath.INTERNET, 360, "2835.5501"),
        ("internet", TransferPath.INTERNET, 30, "237.4280"),
    ],
)
def test_e14_upload_legs_dominate(to_zone: str, path: TransferPath, generations: int, expected: str) -> None:
    result = priced(transfer(to_zone, path, generations * GENERATION), s3())
    assert shown(result.total, 4) == expected


def test_e14_legs_of_one_way_add_up() -> None:
    nat = transfer("s3", TransferPath.NAT, 360 * GENERATION)
    out = transfer("internet", TransferPath.INTERNET, 360 * GENERATION)
    assert shown(priced(out, s3()).total) == "2835.550137"
    assert shown(priced(nat + out, s3()).total, 4) == "4314.1179"


def test_an_hourly_fee_is_apart_from_the_bytes() -> None:
    fee = Usage(fees=(FeeUse(fee="nat-gateway", start=START, end=START + 720 * 3600),))
    assert shown(priced(fee, s3()).total, 2) == "32.40"


def test_both_directions_are_charged_where_the_card_says_so() -> None:
    table = leg("aws-b", "cross_az", brackets((None, "0.01")), direction_charged="both")
    both = card("aws", tier("any", "0.023"), transfer=[table])
    assert shown(priced(transfer("aws-b", TransferPath.CROSS_AZ, 100 * GIB), both).total, 2) == "2.00"
