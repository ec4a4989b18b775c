"""A stage for publications: everything real, from the prepared release to the log; only the clock is a test's."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from release.authorized_by_hand import PUBLISHER, START, Scene, policy_toml
from release.prepared_by_hand import prepare_by_hand

from replicate.release.authorizing import Authorization
from replicate.release.bundle import MANIFEST
from replicate.release.destination import Destination, Visibility
from replicate.release.history import EntryKind, LogEntry
from replicate.release.policy import parse_policy
from replicate.release.publishing.places import Payload, Place
from replicate.release.publishing.publishing import PublishReport, publish
from replicate.release.releaselog import ReleaseLog
from replicate.release.subject import observe
from tiers.bodies import Body
from tiers.effects import Effect, Moment, observing
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload
from tiers.testing import ManualClock
from tiers.testing.passthrough import PassThroughTier
from tiers.volume import VolumeTier

Hook = Callable[[], object]


def set_stage(folder: Path, destination: Destination) -> Scene:
    """Return a release prepared for a destination that the policy allows, and an empty log."""
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "log-store"
    store.mkdir()
    made = prepare_by_hand(folder / "prepared", destination=destination)
    visible = ["unmanaged"] if destination.visibility is Visibility.UNMANAGED else ["private", "public"]
    allowed = (
        f"[[destination]]\nurl = {destination.url!r}\nendpoint = {destination.endpoint!r}\nvisibility = {visible}\n"
    )
    text = policy_toml(store, destinations=allowed)
    (folder / "policy.toml").write_text(text)
    policy = parse_policy(text.encode(), what="the policy")
    return Scene(
        prepared=made,
        policy=policy,
        log=ReleaseLog(VolumeTier("release log", store), policy),
        clock=ManualClock(START),
        observed=observe(made),
    )


def folder_destination(path: Path) -> Destination:
    return Destination(url=path.as_uri(), visibility=Visibility.UNMANAGED)


@dataclass(slots=True)
class Steps:
    """Remembers what was told; runs a hook the first time that a step begins with given words."""

    hooks: Mapping[str, Hook] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        self.told.append(what)
        for words, hook in self.hooks.items():
            if what.startswith(words) and words not in self.ran:
                self.ran.append(words)
                hook()


def carry(
    scene: Scene, authorization: Authorization, place: Place, *, steps: Steps | None = None, **changes: Any
) -> PublishReport:
    """Publish as the publisher of the policy does."""
    asked: dict[str, Any] = {"publisher": PUBLISHER, "resume": False, "clock": scene.clock, "log": scene.log}
    return publish(scene.prepared, authorization, scene.policy, place=place, step=steps or Steps(), **asked | changes)


def payload_of(scene: Scene) -> Payload:
    return Payload(
        tree=scene.prepared.tree, manifest=scene.observed.manifest, manifest_bytes=scene.observed.manifest_bytes
    )


def entries(scene: Scene) -> list[LogEntry]:
    return [logged.entry for logged in scene.history.logged]


def kinds(scene: Scene) -> list[EntryKind]:
    return [entry.kind for entry in entries(scene)]


def tree_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def released(scene: Scene) -> dict[str, bytes]:
    """Return what has to be at the place."""
    found = tree_of(scene.prepared.tree)
    assert MANIFEST in found
    return found


def grow(scene: Scene, name: str = "model.safetensors") -> None:
    """Change a file of the prepared tree in place, size and times kept."""
    path = scene.prepared.tree / name
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def failing(kind: Effect, what: str, error: Exception, *, moment: Moment = Moment.BEFORE) -> Iterator[list[str]]:
    """Raise an error at the first announcement of a kind whose words end so; yields where it fired."""
    fired: list[str] = []

    def observe_effect(effect: Effect, about: str, when: Moment) -> None:
        if not fired and effect is kind and when is moment and about.endswith(what):
            fired.append(about)
            raise error

    with observing(observe_effect):
        yield fired


class WatchedTier(PassThroughTier):
    """Notes every request that would change something, whatever becomes of it; ``broken`` may refuse one."""

    def __init__(self, inner: Tier) -> None:
        super().__init__(inner)
        self.writes: list[tuple[str, str]] = []
        self.broken: Callable[[str, str], None] = lambda _verb, _key: None
        self.lose: Callable[[str, str], None] = lambda _verb, _key: None

    def _note(self, verb: str, key: str) -> None:
        self.writes.append((verb, key))
        self.broken(verb, key)

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self._note("put", key)
        return self.inner.put(key, body)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        self._note("create", key)
        info = self.inner.create(key, data)
        self.lose("create", key)
        return info

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        self._note("begin_upload", key)
        return self.inner.begin_upload(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        self._note("put_part", upload.key)
        return self.inner.put_part(upload, number, body)

    def delete(self, key: Key) -> None:
        self._note("delete", key)
        self.inner.delete(key)

    def abort(self, upload: Upload) -> None:
        self._note("abort", upload.key)
        self.inner.abort(upload)
