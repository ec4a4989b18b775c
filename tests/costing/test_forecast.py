"""A forecast is the protocol's own requests, generation by generation, added up by month."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from cost.ledger import Reason
from cost.rates.terms import TransferPath
from replicate.asked import Requests
from replicate.costing.forecast import Course, Route, Site, forecast, sending_of, together
from replicate.costing.operations import PLAIN, s3_traits
from replicate.costing.shape import Described, capabilities_of, described_record
from replicate.costing.usage import RESTORE, UPLOAD, VERIFY, wire
from replicate.manifest import GenerationRecord
from replicate.requests import LogPosition, replicate_requests
from replicate.verify import Share

HOUR = 3600
START = datetime(2026, 1, 30, tzinfo=UTC)
ROUTE = Route(machine="m", tier="t", up=TransferPath.NAT, down=TransferPath.INTERNET)


@pytest.fixture(scope="module")
def record() -> GenerationRecord:
    """Return a generation of one large file, three small ones and an empty one."""
    files = [Described("large", 200 * 2**20, 1), Described("small", 10, 3), Described("empty", 0, 1)]
    return described_record("plan", files)


def site(**more: object) -> Site:
    settings: dict[str, object] = {
        "name": "s",
        "ref": "card/tier",
        "capabilities": capabilities_of("s3://", "aws", None),
        "traits": s3_traits("aws"),
        **more,
    }
    return Site(**settings)  # type: ignore[arg-type]


def course(hours: int) -> Course:
    return Course(start=START, length=hours * HOUR, cadence=HOUR)


def by_label(plan_requests: object) -> dict[str, Counter[tuple[str, int]]]:
    found: dict[str, Counter[tuple[str, int]]] = {}
    for each in plan_requests:  # type: ignore[attr-defined]
        found.setdefault(each.label, Counter())[each.operation, each.status] += each.count
    return found


def test_uploads_are_the_sum_of_their_passes(record: GenerationRecord) -> None:
    """Forty generations, so that the hint is due at the claim, at 16 and at 32, over the end of a month."""
    mine = site()
    found = forecast("plan", record, [mine], course(60)).plan
    at, total = LogPosition(), Requests()
    for _ in range(60):
        asked, at = replicate_requests([sending_of(record, mine.capabilities, None)], at)
        total = total + asked
    expected = {(op, int(status)): count for (op, status), count in wire(total, mine.traits).items()}
    assert by_label(found.usage.requests) == {UPLOAD: Counter(expected)}
    assert len({each.at for each in found.usage.requests}) == 2, "one instant a month"
    assert at.head == 48


def test_bytes_go_both_ways_where_the_route_is_known(record: GenerationRecord) -> None:
    found = forecast("plan", record, [site(route=ROUTE, restores=2)], course(3)).plan
    up = sum(leg.bytes for leg in found.usage.transfers if leg.to_zone == "t")
    assert up > 3 * record.total_bytes
    (back,) = [leg for leg in found.usage.transfers if leg.label == RESTORE and leg.from_zone == "t"]
    assert back.bytes > 2 * record.total_bytes
    assert [(one.objects, one.label) for one in found.usage.retrievals] == [(5, RESTORE)] * 2
    assert forecast("plan", record, [site()], course(3)).notes == ("s: transfer not priced: no zone configured",)


def test_what_is_stored_beside_the_files(record: GenerationRecord) -> None:
    """A manifest goes with its generation; an entry of the log stays for ever."""
    found = forecast("plan", record, [site(keep_last=1)], course(3)).plan
    (run,) = found.runs
    assert [group.count for group in run.objects] == [1, 3, 1, 1]
    assert found.ledger is not None
    assert [each.end for each in found.ledger.intervals] == [run.end] * 3
    assert {each.reason for each in found.ledger.intervals} == {Reason.LAST_K}
    assert all(each.generation == 0 and 500 < each.bytes < 2000 for each in found.ledger.intervals)


def test_verifying_looks_at_what_is_kept(record: GenerationRecord) -> None:
    """After three generations of which two are kept: a look at each of five files, and each leaf where it is read."""
    kept = {"keep_last": 2, "verify_every": 3 * HOUR}
    looked = by_label(forecast("p", record, [site(**kept)], course(3)).plan.usage.requests)[VERIFY]
    assert looked["HeadObject", 200] == 2 * 5
    read = by_label(forecast("p", record, [site(**kept, share=Share())], course(3)).plan.usage.requests)[VERIFY]
    leaves = 4 + 3
    assert read["GetObject", 200] - looked["GetObject", 200] == 2 * leaves
    assert read["HeadObject", 200] == looked["HeadObject", 200], "of the empty file its size says all"


def test_a_tier_that_reads_back_pays_for_it_where_reads_are_metered(record: GenerationRecord) -> None:
    volume = capabilities_of("file://", None, None)
    plan = forecast("p", record, [site(capabilities=volume, traits=PLAIN, meters_reads=True)], course(2)).plan
    (read,) = plan.usage.retrievals
    assert (read.label, read.objects) == (UPLOAD, 0)
    assert read.bytes > 2 * record.total_bytes


def test_every_other_generation_goes_there(record: GenerationRecord) -> None:
    plan = forecast("p", record, [site(every=2)], course(5)).plan
    assert plan.ledger is not None
    assert len(plan.ledger.intervals) == 2
    assert plan.generations == 5


def test_nothing_comes_of_a_run_that_is_too_short_for_a_tier(record: GenerationRecord) -> None:
    plan = forecast("p", record, [site(every=10, restores=1)], course(5)).plan
    assert plan.usage.requests == ()


def test_tiers_with_instants_of_their_own_join(record: GenerationRecord) -> None:
    parts = [forecast("p", record, [site(ref=name)], course(hours)) for name, hours in (("a/x", 2), ("b/y", 3))]
    plan = together("both", parts).plan
    assert [len(run.instants) for run in plan.runs] == [2, 3]
    assert {each.tier for each in plan.usage.requests} == {"a/x", "b/y"}
    assert plan.ledger is not None
    assert len(plan.ledger.intervals) == 5
