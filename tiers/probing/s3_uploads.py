"""What a store makes of objects in parts: digests, copies, resumption, aborting."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tiers.errors import ObjectNotFound, TierError
from tiers.probing.outcomes import Outcome, Subject, no, unknown, whether, yes
from tiers.probing.s3_objects import md5, sha256
from tiers.probing.s3_requests import Answer, Store, brief
from tiers.probing.scratch import SIZE
from tiers.s3_setup import equip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """One part that the store accepted."""

    number: int
    data: bytes
    etag: str


def check_uploads(store: Store, *, with_sha256: bool) -> list[Outcome]:
    """Upload an object of a full part and a small one, from two clients; then copy from it, and abort.

    ``with_sha256``: the store takes the header.
    """
    target = store.target("parts")
    upload = _begin(store, target, with_sha256=with_sha256)
    pieces = (secrets.token_bytes(store.profile.min_part), secrets.token_bytes(SIZE))
    wrong = _check_wrong_part(store, upload, with_sha256=with_sha256)
    sent = [_send(store, upload, number, piece, with_sha256) for number, piece in enumerate(pieces, start=1)]
    resumed = _check_resume(store, upload, sent)
    parts: Any = [_chosen(part, with_sha256=with_sha256) for part in sent]
    done = store.ask(
        "complete", lambda: store.plain.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    )
    head = store.ask("stat", lambda: store.plain.head_object(**target, ChecksumMode="ENABLED"))
    outcomes = [*wrong, resumed, _check_etag(done, head, pieces), *_check_join(store, target, pieces)]
    if with_sha256:
        outcomes.append(_check_composite(done, head, pieces))
    return [*outcomes, *_check_copy(store, target, head, pieces, with_sha256=with_sha256)]


def _begin(store: Store, target: dict[str, Any], *, with_sha256: bool) -> dict[str, Any]:
    wanted: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"} if with_sha256 else {}
    answer = store.ask("begin_upload", lambda: store.plain.create_multipart_upload(**target, **wanted))
    upload = {**target, "UploadId": answer["UploadId"]}
    store.uploads.append(upload)
    return upload


def _send(store: Store, upload: dict[str, Any], number: int, data: bytes, with_sha256: bool) -> _Sent:  # noqa: FBT001
    digest: dict[str, Any] = {"ChecksumSHA256": sha256(data)} if with_sha256 else {}
    answer = store.ask("put_part", lambda: store.plain.upload_part(**upload, PartNumber=number, Body=data, **digest))
    return _Sent(number=number, data=data, etag=answer["ETag"])


def _chosen(part: _Sent, *, with_sha256: bool) -> dict[str, Any]:
    digest = {"ChecksumSHA256": sha256(part.data)} if with_sha256 else {}
    return {"PartNumber": part.number, "ETag": part.etag, **digest}


def _check_wrong_part(store: Store, upload: dict[str, Any], *, with_sha256: bool) -> list[Outcome]:
    if not with_sha256:
        return [no(Subject.SHA256_PART, "the header is not taken")]
    data, digest = secrets.token_bytes(SIZE), sha256(b"other bytes")
    return [
        store.refuses(
            Subject.SHA256_PART,
            "a wrong one on a part",
            lambda: store.plain.upload_part(**upload, PartNumber=2, Body=data, ChecksumSHA256=digest),
        )
    ]


def _check_resume(store: Store, upload: dict[str, Any], sent: Sequence[_Sent]) -> Outcome:
    with closing(store.fresh()) as other:
        equip(other, store.profile)
        answer = store.ask("list_parts", lambda: other.list_parts(**upload))
    listed = {part["PartNumber"]: part["ETag"].strip('"') for part in answer.get("Parts", [])}
    held = all(listed.get(part.number) == part.etag.strip('"') for part in sent)
    return whether(
        Subject.RESUME,
        held,
        "another client finds the parts",
        f"another client finds parts {sorted(listed)} of {len(sent)}",
    )


def _check_etag(done: Answer, head: Answer, pieces: Sequence[bytes]) -> Outcome:
    joined = md5(b"".join(md5(piece).digest() for piece in pieces)).hexdigest()
    expected = f"{joined}-{len(pieces)}"
    named = {verb: answer.get("ETag", "").strip('"') for verb, answer in (("Complete", done), ("HEAD", head))}
    odd = [verb for verb, etag in named.items() if etag != expected]
    return whether(
        Subject.MULTIPART_ETAG,
        not odd,
        "the ETag is the MD5 of the parts' MD5s",
        f"{' and '.join(odd)} names another ETag",
    )


def _check_join(store: Store, target: dict[str, Any], pieces: Sequence[bytes]) -> list[Outcome]:
    """Read across the border of the two parts; says something only where that is wrong."""
    border, reach = len(pieces[0]), SIZE // 2
    span = f"bytes={border - reach}-{border + reach - 1}"
    found = store.body("open", lambda: store.plain.get_object(**target, Range=span))
    if found == pieces[0][-reach:] + pieces[1][:reach]:
        return []
    return [no(Subject.RANGES, "a range across two parts is not their bytes")]


def _check_composite(done: Answer, head: Answer, pieces: Sequence[bytes]) -> Outcome:
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    expected = base64.b64encode(hashlib.sha256(digests).digest()).decode()
    named = {verb: (answer.get("ChecksumSHA256") or "") for verb, answer in (("Complete", done), ("HEAD", head))}
    odd = [verb for verb, found in named.items() if found.partition("-")[0] != expected]
    return whether(
        Subject.SHA256_ECHO,
        not odd,
        "Complete returns that over the parts",
        f"{' and '.join(odd)} did not return it in parts",
    )


def _check_copy(
    store: Store, source: dict[str, Any], head: Answer, pieces: Sequence[bytes], *, with_sha256: bool
) -> list[Outcome]:
    """Copy a range into another upload; that one is then aborted."""
    upload = _begin(store, store.target("copied"), with_sha256=with_sha256)
    copied = _copied(store, upload, source, head, pieces)
    store.ask("abort", lambda: store.plain.abort_multipart_upload(**upload))
    try:
        store.ask("list_parts", lambda: store.plain.list_parts(**upload))
    except ObjectNotFound:
        gone = yes(Subject.ABORT, "an aborted upload is gone")
    except TierError as error:
        gone = unknown(Subject.ABORT, f"an aborted upload answers {brief(error)}")
    else:
        gone = no(Subject.ABORT, "an aborted upload still lists its parts")
    return [copied, gone]


def _copied(
    store: Store, upload: dict[str, Any], source: dict[str, Any], head: Answer, pieces: Sequence[bytes]
) -> Outcome:
    def copy(etag: str) -> Answer:
        return store.ask(
            "copy_part",
            lambda: store.plain.upload_part_copy(
                **upload,
                PartNumber=1,
                CopySource={"Bucket": source["Bucket"], "Key": source["Key"]},
                CopySourceRange=f"bytes=0-{SIZE - 1}",
                CopySourceIfMatch=etag,
            ),
        )

    try:
        answer = copy(head["ETag"])
    except TierError as error:
        return no(Subject.SHA256_COPY, f"a copy inside the store: {brief(error)}")
    if answer.get("CopyPartResult", {}).get("ChecksumSHA256") != sha256(pieces[0][:SIZE]):
        return no(Subject.SHA256_COPY, "a copy inside the store does not say what it copied")
    try:
        copy('"0123456789abcdef0123456789abcdef"')
    except TierError:
        return yes(Subject.SHA256_COPY, "a copy inside the store says what it copied")
    return no(Subject.SHA256_COPY, "a copy is made from a source that has changed")
