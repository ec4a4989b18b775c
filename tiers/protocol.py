"""The contract of a tier: fourteen verbs, each one request.

A request is what is retried, metered, throttled, timed out and made to fail, so
no verb hides two of them.  The words MUST and MAY are meant as in RFC 2119; the
public suite in :mod:`tiers.testing` checks every MUST, and a tier that does not
pass it is not a tier.

Keys are relative to the tier's root, ``/``-separated, and drawn from
``[A-Za-z0-9._/%~-]``; a tier MUST store them literally (no globbing, no
normalisation) and MUST NOT invent or hide any.  A backend MUST NOT retry, MUST
NOT let a vendor's exception out (only :mod:`tiers.errors`), and MUST be usable
from several threads at once.  What a store can do is data (:class:`Capabilities`),
not something to find out by failing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import BinaryIO, NewType, Protocol

from tiers.bodies import Body
from tiers.errors import TierUnavailable

MAX_EMPTY_PAGES = 1_000
"""Pages of a listing in a row with nothing on them: some stores give a few, and none gives them for ever."""

Key = NewType("Key", str)
UploadId = NewType("UploadId", str)


class Fencing(StrEnum):
    """How a tier keeps two writers apart."""

    CAS = "cas"
    POSIX = "posix"
    GIT = "git"
    ADVISORY = "advisory"


class Verification(StrEnum):
    """How an object is known to hold the sealed bytes, strongest first.

    ``READ_BACK_DIRECT``: read from the device, around the page cache.  ``READ_BACK_UNCACHED``:
    read after the kernel had dropped, by its own word, every page of it.  ``READ_BACK``: read,
    perhaps from a cache.  Capabilities say ``READ_BACK`` for all three: which of them it was is
    known object by object (:mod:`tiers.medium`).  The three names are of one length, so that the
    size of a manifest, and what it costs, does not depend on which it will be.
    """

    STORE_SHA256 = "store-sha256"
    CRC64NVME = "crc64nvme"
    MD5_ETAG = "md5-etag"
    READ_BACK_DIRECT = "read-disk"
    READ_BACK_UNCACHED = "read-anew"
    READ_BACK = "read-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store can do.  Sizes in bytes.

    ``multipart``: the six part verbs work.  ``resumable``: parts accepted before a
    crash are listed after it.  ``copy_part`` and ``copy``: the verb works, and proves what it
    copied where ``verification`` is STORE_SHA256 (elsewhere the object is read back like any
    other).  ``max_put`` bounds ``put`` and ``copy``; ``min_part`` binds all parts but the last.
    """

    fencing: Fencing
    verification: Verification
    multipart: bool
    resumable: bool
    copy_part: bool
    copy: bool
    max_put: int
    min_part: int
    max_part: int
    max_parts: int
    max_object: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store says of one object.

    ``sha256`` is hex and set only where the store itself computed or checked it: the
    SHA-256 of the bytes, or for an object that was uploaded in parts (also in one) the
    SHA-256 over the parts' binary SHA-256 digests.  A digest that the caller stated and
    nobody checked MUST NOT come back here.  ``etag`` is opaque.  ``modified`` is the store's clock.
    """

    key: Key
    size: int
    etag: str | None = None
    sha256: str | None = None
    modified: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload under way.  Plain data: it survives in a journal and resumes elsewhere."""

    key: Key
    upload_id: UploadId
    size: int
    part_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that the store accepted; ``sha256`` (hex) only where the store attests it."""

    number: int
    size: int
    etag: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPage:
    """One page of a listing, in key order; ``next_token`` is None on the last page."""

    objects: tuple[ObjectInfo, ...]
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPage:
    """One page of accepted parts, in number order; ``next_token`` is None on the last."""

    parts: tuple[Part, ...]
    next_token: str | None


class Tier(Protocol):
    """A place where bytes can live."""

    @property
    def name(self) -> str:
        """The configured name, for messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; MUST NOT make a request."""
        ...

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Store ``body`` under ``key``; an object appears whole or not at all.

        MUST be safe to repeat with the same bytes.  MUST raise IntegrityError, and store
        nothing, where the store can see that the bytes are not ``body.sha256``, and where
        the body is shorter or longer than its size.  An OSError from reading the body is
        the caller's own failure and passes unchanged.  When it returns, the object MUST be
        as durable as the store makes anything.
        """
        ...

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Put-if-absent, for small objects.

        Of any number of concurrent creates on one key exactly one MUST return, and the
        others MUST raise ObjectExists without changing what is there; in advisory mode
        this holds for a single writer only.  TierUnavailable says that the outcome is not
        known, after a lost reply or where another create is still in flight (it may yet
        fail, so that ObjectExists would promise a key that may never be there): the caller
        reads the key to learn who won.  Never retried by a wrapper.
        """
        ...

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a stream over ``length`` bytes from ``start`` (to the end where None).

        MUST raise ObjectNotFound at once for a missing key, and TierUnavailable from a
        read where the stream ended before the promised bytes: an early end MUST NOT look
        like EOF.  ``start`` at or past the end, or a range past it, is IntegrityError:
        the object is shorter than the caller was promised.  An empty range of an
        existing object (``length=0``, or an empty object) is an empty stream.
        """
        ...

    def stat(self, key: Key) -> ObjectInfo:
        """Describe one object; MUST raise ObjectNotFound where it is missing."""
        ...

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Return one page of the keys that start with ``prefix`` (a plain string prefix).

        Following tokens MUST yield every key exactly once, in ascending order of bytes.
        MUST see every object whose put returned before.  Unfinished uploads are not listed.
        """
        ...

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Make ``key`` a copy of the object ``source`` inside the store, whole or not at all.

        MUST be safe to repeat, and MUST leave ``source`` as it is.  MUST fail (ObjectNotFound or
        IntegrityError), and change nothing, where ``source`` is no longer the object that
        ``source.etag`` names.  ``sha256`` in the reply is that of the bytes, and set only where
        the store computed or checked it on this copy, never where it was carried over.  When it
        returns, the copy MUST be as durable as a ``put``.  Unsupported where capabilities say so,
        and for more than ``max_put`` bytes.
        """
        ...

    def delete(self, key: Key) -> None:
        """Remove exactly this key, not those it is a prefix of; a missing key is fine."""
        ...

    def close(self) -> None:
        """Release connections; MAY be called twice."""
        ...

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Start an upload of ``size`` bytes in parts of ``part_size`` (the last may be smaller).

        Nothing is visible under ``key`` before ``complete``.  A size of 0 is one empty part.
        """
        ...

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Store part ``number`` (from 1); repeating a number replaces it.

        The same rules for the body as in ``put``; its size is that which the number says,
        else IntegrityError.  An upload that is gone is ObjectNotFound.
        """
        ...

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Return one page of the parts that the store has; an upload that is gone is ObjectNotFound.

        MUST NOT name a part that ``complete`` would not take.  A number that was sent more
        than once MAY be left out where the store cannot tell which is the newer.
        """
        ...

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Fill part ``number`` inside the store from a range of ``source``.

        MUST fail where ``source`` is no longer the object that ``source.etag`` names.
        Unsupported where capabilities say so.
        """
        ...

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Make the object appear, whole, from ``parts`` in number order.

        MUST refuse parts that are not all of the upload's, each once, as the store holds
        them (a part that was replaced may be used if it is the one named): IntegrityError
        where the tier sees it itself, else what the store's refusal maps to, but never
        TierUnavailable.  Nothing appears then.  An upload that is gone is ObjectNotFound:
        the caller stats the key, since a lost reply of an earlier complete looks the same.
        """
        ...

    def abort(self, upload: Upload) -> None:
        """Forget an upload and free its parts; one that is gone is fine."""
        ...


def walk(tier: Tier, prefix: str) -> Iterator[ObjectInfo]:
    """Yield every object under ``prefix``, a request a page.

    Raises TierUnavailable where empty pages never end, or a page does not come after the one before it.
    """
    token: str | None = None
    empty = 0
    last = ""
    while empty < MAX_EMPTY_PAGES:
        page = tier.list_objects(prefix, token)
        if page.objects and token is not None and page.objects[0].key <= last:
            raise TierUnavailable(
                f"a listing goes back to {page.objects[0].key}, which was listed before",
                tier=tier.name,
                operation="list_objects",
                key=prefix,
            )
        yield from page.objects
        last = page.objects[-1].key if page.objects else last
        token = page.next_token
        if token is None:
            return
        empty = 0 if page.objects else empty + 1
    raise TierUnavailable(
        f"a listing went on for {MAX_EMPTY_PAGES} pages with nothing on them",
        tier=tier.name,
        operation="list_objects",
        key=prefix,
    )


def all_parts(tier: Tier, upload: Upload) -> Iterator[Part]:
    """Yield every accepted part of an upload, a request a page."""
    token: str | None = None
    while True:
        page = tier.list_parts(upload, token)
        yield from page.parts
        token = page.next_token
        if token is None:
            return
