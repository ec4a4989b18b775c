"""What a repo takes up, and what a probe finds out about its digests."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from support.hub import Action, Fault, Operation
from support.hub_tiers import PREFIX, REPO, HubSite, hub_site

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, TierUnavailable
from tiers.hub_usage import HISTORY_STAYS, HubUsage, refuses_wrong_bytes, usage
from tiers.protocol import Key
from tiers.testing import content


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home") as found:
        yield found


def test_c101_deleted_files_are_still_paid_for(site: HubSite) -> None:
    tier = site.open()
    for number in range(10):
        tier.put(Key(f"generation-{number}"), BytesBody(content(1_000, seed=number)))
    for number in range(8):
        tier.delete(Key(f"generation-{number}"))
    rules = len(site.repo.read("main", ".gitattributes"))
    found = usage(site.spec())
    assert found == HubUsage(
        used_bytes=10_000, visible_bytes=2_000 + rules, files=3, commits=1 + 10 + 8, all_commits=True
    )
    assert found.history_bytes == 8_000 - rules
    assert HISTORY_STAYS in found.warning
    assert f"{8_000 - rules} of 10000 bytes" in found.warning
    assert not [seen for seen in site.hub.writes if seen.operation in (Operation.SQUASH, Operation.DELETE_LFS_FILES)]
    site.api.super_squash_history(REPO, repo_type="dataset")
    site.repo.collect_garbage()
    after = usage(site.spec())
    assert (after.used_bytes, after.commits, after.warning) == (2_000, 1, "")


def test_a_long_history_is_counted_up_to_a_bound(site: HubSite) -> None:
    tier = site.open()
    for number in range(12):
        tier.put(Key(f"{number}"), BytesBody(b""))
    with mock.patch("tiers.hub_usage.COMMIT_PAGES", 2):
        found = usage(site.spec())
    assert (found.commits, found.all_commits) == (10, False)


def test_where_the_hub_does_not_say_what_it_bills() -> None:
    found = HubUsage(used_bytes=None, visible_bytes=5, files=1, commits=1, all_commits=True)
    assert (found.history_bytes, found.warning) == (None, "")


def test_it_fails_as_a_tier_does(site: HubSite) -> None:
    site.hub.inject(Fault(operation="tree", action=Action.STATUS, status=503))
    with pytest.raises(TierUnavailable):
        usage(site.spec())
    site.api.update_repo_settings(REPO, repo_type="dataset", private=False)
    for ask in (usage, refuses_wrong_bytes):
        with pytest.raises(AccessDenied, match="public"):
            ask(site.spec())


def test_a_probe_finds_that_wrong_bytes_are_refused(site: HubSite) -> None:
    assert refuses_wrong_bytes(site.spec()) is True
    assert not site.repo.objects


def test_a_probe_finds_that_nobody_looks(site: HubSite) -> None:
    """Some Hub that believes what it is told: the tier then reads back, as it does without a probe."""
    with mock.patch("support.hub.api_lfs._keep", lambda repo, oid, data: repo.store_object(oid, data)):
        assert refuses_wrong_bytes(site.spec()) is False
    (orphan,) = site.repo.objects.values()
    assert (orphan.path, len(orphan.content)) == (None, 1024), "no commit names it"


def test_a_probe_that_does_not_get_through_finds_nothing(site: HubSite) -> None:
    site.hub.inject(Fault(operation="lfs-put", action=Action.STATUS, status=503))
    with pytest.raises(TierUnavailable):
        refuses_wrong_bytes(site.spec())
    assert site.repo.files() == [".gitattributes"]
    assert PREFIX not in "".join(site.repo.files())
