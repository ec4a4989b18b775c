"""kill -9 around every request and every transaction of a replication to a real S3 server, counted by a proxy."""

import itertools
import shutil
from pathlib import Path

import pytest
from crash.stage import BIG, PART, RUN, Case, check_nothing_rewritten, clone, look, noise, publish, tier_digests
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Zygote
from support.proxy import Action, Fault, FaultProxy, When
from support.s3_tiers import s3_tier
from support.seaweed import BUCKET, SeaweedServer

from replicate import RunStore

KINDS = ["remote", "transaction"]
MINIMUM = {"remote": 15, "transaction": 9}  # the objects of a generation are journalled together
"""Effects of one undisturbed replication; see check_points for how to raise them."""
SMALL = 4000
WHOLE = BIG + SMALL
SIZES = {PART, BIG - 2 * PART, SMALL}
"""What one request of this generation can carry."""
_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def one_big(memory: Path) -> Case:
    """Return a store with one generation that goes up in parts."""
    case = Case(memory / "one-big")
    publish(RunStore(case.root, run=RUN, hash_workers=1), 100, {"model.bin": noise(4, BIG), "small": noise(5, SMALL)})
    return case


def machine(base: Case, folder: Path, proxy: FaultProxy) -> tuple[Case, str]:
    """Return a copy of the run whose tier is a prefix that nobody else has, behind the proxy."""
    case = clone(base, folder)
    prefix = f"crash{next(_prefixes):05d}"
    case.configure(f"s3://{BUCKET}/{prefix}", endpoint_url=proxy.endpoint_url, profile="seaweedfs")
    return case, prefix


def data_received(proxy: FaultProxy, prefix: str) -> int:
    """Return the bytes of files that went through the proxy."""
    return sum(
        size
        for (operation, key), size in proxy.received.items()
        if operation in ("PutObject", "UploadPart") and key.startswith(f"{prefix}/") and "/files/" in key
    )


@SOME
def test_a_replication_to_s3_killed_at_any_request_is_finished_by_the_next(
    one_big: Case, scratch: Path, seaweed: SeaweedServer, first: Zygote, second: Zygote, step: int
) -> None:
    """Promises 1, 2, 3 and 9 on a server that is not ours: after the kill at most one part goes up again."""
    with FaultProxy(seaweed.port) as one, FaultProxy(seaweed.port) as two:
        proxies = {first: one, second: two}
        calm, prefix = machine(one_big, scratch / "calm", one)
        undisturbed = first.run("replicate", calm.journal, config=str(calm.config), kinds=KINDS)
        points = check_points(undisturbed, MINIMUM)
        assert one.counts["UploadPart"] == 3
        assert data_received(one, prefix) == WHOLE
        again: list[int] = []

        def kill_at(zygote: Zygote, number: int) -> None:
            proxy = proxies[zygote]
            case, prefix = machine(one_big, scratch / str(number), proxy)
            reader = s3_tier(seaweed.endpoint_url, prefix)
            killed = zygote.run("replicate", case.journal, config=str(case.config), kinds=KINDS, kill_at=number)
            assert killed.killed
            before = look(reader, tier_digests(reader))
            assert case.completed().items() <= before.live.items(), killed.last
            result = zygote.finish("replicate", case.journal, config=str(case.config))
            assert (result["exit_code"], result["failures"]) == (0, []), killed.last
            after = look(reader, tier_digests(reader))
            assert case.completed() == after.live
            assert len(after.live) == 1
            assert after.slots <= 3
            check_nothing_rewritten(before, after)
            repeated = data_received(proxy, prefix) - WHOLE
            assert repeated in {0, *SIZES}, f"{repeated} bytes were sent again after {killed.last}"
            again.append(repeated)
            reader.close()
            shutil.rmtree(case.folder)

        sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))
        assert len(again) == points // step
        # Each of the three parts at most twice: killed after the server took it, or before the journal was told.
        assert sum(map(bool, again)) <= 2 * 3
        assert sum(again) <= 2 * BIG


WRITES = [
    ("CreateMultipartUpload", "*/files/model.bin", 1, 0),
    ("UploadPart", "*/files/model.bin", 1, PART),
    ("UploadPart", "*/files/model.bin", 2, PART),
    ("UploadPart", "*/files/model.bin", 3, BIG - 2 * PART),
    ("CompleteMultipartUpload", "*/files/model.bin", 1, 0),
    ("PutObject", "*/files/small", 1, SMALL),
    ("PutObject", "*/manifest.json", 1, 0),
    ("PutObject", "*/log/000000000000.json", 1, 0),
    ("PutObject", "*/log/000000000001.json", 1, 0),
    ("PutObject", "*/head.json", 1, 0),
]
"""Operation, key, which request of it loses its reply, and the bytes of files that go up once more."""


@pytest.mark.parametrize(
    ("operation", "key", "nth", "again"),
    WRITES,
    ids=[f"{operation}-{nth}-{key[2:]}" for operation, key, nth, _ in WRITES],
)
def test_a_reply_that_was_lost_costs_at_most_that_request(
    operation: str, key: str, nth: int, again: int, one_big: Case, scratch: Path, proxy: FaultProxy, first: Zygote
) -> None:
    """The server did what it was asked and the connection died: committed exactly once, in the same process."""
    case, prefix = machine(one_big, scratch / "case", proxy)
    proxy.inject(Fault(operation=operation, key=key, nth=nth, when=When.AFTER, action=Action.DROP))
    result = first.finish("replicate", case.journal, config=str(case.config))
    assert len(proxy.fired) == 1
    assert (result["exit_code"], result["failures"]) == (0, [])
    reader = s3_tier(f"http://127.0.0.1:{proxy.upstream_port}", prefix)
    seen = look(reader, tier_digests(reader))
    reader.close()
    assert list(seen.live) == result["committed"]
    assert case.completed() == seen.live
    assert seen.slots == 2
    assert data_received(proxy, prefix) - WHOLE == again
