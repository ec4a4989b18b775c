"""Logs that are signed by hand: keys without files, trust roots, and what an intruder does to a bucket."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.commits import REMOTE, Made, Writer, generation

from replicate.layout import RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.signing.anchor import Anchor
from replicate.signing.keyring import Keyring, TrustedKey
from replicate.signing.keys import SigningKey
from replicate.signing.lines import key_id
from replicate.signing.trust import LogTrust, Signer
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key

TIER = "a"


@cache
def key(number: int) -> SigningKey:
    """Return one of a few keys, always the same."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


def signer(number: int) -> Signer:
    """Return a signer whose key needs no file."""
    made = Signer(Path("no-such-file"))
    made.__dict__["key"] = key(number)
    return made


def trusted(number: int, **limits: object) -> TrustedKey:
    """Return a keyring's entry; ``limits`` are ``first_slot`` and ``last_slot``."""
    public = key(number).public
    return TrustedKey(id=key_id(public), public=public.text, **limits)  # type: ignore[arg-type]


def ring(*keys: TrustedKey) -> Keyring:
    return Keyring(key=keys)


def remote(*keys: TrustedKey, signs: int | None = None, **more: object) -> RemoteRun:
    """Return a run with a trust root over these keys, signing with one of them or only reading."""
    trust = LogTrust(keyring=ring(*keys), signer=signer(signs) if signs is not None else None, **more)  # type: ignore[arg-type]
    return replace(REMOTE, trust=trust)


ONE = remote(trusted(1), signs=1)
READER = remote(trusted(1))


def grown(store: MemoryStore, run: RemoteRun, count: int) -> Writer:
    """Write a log of a claim and ``count`` commits."""
    writer = Writer(MemoryTier(TIER, store), remote=run)
    for sequence in range(1, count + 1):
        writer.commit(made(sequence))
    return writer


@cache
def made(sequence: int) -> Made:
    return generation(sequence)


def read(store: MemoryStore, run: RemoteRun, *, thorough: bool = True) -> LogView:
    return Logbook(MemoryTier(TIER, store), run).read(thorough=thorough)


def entries(store: MemoryStore) -> list[bytes]:
    """Return the log as it lies there."""
    return [store.objects[name].data for name in sorted(store.objects) if name.startswith(REMOTE.log_prefix)]


def put(store: MemoryStore, slot: int, data: bytes | None) -> None:
    """Replace a slot behind everybody's back, or remove it."""
    store.objects.pop(REMOTE.log(slot), None)
    if data is not None:
        MemoryTier("intruder", store).create(Key(REMOTE.log(slot)), data)


def lay(log: Mapping[int, bytes]) -> MemoryStore:
    """Return a bucket that holds nothing but these slots."""
    store = MemoryStore()
    for slot, data in log.items():
        put(store, slot, data)
    return store


def end_of(view: LogView) -> Anchor:
    return Anchor(view.next_slot - 1, view.last_sha256)


def remembering(run: RemoteRun, anchor: Anchor) -> RemoteRun:
    """Return the run on a machine that has seen an anchor of every tier."""
    return replace(run, memory=lambda _tier: anchor)


def two_lines(entry: bytes) -> bytes:
    """Return an entry without its signature."""
    return b"".join(line + b"\n" for line in entry.split(b"\n")[:2])


def respelled(entry: bytes) -> bytes:
    """Return an entry whose signature is written in base64 that means the same and looks different."""
    lines = entry.split(b"\n")
    kind, name, text = lines[2].split(b" ")
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = letters[letters.index(text[-3]) ^ 1]
    changed = text[:-3] + bytes([other]) + text[-2:]
    assert base64.b64decode(changed) == base64.b64decode(text) != b""
    return b"\n".join([*lines[:2], b" ".join([kind, name, changed]), b""])
