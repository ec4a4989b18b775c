"""Reading the manifest that a commit binds, and what a store's own digest of an object is worth."""

import hashlib

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import RemoteRun
from replicate.log import LiveCommit
from replicate.logbook import read_small
from replicate.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestObject, SealedFile, parse_manifest
from replicate.printable import one_line
from tiers.checks import is_key
from tiers.protocol import Key, ObjectInfo, Tier


def read_manifest(tier: Tier, remote: RemoteRun, run_uid: str, commit: LiveCommit) -> Manifest:
    """Read the manifest that a commit binds, and check that it is the one.

    Raises IntegrityFailure where any of size, digest, key, run, term or generation differs;
    TierError where the tier does not hand it out.
    """
    what = f"the manifest of {commit.generation}"
    if commit.manifest_size > MAX_MANIFEST_BYTES:
        raise IntegrityFailure(f"{what} has {commit.manifest_size} bytes, more than the {MAX_MANIFEST_BYTES} allowed")
    if not is_key(commit.manifest_key):
        raise IntegrityFailure(f"{what} has a key that none of ours is: {one_line(commit.manifest_key[:200])}")
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


def attests(info: ObjectInfo, item: ManifestObject, file: SealedFile) -> bool | None:
    """Tell whether the store's own digest is the sealed one; None where it says nothing comparable."""
    plain = {file.sha256} if len(file.leaves) == 1 else set()
    parts = item.parts or (file.leaves if item.part_size == file.leaf_size else ())
    composite = {hashlib.sha256(b"".join(map(bytes.fromhex, parts))).hexdigest()} if item.part_size and parts else set()
    known = plain | composite
    return info.sha256 in known if info.sha256 is not None and known else None
