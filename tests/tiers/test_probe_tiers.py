"""What a probe says of tiers that are no S3, and how outcomes become facts."""

from pathlib import Path

import pytest

from tiers.errors import TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.probing.deciding import contradictions, decide, merged
from tiers.probing.facts import ProbeFacts
from tiers.probing.outcomes import Outcome, Subject, Verdict, no, unknown, yes
from tiers.probing.racing import Claim, Round, judge
from tiers.probing.tier_probe import probe_tier
from tiers.profiles import GENERIC, PROFILES
from tiers.protocol import Fencing, Verification, walk
from tiers.testing.passthrough import PassThroughTier
from tiers.volume import VolumeTier

SHA256 = (Subject.SHA256_TAKEN, Subject.SHA256_PUT, Subject.SHA256_PART, Subject.SHA256_ECHO)


def test_memory() -> None:
    store = MemoryStore()
    tier = MemoryTier("memory", store)
    report = probe_tier(tier, lambda: MemoryTier("memory", store), nonce="n1")
    assert report.fencing is tier.capabilities.fencing
    assert report.verification is tier.capabilities.verification
    assert {one.verdict for one in report.outcomes} == {Verdict.YES}
    assert report.contradictions == ()
    assert list(walk(tier, "")) == []


def test_volume(tmp_path: Path) -> None:
    tier = VolumeTier("volume", tmp_path)
    report = probe_tier(tier, lambda: VolumeTier("volume", tmp_path), nonce="n1")
    assert report.fencing is Fencing.POSIX
    assert report.outcome(Subject.ONE_WINNER) == yes(
        Subject.ONE_WINNER, "of 8 writers at once one won, in each of 3 rounds"
    )
    assert report.outcome(Subject.DELETE) is not None
    assert list(walk(tier, "")) == []


def test_a_tier_whose_creates_overwrite_loses_its_fencing() -> None:
    class Careless(PassThroughTier):
        def create(self, key, data):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            self.delete(key)
            return super().create(key, data)

    store = MemoryStore()
    report = probe_tier(Careless(MemoryTier("m", store)), lambda: Careless(MemoryTier("m", store)), nonce="n")
    assert report.fencing is Fencing.ADVISORY
    assert [str(one) for one in report.contradictions if one.worse] == ["writers are kept apart by advisory, not cas"]


def test_a_tier_that_fails_in_between_leaves_nothing() -> None:
    class Failing(PassThroughTier):
        def list_objects(self, prefix, token=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            raise TierUnavailable("gone", tier="m", operation="list_objects")

    store = MemoryStore()
    report = probe_tier(Failing(MemoryTier("m", store)), lambda: MemoryTier("m", store), nonce="n")
    outcome = report.outcome(Subject.LIST_ORDER)
    assert outcome is not None
    assert outcome.verdict is Verdict.UNKNOWN
    assert list(walk(MemoryTier("m", store), "")) == []


@pytest.mark.parametrize(
    ("claims", "stored", "verdict"),
    [
        ("WLLL", 0, Verdict.YES),
        ("LLLW", 3, Verdict.YES),
        ("WWLL", 1, Verdict.NO),
        ("WLLL", 2, Verdict.NO),
        ("WLLL", None, Verdict.NO),
        ("WULL", 0, Verdict.YES),
        ("LULL", 1, Verdict.YES),  # a lost reply: the one that is unclear is there
        ("LLLL", 1, Verdict.UNKNOWN),
        ("UUUU", None, Verdict.UNKNOWN),
    ],
)
def test_who_won(claims: str, stored: int | None, verdict: Verdict) -> None:
    told = {"W": Claim.WON, "L": Claim.LOST, "U": Claim.UNCLEAR}
    good = Round(claims=(Claim.WON, Claim.LOST), stored=0)
    bad = Round(claims=tuple(told[letter] for letter in claims), stored=stored)
    assert judge([good, bad]).verdict is verdict
    assert judge([]).verdict is Verdict.UNKNOWN


def decided(*outcomes: Outcome) -> ProbeFacts:
    return decide(outcomes, GENERIC.capabilities)


def test_all_yes_decide_for_and_one_no_against() -> None:
    good = [yes(subject, "") for subject in SHA256]
    assert decided(*good).checks_sha256 is True
    assert decided(*good).verification is Verification.STORE_SHA256
    for number in range(len(good)):
        rest = good[:number] + good[number + 1 :]
        assert decided(*rest).checks_sha256 is None
        assert decided(*rest, no(SHA256[number], "")).checks_sha256 is False
        assert decided(*rest, unknown(SHA256[number], "")).verification is None


def test_etags_prove_what_no_digest_does() -> None:
    weak = no(Subject.SHA256_PUT, "")
    etags = (yes(Subject.MD5_ETAG, ""), yes(Subject.MULTIPART_ETAG, ""))
    assert decided(weak, *etags).verification is Verification.MD5_ETAG
    assert decided(weak, etags[0], no(Subject.MULTIPART_ETAG, "")).verification is Verification.READ_BACK
    assert decided(weak, etags[0]).verification is None


def test_a_copy_is_proved_only_by_a_digest_that_is_checked() -> None:
    copies = yes(Subject.SHA256_COPY, "")
    assert decided(copies, *[yes(subject, "") for subject in SHA256]).copy_part is True
    assert decided(copies, no(Subject.SHA256_PUT, "")).copy_part is False
    assert decided().copy_part is None


def test_writers() -> None:
    apart = (yes(Subject.PUT_IF_ABSENT, ""), yes(Subject.ONE_WINNER, ""))
    assert decided(*apart).fencing is Fencing.CAS
    assert decided(apart[0]).fencing is None
    assert decided(no(Subject.PUT_IF_ABSENT, "")).fencing is Fencing.ADVISORY
    assert decided(apart[0], no(Subject.ONE_WINNER, "")).fencing is Fencing.ADVISORY


def test_the_worst_of_several_outcomes_counts() -> None:
    found = merged([yes(Subject.SHA256_ECHO, "a"), no(Subject.SHA256_ECHO, "b"), unknown(Subject.SHA256_ECHO, "c")])
    assert found == (no(Subject.SHA256_ECHO, "b"),)


def test_contradictions_say_which_way() -> None:
    aws = PROFILES["aws"].capabilities
    facts = ProbeFacts(fencing=Fencing.ADVISORY, verification=Verification.READ_BACK, sorted_listing=True)
    assert [one.worse for one in contradictions(facts, aws, sorted_listing=True)] == [True, True]
    better = ProbeFacts(
        fencing=Fencing.CAS, verification=Verification.STORE_SHA256, copy_part=True, sorted_listing=True
    )
    found = contradictions(better, GENERIC.capabilities, sorted_listing=False)
    assert [one.worse for one in found] == [False] * 4
    assert str(found[-1]) == "listings are sorted: yes, not no"
    assert contradictions(ProbeFacts(), aws, sorted_listing=True) == ()
