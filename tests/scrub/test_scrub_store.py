"""The store: whatever happens to its documents and files, nothing wrong is resumed, and verify says what is hurt."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scrub.judge import notes, told, verified
from support.commits import RUN, flip

from replicate.config import Config, TierConfig
from replicate.engine import Replicator
from replicate.errors import CkptierError, ExitCode, IntegrityFailure
from replicate.generation.store import RunStore
from replicate.layout import GenerationId, LocalRun
from replicate.render.looking import render_explained, render_list, render_status
from replicate.render.verify import render_verified, verify_exit
from replicate.restore import RestoreRequest
from replicate.scrubbing import ScrubRequest
from replicate.verify import Share
from tiers.memory import MemoryTier
from tiers.testing.manual_clock import ManualClock


@pytest.fixture
def made(room: Path) -> list[GenerationId]:
    """Return two generations of a store, older first; a small file of them is the same in both."""
    store = RunStore(room / "runs" / RUN, hash_workers=1)
    found = []
    for update in (100, 200):
        with store.publish(next_update=update, contract={"config": "c" * 64}) as directory:
            (directory / "model.bin").write_bytes(bytes([update]) * 5000)
            (directory / "config.json").write_bytes(b'{"d": 64}')
    found = [one.id for one in reversed(store.generations())]
    assert len(found) == 2
    return found


def rot(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change bytes as a disk does that forgets: dates, size and inode stay where they can."""
    times = path.stat()
    with path.open("r+b") as file:
        data = change(file.read())
        file.seek(0)
        file.write(data)
        file.truncate()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def local(room: Path) -> LocalRun:
    return LocalRun(room / "runs" / RUN)


def folder(room: Path, one: GenerationId) -> Path:
    return local(room).generation(one)


CONTRACT = b'"config":"'
HURT: dict[str, tuple[Callable[[Path], object], str]] = {
    "model flipped": (lambda of: rot(of / "files/model.bin", flip(4000)), "model.bin: leaf 0"),
    "model cut": (lambda of: rot(of / "files/model.bin", lambda data: data[:-1]), "4999 bytes, sealed was 5000"),
    "model gone": (lambda of: (of / "files/model.bin").unlink(), "model.bin: is missing"),
    "stranger": (lambda of: (of / "files/core.7").write_bytes(b"x"), "core.7: does not belong there"),
    "files gone": (lambda of: shutil.rmtree(of / "files"), "cannot be read"),
    "record cut": (lambda of: rot(of / "generation.json", lambda data: data[:-9]), "generation.json is not valid JSON"),
    "record gone": (lambda of: (of / "generation.json").unlink(), "cannot be read"),
    "contract rewritten": (
        lambda of: rot(of / "generation.json", lambda data: data.replace(CONTRACT + b"c", CONTRACT + b"d")),
        "generation.json is not the one that was sealed",
    ),
}


@pytest.mark.parametrize("damage", HURT)
def test_a_hurt_generation_is_named_and_not_resumed(room: Path, made: list[GenerationId], damage: str) -> None:
    older, newer = made
    hurt, words = HURT[damage]
    hurt(folder(room, newer))
    found = verified([], room, tier="local")
    assert f"{newer} hurt" in told(found)
    assert words in told(found)
    assert found.reports[0].works == older
    assert verify_exit(found) is ExitCode.INTEGRITY
    assert RunStore(local(room).root).resume().id == older, "what verify found, resume knows"
    assert restored_into_folder(room) == older


def restored_into_folder(room: Path) -> GenerationId | None:
    report = _engine(room, []).restore(RestoreRequest(to=room / "out"))
    return report.generation


def test_a_restore_does_not_take_a_document_that_was_rewritten(room: Path, made: list[GenerationId]) -> None:
    """Its id says nothing of the contract: only the digest that sealing wrote down does."""
    HURT["contract rewritten"][0](folder(room, made[1]))
    assert restored_into_folder(room) == made[0]


def test_one_hurt_file_spoils_no_other_generation_that_has_it(room: Path, made: list[GenerationId]) -> None:
    """Both have the same config.json; that of the older one rots."""
    rot(folder(room, made[0]) / "files/config.json", flip(3))
    assert restored_into_folder(room) == made[1]


def test_what_is_left_of_a_store_is_no_fresh_start(room: Path, made: list[GenerationId]) -> None:
    for one in made:
        (folder(room, one) / "generation.json").unlink()
    with pytest.raises(IntegrityFailure, match="not a fresh start") as caught:
        _engine(room, []).restore(RestoreRequest(if_absent=True, fresh_ok=True))
    assert "ckptier verify --tier local" in caught.value.hint


DOCUMENTS: dict[str, tuple[Callable[[LocalRun], Path], str]] = {
    "LATEST": (lambda run: run.latest, "LATEST.json"),
    "evidence": (lambda run: next(run.evidence.glob("*-g000002-*.json")), "is checked"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("change", ["flip", "cut", "empty", "delete"])
def test_hints_and_evidence_are_noted_and_done_without(
    room: Path, made: list[GenerationId], name: str, change: str
) -> None:
    where, words = DOCUMENTS[name]
    path = where(local(room))
    if change == "delete":
        path.unlink()
    else:
        rot(path, {"flip": flip(1), "cut": lambda data: data[:-5], "empty": lambda _: b""}[change])
    found = verified([], room, tier="local")
    assert verify_exit(found) is ExitCode.OK, told(found)
    assert words in notes(found)
    assert found.reports[0].works == made[1]
    assert RunStore(local(room).root).resume().id == made[1]


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "delete"])
def test_without_its_lineage_a_store_is_refused_with_what_to_do(
    room: Path, made: list[GenerationId], change: str
) -> None:
    path = local(room).lineage
    if change == "delete":
        path.unlink()
    else:
        rot(path, {"flip": flip(1), "cut": lambda data: data[:-5], "empty": lambda _: b""}[change])
    found = verified([], room, tier="local")
    assert verify_exit(found) is ExitCode.INTEGRITY
    assert "lineage.json" in told(found)
    with pytest.raises(CkptierError) as caught:
        RunStore(local(room).root).resume()
    assert "ckptier restore" in caught.value.hint


def test_an_old_lineage_is_told(room: Path, made: list[GenerationId]) -> None:
    """A restore opened attempt 2 and training went on; then a backup of lineage.json was put back."""
    path = local(room).lineage
    before = path.read_bytes()
    _engine(room, []).restore(RestoreRequest())
    with RunStore(local(room).root, hash_workers=1).publish(next_update=300) as directory:
        (directory / "model.bin").write_bytes(b"x")
    assert verify_exit(verified([], room, tier="local")) is ExitCode.OK
    path.write_bytes(before)
    found = verified([], room, tier="local")
    assert "is of attempt 1, and generations of attempt 2 lie here" in told(found)


def _engine(room: Path, tiers: list[MemoryTier]) -> Replicator:
    config = Config(
        run=RUN,
        store="runs",
        tier=tuple(TierConfig(name=tier.name, url=f"memory://{tier.name}") for tier in tiers),
        source=room / "ckptier.toml",
    )
    opened = {tier.name: tier for tier in tiers}
    return Replicator(config, clock=ManualClock(), opener=lambda spec, *_: opened[spec.name])


def test_status_list_and_explain_know_of_a_copy_that_verify_found_hurt(room: Path, made: list[GenerationId]) -> None:
    older, newer = made
    tier = MemoryTier("a")
    engine = _engine(room, [tier])
    assert engine.replicate_once().exit_code is ExitCode.OK
    (key,) = (one for one in tier._store.objects if str(newer) in one and one.endswith("model.bin"))
    good = tier._store.objects.pop(key)
    found = engine.scrub(ScrubRequest(tier="a", share=Share()))
    assert f"{newer} HURT" in render_verified(found)
    assert "next: `ckptier repair --tier a`" not in render_verified(found), "nobody else was looked at"
    assert "next: `ckptier repair --tier a`" in render_verified(engine.scrub(ScrubRequest()))
    for asked in (False, True):
        run, view = engine.status(ask_tiers=asked)
        text = render_status(run, view, replicating=False, now=engine.clock.now(), asked=asked)
        assert f"HURT: the copy of {newer}" in text
        assert ("restart from update 100" in text) == asked
        assert "restart from update 200" not in text
    again = engine.scrub(ScrubRequest(tier="a"))
    assert again.reports[0].works == older, "it stays hurt until all of it was read"
    assert verify_exit(again) is ExitCode.INTEGRITY
    listed, _ = engine.list_generations()
    assert f"{newer}" in render_list(listed, {}).splitlines()[0]
    assert "a quarantined" in render_list(listed, {}).splitlines()[0]
    assert "found this copy hurt" in render_explained(engine.explain(newer))
    safety = engine.safe_to_terminate([])
    assert not safety.safe
    assert safety.restart_from == older
    assert "found its copy there hurt" in safety.risks[0].reason
    tier._store.objects[key] = good
    engine.scrub(ScrubRequest(share=Share()))
    assert engine.safe_to_terminate([]).safe, "a full read lifts it"
