"""Changes and commits: how many are made, who wins, and what is done about a reply that never came."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from support.hub import Action, Fault, Operation, When
from support.hub_tiers import PREFIX, HubSite, RawHub, hub_site

from tiers.bodies import BytesBody
from tiers.errors import ObjectExists, TierUnavailable, Unsupported
from tiers.hub_commits import TRIES, Committer
from tiers.hub_errors import HubFailure
from tiers.hub_queue import Change, CommitQueue, Kind, Waiting
from tiers.hub_repo import HubRepo, Line
from tiers.hub_sdk import httpx2
from tiers.protocol import Key, ObjectInfo
from tiers.testing import content, read_all

STORE = [Operation.LFS_BATCH, Operation.LFS_PUT, Operation.LFS_VERIFY]
LOOK = [Operation.REPO_INFO, Operation.PATHS_INFO]
COMMIT = [Operation.COMMIT, Operation.PATHS_INFO]
LIMIT = 10.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home") as found:
        yield found


@pytest.fixture
def settled(site: HubSite) -> HubSite:
    """Have the rule in .gitattributes, so that only what a verb itself does is counted."""
    site.open().put(Key("before"), BytesBody(b"before"))
    site.hub.forget_requests()
    return site


def put(key: str) -> Change:
    """Return the putting of an empty object, which needs nothing sent."""
    return Change(kind=Kind.PUT, path=f"{PREFIX}/{key}")


def settle(batch: Sequence[Waiting]) -> None:
    """Commit everything, nowhere."""
    for each in batch:
        each.succeed(None)


def test_each_verb_asks_what_it_says(settled: HubSite) -> None:
    tier = settled.open()
    tier.stat(Key("before"))
    assert settled.hub.operations() == [Operation.REPO_INFO, Operation.PATHS_INFO], "the first look, and the question"
    for act, expected in (
        (lambda: tier.stat(Key("before")), [Operation.PATHS_INFO]),
        (lambda: tier.put(Key("a"), BytesBody(b"a")), [*STORE, *LOOK, Operation.GET_FILE, *COMMIT]),
        (lambda: tier.put(Key("b"), BytesBody(b"b")), [*STORE, *LOOK, *COMMIT]),
        (lambda: tier.put(Key("b2"), BytesBody(b"b")), [Operation.LFS_BATCH, *LOOK, *COMMIT]),
        (lambda: tier.create(Key("c"), b"c"), [*STORE, *LOOK, *COMMIT]),
        (lambda: tier.put(Key("empty"), BytesBody(b"")), [*LOOK, *COMMIT]),
        (lambda: read_all(tier.open(Key("a"))), [Operation.GET_FILE, Operation.LFS_GET]),
        (lambda: read_all(tier.open(Key("empty"))), [Operation.GET_FILE]),
        (lambda: tier.list_objects(""), [Operation.REPO_INFO, Operation.TREE]),
        (lambda: tier.delete(Key("c")), [*LOOK, *COMMIT]),
        (lambda: tier.delete(Key("c")), LOOK),
    ):
        settled.hub.forget_requests()
        act()
        assert settled.hub.operations() == expected


def test_a_repeated_put_makes_no_commit(settled: HubSite) -> None:
    tier = settled.open()
    first = tier.put(Key("a"), BytesBody(b"same"))
    before = settled.commits()
    assert tier.put(Key("a"), BytesBody(b"same")) == first
    assert settled.commits() == before
    tier.put(Key("a"), BytesBody(b"other"))
    assert settled.commits() == before + 1


def test_git_is_told_once_that_our_files_are_large(site: HubSite) -> None:
    before = site.repo.read("main", ".gitattributes")
    for number in range(2):
        site.open().put(Key(f"text-{number}.json"), BytesBody(b"{}"))
    after = site.repo.read("main", ".gitattributes")
    assert after == before + f"/{PREFIX}/** filter=lfs diff=lfs merge=lfs -text\n".encode()
    assert site.commits() == 3, "the first one, and one for each put"
    site.open("other").put(Key("a"), BytesBody(b"a"))
    assert site.repo.read("main", ".gitattributes").startswith(after)


def test_the_hubs_own_file_is_no_key(site: HubSite) -> None:
    tier = site.open("")
    tier.put(Key("run/a"), BytesBody(b"a"))
    assert [info.key for info in tier.list_objects("").objects] == ["run/a"]
    for key in (".gitattributes", "run/.git/config"):
        with pytest.raises(Unsupported, match="git does not take"):
            tier.put(Key(key), BytesBody(b"x"))


def test_what_waits_goes_in_one_commit() -> None:
    batches: list[list[str]] = []

    def commit(batch: Sequence[Waiting]) -> None:
        batches.append(sorted(each.change.path for each in batch))
        settle(batch)

    queue = CommitQueue(commit, linger=LIMIT)
    keys = [f"{number:02d}" for number in range(8)]
    with ThreadPoolExecutor(len(keys)) as pool:
        barrier = threading.Barrier(len(keys), timeout=LIMIT)

        def one(key: str) -> None:
            with queue.announced() as ticket:
                barrier.wait()
                ticket.submit(put(key))

        list(pool.map(one, keys))
    assert batches == [[f"{PREFIX}/{key}" for key in keys]]


def test_a_change_that_does_not_come_holds_nobody_up() -> None:
    queue = CommitQueue(settle, linger=LIMIT)
    with ThreadPoolExecutor(1) as pool:
        announced, failed = threading.Event(), threading.Event()

        def other() -> None:
            with queue.announced():
                announced.set()
                assert failed.wait(LIMIT)

        future = pool.submit(other)
        assert announced.wait(LIMIT)
        with queue.announced() as ticket:
            failed.set()
            ticket.submit(put("a"))
        future.result(LIMIT)


def test_one_path_is_never_twice_in_a_commit() -> None:
    batches: list[list[str]] = []

    def commit(batch: Sequence[Waiting]) -> None:
        batches.append([each.change.path for each in batch])
        settle(batch)

    queue = CommitQueue(commit, linger=LIMIT, most=3)
    with ThreadPoolExecutor(5) as pool:
        barrier = threading.Barrier(5, timeout=LIMIT)

        def one(key: str) -> None:
            with queue.announced() as ticket:
                barrier.wait()
                ticket.submit(put(key))

        list(pool.map(one, ["a", "a", "b", "c", "d"]))
    assert sorted(itertools.chain(*batches)) == [f"{PREFIX}/{key}" for key in "aabcd"]
    assert all(len(set(batch)) == len(batch) <= 3 for batch in batches)


def test_a_leader_that_is_interrupted_leaves_nobody_waiting() -> None:
    def commit(_batch: Sequence[Waiting]) -> None:
        raise KeyboardInterrupt

    queue = CommitQueue(commit, linger=0)
    with pytest.raises(KeyboardInterrupt), queue.announced() as ticket:
        ticket.submit(put("a"))
    queue = CommitQueue(settle, linger=0)
    with queue.announced() as ticket:
        assert ticket.submit(put("a")) is None


def between_look_and_commit(act: Sequence[object]) -> "mock._patch[object]":
    """Do something after a commit was decided on and before it is made, once for each of ``act``."""
    genuine = HubRepo.commit
    left = list(act)

    def commit(self: HubRepo, parent: str, lines: Sequence[Line], *, title: str, description: str) -> str:
        if left:
            left.pop(0)()  # type: ignore[operator]
        return genuine(self, parent, lines, title=title, description=description)

    return mock.patch.object(HubRepo, "commit", commit)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_head_that_moves_is_looked_at_again(settled: HubSite) -> None:
    raw = RawHub(settled)
    with between_look_and_commit([lambda: raw.put("theirs", content(9))] * 2):
        settled.open().put(Key("ours"), BytesBody(b"ours"))
    # Requests are noted at their ends, which may come after the answer has been read: order says nothing.
    seen = Counter(one.status for one in settled.hub.requests if one.operation is Operation.COMMIT)
    assert seen == {200: 2, 412: 1}, "theirs; ours, too late; ours again, since they only repeated themselves"
    assert raw.get("ours") == b"ours"
    assert raw.get("theirs") == content(9)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_create_is_decided_again_on_the_new_head(settled: HubSite) -> None:
    raw = RawHub(settled)
    with between_look_and_commit([lambda: raw.put("slot", content(9))]), pytest.raises(ObjectExists):
        settled.open().create(Key("slot"), b"ours")
    assert raw.get("slot") == content(9)


def test_a_head_that_never_rests_is_not_chased_for_ever(settled: HubSite) -> None:
    before = settled.commits()
    settled.hub.inject(*(Fault(operation="commit", action=Action.STATUS, status=412, nth=n + 1) for n in range(99)))
    with pytest.raises(TierUnavailable) as caught:
        settled.open().create(Key("slot"), b"ours")
    assert "somebody else commits" in caught.value.hint
    assert settled.asked(Operation.COMMIT) == TRIES
    assert settled.commits() == before


LOST = {
    "reset": {"action": Action.DROP},
    "closed": {"action": Action.TRUNCATE},
    "500": {"action": Action.STATUS, "status": 500},
    "504": {"action": Action.STATUS, "status": 504, "body": b"<html>Gateway Time-out</html>"},
    "web-page": {"action": Action.STATUS, "status": 200, "body": b"<html>Welcome</html>"},
}


@pytest.mark.parametrize("how", LOST.values(), ids=LOST)
def test_a_commit_whose_reply_was_lost_is_found_in_the_history(settled: HubSite, how: dict[str, object]) -> None:
    before = settled.commits()
    tier = settled.open()
    acts: tuple[Callable[[], ObjectInfo], ...] = (
        lambda: tier.put(Key("a"), BytesBody(b"a")),
        lambda: tier.create(Key("c"), b"c"),
    )
    for number, act in enumerate(acts):
        settled.hub.inject(Fault(operation="commit", when=When.AFTER, **how))  # type: ignore[arg-type]
        assert act().size == 1
        assert len(settled.hub.fired) == number + 1
        assert settled.commits() == before + number + 1
    with pytest.raises(ObjectExists):
        tier.create(Key("c"), b"c")


@pytest.mark.parametrize("how", LOST.values(), ids=LOST)
def test_a_commit_that_was_not_made_is_not_believed(settled: HubSite, how: dict[str, object]) -> None:
    tier = settled.open()
    before = settled.commits()
    settled.hub.inject(Fault(operation="commit", when=When.BEFORE, **how))  # type: ignore[arg-type]
    with pytest.raises(TierUnavailable) as caught:
        tier.create(Key("c"), b"c")
    assert "read the key" in caught.value.hint
    assert len(settled.hub.fired) == 1
    assert settled.commits() == before
    assert tier.create(Key("c"), b"c").size == 1


def test_where_the_history_does_not_answer_either_the_caller_reads(settled: HubSite) -> None:
    tier = settled.open()
    settled.hub.inject(Fault(operation="commit", action=Action.DROP, when=When.AFTER))
    settled.hub.inject(Fault(operation="commits", action=Action.STATUS, status=503))
    with pytest.raises(TierUnavailable):
        tier.create(Key("c"), b"c")
    assert len(settled.hub.fired) == 2
    assert read_all(tier.open(Key("c"))) == b"c"
    before = settled.commits()
    tier.put(Key("c"), BytesBody(b"c"))
    assert settled.commits() == before


def test_a_commit_that_comes_late_finds_the_head_moved(settled: HubSite) -> None:
    """The Hub may finish what it timed out: its parent then decides that nothing happens twice."""
    late: list[object] = []
    genuine = HubRepo.commit

    def timed_out(self: HubRepo, parent: str, lines: Sequence[Line], *, title: str, description: str) -> str:
        late.append(lambda: genuine(self, parent, lines, title=title, description=description))
        raise httpx2.ReadTimeout("no answer in time")

    tier = settled.open()
    with mock.patch.object(HubRepo, "commit", _failing_as_the_client_does(timed_out)), pytest.raises(TierUnavailable):
        tier.create(Key("c"), b"c")
    assert tier.create(Key("c"), b"d").size == 1, "the caller read, and decided again"
    with pytest.raises(HubFailure) as caught:
        late[0]()  # type: ignore[operator]
    assert caught.value.status == 412
    assert RawHub(settled).get("c") == b"d"


def _failing_as_the_client_does(act: object) -> object:
    from tiers.hub_errors import of_exception  # noqa: PLC0415 - the one use

    def commit(*args: object, **fields: object) -> object:
        try:
            return act(*args, **fields)  # type: ignore[operator]
        except httpx2.HTTPError as error:
            raise of_exception(error) from None

    return commit


def test_one_change_that_is_refused_fails_alone(settled: HubSite) -> None:
    repo = HubRepo(settled.open()._client)
    batch = [Waiting(put("good")), Waiting(put("before/below")), Waiting(put("also-good"))]
    Committer(repo).commit(batch)
    assert batch[0].result() is not None
    assert batch[2].result() is not None
    with pytest.raises(HubFailure) as caught:
        batch[1].result()
    assert caught.value.verdict.error is Unsupported


def test_a_key_that_is_a_folder_is_refused_with_a_reason(settled: HubSite) -> None:
    tier = settled.open()
    tier.put(Key("folder/a"), BytesBody(b"a"))
    before = settled.commits()
    acts: tuple[Callable[[], ObjectInfo], ...] = (
        lambda: tier.put(Key("folder"), BytesBody(b"x")),
        lambda: tier.create(Key("folder"), b"x"),
    )
    for act in acts:
        with pytest.raises(Unsupported, match="below this key"):
            act()
    tier.delete(Key("folder"))
    assert settled.commits() == before


def test_a_refused_commit_says_so_and_leaves_nothing(settled: HubSite) -> None:
    before = settled.repo.files()
    settled.hub.inject(Fault(operation="commit", action=Action.STATUS, status=400, body=b'{"error":"no"}'))
    with pytest.raises(Unsupported):
        settled.open().put(Key("a"), BytesBody(b"a"))
    assert settled.repo.files() == before
