"""What a store makes of a copy of a whole object, and whose word its digest is."""

import secrets
from collections.abc import Callable

from tiers.errors import TierError, TierUnavailable
from tiers.probing.outcomes import Outcome, Subject, no, yes
from tiers.probing.s3_objects import sha256
from tiers.probing.s3_requests import Answer, Store, brief
from tiers.probing.scratch import SIZE

_SUBJECT = Subject.SHA256_COPY_OBJECT
_ANOTHER = '"0123456789abcdef0123456789abcdef"'


def check_copy(store: Store, *, with_sha256: bool) -> list[Outcome]:
    """Copy an object of which the store knows no SHA-256: one that comes back was computed on the copy.

    A store that carries the digest of the source over (SeaweedFS does) would repeat a wrong one.
    """
    if not with_sha256:
        return [no(_SUBJECT, "the header is not taken")]
    source, target, data = store.target("copy-source"), store.target("copy"), secrets.token_bytes(SIZE)
    put = store.ask("put", lambda: store.plain.put_object(**source, Body=data))

    def copy(etag: str) -> Answer:
        place = {"Bucket": source["Bucket"], "Key": source["Key"]}
        return store.ask(
            "copy",
            lambda: store.plain.copy_object(
                **target,
                CopySource=place,  # type: ignore[arg-type]
                CopySourceIfMatch=etag,
                ChecksumAlgorithm="SHA256",
            ),
        )

    try:
        answer = copy(put["ETag"])
    except TierUnavailable:
        raise
    except TierError as error:
        return [no(_SUBJECT, f"a copy of an object: {brief(error)}")]
    if answer.get("CopyObjectResult", {}).get("ChecksumSHA256") != sha256(data):
        return [no(_SUBJECT, "a copy of an object does not say what it copied")]
    if store.body("open", lambda: store.plain.get_object(**target)) != data:
        return [no(_SUBJECT, "a copy of an object has other bytes than its source")]
    return [_check_changed(copy)]


def _check_changed(copy: Callable[[str], Answer]) -> Outcome:
    try:
        copy(_ANOTHER)
    except TierUnavailable:
        raise
    except TierError:
        return yes(_SUBJECT, "a copy of an object computes its SHA-256 and returns it")
    return no(_SUBJECT, "an object is copied from a source that has changed")
