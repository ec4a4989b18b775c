"""What is known of each store that is reached through fsspec, as dated data.

Every entry says how it is known (``probed``: tried by us; ``documented``; ``source``:
read in the implementation) and when.  Where nothing is known the value is the one that
cannot lose data: creates look first and promise nothing to a second writer.

None of these tiers takes objects in parts: fsspec writes a file in one stream, and parts
that had to come in order, on one machine, would promise what uploads cannot use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tiers.protocol import Capabilities, Fencing, Verification

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

MIN_BLOCK = 8 * MIB
MAX_BLOCK = 64 * MIB
"""Bytes that a bucket's file holds in memory before it sends them; at most three such buffers are alive."""


class Kind(StrEnum):
    """How a filesystem behaves, and with it which code talks to it."""

    BUCKET = "bucket"
    LOCAL = "local"
    MEMORY = "memory"
    SFTP = "sftp"
    WEBDAV = "webdav"
    OTHER = "other"


class CreateBy(StrEnum):
    """How put-if-absent is done."""

    CONDITIONAL_PUT = "conditional put"
    HARD_LINK = "hard link"
    LOOK_FIRST = "look first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One kind of store.  Sizes in bytes.

    The first store of a protocol is its default, others are chosen by ``profile``.
    ``extra`` is what to install (``ckptier[extra]``) for ``package``, ``credentials`` where secrets belong,
    in words for the operator.  ``fencing`` is what ``create_by`` is worth there.
    ``max_blocks``: how many blocks of at most MAX_BLOCK an object may be sent in, 0 where
    there is no such limit; it bounds ``max_put``.
    """

    name: str
    kind: Kind
    protocols: tuple[str, ...]
    evidence: str
    as_of: str
    extra: str
    package: str
    credentials: str
    create_by: CreateBy = CreateBy.LOOK_FIRST
    fencing: Fencing = Fencing.ADVISORY
    max_size: int = TIB
    max_blocks: int = 0

    @property
    def max_put(self) -> int:
        """Largest object."""
        return min(self.max_size, self.max_blocks * MAX_BLOCK) if self.max_blocks else self.max_size

    def capabilities(self, fencing: Fencing) -> Capabilities:
        """Return the protocol's record; the store checks nothing, so that objects are read back."""
        return Capabilities(
            fencing=fencing,
            verification=Verification.READ_BACK,
            multipart=False,
            resumable=False,
            copy_part=False,
            copy=False,
            max_put=self.max_put,
            min_part=1,
            max_part=self.max_put,
            max_parts=1,
            max_object=self.max_put,
        )

    def block_size(self, size: int) -> int:
        """Bytes to send at a time, for an object of ``size`` bytes: whole MiB."""
        needed = -(-size // self.max_blocks) if self.max_blocks else 0
        return max(MIN_BLOCK, -(-needed // MIB) * MIB)


_SSH = "an SSH agent, or key_filename in options; host keys come from known_hosts"

_STORES = (
    Store(
        name="gcs",
        kind=Kind.BUCKET,
        protocols=("gs", "gcs"),
        evidence="documented: ifGenerationMatch=0 has one winner; source: gcsfs sends it for mode='create' and reports "
        "412 as FileExistsError, and repeats requests by itself (up to 6 times, not to be turned off); not probed",
        as_of="2026-11-30",
        extra="gs",
        package="gcsfs",
        credentials="GOOGLE_APPLICATION_CREDENTIALS (the path of a key file), gcloud's own login, or the VM's account",
        create_by=CreateBy.CONDITIONAL_PUT,
        fencing=Fencing.CAS,
        max_size=5 * TIB,
    ),
    Store(
        name="azure-blob",
        kind=Kind.BUCKET,
        protocols=("az", "abfs", "abfss"),
        evidence="documented: If-None-Match: * on Put Blob has one winner; adlfs sends it for mode='create'; a put "
        "over an object of more than one block deletes that one first (source: adlfs); not probed",
        as_of="2026-11-30",
        extra="azure",
        package="adlfs",
        credentials="AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or az login",
        create_by=CreateBy.CONDITIONAL_PUT,
        fencing=Fencing.CAS,
        max_blocks=50_000,
    ),
    Store(
        name="sftp",
        kind=Kind.SFTP,
        protocols=("sftp", "ssh"),
        evidence="source: hardlink@openssh.com is link(2), which never replaces; a server without it refuses it, so "
        "that nothing racy can happen unseen; probed 2026-11-30 against the test server, one winner in 20 races of 8",
        as_of="2026-11-30",
        extra="sftp",
        package="paramiko",
        credentials=_SSH,
        create_by=CreateBy.HARD_LINK,
        fencing=Fencing.POSIX,
        max_size=16 * TIB,
    ),
    Store(
        name="sftp-basic",
        kind=Kind.SFTP,
        protocols=("sftp", "ssh"),
        evidence="draft-ietf-secsh-filexfer-02: RENAME fails where the target exists, but servers look and then rename",
        as_of="2026-11-30",
        extra="sftp",
        package="paramiko",
        credentials=_SSH,
        max_size=16 * TIB,
    ),
    Store(
        name="webdav",
        kind=Kind.WEBDAV,
        protocols=("webdav", "dav"),
        evidence="RFC 4918: MOVE with Overwrite: F gives 412; source: WsgiDAV 4.4 looks and then moves, a gap that 20 "
        "races of 8 did not hit (2026-11-30; losers were told 412 or 500); a MOVE over an object may delete it first",
        as_of="2026-11-30",
        extra="webdav",
        package="webdav4",
        credentials="CKPTIER_WEBDAV_USER and CKPTIER_WEBDAV_PASSWORD, or the host's entry in ~/.netrc",
    ),
    Store(
        name="s3fs",
        kind=Kind.BUCKET,
        protocols=("s3", "s3a"),
        evidence="fencing is that of the provider profile (tiers/profiles/); s3fs sends If-None-Match for "
        "mode='create'; probed 2026-11-30 on SeaweedFS, one winner in 10 races of 8",
        as_of="2026-11-30",
        extra="s3fs",
        package="s3fs",
        credentials="AWS_* variables or ~/.aws/credentials",
        create_by=CreateBy.CONDITIONAL_PUT,
        max_size=5 * TIB,
        max_blocks=10_000,
    ),
    Store(
        name="fsspec-local",
        kind=Kind.LOCAL,
        protocols=("file", "local"),
        evidence="POSIX: link(2) never replaces; probed 2026-11-30, one winner in 20 races of 8",
        as_of="2026-11-30",
        extra="fsspec",
        package="fsspec",
        credentials="the permissions of this user",
        create_by=CreateBy.HARD_LINK,
        fencing=Fencing.POSIX,
        max_size=16 * TIB,
    ),
    Store(
        name="fsspec-memory",
        kind=Kind.MEMORY,
        protocols=("memory",),
        evidence="source: fsspec's memory filesystem looks and then writes, without a lock",
        as_of="2026-11-30",
        extra="fsspec",
        package="fsspec",
        credentials="none",
        max_size=GIB,
    ),
)

OTHER = Store(
    name="fsspec-other",
    kind=Kind.OTHER,
    protocols=(),
    evidence="a filesystem that nobody has looked at: creates look first, and an object may be seen half-written",
    as_of="2026-11-30",
    extra="fsspec",
    package="fsspec and an implementation",
    credentials="the filesystem's own variables or files",
    max_blocks=1_000,
)

STORES: Mapping[str, Store] = MappingProxyType({store.name: store for store in (*_STORES, OTHER)})

_NO_STORE = "it is no place of its own"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("http", "https"), "a web server cannot be written to; for WebDAV write webdav+https://"),
        "ftp": "FTP sends passwords and checkpoints in the clear; use sftp://",
        **dict.fromkeys(("blockcache", "cached", "filecache", "simplecache"), "a cache may answer with what was"),
        **dict.fromkeys(("dir", "generic", "async_wrapper", "asyncwrapper", "asynclocal", "dask"), _NO_STORE),
        **dict.fromkeys(("data", "reference", "tar", "zip", "libarchive", "git", "gist", "github"), _NO_STORE),
    }
)
"""Protocols that fsspec knows and that cannot be a tier, with the reason."""


def choose_store(protocol: str, profile: str | None) -> Store:
    """Return the store that ``profile`` names, else the protocol's default; ValueError where they do not fit.

    For S3, profiles are those of :mod:`tiers.profiles`, and say what its fencing is worth.
    """
    known = [store for store in _STORES if protocol in store.protocols] or [OTHER]
    if profile is None or known[0].name == "s3fs":
        return known[0]
    for store in known:
        if store.name == profile:
            return store
    names = ", ".join(store.name for store in known)
    raise ValueError(f"profile {profile!r} is none of {protocol}; known: {names}")
