"""What must hold on every disk that a power cut may leave: recovering, then the promises made before, then going on."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crash.stage import RUN, Seen, look, volume_digests
from crash.store import check_whole
from durability.promises import completed_rows
from durability.world import configure, content, files_of

from replicate import RunStore, canonical
from replicate.config import load_config
from replicate.copyplan import CopyRequest
from replicate.engine import Replicator
from replicate.generation.evidence import Level
from replicate.pruning import Pruning
from replicate.restore import RestoreOptions, RestoreRequest
from tiers.bodies import BytesBody
from tiers.errors import ObjectNotFound
from tiers.protocol import Key, Tier, Upload, UploadId, all_parts, walk
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

Said = Sequence[dict[str, Any]]
NEXT = 9
"""The update that is published after recovery."""


def heard(said: Sequence[str]) -> list[dict[str, Any]]:
    """Return what was said, without what was before the scenario itself."""
    lines = [json.loads(text) for text in said]
    settled = [number for number, line in enumerate(lines) if "settled" in line]
    return lines[settled[-1] :] if settled else lines


def acknowledged(said: Said, kind: str) -> list[dict[str, Any]]:
    return [line for line in said if line.get("ack") == kind]


def keep_identities(root: Path) -> None:
    """Let files be the inodes that sealing saw, as on a disk that was only restarted: else all is hashed again."""
    for path in (root / "evidence").glob("*.json"):
        if path.name.startswith("."):
            continue
        document = json.loads(path.read_bytes())
        files = root / "generations" / path.stem / "files"
        for name, identity in document.get("identities", {}).items():
            if (files / name).is_file():
                status = (files / name).stat()
                identity |= {"mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
        path.write_bytes(canonical.dump(document) + b"\n")


def contents(files: Path) -> dict[str, bytes]:
    return {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()}


def check_store(folder: Path, said: Said) -> RunStore:
    """Resume, and check what was published; then publish the next one."""
    root = folder / "runs" / RUN
    keep_identities(root)
    store = RunStore(root, run=RUN, hash_workers=1)
    removing = {line["removing"] for line in said if "removing" in line}
    removed = {line["generation"] for line in acknowledged(said, "removed")}
    published = {line["generation"]: line["update"] for line in acknowledged(said, "published")}
    newest = max(
        [line["update"] for line in (*acknowledged(said, "published"), *acknowledged(said, "staged"))], default=0
    )
    resumed = store.resume_or_none()
    assert (resumed.id.next_update if resumed else 0) >= newest, "something older is resumed than was promised"
    check_whole(root)
    present = {str(one.id): one for one in store.generations()}
    for generation, update in published.items():
        if generation in present:
            assert contents(present[generation].files) == files_of(update)
        else:
            assert generation in removing, f"{generation} was published and is gone"
    assert not removed & present.keys(), "what was removed is back"
    bad = {one.id.next_update for one in present.values() if one.level is Level.QUARANTINED}
    allowed = {2} if any("ack" in line and line["ack"] == "removed" for line in said) else set()
    assert {line["update"] for line in acknowledged(said, "quarantined")} <= bad <= allowed, (
        "half a generation was found"
    )
    _publish_next(store)
    return store


def _publish_next(store: RunStore) -> None:
    with store.publish(next_update=NEXT) as directory:
        (directory / "state").write_bytes(b"next")
    assert store.resume().id.next_update == NEXT
    left = [path.name for path in store.local.root.iterdir() if path.name.startswith((".incoming", ".staged", ".tmp"))]
    assert left == [], "leftovers"
    sequences = [one.id.sequence for one in store.generations()]
    assert len(set(sequences)) == len(sequences)


def sealing(folder: Path, said: Said) -> None:
    """Judge a store by itself."""
    check_store(folder, said)


def check_tier(folder: Path, name: str, tier: str, said: Said) -> Seen:
    """Check a volume against what was said, and the tracker against the volume."""
    volume = folder / name
    seen = look(VolumeTier("reader", volume), volume_digests(volume))
    for line in acknowledged(said, "replicated"):
        if line["tier"] == tier:
            assert seen.live.get(line["generation"]) == line["slot"], f"{line['generation']} was replicated and is gone"
    return seen


def completed(folder: Path, tier: str) -> dict[str, int]:
    """Return what the tracker has, from a copy."""
    source, copy = folder / "runs" / RUN / "tracker.sqlite", folder / "peek.sqlite"
    if not source.exists():
        return {}
    for suffix in ("", "-wal", "-journal"):
        side = Path(f"{source}{suffix}")
        if side.exists():
            Path(f"{copy}{suffix}").write_bytes(side.read_bytes())
    return {generation: slot for name, generation, slot in completed_rows(str(copy)) if name == tier}


def replicating(mode: str) -> Callable[[Path, Said], None]:
    """Return the check of a volume in one mode: the promises, then the work goes on, then a restore is exact."""

    def check(folder: Path, said: Said) -> None:
        configure(folder, {"v": mode})
        before = check_tier(folder, "volume", "v", said)
        assert completed(folder, "v").items() <= before.live.items(), "the tracker is ahead of the log"
        keep_identities(folder / "runs" / RUN)
        engine = Replicator(load_config(folder / "ckptier.toml"))
        report = engine.replicate_once()
        assert report.exit_code == 0, [one.failure for one in report.results]
        after = look(VolumeTier("reader", folder / "volume"), volume_digests(folder / "volume"))
        assert len(after.live) == 2
        assert completed(folder, "v") == after.live
        assert before.keys.items() <= after.keys.items(), "what was there has changed"
        engine.restore(RestoreRequest(to=folder / "again"), options=RestoreOptions(workers=1, free_space=_plenty))
        assert contents(folder / "again") == files_of(2)

    return check


def _plenty(_path: Path) -> int:
    return 1 << 40


def verbs(mode: VolumeMode) -> Callable[[Path, Said], None]:
    """Return the check of a volume's verbs by themselves."""

    def check(folder: Path, said: Said) -> None:
        tier = VolumeTier("v", folder / "volume", mode=mode)
        due = {"a/one": content(1), "log/1": content(2), "b/parts": content(3), "c/copy": content(3)}
        found = {str(info.key): _read(tier, info.key) for info in walk(tier, "")}
        assert found.items() <= due.items(), "half an object is there"
        deleting = {line["deleting"] for line in said if "deleting" in line}
        deleted = {line["key"] for line in acknowledged(said, "deleted")}
        assert not deleted & found.keys(), "what was deleted is back"
        promised = {line["key"] for line in acknowledged(said, "put")} - deleting
        assert promised <= found.keys(), "what was stored is gone"
        _finish_upload(tier, said, found)
        for key, data in due.items():
            tier.put(Key(key), BytesBody(data))
            assert _read(tier, Key(key)) == data

    return check


def _read(tier: Tier, key: Key) -> bytes:
    with tier.open(key) as stream:
        return stream.read()


def _finish_upload(tier: Tier, said: Said, found: dict[str, bytes]) -> None:
    """Go on with an upload that was acknowledged: its parts are there, and the object is right."""
    begun = acknowledged(said, "begun")
    if not begun or "b/parts" in found:
        return
    data = content(3)
    half = len(data) // 2
    upload = Upload(key=Key("b/parts"), upload_id=UploadId(begun[0]["upload"]), size=len(data), part_size=half)
    try:
        held = {part.number: part for part in all_parts(tier, upload)}
    except ObjectNotFound:
        assert len(acknowledged(said, "part")) == 2, "the upload is gone"  # it was being completed
        return
    assert {line["number"] for line in acknowledged(said, "part")} <= held.keys(), "a part is gone"
    for number in {1, 2} - held.keys():
        held[number] = tier.put_part(upload, number, BytesBody(data[half * (number - 1) : half * number]))
    tier.complete(upload, [held[1], held[2]])
    assert _read(tier, Key("b/parts")) == data


def restoring(folder: Path, said: Said) -> None:
    """Judge restores: to a folder exact or absent, acknowledged or possible again; likewise into the store."""
    configure(folder, {"volume": "rename"})
    out = folder / "out"
    if out.exists():
        assert contents(out) == files_of(2), "half a restore is there"
    else:
        assert not acknowledged(said, "restored to"), "what was restored is gone"
        engine = Replicator(load_config(folder / "ckptier.toml"))
        engine.restore(RestoreRequest(to=out), options=RestoreOptions(workers=1, free_space=_plenty))
        assert contents(out) == files_of(2)
    mending(folder, said)


def mending(folder: Path, said: Said) -> None:
    """Judge a restore into the store: it is there and is gone on from; else it can be done again."""
    configure(folder, {"volume": "rename"})
    root = folder / "runs" / RUN
    keep_identities(root)
    store = RunStore(root, run=RUN, hash_workers=1)
    for line in acknowledged(said, "restored"):
        lineage, resumed = store.lineage(), store.resume()
        assert lineage is not None
        assert lineage.attempt >= line["attempt"]
        assert (str(resumed.id), contents(resumed.files)) == (line["generation"], files_of(2))
    engine = Replicator(load_config(folder / "ckptier.toml"))
    engine.restore(RestoreRequest(), options=RestoreOptions(workers=1, free_space=_plenty))
    assert contents(store.resume().files) == files_of(2)
    check_whole(root)
    _publish_next(store)


def copying(folder: Path, said: Said) -> None:
    """Judge a copy: what was copied is there, and the rest can be."""
    configure(folder, {"volume": "rename", "other": "rename"})
    before = check_tier(folder, "other", "other", said)
    assert completed(folder, "other").items() <= before.live.items(), "the tracker is ahead of the log"
    for line in acknowledged(said, "copied"):
        assert set(line["generations"]) <= before.live.keys()
    request = CopyRequest(source="volume", target="other", everything=True)
    Replicator(load_config(folder / "ckptier.toml")).copy(request)
    after = look(VolumeTier("reader", folder / "other"), volume_digests(folder / "other"))
    assert len(after.live) == 2
    assert before.keys.items() <= after.keys.items(), "what was there has changed"


def pruning(folder: Path, said: Said) -> None:
    """Judge pruning: what is live is whole, what was taken back stays so, and it comes to its end."""
    keep = {"keep_last": 1, "retire_delay_seconds": 0}
    configure(folder, {"volume": "rename"}, keep_last=1, tier=dict(keep))
    volume = folder / "volume"
    seen = look(VolumeTier("reader", volume), volume_digests(volume))
    assert seen.live, "the newest is gone"
    assert not {line["generation"] for line in acknowledged(said, "retired")} & seen.live.keys()
    for line in acknowledged(said, "swept"):
        assert not any(f"/{line['generation']}." in key for key in seen.keys), "what was deleted is back"
    root = folder / "runs" / RUN
    keep_identities(root)
    check_whole(root)
    report = Pruning(load_config(folder / "ckptier.toml")).prune(apply=True, most=True)
    assert [place.failure for place in report.places if place.failure] == []
    after = volume_digests(volume)
    assert {key.split("/")[2].split(".")[0] for key in after if "/generations/" in key} == seen.live.keys() & {
        max(seen.live)
    }
    _publish_next(RunStore(root, run=RUN, hash_workers=1))


CHECKS: dict[str, Callable[[Path, Said], None]] = {
    "sealing": sealing,
    "replicate-rename": replicating("rename"),
    "replicate-direct": replicating("direct"),
    "replicate-modal": replicating("modal"),
    "verbs-rename": verbs(VolumeMode.RENAME),
    "verbs-direct": verbs(VolumeMode.DIRECT),
    "restoring": restoring,
    "mending": mending,
    "copying": copying,
    "pruning": pruning,
}
