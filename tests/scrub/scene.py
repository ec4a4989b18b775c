"""A hand-made run of three generations on one tier, its stored things by role, and what can be done to each.

A role is what a stored thing is there for: ``log/newest``, ``manifest/new``, ``object/new/model.bin``.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from support.commits import LEAF, REMOTE, RUN_UID, Made, Writer, keys, make, payload

from replicate import canonical
from replicate.digests import leaf_ranges
from replicate.layout import FOLD_EVERY
from replicate.log import LiveCommit, Pin
from replicate.manifest import Manifest
from tiers.bodies import BytesBody
from tiers.memory import MemoryStore, MemoryTier, _Object
from tiers.protocol import Key, ObjectInfo, Tier, walk

Objects = dict[str, bytes]
PARTED = "big/shard 1.bin"
"""Sent in parts of one leaf each."""
NAMES = ("gone", "old", "mid", "new")


def contents(sequence: int, seed: int) -> dict[str, bytes]:
    return {
        "model.bin": payload(seed + sequence, 2500),
        PARTED: payload(seed + 100 + sequence, 2 * LEAF + 7),
        "config.json": b'{"d": %d}' % (64 + sequence + seed),
        "empty": b"",
    }


class PartedWriter(Writer):
    """Sends one of the files in parts."""

    def manifest(self, made: Made) -> Manifest:
        found = super().manifest(made)
        if not self.tier.capabilities.multipart or self.tier.capabilities.min_part > LEAF:
            return found
        parted = (one.model_copy(update={"part_size": LEAF}) if one.path == PARTED else one for one in found.objects)
        return found.model_copy(update={"objects": tuple(parted)})

    def commit(self, made: Made) -> LiveCommit:
        if self.view.state is None:
            self.claim(attempt=made.record.attempt, attempt_id=made.record.attempt_id)
        manifest = self.manifest(made)
        for item in manifest.objects:
            self.send(Key(item.key), made.contents[item.path], item.part_size)
        return self.commit_document(made, manifest.encode(), manifest.prefix)

    def send(self, key: Key, data: bytes, part_size: int) -> None:
        if not part_size:
            self.tier.put(key, BytesBody(data))
            return
        upload = self.tier.begin_upload(key, size=len(data), part_size=part_size)
        pieces = [data[start : start + length] for start, length in leaf_ranges(len(data), part_size)]
        parts = [self.tier.put_part(upload, number, BytesBody(piece)) for number, piece in enumerate(pieces, start=1)]
        self.tier.complete(upload, parts)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A run as it is stored: bytes by key, the store's own digests, keys by role, generations oldest first.

    The first of them was retired.
    """

    objects: Mapping[str, bytes]
    digests: Mapping[str, str]
    roles: Mapping[str, str]
    made: tuple[Made, ...]
    slots: int

    @property
    def newest(self) -> Made:
        return self.made[-1]

    def tier(self, objects: Mapping[str, bytes], name: str = "a") -> MemoryTier:
        """Return a tier with these bytes, whose store still believes in the digests that it was told."""
        store = MemoryStore()
        for key, data in objects.items():
            digest = self.digests.get(key) or hashlib.sha256(data).hexdigest()
            info = ObjectInfo(key=Key(key), size=len(data), etag=store.serial("etag"), sha256=digest)
            store.objects[key] = _Object(data=data, info=info)
        return MemoryTier(name, store)

    def bytes_of(self, role: str) -> bytes:
        return self.objects[self.roles[role]]

    def pristine(self) -> Objects:
        return dict(self.objects)


def write(tier: Tier, *, run_uid: str = RUN_UID, seed: int = 0, folded: bool = False) -> tuple[Scene, PartedWriter]:
    """Write the run: one generation that was retired, one that is pinned, and two more."""
    writer = PartedWriter(tier, run_uid=run_uid)
    made = [
        make(contents(number, seed), sequence=number, run_uid=run_uid, directories=("void",)) for number in (1, 2, 3, 4)
    ]
    commits = []
    slots = {"claim": 0}
    for number, (name, one) in enumerate(zip(NAMES, made, strict=True)):
        slots["newest" if name == "new" else name] = max(1, writer.view.next_slot)
        if folded and name == "mid":
            fill_up(writer, made[1])
            slots["base"] = FOLD_EVERY
            slots["mid"] = writer.view.next_slot
        commits.append(writer.commit(one))
        if number == 1:
            slots["retire"] = writer.view.next_slot
            writer.retire(made[0])
            slots["pin"] = writer.view.next_slot
            writer.append(Pin(generation=str(one.id), reason="by hand"), attempt=1, attempt_id="attempt-1")
    head = writer.view.next_slot - 1
    tier.put(REMOTE.head, BytesBody(canonical.dump({"format": 1, "slot": head}) + b"\n"))
    roles = {f"log/{name}": str(REMOTE.log(slot)) for name, slot in slots.items()} | {"head": str(REMOTE.head)}
    for name, one, commit in zip(NAMES, made, commits, strict=True):
        roles[f"manifest/{name}"] = commit.manifest_key
        roles |= {f"object/{name}/{path}": str(key) for path, key in keys(tier, one, commit).items()}
    found = {str(info.key): info for info in walk(tier, "")}
    scene = Scene(
        objects={key: read(tier, key) for key in found},
        digests={key: info.sha256 or "" for key, info in found.items()},
        roles=roles,
        made=tuple(made),
        slots=head + 1,
    )
    return scene, writer


def fill_up(writer: Writer, pinned: Made) -> None:
    """Append pins until a slot carries the folded state."""
    while writer.view.next_slot <= FOLD_EVERY:
        writer.append(Pin(generation=str(pinned.id), reason="again"), attempt=1, attempt_id="attempt-1")


def read(tier: Tier, key: str) -> bytes:
    with tier.open(Key(key)) as stream:
        return stream.read()


@cache
def scene(*, folded: bool = False, foreign: bool = False) -> Scene:
    """Return the run, made once; ``foreign``: another run of the same name, with other bytes."""
    run_uid, seed = ("f" * 32, 7000) if foreign else (RUN_UID, 0)
    return write(MemoryTier("a"), run_uid=run_uid, seed=seed, folded=folded)[0]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing done to one stored thing."""

    role: str
    operation: str
    apply: Callable[[Objects], None]

    def __str__(self) -> str:
        return f"{self.role}: {self.operation}"


def cells(of: Scene, other: Scene) -> Iterator[Cell]:
    """Yield the whole matrix over a run."""
    for role in of.roles:
        if not role.startswith(("manifest/gone", "object/gone", "object/mid", "object/old")):
            for operation, apply in operations(of, other, role):
                objects = of.pristine()
                apply(objects)
                if objects != of.objects:
                    yield Cell(role=role, operation=operation, apply=apply)


def operations(of: Scene, other: Scene, role: str) -> Iterator[tuple[str, Callable[[Objects], None]]]:
    key, data = of.roles[role], of.bytes_of(role)
    for name, changed in bent(data):
        yield name, putting(key, changed)
    yield "delete", lambda objects: objects.__delitem__(key)
    yield "bytes of another run of this name", putting(key, other.bytes_of(role))
    if role.startswith(("log/", "manifest/")):
        yield "bytes of a run of another name", putting(key, renamed(data))
    for name, sibling in siblings(of, role):
        yield f"bytes of {name}", putting(key, of.objects[sibling])
        yield f"swapped with {name}", swapping(key, sibling)
    yield from copies(of, role, key, data)


def bent(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield data with a bit flipped in each leaf, and with other lengths."""
    places = {0, len(data) // 3, len(data) // 2, len(data) - 1} if data else set()
    for at in sorted(places):
        yield f"flip byte {at}", data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
    yield "flip all bits", bytes(byte ^ 255 for byte in data)
    yield "truncate by one", data[:-1]
    yield "truncate to a leaf", data[:LEAF]
    yield "halve", data[: len(data) // 2]
    yield "extend by a newline", data + b"\n"
    yield "extend by itself", data + data
    yield "empty", b""
    yield "zeros", b"\0" * len(data)


def renamed(data: bytes) -> bytes:
    """Return a log entry, or a manifest, as a run called otherwise would have written it."""
    line, newline, digest = data.partition(b"\n")
    line = line.replace(b'"run":"toy"', b'"run":"lab"')
    return line + newline + canonical.sha256(line).encode() + b"\n" if digest else line + newline


def siblings(of: Scene, role: str) -> Iterator[tuple[str, str]]:
    """Yield others of the same class: from another slot, another generation, another path."""
    kind, _, rest = role.partition("/")
    if kind == "log":
        yield from ((name, of.roles[f"log/{name}"]) for name in ("old", "newest", "pin") if name != rest)
    elif kind == "manifest":
        yield from ((name, of.roles[f"manifest/{name}"]) for name in ("old", "new", "gone") if name != rest)
    elif kind == "object":
        path = rest.partition("/")[2]
        yield "the generation before", of.roles[f"object/mid/{path}"]
        yield from ((name, of.roles[f"object/new/{name}"]) for name in ("model.bin", "empty") if name != path)


def copies(of: Scene, role: str, key: str, data: bytes) -> Iterator[tuple[str, Callable[[Objects], None]]]:
    """Yield ways to lie there twice."""
    folder = key.rpartition("/")[0]
    if role.startswith("log/"):
        yield "copied to the end of the log", putting(str(REMOTE.log(of.slots)), data)
        yield "copied past the end of the log", putting(str(REMOTE.log(of.slots + 3)), data)
    elif role.startswith(("manifest/", "object/")):
        yield "copied beside", putting(f"{folder}/copy.json", data)
        prefix = of.roles[f"manifest/{role.split('/')[1]}"].removesuffix("manifest.json")
        elsewhere = prefix.replace(".t1-", ".t1-f")
        yield "copied under another prefix", putting(key.replace(prefix, elsewhere), data)
    elif role == "head":
        yield "an older one", putting(key, b'{"format":1,"slot":0}\n')
        yield "of a slot to come", putting(key, b'{"format":1,"slot":%d}\n' % (of.slots + 9))


def putting(key: str, data: bytes) -> Callable[[Objects], None]:
    return lambda objects: objects.__setitem__(key, data)


def swapping(one: str, two: str) -> Callable[[Objects], None]:
    def swap(objects: Objects) -> None:
        objects[one], objects[two] = objects[two], objects[one]

    return swap


def rolled_back(of: Scene, slots: int) -> Objects:
    """Return the store as it was when the log had so many slots: every byte right, and old."""
    kept = {str(REMOTE.log(slot)) for slot in range(slots)}
    objects = {key: data for key, data in of.objects.items() if "/log/" not in key or key in kept}
    objects[str(REMOTE.head)] = canonical.dump({"format": 1, "slot": slots - 1}) + b"\n"
    return objects
