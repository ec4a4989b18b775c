"""The raw sink: enough of S3 for ckptier's own tier, and nothing kept of what it drops."""

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.sidebyside.servers import CREDENTIALS, Sink
from benchmarks.sidebyside.sink import listen, run
from benchmarks.sidebyside.sinkstore import Store
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import ObjectExists, ObjectNotFound, TierError
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Tier, all_parts

PART = 5 << 20
BULK = Key("run/generations/g/files/bulk.bin")
LOG = Key("run/log/000000000001.json")


@dataclass(frozen=True, slots=True)
class Stage:
    tier: Tier
    store: Store
    bulk: bytes


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("sources")
    bulk = os.urandom(PART + 1000)
    (folder / "bulk.bin").write_bytes(bulk)
    listener, store = listen()
    store.read_from(Path(folder))
    thread = threading.Thread(target=run, args=(listener, store), daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        spec = TierSpec(name="sink", url="s3://bench-bucket/place", endpoint_url=url, profile="seaweedfs")
        tier = open_tier(spec, clock=SystemClock())
        yield Stage(tier, store, bulk)
        tier.close()
    listener.close()


def body(data: bytes) -> BytesBody:
    return BytesBody(data)


def test_a_small_object_is_kept_whole_and_created_once(stage: Stage) -> None:
    entry = b'{"slot": 1}'
    info = stage.tier.create(LOG, entry)
    assert info.size == len(entry)
    with stage.tier.open(LOG) as stream:
        assert stream.read() == entry
    with pytest.raises(ObjectExists):
        stage.tier.create(LOG, b"another")
    assert stage.store.counters.last_log_put is not None


def test_a_data_object_is_dropped_and_read_from_its_source(stage: Stage) -> None:
    stage.store.reset()
    stage.tier.put(BULK, body(stage.bulk))
    assert stage.store.objects[f"place/{BULK}"].data is None
    assert stage.store.counters.bytes_up == len(stage.bulk)
    with stage.tier.open(BULK, 1000, 50_000) as stream:
        assert stream.read() == stage.bulk[1000:51_000]
    with stage.tier.open(BULK) as stream:
        assert stream.read() == stage.bulk
    assert stage.tier.stat(BULK).size == len(stage.bulk)
    assert stage.store.counters.first_body is not None
    assert stage.store.counters.first_sent is not None
    assert stage.store.counters.first_body < stage.store.counters.first_sent


def test_parts_make_an_object_with_the_composite_of_what_was_claimed(stage: Stage) -> None:
    pieces = [stage.bulk[:PART], stage.bulk[PART:]]
    upload = stage.tier.begin_upload(BULK, size=len(stage.bulk), part_size=PART)
    parts = [stage.tier.put_part(upload, number, body(piece)) for number, piece in enumerate(pieces, 1)]
    listed = list(all_parts(stage.tier, upload))
    assert [(part.number, part.size) for part in listed] == [(1, PART), (2, 1000)]
    info = stage.tier.complete(upload, parts)
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    assert info.sha256 == hashlib.sha256(digests).hexdigest()
    assert stage.tier.stat(BULK).sha256 == info.sha256
    with pytest.raises(ObjectNotFound):
        stage.tier.list_parts(upload)


def test_an_upload_can_be_given_up(stage: Stage) -> None:
    upload = stage.tier.begin_upload(BULK, size=PART, part_size=PART)
    stage.tier.abort(upload)
    with pytest.raises(ObjectNotFound):
        stage.tier.put_part(upload, 1, body(stage.bulk[:PART]))


def test_listings_are_sorted_and_deleted_objects_gone(stage: Stage) -> None:
    keys = [Key(f"listed/{number:04d}.json") for number in range(1100)]
    for number, key in enumerate(keys):
        stage.store.create(f"place/{key}", stage.store.objects[f"place/{LOG}"], only_if_absent=False)
        assert number < len(keys)
    page = stage.tier.list_objects("listed/")
    found = [info.key for info in page.objects]
    while page.next_token is not None:
        page = stage.tier.list_objects("listed/", page.next_token)
        found += [info.key for info in page.objects]
    assert found == keys
    stage.tier.delete(keys[0])
    with pytest.raises(ObjectNotFound):
        stage.tier.stat(keys[0])


def test_what_it_does_not_know_it_says_and_counts(stage: Stage) -> None:
    stage.store.reset()
    source = stage.tier.put(BULK, body(stage.bulk))
    upload = stage.tier.begin_upload(BULK, size=PART, part_size=PART)
    with pytest.raises(TierError):
        stage.tier.copy_part(upload, 1, source, 0, PART)
    assert stage.store.counters.unknown >= 1


def test_a_server_ends_with_whoever_started_it() -> None:
    """A run that is killed leaves none behind: its end of the pipe closes with it."""
    with Sink() as sink:
        process = sink._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def test_missing_objects_are_missing(stage: Stage) -> None:
    with pytest.raises(ObjectNotFound):
        stage.tier.open(Key("nothing.json"))
