"""A run on the Hub: published, replicated, killed, resumed, restored, and what that costs in commits."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flows.machines import REMOTE, RUN, Machine, Place, payload
from support.hub import Action, Fault, Operation, When
from support.hub_tiers import PREFIX, REPO, HubSite, hub_site

from replicate.config import TierConfig
from replicate.errors import ExitCode
from replicate.restore import Outcome
from tiers.clock import SystemClock

LIMIT = 60.0
Make = Callable[..., Machine]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home") as found:
        yield found


@pytest.fixture
def place(site: HubSite) -> Place:
    """Reach the repo one request at a time, so that commits can be counted."""
    url = f"hf://datasets/{REPO}/{PREFIX}"
    return Place(TierConfig(name="hub", url=url, endpoint_url=site.hub.url, connections=1))


@pytest.fixture
def machine(tmp_path: Path) -> Make:
    def make(name: str, *places: Place) -> Machine:
        folder = tmp_path / name
        folder.mkdir()
        return Machine(folder, places)

    return make


def updates(place: Place) -> list[int]:
    return [one.next_update for one in place.live()]


def test_a_generation_comes_back_on_another_machine(site: HubSite, place: Place, machine: Make) -> None:
    one = machine("one", place)
    made = one.push(100, 200)
    two = machine("two", place)
    report = two.restore()
    assert (report.outcome, report.generation) == (Outcome.RESTORE, made[-1])
    files = two.resumed().files
    assert {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()} == payload(
        200
    )
    stored = [path for path in site.repo.files() if path.endswith("/files/optim/state.bin")]
    assert len(stored) == 2, "the tree on the Hub is the trainer's own, for any tool to read"


def test_what_a_generation_costs_with_one_connection(site: HubSite, place: Place, machine: Make) -> None:
    """N files take N + 2 commits; a process adds one for the hint, and the run's first one for the claim."""
    one = machine("one", place)
    files = len(payload(100))
    before = site.commits()
    one.push(100)
    assert site.commits() - before == files + 2 + 1 + 1
    before = site.commits()
    site.hub.forget_requests()
    one.push(200, 300)
    writes = 2 * (files + 2) + 1
    assert site.commits() - before == writes
    counts = Counter(site.hub.operations())
    reads = counts.pop(Operation.GET_FILE)
    assert counts.pop(Operation.LFS_GET) == reads - 2, "what is not there: the slot after the last, the second time too"
    assert counts == {
        Operation.LFS_BATCH: writes,
        Operation.LFS_PUT: writes,
        Operation.LFS_VERIFY: writes,
        Operation.COMMIT: writes,
        Operation.PATHS_INFO: 2 * writes,
        Operation.REPO_INFO: writes + 1,  # and the first look of the process
    }


def test_connections_share_commits(site: HubSite, place: Place, machine: Make) -> None:
    place.settings = place.settings.model_copy(update={"connections": 8})
    one = machine("one", place)
    one.push(100)
    many = {f"shard-{number}.bin": bytes([number]) * 50 for number in range(24)}
    one.publish(200, many)
    before = site.commits()
    assert one.replicate().exit_code == 0
    assert 3 + 2 <= site.commits() - before <= 14, "24 files, 8 at a time, and the manifest and the entry"
    assert machine("two", place).restore().generation == place.live()[0]


def test_nothing_new_commits_nothing(site: HubSite, place: Place, machine: Make) -> None:
    one = machine("one", place)
    one.push(100)
    before = site.commits()
    assert one.replicate().exit_code == 0
    assert machine("two", place).restore().outcome is Outcome.RESTORE
    assert site.commits() == before


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_lost_reply_of_any_commit_loses_and_doubles_nothing(
    site: HubSite, place: Place, machine: Make, lost: int
) -> None:
    one = machine("one", place)
    (first,) = one.push(100)
    second = one.publish(200)
    fault = Fault(operation="commit", action=Action.DROP, when=When.AFTER, nth=lost)
    before = site.commits()
    site.hub.inject(fault)
    assert one.replicate().exit_code == 0
    assert [fired.fault for fired in site.hub.fired] == [fault]
    assert site.commits() - before == len(payload(200)) + 3, "no commit was made twice"
    assert place.live() == [second, first]
    assert machine("two", place).restore().generation == second


def test_a_killed_process_resumes(site: HubSite, place: Place, machine: Make) -> None:
    """With SIGKILL, while the last file's bytes are under way."""
    one = machine("one", place)
    (before,) = one.push(100)
    coming = one.publish(200)
    (one.folder / "ckptier.toml").write_text(
        f'run = "{RUN}"\nstore = "runs"\n[[tier]]\nname = "hub"\nurl = "{place.settings.url}"\n'
        f'endpoint_url = "{site.hub.url}"\nconnections = 1\n'
    )
    sent = len(payload(200)) - 1
    site.hub.forget_requests()
    site.hub.inject(Fault(operation="lfs-put", action=Action.DELAY, nth=sent + 1, seconds=20))
    command = [sys.executable, "-m", "ckptier_command", "replicate", "--once", "-c", str(one.folder / "ckptier.toml")]
    environment = {**os.environ, "HF_HOME": str(one.folder / "hf-home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    told = one.folder / "child.txt"
    with told.open("wb") as output:
        child = subprocess.Popen(command, env=environment, stderr=output, stdout=output)
    try:
        clock = SystemClock()
        deadline = clock.monotonic() + LIMIT
        while not site.hub.fired and child.poll() is None and clock.monotonic() < deadline:
            clock.wait(0.02)
        assert site.hub.fired, told.read_text()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(LIMIT)
    assert not list((one.folder / "hf-home").rglob("*")), "nothing of the Hub lies on this disk"
    assert place.live() == [before]
    assert machine("two", place).restore().generation == before
    site.hub.forget_requests()
    three = one.replicate()
    # machine two opened a new attempt, which only its own publish would claim
    assert three.exit_code == ExitCode.OK
    assert place.live() == [coming, before]
    sizes = [seen.received for seen in site.hub.requests if seen.operation is Operation.LFS_PUT]
    assert len(sizes) <= 3 + 1, "what was committed before is not sent again"
    assert machine("four", place).restore().generation == coming


def test_two_writers_one_is_told(site: HubSite, place: Place, machine: Make) -> None:
    one = machine("one", place)
    (common,) = one.push(100)
    two = machine("two", place)
    two.restore()
    one.publish(200)
    two.publish(210)
    results: dict[str, ExitCode] = {}
    barrier = threading.Barrier(2, timeout=LIMIT)

    def go(name: str, each: Machine) -> None:
        barrier.wait()
        results[name] = each.replicate().exit_code

    threads = [threading.Thread(target=go, args=pair) for pair in (("one", one), ("two", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert results["two"] == ExitCode.OK, "it opened the newer attempt, and claims it"
    assert 210 in updates(place)
    one.publish(220)
    assert one.replicate().exit_code == ExitCode.FENCED, "the older attempt is told, and stays out"
    assert 220 not in updates(place)
    restored = machine("three", place).restore().generation
    assert restored is not None
    assert restored.next_update == 210
    assert common in place.live()


def test_bytes_that_arrive_wrong_are_never_committed(site: HubSite, place: Place, machine: Make) -> None:
    """Flipped on the way up: refused by the storage. Flipped in the storage: found by reading back."""
    one = machine("one", place)
    one.push(100)
    second = one.publish(200)
    site.hub.inject(Fault(operation="lfs-put", action=Action.CORRUPT, when=When.MID_BODY))
    stored = f"*/{hashlib.sha256(payload(200)['model.bin']).hexdigest()}"
    site.hub.inject(Fault(operation="lfs-get", key=stored, action=Action.CORRUPT, when=When.MID_BODY))
    assert one.replicate().exit_code == 0
    assert len(site.hub.fired) == 2
    assert place.live()[0] == second
    assert machine("two", place).restore().generation == second


def test_a_restore_notices_every_damage(site: HubSite, place: Place, machine: Make) -> None:
    one = machine("one", place)
    first, second = one.push(100, 200)
    (path,) = (p for p in site.repo.files() if str(second) in p and p.endswith("model.bin"))
    site.hub.inject(Fault(operation="lfs-get", key=_object(site, path), action=Action.CORRUPT, when=When.MID_BODY))
    assert machine("two", place).restore().generation in (first, second), "asked once more, or the one before"
    assert site.hub.fired
    site.hub.inject(Fault(operation="lfs-get", key=_object(site, path), action=Action.TRUNCATE, when=When.MID_BODY))
    assert machine("three", place).restore().generation == second, "the rest was asked for"
    assert len(site.hub.fired) == 2
    site.repo.delete_objects([_object(site, path).rpartition("/")[2]], rewrite_history=False)
    report = machine("four", place).restore(accept_older=True)
    assert report.generation == first, "bytes that are gone are not a generation"


def _object(site: HubSite, path: str) -> str:
    file = site.repo.resolve("main").tree[path]
    return f"*/{file.sha256}"  # type: ignore[union-attr]


def test_a_repo_that_becomes_public_gets_no_more_commits(site: HubSite, place: Place, machine: Make) -> None:
    one = machine("one", place)
    (first,) = one.push(100)
    one.publish(200)
    before = site.commits()
    site.api.update_repo_settings(REPO, repo_type="dataset", private=False)
    assert one.replicate().exit_code == ExitCode.DENIED
    assert site.commits() == before
    site.api.update_repo_settings(REPO, repo_type="dataset", private=True)
    assert one.replicate().exit_code == 0
    assert updates(place) == [200, first.next_update]
    assert REMOTE.head in place.stored()
