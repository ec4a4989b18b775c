"""Places of other machines: absolute paths, home folders, buckets, internal hosts and addresses."""

import ipaddress
import re
from collections.abc import Iterator

from replicate.release.findings import Rule
from replicate.release.scan.fragments import Block, Origin
from replicate.release.scan.hits import digest_of
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.matching import Match

_ROOTS = (
    "home|Users|root|mnt|media|data|datasets|scratch|work|workspace|tmp|var|opt|srv|etc|private|Volumes|gpfs|"
    "lustre|nfs|net|export|shm|run|proc|sys|content|kaggle|notebooks|storage|efs|fsx|dbfs|homes|cluster|project|"
    "projects|gscratch|ceph|vol|raid|ssd|nvme|local|checkpoints|ckpt|models"
)
"""First folders of paths that people's machines have; an address like /v1/chat is none."""
_COMPONENT = r"[\w.@%+,=~-]{1,255}+"
_POSIX = re.compile(rf"(?<![\w.:/~@%+-])/(?:{_ROOTS})\d{{0,3}}/{_COMPONENT}(?:/{_COMPONENT}){{0,64}}+")
_WHOLE_POSIX = re.compile(rf"/{_COMPONENT}(?:/{_COMPONENT}){{1,64}}+/?")
_WINDOWS = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Z]:(?:\\{1,2}|/(?!/))[\w.$~-]|[a-z]:\\{1,2}[\w.$~ -]{1,255}+\\)[\w.$~ \\-]{0,255}+"
)
_UNC = re.compile(r"(?<![\w\\])\\\\[A-Za-z0-9][\w.-]{1,253}+\\[\w.$ -]{1,255}+")
_FILE_URL = re.compile(r"(?<![A-Za-z0-9])file:/{1,3}[^\s\"'<>]{1,512}+", re.IGNORECASE)
_HOME = re.compile(r"(?<![\w/.~-])(?:~[a-z_][\w-]{0,31}+/[\w.]|\$\{?HOME\}?/[\w.]|%USERPROFILE%\\)")
_OWN_HOME = re.compile(r"~/[\w.]")

_BUCKET = re.compile(
    r"(?<![A-Za-z0-9])(?:s3a?|gs|gcs|az|abfss?|wasbs?|adl|r2|b2|oss|cos|swift|hdfs|dbfs|sftp|smb|nfs|rsync)"
    r"://[\w.@-]{1,255}+",
    re.IGNORECASE,
)
_BUCKET_HOST = re.compile(
    r"(?<![\w.-])(?:[a-z0-9-]{1,63}+\.){1,6}"
    r"(?:amazonaws\.com|cloudflarestorage\.com|blob\.core\.windows\.net|digitaloceanspaces\.com|backblazeb2\.com)"
    r"(?![\w-])",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]{0,62}+)\.){1,8}(?:internal|local|localdomain|corp|lan|intranet|svc)(?![\w-]|\.\w)",
    re.IGNORECASE,
)
_LOCALHOST = re.compile(r"(?<![\w.-])localhost(?![\w-])", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]{2,39}(?![\w:]))[0-9A-Fa-f]{0,4}+:[0-9A-Fa-f:]{1,38}+(?![\w:])")
_DOCUMENTATION = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
_UNIQUE_LOCAL = ipaddress.ip_network("fc00::/7")

_PATHS = (
    (_POSIX, "absolute path", "/"),
    (_WINDOWS, "absolute Windows path", ":"),
    (_UNC, "path of a network share", "\\\\"),
    (_FILE_URL, "file URL", "file:"),
)
_SURE_PATHS = (_PATHS[0], _PATHS[3])
"""Those that random bytes do not hold by chance."""
_HOSTS: tuple[tuple[re.Pattern[str], str, str, tuple[Origin, ...]], ...] = (
    (_BUCKET, "address of a bucket or a share", "://", ()),
    (_BUCKET_HOST, "address of a bucket", ".com blob.core", (Origin.BYTES,)),
    (_HOST, "internal host name", ".", (Origin.BYTES,)),
    (_LOCALHOST, "localhost", "localhost", (Origin.BYTES, Origin.VOCABULARY)),
)
"""Expression, kind, literals of which one occurs in each, and origins in which it says nothing."""


def find_paths(block: Block, _: ScanContext) -> Iterator[Match]:
    """Find absolute paths, file URLs and home folders."""
    binary = block.origin is Origin.BYTES
    for expression, kind, literal in _SURE_PATHS if binary else _PATHS:
        if literal in block.lowered:
            for found in expression.finditer(block.text):
                yield _match(Rule.ABSOLUTE_PATH, kind, found)
    if binary:
        return
    if "~" in block.text or "$" in block.text or "%" in block.text:
        for found in _HOME.finditer(block.text):
            yield _match(Rule.ABSOLUTE_PATH, "path in a home folder", found)
    if block.origin is Origin.VALUE:
        yield from _whole_values(block)


def find_addresses(block: Block, _: ScanContext) -> Iterator[Match]:
    """Find buckets, internal host names, private and loopback addresses."""
    for expression, kind, literals, elsewhere in _HOSTS:
        if block.origin not in elsewhere and any(literal in block.lowered for literal in literals.split()):
            for found in expression.finditer(block.text):
                yield _match(Rule.INTERNAL_ADDRESS, kind, found)
    if block.origin is not Origin.BYTES:
        yield from _addresses(block)


def _addresses(block: Block) -> Iterator[Match]:
    expressions = [_IPV4, _IPV6] if "::" in block.text or "fe80:" in block.lowered else [_IPV4]
    for found in (found for expression in expressions for found in expression.finditer(block.text)):
        if _is_internal(found[0]):
            yield _match(Rule.INTERNAL_ADDRESS, "private, link-local or loopback address", found)


def _whole_values(block: Block) -> Iterator[Match]:
    """Find values of JSON that are nothing but a path, whatever its first folder."""
    start = 0
    for piece in block.pieces:
        text = piece.text
        if text.startswith("/") and _WHOLE_POSIX.fullmatch(text) and not _POSIX.match(text):
            yield _said(Rule.ABSOLUTE_PATH, "absolute path", text, start)
        elif text.startswith("~/") and _OWN_HOME.match(text):
            yield _said(Rule.ABSOLUTE_PATH, "path in a home folder", text, start)
        start += len(text) + 1


def _is_internal(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_loopback or address.is_link_local or address in _UNIQUE_LOCAL
    documented = any(address in network for network in _DOCUMENTATION)
    return address.is_private and not documented and not address.is_unspecified


def _match(rule: Rule, kind: str, found: re.Match[str]) -> Match:
    return _said(rule, kind, found[0], found.start())


def _said(rule: Rule, kind: str, text: str, start: int) -> Match:
    return Match(rule=rule, start=start, detail=f"{kind} (sha256 {digest_of(text)}); take it out")
