"""Names: runs, generations, and where each thing lies, locally and on a tier.

Remote keys are relative to the tier's root.  A key is made from a path once, when
it is written into the manifest, and is never turned back into one.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NewType, Self

from replicate.errors import ConfigInvalid, UsageError
from replicate.signing.remembered import Memory, nothing
from replicate.signing.trust import UNSIGNED, LogTrust
from tiers.protocol import Key

RunName = NewType("RunName", str)
RunUid = NewType("RunUid", str)

FOLD_EVERY = 256
"""Every so many log slots an entry carries the folded state."""

MAX_ATTEMPT = 10**9 - 1
MAX_SEQUENCE = 10**12 - 1
MAX_TERM = 10**15 - 1
"""What an id and a prefix have digits for.  Nobody comes near by counting: somebody wrote such a number."""

BULK_KEYS = r"[^/]+/generations/[^/]+/files/.+"
"""Keys of a generation's files: what is large, and read only by a restore.  Log, head and manifests are not."""

_RUN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_GENERATION = re.compile(r"a(\d{4,9})-g(\d{6,12})-u(\d{12,18})-([0-9a-f]{8})")
_PREFIX = re.compile(r"([^/]+)\.t(\d{1,15})-([0-9A-Za-z]{1,64})/")
_LOG_KEY = re.compile(r"(\d{12})\.json")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]*")
_MAX_ENCODED_NAME = 200
_MAX_ENCODED_PATH = 700
"""Leaves room in the 1,024 bytes of a key for our own prefix (at most 180) and the tier's."""


def run_name(text: str) -> RunName:
    """Check the name of a run; raises ConfigInvalid."""
    if not _RUN.fullmatch(text) or ".." in text:
        raise ConfigInvalid(
            f"run name {text[:80]!r} is not valid",
            hint='use 1 to 63 of a-z 0-9 . _ - starting with a letter or digit, e.g. run = "llm-7b"',
        )
    return RunName(text)


@dataclass(frozen=True, slots=True, order=True)
class GenerationId:
    """``a0002-g000006-u000000000220-1f3a9c2e``; ordering by (attempt, sequence) is newest-last."""

    attempt: int
    sequence: int
    next_update: int
    digest8: str

    @classmethod
    def parse(cls, text: str) -> "GenerationId":
        """Read an id; raises UsageError for anything else."""
        return _parsed(text)

    def __str__(self) -> str:
        return f"a{self.attempt:04d}-g{self.sequence:06d}-u{self.next_update:012d}-{self.digest8}"


@lru_cache(maxsize=32_768)
def _parsed(text: str) -> GenerationId:
    """Parse an id once: a long log names each of its generations in many places."""
    match = _GENERATION.fullmatch(text)
    found = GenerationId(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None
    if found is None or str(found) != text:
        raise UsageError(
            f"{text[:80]!r} is not a generation id",
            hint="ids look like a0002-g000006-u000000000220-1f3a9c2e; `ckptier list` shows them",
        )
    return found


def new_nonce() -> str:
    """Return 16 random hex digits: what tells our own write from another's."""
    return secrets.token_hex(8)


def encode_path(path: str) -> str:
    """Turn a manifest path into the tail of a key: plain letters stay, others become ``%XX``.

    A name or a whole path that gets too long becomes ``~`` and its SHA-256; the two cannot
    meet, since a path that long has a slash and a name has none.
    """
    if len(path) <= _MAX_ENCODED_NAME and _PLAIN_PATH.fullmatch(path):
        return path
    encoded = "/".join(map(_encode_name, path.split("/")))
    return encoded if len(encoded) <= _MAX_ENCODED_PATH else _digest_name(path)


def _encode_name(name: str) -> str:
    encoded = "".join(
        letter if letter in _PLAIN else "".join(f"%{byte:02X}" for byte in letter.encode()) for letter in name
    )
    if len(encoded) > _MAX_ENCODED_NAME:
        return _digest_name(name)
    return encoded


def _digest_name(text: str) -> str:
    return "~" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPrefix:
    """The place of one try to upload a generation, taken apart.  ``text`` is all of it."""

    text: str
    generation: GenerationId
    term: int
    nonce: str


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """Where the things of one run lie on a tier, and what counts of what is found there.

    ``trust`` says whose log entries count, ``memory`` how far this machine has seen each log: they
    travel with the name, so that no reader can forget them.
    """

    run: RunName
    trust: LogTrust = field(default=UNSIGNED, compare=False)
    memory: Memory = field(default=nothing, compare=False)

    @classmethod
    def of(cls, run: str) -> Self:
        """Return the layout of a run by name; raises ConfigInvalid for a name that is none."""
        return cls(run_name(run))

    @property
    def log_prefix(self) -> str:
        """Prefix of all log entries."""
        return f"{self.run}/log/"

    @property
    def head(self) -> Key:
        """Key of the hint that names the last slot."""
        return Key(f"{self.run}/head.json")

    def log(self, slot: int) -> Key:
        """Key of one log entry."""
        return Key(f"{self.log_prefix}{slot:012d}.json")

    def slot(self, key: Key) -> int | None:
        """Read a log key's slot; None for anything else below the prefix."""
        match = _LOG_KEY.fullmatch(key.removeprefix(self.log_prefix))
        return int(match[1]) if match and key.startswith(self.log_prefix) else None

    def prefix(self, generation: GenerationId, term: int, nonce: str) -> str:
        """Prefix under which one attempt to upload a generation puts everything."""
        return f"{self.run}/generations/{generation}.t{term}-{nonce}/"

    @property
    def generations_prefix(self) -> str:
        """Prefix of everything that was uploaded for generations."""
        return f"{self.run}/generations/"

    def prefix_of(self, key: str) -> UploadPrefix | None:
        """Take the prefix that a key lies under apart; None for a key that no upload of this run has."""
        if not key.startswith(self.generations_prefix):
            return None
        match = _PREFIX.match(key.removeprefix(self.generations_prefix))
        try:
            generation = GenerationId.parse(match[1]) if match else None
        except UsageError:
            return None
        if match is None or generation is None:
            return None
        text = self.prefix(generation, int(match[2]), match[3])
        found = UploadPrefix(text=text, generation=generation, term=int(match[2]), nonce=match[3])
        return found if key.startswith(text) else None  # a number written otherwise is not our name

    def manifest(self, prefix: str) -> Key:
        """Key of the manifest under a generation's prefix."""
        return Key(f"{prefix}manifest.json")

    def object(self, prefix: str, path: str) -> Key:
        """Key of one file under a generation's prefix."""
        return Key(f"{prefix}files/{encode_path(path)}")


@dataclass(frozen=True, slots=True)
class LocalRun:
    """Where the things of one run lie in the store: ``root`` is ``<store>/<run>``."""

    root: Path

    @property
    def generations(self) -> Path:
        """Folder of the sealed generations."""
        return self.root / "generations"

    def generation(self, generation: GenerationId) -> Path:
        """Folder of one sealed generation."""
        return self.generations / str(generation)

    @property
    def evidence(self) -> Path:
        """Folder of what is known about each generation (validated, quarantined, why)."""
        return self.root / "evidence"

    @property
    def lineage(self) -> Path:
        """The store's place in the run's descent."""
        return self.root / "lineage.json"

    @property
    def latest(self) -> Path:
        """Hint to the newest validated generation."""
        return self.root / "LATEST.json"

    @property
    def status(self) -> Path:
        """The daemon's view, replaced atomically."""
        return self.root / "status.json"

    @property
    def lock(self) -> Path:
        """Lock of sequence allocation and lineage."""
        return self.root / ".store.lock"

    @property
    def daemon_lock(self) -> Path:
        """Lock that a replicating process holds."""
        return self.root / ".daemon.lock"
