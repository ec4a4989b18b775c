"""The profiles.  One source line a fact; the dates are those on which it was looked at."""

from tiers.profiles.model import GIB, MIB, Checksum, Create, Evidence, Fact, Profile
from tiers.protocol import Verification

_LOOKED = "2026-11-29"


def _probed(fields: str, source: str) -> Fact:
    return Fact(fields=tuple(fields.split()), kind=Evidence.PROBED, source=source, as_of=_LOOKED)


def _documented(fields: str, source: str) -> Fact:
    return Fact(fields=tuple(fields.split()), kind=Evidence.DOCUMENTED, source=source, as_of=_LOOKED)


def _reported(fields: str, source: str) -> Fact:
    return Fact(fields=tuple(fields.split()), kind=Evidence.REPORTED, source=source, as_of=_LOOKED)


GENERIC = Profile(name="generic-s3", facts=())
"""A store that nobody has looked at: the defaults are made for it.  1,000 parts bound all stores known."""

_AWS = Profile(
    name="aws",
    facts=(
        _documented("hosts addressing", "S3 endpoints and quotas; virtual-hosted requests"),
        _documented("checksum verification", "checking object integrity: SHA-256 on PUT and part, composite in parts"),
        _documented("checks_size", "CompleteMultipartUpload: x-amz-mp-object-size"),
        _documented("create", "conditional writes: If-None-Match, 412, and 409 while another write is in flight"),
        _documented("copy_part", "UploadPartCopy: CopyPartResult has ChecksumSHA256"),
        _documented(
            "lists_replaced_parts sorted_listing", "UploadPart overwrites; ListObjectsV2 in UTF-8 binary order"
        ),
        _documented("storage_classes", "storage classes; GLACIER and DEEP_ARCHIVE need a restore"),
        _documented("max_parts max_object", "multipart limits: 10,000 parts, 50 TB since late 2025 (the SDK's model)"),
    ),
    hosts=r"(?:.+\.)?s3(?:[.-](?:dualstack\.|fips\.)?(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d))?\.amazonaws\.com(?:\.cn)?",
    addressing="auto",
    checksum=Checksum.SHA256_HEADER,
    checks_size=True,
    verification=Verification.STORE_SHA256,
    create=Create.IF_NONE_MATCH,
    copy_part=True,
    lists_replaced_parts=False,
    sorted_listing=True,
    storage_classes=frozenset(
        ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY")
    ),
    max_parts=10_000,
    max_object=50 * 10**12,
)

_R2 = Profile(
    name="r2",
    facts=(
        _documented("hosts region", "S3 API: account endpoints, region auto"),
        _documented("checksum verification", "S3 API: SHA-256 on PUT, composite in parts; reported: no trailers"),
        _documented("create", "S3 API: conditional headers of PutObject, and of no other write"),
        _documented("lists_replaced_parts sorted_listing", "S3 API: UploadPart, ListObjectsV2"),
        _documented("write_interval throttles", "limits: one write a second to a key, 429 code 10058"),
        _reported("parts_at_once", "other clients keep to 2 to 4 parts at a time"),
        _documented("storage_classes", "storage classes: Standard, Infrequent Access"),
        _documented("max_put max_part max_parts max_object", "limits: 4.995 GiB, 10,000 parts, 4.995 TiB"),
    ),
    hosts=r"[0-9a-z]+(?:\.[a-z]+)?\.r2\.cloudflarestorage\.com",
    region="auto",
    checksum=Checksum.SHA256_HEADER,
    verification=Verification.STORE_SHA256,
    create=Create.IF_NONE_MATCH,
    lists_replaced_parts=False,
    sorted_listing=True,
    storage_classes=frozenset({"STANDARD", "STANDARD_IA"}),
    throttles=frozenset({"TooManyRequests", "10058"}),
    write_interval=1.0,
    parts_at_once=4,
    max_put=5_114 * MIB,
    max_part=5_114 * MIB,
    max_parts=10_000,
    max_object=5_114 * GIB,
)

_SEAWEEDFS = Profile(
    name="seaweedfs",
    facts=(
        _probed(
            "checksum verification", "4.48: a wrong SHA-256 is refused on PUT, part and Complete, a right one echoed"
        ),
        _probed("create", "4.48: one winner of racing creates"),
        _probed("copy_part", "4.48: UploadPartCopy returns the SHA-256 of what it copied, and honours If-Match"),
        _probed("max_parts", "4.48: takes part 10,000"),
    ),
    checksum=Checksum.SHA256_HEADER,
    verification=Verification.STORE_SHA256,
    create=Create.IF_NONE_MATCH,
    copy_part=True,
    max_parts=10_000,
)

_CEPH_RGW = Profile(
    name="ceph-rgw",
    facts=(
        _probed("verification", "16.2: checks the signed payload hash; ETags are MD5 and the S3 formula"),
        _probed("create", "16.2: one winner of racing creates; ignored by Complete"),
        _probed("sorted_listing max_parts", "16.2"),
    ),
    verification=Verification.MD5_ETAG,
    create=Create.IF_NONE_MATCH,
    sorted_listing=True,
    max_parts=10_000,
)

_MINIO = Profile(
    name="minio",
    facts=(
        _documented("checksum verification", "SHA-256 as in S3; not probed by us"),
        _documented("create", "If-None-Match on PutObject; not probed by us"),
        _documented("sorted_listing lists_replaced_parts max_parts", "as in S3; not probed by us"),
    ),
    checksum=Checksum.SHA256_HEADER,
    verification=Verification.STORE_SHA256,
    create=Create.IF_NONE_MATCH,
    lists_replaced_parts=False,
    sorted_listing=True,
    max_parts=10_000,
)

_GCS = Profile(
    name="gcs",
    facts=(
        _documented("hosts region", "XML API, interoperability with HMAC keys"),
        _documented("create", "XML API: x-goog-if-generation-match in place of If-None-Match"),
        _documented("checksum", "XML API: x-goog-hash in place of x-amz-checksum"),
        _documented("sorted_listing lists_replaced_parts max_parts", "XML API: lexicographic order; 10,000 parts"),
        _documented("write_interval", "quotas: about one write a second to an object"),
        _documented("storage_classes", "storage classes; all of them are read at once"),
    ),
    hosts=r"(?:.+\.)?storage\.googleapis\.com",
    region="auto",
    checksum=Checksum.NONE,
    create=Create.LOOK_FIRST,
    lists_replaced_parts=False,
    sorted_listing=True,
    storage_classes=frozenset({"STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"}),
    write_interval=1.0,
    max_parts=10_000,
)

_B2 = Profile(
    name="b2",
    facts=(
        _documented("hosts", "S3-compatible API: endpoints name the region"),
        _reported("create", "claimed by others, documented nowhere"),
        _reported("checksum", "x-amz-checksum and x-amz-sdk-checksum-algorithm were refused"),
        _documented("sorted_listing lists_replaced_parts", "S3-compatible API: b2_list_file_names order"),
        _documented("max_put max_part max_parts max_object", "files: 5 GB a part, 10,000 parts, 10 TB"),
    ),
    hosts=r"s3\.(?P<region>[a-z0-9-]+)\.backblazeb2\.com",
    checksum=Checksum.NONE,
    create=Create.LOOK_FIRST,
    lists_replaced_parts=False,
    sorted_listing=True,
    max_put=5 * 10**9,
    max_part=5 * 10**9,
    max_parts=10_000,
    max_object=10 * 10**12,
)

_RUNPOD = Profile(
    name="runpod",
    facts=(
        _documented("hosts", "network volumes, S3 API: the region is the data centre"),
        _documented("create", "S3 API: not among the headers that it names"),
        _documented("checksum", "S3 API: ETags are computed lazily; checksums are not named"),
        _documented("max_put max_part max_parts max_object", "S3 API: under 500 MB a part, volumes of 4 TB"),
        _documented("read_timeout complete_timeout", "S3 API: 7,200 s for Complete of 10 GB and more"),
        _reported("throttles", "502 under load, to be tried again up to ten times"),
    ),
    hosts=r"s3api-(?P<region>[a-z0-9-]+)\.runpod\.io",
    checksum=Checksum.NONE,
    create=Create.LOOK_FIRST,
    throttles=frozenset({"502"}),
    max_put=500 * 10**6 - 1,
    max_part=500 * 10**6 - 1,
    max_parts=10_000,
    max_object=4 * 10**12,
    read_timeout=900.0,
    complete_timeout=7_200.0,
)

_TIGRIS = Profile(
    name="tigris",
    facts=(
        _documented("hosts region addressing", "S3 API: fly.storage.tigris.dev and t3.storage.dev, region auto"),
        _documented("headers", "consistency: X-Tigris-Consistent: true reads what another region wrote"),
        _reported("throttles", "408 RequestCanceled under load"),
        _documented("max_parts", "S3 API: limits as in S3"),
    ),
    hosts=r"(?:.+\.)?(?:fly\.storage\.tigris\.dev|t3\.storage\.dev|t3\.storageapi\.dev)",
    addressing="virtual",
    region="auto",
    headers=(("X-Tigris-Consistent", "true"),),
    throttles=frozenset({"408", "RequestCanceled"}),
    max_parts=10_000,
)

_HETZNER = Profile(
    name="hetzner",
    facts=(
        _documented("hosts", "object storage: endpoints name the location"),
        _documented("max_parts", "object storage: limits as in S3; reported: trailers are InvalidArgument"),
    ),
    hosts=r"(?:.+\.)?(?P<region>[a-z]+\d)\.your-objectstorage\.com",
    max_parts=10_000,
)

_SCALEWAY = Profile(
    name="scaleway",
    facts=(
        _documented("hosts", "object storage: endpoints name the region"),
        _documented("create", "object storage: conditional writes; reported: trailers are MissingContentLength"),
        _documented("storage_classes", "storage classes; GLACIER needs a restore"),
    ),
    hosts=r"(?:.+\.)?s3\.(?P<region>[a-z]{2}-[a-z]{3})\.scw\.cloud",
    create=Create.IF_NONE_MATCH,
    storage_classes=frozenset({"STANDARD", "ONEZONE_IA"}),
)

_DIGITALOCEAN = Profile(
    name="digitalocean",
    facts=(
        _documented("hosts addressing", "Spaces: endpoints name the region, buckets are hosts"),
        _documented(
            "max_parts", "Spaces: 10,000 parts; put-if-absent is a third party's claim, so it is not relied on"
        ),
    ),
    hosts=r"(?:.+\.)?(?P<region>[a-z]{3}\d)\.digitaloceanspaces\.com",
    addressing="virtual",
    max_parts=10_000,
)

_HF_S3 = Profile(
    name="hf-s3",
    facts=(
        _documented("hosts region", "Hub buckets, S3 API: the namespace is in the URL, path addressing, us-east-1"),
        _documented("create", "Hub buckets, S3 API: conditional headers of PutObject, and of no other write"),
        _documented("max_parts max_object", "Hub buckets: files of at most 500 GB, parts of 2 GB suggested"),
    ),
    hosts=r"s3\.hf\.co",
    region="us-east-1",
    create=Create.IF_NONE_MATCH,
    max_parts=10_000,
    max_object=500 * 10**9,
)

_MOTO = Profile(
    name="moto",
    facts=(
        _probed("checksum", "5.2.5, a test double: takes any checksum, returns wrong composites"),
        _probed("verification", "5.2.5: the ETag is the MD5 of what it received"),
        _probed("create", "5.2.5: one winner of racing creates"),
        _probed("sorted_listing lists_replaced_parts max_parts", "5.2.5"),
    ),
    checksum=Checksum.NONE,
    verification=Verification.MD5_ETAG,
    create=Create.IF_NONE_MATCH,
    lists_replaced_parts=False,
    sorted_listing=True,
    max_parts=10_000,
)

PROFILES = {
    profile.name: profile
    for profile in (
        *(_AWS, _R2, _SEAWEEDFS, _CEPH_RGW, _RUNPOD, _GCS, _B2, _TIGRIS, _HETZNER, _SCALEWAY, _DIGITALOCEAN),
        *(_HF_S3, _MINIO, _MOTO, GENERIC),
    )
}
