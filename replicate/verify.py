"""Proving what is stored: the log, the manifests, the objects, and a share of their bytes.

A verdict is given per generation: *intact* where everything asked for was proved, *hurt*
where something was found wrong, *unknown* where a tier did not answer.  Nothing is changed.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from replicate import canonical
from replicate.digests import BLOCK, CountedSha256, digest_file, leaf_ranges
from replicate.errors import CkptierError, IntegrityFailure, NothingFound, UsageError, from_tier_error
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import Attempt, Damage, LiveCommit, LogView, Verdict
from replicate.logbook import Logbook, read_small
from replicate.manifest import (
    MAX_GENERATION_BYTES,
    MAX_MANIFEST_BYTES,
    GenerationRecord,
    Manifest,
    ManifestObject,
    SealedFile,
    parse_generation,
    parse_manifest,
)
from tiers.errors import IntegrityError, ObjectNotFound, TierError
from tiers.medium import reading_the_medium
from tiers.protocol import Key, ObjectInfo, Tier

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for kind, base in (("B", 1000), ("iB", 1024), ("", 1024))
}
_SIZE = re.compile(r"(\d{1,15})\s*([A-Za-z]{0,3})")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")
_PORTION = re.compile(r"(\d{1,6})/(\d{1,6})")


class Finding(StrEnum):
    """What verification says of one generation."""

    INTACT = "intact"
    HURT = "hurt"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the stored bytes to read: a fraction of them, or (``limit``) a number of bytes."""

    fraction: Fraction = Fraction(1)
    limit: int | None = None

    def of(self, total: int) -> int:
        """Return the bytes to read of ``total``, rounded up."""
        return min(total, self.limit) if self.limit is not None else -(-self.fraction * total // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationVerdict:
    """What was found out about one generation.  ``attested`` counts objects whose digest the store confirmed.

    ``manifest_sha256`` names the copy on a tier that was looked at.
    """

    generation: GenerationId
    verdict: Finding
    reasons: tuple[str, ...]
    objects: int
    total_bytes: int
    attested: int
    bytes_read: int
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found out about one tier (or the store, as ``local``).

    ``missing`` are generations that were asked for and are not there.
    """

    tier: str
    damaged: tuple[Damage, ...]
    refused: tuple[tuple[int, Verdict], ...]
    generations: tuple[GenerationVerdict, ...]
    missing: tuple[str, ...] = ()

    @property
    def newest_intact(self) -> GenerationId | None:
        """What a restore from here would give."""
        good = [found.generation for found in self.generations if found.verdict is Finding.INTACT]
        return max(good, default=None)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong and nothing stayed unknown."""
        good = all(found.verdict is Finding.INTACT for found in self.generations)
        return good and not self.damaged and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """An attempt number that was opened twice: each id, with the places that know it."""

    attempt: int
    lines: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        """Name both lines."""
        lines = " and ".join(f"{identity} ({', '.join(places)})" for identity, places in self.lines)
        return f"attempt {self.attempt} was opened twice: {lines}"


def find_forks(attempts: Mapping[str, Sequence[Attempt]]) -> tuple[Fork, ...]:
    """Return every attempt number that stands under several ids anywhere; ``attempts`` is by place."""
    known: dict[int, dict[str, set[str]]] = {}
    for place, each in attempts.items():
        for attempt in each:
            known.setdefault(attempt.number, {}).setdefault(attempt.id, set()).add(place)
    return tuple(
        Fork(attempt=number, lines=tuple((name, tuple(sorted(where))) for name, where in sorted(ids.items())))
        for number, ids in sorted(known.items())
        if len(ids) > 1
    )


def parse_share(text: str) -> Share:
    """Read ``100%``, ``2.5%``, ``1/7`` or ``5GiB``; raises UsageError."""
    wrong = UsageError(f"{text[:40]!r} is no share of the data", hint="write 100%, 10%, 1/7 or a size such as 5GiB")
    if match := _PERCENT.fullmatch(text):
        fraction = Fraction(match[1]) / 100
    elif match := _PORTION.fullmatch(text):
        if int(match[2]) == 0:
            raise wrong
        fraction = Fraction(int(match[1]), int(match[2]))
    elif (match := _SIZE.fullmatch(text)) and match[2] in _UNITS:
        return Share(limit=int(match[1]) * _UNITS[match[2]])
    else:
        raise wrong
    if not 0 <= fraction <= 1:
        raise wrong
    return Share(fraction)


def read_manifest(tier: Tier, remote: RemoteRun, run_uid: str, commit: LiveCommit) -> Manifest:
    """Read the manifest that a commit binds, and check that it is the one.

    Raises IntegrityFailure where any of size, digest, key, run, term or generation differs;
    TierError where the tier does not hand it out.
    """
    what = f"the manifest of {commit.generation}"
    if commit.manifest_size > MAX_MANIFEST_BYTES:
        raise IntegrityFailure(f"{what} has {commit.manifest_size} bytes, more than the {MAX_MANIFEST_BYTES} allowed")
    data = read_small(tier, Key(commit.manifest_key), commit.manifest_size)
    if len(data) != commit.manifest_size or canonical.sha256(data) != commit.manifest_sha256:
        raise IntegrityFailure(f"{what} is not the one that was committed: its size or digest differs")
    manifest = parse_manifest(data)
    record = manifest.record()
    bound = (
        (manifest.run_uid, run_uid, "run_uid"),
        (record.run, remote.run, "run"),
        (record.id, commit.generation, "generation"),
        (record.parent, commit.parent, "parent"),
        (manifest.term, commit.term, "term"),
        (record.total_bytes, commit.total_bytes, "bytes"),
        (len(manifest.objects), commit.objects, "objects"),
        (str(remote.manifest(manifest.prefix)), commit.manifest_key, "key"),
        (manifest.prefix, remote.prefix(commit.id, commit.term, manifest.nonce), "prefix"),
    )
    wrong = [f"{name} {found!r} where {due!r} is due" for found, due, name in bound if found != due]
    if wrong:
        raise IntegrityFailure(f"{what} does not belong to its commit: {'; '.join(wrong)}")
    return manifest


def verify(
    tier: Tier, remote: RemoteRun, *, read_data: Share | None = None, only: GenerationId | None = None, seed: int = 0
) -> VerifyReport:
    """Verify one run on one tier; raises CkptierError where not even the log can be read.

    ``read_data`` is the share of the bytes that is read and hashed; None reads none.  With
    ``seed`` counted up, successive calls read successive parts until all was read.
    """
    try:
        view = Logbook(tier, remote).read()
    except TierError as error:
        raise from_tier_error(error) from error
    commits = [commit for commit in view.live if only in (None, commit.id)]
    if only is not None and not commits:
        raise NothingFound(f"{only} is not on {tier.name}", hint=f"`ckptier list --tier {tier.name}` shows what is")
    window = Window.of(read_data, sum(commit.total_bytes for commit in commits), seed)
    found = []
    for commit in commits:
        found.append(_Checker(tier, remote, view, commit).verdict(window))
        window = window.after(commit.total_bytes)
    return VerifyReport(tier=tier.name, damaged=view.damaged, refused=view.refused, generations=tuple(found))


def look_at(tier: Tier, remote: RemoteRun, view: LogView, commit: LiveCommit) -> GenerationVerdict:
    """Verify one committed generation by its manifest and by what the tier says of each object; reads no data."""
    return _Checker(tier, remote, view, commit).verdict(Window.of(None, commit.total_bytes, 0))


@dataclass(frozen=True, slots=True)
class Window:
    """Which bytes to read: ``length`` from ``start`` of ``total``, going round; ``start`` moves with the reader."""

    start: int
    length: int
    total: int

    @classmethod
    def of(cls, share: Share | None, total: int, seed: int) -> "Window":
        """Return the part of ``total`` bytes that a share means, the ``seed``-th of its kind."""
        length = share.of(total) if share else -1
        return cls((seed * length) % total if total and length > 0 else 0, length, total)

    def after(self, size: int) -> "Window":
        """Return the same window as seen from ``size`` bytes further on."""
        return Window(self.start - size, self.length, self.total)

    def covers(self, start: int, length: int) -> bool:
        """Tell whether any byte of a leaf is inside (an empty leaf: whether its place is)."""
        end = start + max(1, length)
        if self.length >= self.total:
            return True
        rounds = (self.start - self.total, self.start) if self.length > 0 else ()
        return any(start < first + self.length and first < end for first in rounds)


class _Checker:
    """Gathers what is wrong with one generation on a tier."""

    def __init__(self, tier: Tier, remote: RemoteRun, view: LogView, commit: LiveCommit) -> None:
        self._tier = tier
        self._remote = remote
        self._run_uid = view.state.run_uid if view.state else ""
        self._commit = commit
        self._hurt: list[str] = []
        self._unknown: list[str] = []
        self._attested = 0
        self._read = 0

    def verdict(self, window: Window) -> GenerationVerdict:
        """Check all that is asked for and say how it stands."""
        try:
            manifest = read_manifest(self._tier, self._remote, self._run_uid, self._commit)
        except (TierError, CkptierError) as error:
            self._note(error, "the manifest")
        else:
            self._objects(manifest, window)
        verdict = Finding.HURT if self._hurt else Finding.UNKNOWN if self._unknown else Finding.INTACT
        return GenerationVerdict(
            generation=self._commit.id,
            verdict=verdict,
            reasons=(*self._hurt, *self._unknown),
            objects=self._commit.objects,
            total_bytes=self._commit.total_bytes,
            attested=self._attested,
            bytes_read=self._read,
            manifest_sha256=self._commit.manifest_sha256,
        )

    def _objects(self, manifest: Manifest, window: Window) -> None:
        sealed = {file.path: file for file in manifest.record().files}
        for item in manifest.objects:
            file = sealed[item.path]
            try:
                self._object(item, file, window)
            except (TierError, CkptierError) as error:
                self._note(error, item.path)
            window = window.after(file.size)

    def _object(self, item: ManifestObject, file: SealedFile, window: Window) -> None:
        info = self._tier.stat(Key(item.key))
        if info.size != file.size:
            raise IntegrityFailure(f"has {info.size} bytes, sealed were {file.size}")
        attested = attests(info, item, file)
        if attested is False:
            raise IntegrityFailure(f"the store says its digest is {info.sha256}, which is not the sealed one")
        self._attested += attested is True
        buffer = memoryview(bytearray(min(BLOCK, file.leaf_size, max(1, file.size))))
        for number, (start, length) in enumerate(leaf_ranges(file.size, file.leaf_size)):
            if window.length >= 0 and window.covers(start, length):
                self._leaf(Key(item.key), file, number, (start, length), buffer)

    def _leaf(self, key: Key, file: SealedFile, number: int, span: tuple[int, int], buffer: "memoryview[int]") -> None:
        start, length = span
        digest = CountedSha256()
        with reading_the_medium(), self._tier.open(key, start, length) as stream:
            left = length
            while left:
                chunk = stream.read(min(len(buffer), left))
                if not chunk:
                    raise IntegrityFailure(f"leaf {number} ends {left} bytes early")
                digest.update(chunk)
                left -= len(chunk)
        self._read += length
        if digest.hexdigest() != file.leaves[number]:
            raise IntegrityFailure(f"leaf {number} (bytes {start} to {start + length}) is not what was sealed")

    def _note(self, error: TierError | CkptierError, what: str) -> None:
        missing = isinstance(error, ObjectNotFound)
        hurt = missing or isinstance(error, IntegrityError | IntegrityFailure)
        words = "is missing" if missing else error.message
        (self._hurt if hurt else self._unknown).append(f"{what}: {words}")


def attests(info: ObjectInfo, item: ManifestObject, file: SealedFile) -> bool | None:
    """Tell whether the store's own digest is the sealed one; None where it says nothing comparable."""
    plain = {file.sha256} if len(file.leaves) == 1 else set()
    parts = item.parts or (file.leaves if item.part_size == file.leaf_size else ())
    composite = {hashlib.sha256(b"".join(map(bytes.fromhex, parts))).hexdigest()} if item.part_size and parts else set()
    known = plain | composite
    return info.sha256 in known if info.sha256 is not None and known else None


def verify_local(
    local: LocalRun, *, read_data: Share | None = None, only: GenerationId | None = None, seed: int = 0
) -> VerifyReport:
    """Verify the store's sealed generations: their records, exact file sets, and a share of the bytes."""
    folders = sorted(local.generations.iterdir()) if local.generations.is_dir() else []
    names = [folder for folder in folders if only is None or folder.name == str(only)]
    if only is not None and not names:
        raise NothingFound(f"{only} is not in the store", hint="`ckptier list` shows what is")
    found = [verdict for folder in names if (verdict := _local_verdict(folder, read_data, seed)) is not None]
    return VerifyReport(tier="local", damaged=(), refused=(), generations=tuple(reversed(found)))


def _local_verdict(folder: Path, share: Share | None, seed: int) -> GenerationVerdict | None:
    """Verify one folder; None for a name that is no generation id (nothing of ours)."""
    try:
        generation = GenerationId.parse(folder.name)
    except UsageError:
        return None
    reasons: tuple[str, ...] = ()
    record: GenerationRecord | None = None
    read = 0
    try:
        record = read_record(folder)
        reasons, read = check_files(folder / "files", record, share, seed)
    except (CkptierError, OSError) as error:
        reasons = (error.message if isinstance(error, CkptierError) else f"cannot be read: {error}",)
    return GenerationVerdict(
        generation=generation,
        verdict=Finding.HURT if reasons else Finding.INTACT,
        reasons=reasons,
        objects=len(record.files) if record else 0,
        total_bytes=record.total_bytes if record else 0,
        attested=0,
        bytes_read=read,
    )


def read_record(folder: Path) -> GenerationRecord:
    """Read the ``generation.json`` of a sealed generation and check that it stands in its own folder."""
    with (folder / "generation.json").open("rb") as stream:
        data = stream.read(MAX_GENERATION_BYTES + 1)
    record = parse_generation(data)
    if record.id != folder.name:
        raise IntegrityFailure(f"{folder} holds the record of {record.id}")
    return record


def check_files(
    root: Path, record: GenerationRecord, share: Share | None = None, seed: int = 0
) -> tuple[tuple[str, ...], int]:
    """Return what differs between a folder and a record, and how many bytes were hashed to find out."""
    reasons = list(set_faults(root, record.files, record.directories))
    if reasons or share is None:
        return tuple(reasons), 0
    window = Window.of(share, record.total_bytes, seed)
    read = 0
    for file in record.files:
        if window.covers(0, file.size):
            digest = digest_file(root / file.path, file.size, leaf_size=file.leaf_size, workers=1)
            read += file.size
            if digest.sha256 != file.sha256:
                reasons.append(f"{file.path}: its bytes are not what was sealed")
        window = window.after(file.size)
    return tuple(reasons), read


def set_faults(root: Path, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> Iterator[str]:
    """Yield every way in which a folder is not exactly these files, their folders and these empty folders."""
    sizes: dict[str, int | None] = {file.path: file.size for file in files} | dict.fromkeys(directories)
    for path in tuple(sizes):
        for end in (index for index, letter in enumerate(path) if letter == "/"):
            sizes.setdefault(path[:end], None)
    for path, size in walk_folder(root):
        due = sizes.pop(path, "nothing")
        if due == "nothing":
            yield f"{path}: does not belong there"
        elif size != due:
            yield f"{path}: {_words(size)}, sealed was {_words(due)}"
    yield from (f"{path}: is missing" for path in sorted(sizes))


def walk_folder(root: Path, below: str = "") -> Iterator[tuple[str, int | str | None]]:
    """Yield (path, size) of all below a folder: None for a folder, a word for what is no regular file."""
    with os.scandir(root / below) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield path, None
                yield from walk_folder(root, path)
            else:
                yield path, status.st_size if stat.S_ISREG(status.st_mode) else "a special file"


def _words(size: "int | str | None") -> str:
    return "a folder" if size is None else f"{size} bytes" if isinstance(size, int) else size
