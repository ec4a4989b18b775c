"""Every store that has an fsspec filesystem: GCS, Azure, SFTP, WebDAV, and what else is registered.

What a store can be relied on for is data (:mod:`tiers.fsspec_stores`); how its filesystem
is talked to is a backend (:mod:`tiers.fsspec_backends` and its neighbours); here the verbs
are put together and the one place is where foreign errors end.

Verbs take more than one request where fsspec leaves no other way: a write is followed by a
look at its size, a file is described before it is read, and a key that is not there is
believed only after the root was seen.  A listing is read as a whole and returned as one
page.  There are no parts (see the stores' module).  SHA-256 digests are nobody's business
here: the tier says READ_BACK, and the caller compares bytes.

Tested against real servers: local files, memory, S3 through s3fs, SFTP, WebDAV.  gcsfs and
adlfs could only be read, and are tested with stand-ins that behave as their sources say.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, NoReturn, cast

from tiers.bodies import Body
from tiers.checks import check_upload, key_components, range_length
from tiers.errors import ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.fsspec_backends import Backend, Entry
from tiers.fsspec_errors import judge, translate
from tiers.fsspec_stores import Store
from tiers.fsspec_streams import Loan, Pool, RangeStream, SentBody
from tiers.protocol import (
    Capabilities,
    Fencing,
    Key,
    ObjectInfo,
    ObjectPage,
    Part,
    PartPage,
    Upload,
    UploadId,
)

_ABSENT_IS_AN_ANSWER = frozenset({"open", "stat"})
"""Verbs for which a missing path means a missing object, not a store that changes under them."""
_ABSENT_IS_FINE = frozenset({"list_objects", "delete"})


class FsspecTier:
    """Objects in a store; ``connect`` opens its filesystem at the first request, and again after a close.

    ``fencing`` is what its creates are worth with the release that is installed.
    """

    def __init__(self, name: str, *, store: Store, fencing: Fencing, connect: Callable[[], Backend]) -> None:
        self._name = name
        self._capabilities = store.capabilities(fencing)
        self._pool = Pool(connect)

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """What is known of the store."""
        return self._capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Write the object in one stream, and compare its size."""
        if body.size > self._capabilities.max_put:
            message = f"{body.size} bytes: at most {self._capabilities.max_put} in one object"
            raise Unsupported(message, tier=self._name, operation="put", key=key, hint="save it in smaller files")
        sent = SentBody(body, tier=self._name, operation="put", key=key)
        with self._asking("put", key, sent) as backend:
            entry = backend.put(key, body.size, sent)
        return _info(key, entry)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Store data where the key is free, by the store's own means or after a look."""
        with self._asking("create", key) as backend:
            entry = backend.create(key, data)
        return _info(key, entry)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a stream over a range; its connection is its own until it is closed."""
        with ExitStack() as stack:
            loan = self._lend("open", key)
            stack.callback(loan.end)
            with self._mapped("open", key, loan):
                source = loan.backend.open(key)
            stack.callback(source.close)
            stream = RangeStream(
                source,
                start,
                range_length(source.size, start, length, tier=self._name, operation="open", key=key),
                window=loan.backend.window,
                translated=lambda error: self._failure(error, "open", key, loan),
                release=stack.pop_all().close,
            )
        return cast("BinaryIO", stream)

    def stat(self, key: Key) -> ObjectInfo:
        """Describe the object; a folder is none."""
        with self._asking("stat", key) as backend:
            entry = backend.stat(key)
        return _info(key, entry)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Return the whole listing as one page, in order of bytes."""
        if token is not None:
            raise ValueError("a token that this tier never gave")
        found: list[ObjectInfo] = []
        with self._asking("list_objects", prefix) as backend:
            found = [_info(Key(key), entry) for key, entry in backend.listing(prefix)]
        return ObjectPage(objects=tuple(sorted(found, key=lambda info: info.key)), next_token=None)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:  # noqa: ARG002 - the protocol's
        """Refuse: no implementation says what it copied."""
        key_components(key)
        raise Unsupported("no copies through fsspec", tier=self._name, operation="copy", key=key)

    def delete(self, key: Key) -> None:
        """Remove the object if it is there; a folder of that name stays."""
        with self._asking("delete", key) as backend:
            backend.delete(key)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Refuse: files are written in one stream."""
        key_components(key)
        upload = Upload(key=key, upload_id=UploadId(""), size=size, part_size=part_size)
        check_upload(upload, self._capabilities, tier=self._name)
        self._no_parts("begin_upload", key)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Refuse."""
        del number, body
        self._no_parts("put_part", upload.key)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Refuse."""
        del token
        self._no_parts("list_parts", upload.key)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Refuse."""
        del number, source, start, length
        self._no_parts("copy_part", upload.key)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Refuse."""
        del parts
        self._no_parts("complete", upload.key)

    def abort(self, upload: Upload) -> None:
        """Do nothing: no upload was ever begun."""

    def _no_parts(self, operation: str, key: Key) -> NoReturn:
        raise Unsupported("no uploads in parts through fsspec", tier=self._name, operation=operation, key=key)

    def _lend(self, operation: str, key: str) -> Loan:
        first = key_components(key)[0] if operation != "list_objects" else ""
        try:
            loan = self._pool.lend()
        except Exception as error:  # noqa: BLE001 - an implementation may raise anything; the table judges
            failure = translate(error, tier=self._name, operation=operation, key=key)
            if isinstance(failure, ObjectNotFound):  # a file that connecting needs, not an object
                failure = TierError(failure.message, tier=self._name, operation=operation, key=key)
            raise failure from None
        if first and first == loan.backend.reserved:
            loan.end()
            raise ValueError(f"not a key: {key!r}: {first} is the tier's own folder")
        return loan

    @contextmanager
    def _asking(self, operation: str, key: str, sent: SentBody | None = None) -> Iterator[Backend]:
        loan = self._lend(operation, key)
        try:
            with self._mapped(operation, key, loan, sent):
                yield loan.backend
        finally:
            loan.end()

    @contextmanager
    def _mapped(self, operation: str, key: str, loan: Loan, sent: SentBody | None = None) -> Iterator[None]:
        """Turn whatever is raised inside into a tier's error; what is missing and may be is no error."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as above
            if sent is not None and sent.failure is not None:
                loan.broken = True  # a request was left half-way
                raise sent.failure from None
            failure = self._failure(error, operation, key, loan)
            if isinstance(failure, ObjectNotFound) and operation in _ABSENT_IS_FINE:
                return
            raise failure from None
        except BaseException:
            loan.broken = True
            raise

    def _failure(self, error: Exception, operation: str, key: str, loan: Loan) -> TierError:
        finding = translate(error, tier=self._name, operation=operation, key=key)
        loan.broken = isinstance(finding, TierUnavailable)
        folder_or_file = isinstance(error, (NotADirectoryError, IsADirectoryError))
        if not isinstance(finding, ObjectNotFound) and not (folder_or_file and operation not in ("put", "create")):
            return finding
        without_root = self._missing_root(operation, key, loan)
        if without_root is not None:
            return without_root
        if operation in _ABSENT_IS_AN_ANSWER | _ABSENT_IS_FINE:
            return ObjectNotFound("no such key", tier=self._name, operation=operation, key=key)
        message = "a folder or the object vanished while it was written"
        return TierUnavailable(message, tier=self._name, operation=operation, key=key)

    def _missing_root(self, operation: str, key: str, loan: Loan) -> TierError | None:
        """Return what to raise unless the root answers: only then is a missing key an answer."""
        try:
            there = loan.backend.root_is_there()
        except Exception as error:  # noqa: BLE001 - as above
            loan.broken = True
            if not issubclass(judge(error, operation=operation).verdict.error, ObjectNotFound):
                return translate(error, tier=self._name, operation=operation, key=key)
            there = False
        if there:
            return None
        kind, message, hint = loan.backend.absent_root
        return kind(message, tier=self._name, operation=operation, key=key, hint=hint)


def _info(key: Key, entry: Entry) -> ObjectInfo:
    return ObjectInfo(key=key, size=entry.size, etag=entry.etag, modified=entry.modified)
