"""Uploads that stop half-way, and hints that are gone: what is named is there, and what is there is found."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from flows.machines import REMOTE, RUN, Machine, Place, payload
from support.commits import tree
from support.faults import Action as ProxyAction
from support.faults import Fault as ProxyFault
from support.proxy import FaultProxy

from replicate.errors import ExitCode, IntegrityFailure
from replicate.restore import Outcome
from tiers.bodies import Body, BytesBody
from tiers.clock import SystemClock
from tiers.errors import TierUnavailable
from tiers.metered import Usage
from tiers.protocol import Key, ObjectInfo, Tier
from tiers.testing.faulty import Fault, FaultyTier
from tiers.testing.passthrough import PassThroughTier

Make = Callable[..., Machine]
LIMIT = 30.0


class SlowPayload(PassThroughTier):
    """Holds the payload back until it is let go, and then says that the store is gone; all else is quick."""

    def __init__(self, inner: Tier, held: threading.Event, let_go: threading.Event) -> None:
        super().__init__(inner)
        self.held = held
        self.let_go = let_go

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Put small objects at once, and the payload never."""
        if key.endswith("model.bin"):
            self.held.set()
            assert self.let_go.wait(LIMIT)
            raise TierUnavailable("gone", tier=self.name, operation="put", key=key)
        return super().put(key, body)


def named_remotely(place: Place) -> str:
    """Return the text of everything that could make a reader believe in a generation: log, head, manifests."""
    with place.raw() as tier:
        texts = []
        for key in place.stored():
            if "/log/" in key or key.endswith(("head.json", "manifest.json")):
                with tier.open(Key(key)) as stream:
                    texts.append(stream.read().decode())
    return "\n".join(texts)


def test_c08_nothing_names_a_generation_whose_payload_is_not_there(any_place: Place, machine: Make) -> None:
    one = machine("one", any_place)
    (before,) = one.push(100)
    coming = one.publish(200)
    held, let_go = threading.Event(), threading.Event()
    any_place.hook = lambda tier: SlowPayload(tier, held, let_go)
    reports = []
    work = threading.Thread(target=lambda: reports.append(one.replicate()))
    work.start()
    try:
        assert held.wait(LIMIT)
        assert str(coming) not in named_remotely(any_place)
        any_place.hook = lambda tier: tier
        assert machine("two", any_place).restore().generation == before
    finally:
        let_go.set()
        work.join(LIMIT)
    assert reports[0].exit_code == ExitCode.UNREACHABLE
    assert str(coming) not in named_remotely(any_place)
    assert any_place.live() == [before]
    assert not one.engine.safe_to_terminate(()).safe
    assert one.replicate().exit_code == 0
    assert any_place.live() == [coming, before]


def test_c08_a_process_killed_while_the_payload_is_under_way(
    proxy: FaultProxy, bucket_place: Place, machine: Make
) -> None:
    """With SIGKILL, on a real store: payload PUT held for seconds, everything else at once."""
    one = machine("one", bucket_place)
    (before,) = one.push(100)
    coming = one.publish(200)
    settings = bucket_place.settings
    (one.folder / "ckptier.toml").write_text(
        f'run = "{RUN}"\nstore = "runs"\n[[tier]]\nname = "bucket"\nurl = "{settings.url}"\n'
        f'endpoint_url = "{proxy.endpoint_url}"\nprofile = "seaweedfs"\n'
    )
    proxy.inject(ProxyFault(operation="PutObject", key="*model.bin", action=ProxyAction.DELAY, seconds=20))
    command = [sys.executable, "-m", "ckptier_command", "replicate", "--once", "-c", str(one.folder / "ckptier.toml")]
    child = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        clock = SystemClock()
        deadline = clock.monotonic() + LIMIT
        while not proxy.fired and clock.monotonic() < deadline:
            clock.wait(0.02)
        assert proxy.fired
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(LIMIT)
    assert str(coming) not in named_remotely(bucket_place)
    assert bucket_place.live() == [before]
    two = machine("two", bucket_place)
    assert two.restore().generation == before
    assert one.replicate().exit_code in (ExitCode.OK, ExitCode.FENCED)


def test_c10_without_its_hint_the_log_is_listed_and_the_hint_comes_back(any_place: Place, machine: Make) -> None:
    made = machine("one", any_place).push(100, 200, 300)
    any_place.delete(REMOTE.head)
    two = machine("two", any_place)
    before = any_place.meter.snapshot()
    report = two.restore(if_absent=True, fresh_ok=True)
    asked: Usage = any_place.meter.snapshot() - before
    assert (report.outcome, report.generation) == (Outcome.RESTORE, made[-1])
    assert asked.count("list_objects") >= 1
    assert REMOTE.head not in any_place.stored(), "a reader writes nothing"
    two.push(320)
    assert REMOTE.head in any_place.stored()
    assert machine("three", any_place).restore().generation == any_place.live()[0]


def corrupt(place: Place, generation: object, name: str) -> None:
    """Replace an object's bytes by others of the same length."""
    (key,) = (key for key in place.stored() if f"/{generation}." in key and key.endswith(f"/{name}"))
    with place.raw() as tier:
        with tier.open(Key(key)) as stream:
            data = stream.read()
        tier.delete(Key(key))
        tier.put(Key(key), BytesBody(data[::-1]))


@pytest.mark.parametrize("hurt", ["nothing", "newest payload", "newest manifest", "head"])
def test_c11_an_older_generation_that_is_named_comes_from_its_own_manifest(
    any_place: Place, machine: Make, tmp_path: Path, hurt: str
) -> None:
    old, new = machine("one", any_place).push(100, 200)
    if hurt == "head":
        any_place.delete(REMOTE.head)
    elif hurt != "nothing":
        corrupt(any_place, new, "model.bin" if hurt == "newest payload" else "manifest.json")
    two = machine("two", any_place)
    report = two.restore(generation=old, to=tmp_path / "out")
    assert (report.generation, report.fell_back) == (old, False)
    assert {path: data for path, data in tree(tmp_path / "out").items() if data is not None} == payload(100)
    two.restore(generation=old)
    assert {path: data for path, data in tree(two.resumed().files).items() if data is not None} == payload(100)


def test_c11_nothing_else_is_put_in_the_place_of_a_named_one(any_place: Place, machine: Make, tmp_path: Path) -> None:
    old, _new = machine("one", any_place).push(100, 200)
    corrupt(any_place, old, "model.bin")
    two = machine("two", any_place)
    with pytest.raises(IntegrityFailure, match=str(old)):
        two.restore(generation=old)
    with pytest.raises(IntegrityFailure, match=str(old)):
        two.restore(generation=old, to=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert two.store.generations() == ()


def test_c45_empty_files_and_folders_go_there_and_back(any_place: Place, machine: Make) -> None:
    files = {"pkg/__init__.py": b"", "rank-00001.dat": b"", "rank-00000.dat": b"x", "deep/er/empty": b""}
    one = machine("one", any_place)
    mixed = one.publish(100, files, folders=("empty", "deep/nothing/at/all"))
    hollow = one.publish(200, {"only": b""})
    before = any_place.meter.snapshot()
    assert one.replicate().exit_code == 0
    assert (any_place.meter.snapshot() - before).count("begin_upload") == 0, "an upload in parts needs a part"
    for generation in (mixed, hollow):
        two = machine(f"two-{generation}", any_place)
        two.restore(generation=generation)
        assert tree(two.resumed().files) == tree(one.store.get(generation).files)
    assert "deep/nothing/at/all" in tree(one.store.get(mixed).files)


def test_c67_an_upload_that_is_tried_again_writes_the_same_keys(any_place: Place, machine: Make) -> None:
    """Interrupted before the manifest: nothing is nested, doubled or left behind."""
    one = machine("one", any_place)
    made = one.publish(100)
    faulty: list[FaultyTier] = []

    def broken(tier: Tier) -> Tier:
        faulty.append(FaultyTier(tier, [Fault(verb="put", key="*/manifest.json", times=9)]))
        return faulty[-1]

    any_place.hook = broken
    assert one.replicate().exit_code == ExitCode.UNREACHABLE
    faulty[-1].assert_all_fired()
    interrupted = {key for key in any_place.stored() if "/generations/" in key}
    any_place.hook = lambda tier: tier
    before = any_place.meter.snapshot()
    assert one.replicate().exit_code == 0
    again = any_place.meter.snapshot() - before
    after = {key for key in any_place.stored() if "/generations/" in key}
    (prefix,) = {key.partition("/files/")[0] for key in interrupted}
    assert prefix.startswith(f"{RUN}/generations/{made}.t1-")
    assert interrupted == {f"{prefix}/files/{path}" for path in payload(100)}
    assert after == interrupted | {f"{prefix}/manifest.json"}
    assert again.sent("put") < sum(map(len, payload(100).values())), "what is there is not sent again"
