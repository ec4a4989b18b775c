"""Listings of objects and versions, page by page."""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tiers.testing.s3_emulator.answers import Answer, Refusal, xml_answer
from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.behaviour import ListOrder
from tiers.testing.s3_emulator.call import Call
from tiers.testing.s3_emulator.documents import Node, document, url_encoded
from tiers.testing.s3_emulator.objects import listed_time
from tiers.testing.s3_emulator.state import Bucket, DeleteMarker, State, StoredObject

_PAGE = 1_000
_Order = Callable[[str], tuple[bytes, ...]]


@dataclass(slots=True, kw_only=True)
class _Page:
    """Entries of a listing; a prefix stands for all keys that share it up to the delimiter."""

    size: int
    objects: list[tuple[str, StoredObject]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    truncated: bool = False

    def is_full(self) -> bool:
        return len(self.objects) + len(self.prefixes) >= self.size


def _order(order: ListOrder) -> _Order:
    if order is ListOrder.TREE:
        return lambda key: tuple(part.encode() for part in key.split("/"))
    return lambda key: (key.encode(),)


def _page(state: State, bucket: Bucket, asked: Asked, after: str) -> _Page:
    """Return the entries that follow the key ``after``."""
    prefix, delimiter = asked.query.get("prefix", ""), asked.query.get("delimiter", "")
    page = _Page(size=min(asked.number("max-keys", _PAGE), state.behaviour.list_page))
    order = _order(state.behaviour.list_order)
    found = [(key, held) for key, held in bucket.current_objects() if key.startswith(prefix)]
    for key, held in sorted(found, key=lambda entry: order(entry[0])):
        if after and order(key) <= order(after):
            continue
        head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        shown = prefix + head + cut if cut else ""
        if shown and (shown in page.prefixes or (after and after.startswith(shown))):
            page.last = key
            continue
        if page.is_full():
            page.truncated = page.size > 0
            break
        if shown:
            page.prefixes.append(shown)
        else:
            page.objects.append((key, held))
        page.last = key
    return page


def _entries(page: _Page, encoding: str | None) -> Iterator[Node]:
    for key, held in page.objects:
        yield (
            "Contents",
            [
                ("Key", url_encoded(key, encoding)),
                ("LastModified", listed_time(held)),
                ("ETag", f'"{held.etag}"'),
                ("Size", len(held.data)),
                ("StorageClass", held.attributes.storage_class),
            ],
        )
    for prefix in page.prefixes:
        yield "CommonPrefixes", [("Prefix", url_encoded(prefix, encoding))]


def _described(asked: Asked, bucket: Bucket, page: _Page) -> list[Node]:
    encoding = asked.query.get("encoding-type")
    given = [(name, asked.query[query]) for name, query in (("Delimiter", "delimiter"),) if query in asked.query]
    return [
        ("Name", bucket.name),
        ("Prefix", url_encoded(asked.query.get("prefix", ""), encoding)),
        *((name, url_encoded(value, encoding)) for name, value in given),
        *([("EncodingType", encoding)] if encoding else []),
        ("MaxKeys", page.size),
        ("IsTruncated", page.truncated),
    ]


def list_objects_v2(call: Call) -> Answer:
    """List objects, with opaque tokens."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    token = asked.query.get("continuation-token")
    page = _page(state, bucket, asked, _open_token(token) if token is not None else asked.query.get("start-after", ""))
    nodes = _described(asked, bucket, page)
    nodes.append(("KeyCount", len(page.objects) + len(page.prefixes)))
    nodes += [("ContinuationToken", token)] if token is not None else []
    nodes += [("NextContinuationToken", _seal_token(page.last))] if page.truncated else []
    return xml_answer(document("ListBucketResult", *nodes, *_entries(page, asked.query.get("encoding-type"))))


def list_objects(call: Call) -> Answer:
    """List objects the old way, with markers that are keys."""
    state, asked = call.state, call.asked
    bucket, encoding = call.bucket, asked.query.get("encoding-type")
    marker = asked.query.get("marker", "")
    page = _page(state, bucket, asked, marker)
    nodes = [*_described(asked, bucket, page), ("Marker", url_encoded(marker, encoding))]
    nodes += [("NextMarker", url_encoded(page.last, encoding))] if page.truncated else []
    return xml_answer(document("ListBucketResult", *nodes, *_entries(page, encoding)))


def _seal_token(key: str) -> str:
    return base64.urlsafe_b64encode(f"after {key}".encode()).decode()


def _open_token(token: str) -> str:
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    if not text.startswith("after "):
        raise Refusal(400, "InvalidArgument", "The continuation token provided is incorrect")
    return text.removeprefix("after ")


def list_versions(call: Call) -> Answer:
    """List all versions and delete markers, newest first within a key."""
    state, asked = call.state, call.asked
    bucket, encoding = call.bucket, asked.query.get("encoding-type")
    prefix = asked.query.get("prefix", "")
    size = min(asked.number("max-keys", _PAGE), state.behaviour.list_page)
    versions = [
        (key, held, held is kept[-1])
        for key, kept in sorted(bucket.objects.items(), key=lambda entry: entry[0].encode())
        if key.startswith(prefix)
        for held in reversed(kept)
    ]
    start = _after_version(versions, asked.query.get("key-marker"), asked.query.get("version-id-marker"))
    page, truncated = versions[start : start + size], len(versions) > start + size
    nodes: list[Node] = [("Name", bucket.name), ("Prefix", prefix), ("IsTruncated", truncated)]
    if truncated:
        nodes += [("NextKeyMarker", url_encoded(page[-1][0], encoding)), ("NextVersionIdMarker", page[-1][1].version)]
    nodes += [("EncodingType", encoding)] if encoding else []
    nodes += [_version_entry(key, held, encoding, newest=newest) for key, held, newest in page]
    return xml_answer(document("ListVersionsResult", *nodes))


def _after_version(
    versions: Sequence[tuple[str, StoredObject | DeleteMarker, bool]], key: str | None, version: str | None
) -> int:
    if key is None:
        return 0
    passed = [n for n, (k, held, _) in enumerate(versions) if k < key or (k == key and version in (None, held.version))]
    return passed[-1] + 1 if passed else 0


def _version_entry(key: str, held: StoredObject | DeleteMarker, encoding: str | None, *, newest: bool) -> Node:
    nodes: list[Node] = [
        ("Key", url_encoded(key, encoding)),
        ("VersionId", held.version),
        ("IsLatest", newest),
        ("LastModified", held.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
    ]
    if isinstance(held, DeleteMarker):
        return "DeleteMarker", nodes
    return "Version", [*nodes, ("ETag", f'"{held.etag}"'), ("Size", len(held.data)), ("StorageClass", "STANDARD")]
