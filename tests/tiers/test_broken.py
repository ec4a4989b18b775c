"""The suite is worth something only if it refuses what is broken: one broken tier a check."""

import pytest

from tiers.testing import PassThroughTier, broken

pytest_plugins = ["pytester"]

MODULE = """
import threading
import pytest
from tiers.memory import MemoryStore, MemoryTier
from tiers.testing import PassThroughTier, TierConformance, broken

class MeetingCreate(broken.LookThenPutCreate):
    everybody = threading.Barrier(TierConformance.racers, timeout=30)

    def between(self, key):
        if key.startswith("race/"):
            self.everybody.wait()

class TestBroken(TierConformance):
    @pytest.fixture
    def tier_factory(self):
        store = MemoryStore()
        return lambda: {wrong}(MemoryTier("broken", store, page_size=3))
"""

BROKEN = {
    broken.OverwritingCreate: "test_create_once",
    broken.ShortReadAsEof: "test_open_gives_every_promised_byte",
    broken.ClampedRange: "test_open_past_the_end_is_refused",
    broken.LostPage: "test_list_is_complete_over_pages",
    broken.UnorderedList: "test_list_is_in_byte_order",
    broken.FolderPrefix: "test_list_by_plain_prefix",
    broken.GreedyDelete: "test_delete_is_exact",
    broken.EmptyWhenMissing: "test_missing_keys",
    broken.SizeOnlyVerify: "test_put_of_wrong_bytes",
    broken.HoleyComplete: "test_complete_refuses_a_missing_part",
    broken.EarlyVisible: "test_unfinished_upload_is_invisible",
    broken.ForgetfulUploads: "test_abort_frees_and_repeats",
    broken.UncheckedCopy: "test_copy_part_of_a_changed_source_is_refused",
    broken.UncheckedWholeCopy: "test_copy_of_a_changed_source_is_refused",
    broken.CarriedDigest: "test_copy_attests_only_its_own_bytes",
}


def failures(pytester: pytest.Pytester, wrong: str) -> set[str]:
    """Return the checks that refuse the tier, by name; all others passed."""
    pytester.makepyfile(MODULE.format(wrong=wrong))
    run = pytester.inline_run("-p", "no:cacheprovider", "--tb=no", "-q")
    passed, skipped, failed = run.listoutcomes()
    assert not skipped
    assert len(passed) > 20
    return {report.nodeid.rpartition("::")[2].partition("[")[0] for report in failed}


def test_every_broken_tier_is_in_the_table() -> None:
    """A broken tier without its check would prove nothing."""
    defined = {
        cls
        for cls in vars(broken).values()
        if isinstance(cls, type) and issubclass(cls, PassThroughTier) and cls is not PassThroughTier
    }
    assert defined == {*BROKEN, broken.LookThenPutCreate}


@pytest.mark.parametrize("wrong", BROKEN, ids=lambda cls: cls.__name__)
def test_suite_refuses(pytester: pytest.Pytester, wrong: type[PassThroughTier]) -> None:
    check = BROKEN[wrong]
    assert check in (wrong.__doc__ or "")
    assert check in failures(pytester, f"broken.{wrong.__name__}")


def test_suite_refuses_a_create_that_looks_first(pytester: pytest.Pytester) -> None:
    """Only the race tells it from a right one, so only that check fails."""
    assert failures(pytester, "MeetingCreate") == {"test_create_has_one_winner"}


def test_suite_accepts_what_is_right(pytester: pytest.Pytester) -> None:
    """The same harness around a tier that is not broken finds nothing."""
    assert failures(pytester, "PassThroughTier") == set()
